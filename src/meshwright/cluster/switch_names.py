"""Names of hosts and switches: short ones, and those that follow from numbers, made when asked for."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

_MANAGED = re.compile(r"MF0;(?P<name>[^:;]+):[^:;/]+/U[0-9]+\Z")


def short_name(name: str) -> str:
    """Return what people call a managed switch: ``LEAF-1`` of ``MF0;LEAF-1:MQM9700/U1``."""
    match = _MANAGED.match(name)
    return match["name"] if match else name


class MadeNames(Sequence[str]):
    """A sequence of names that keeps none; a subclass says how many there are and makes each."""

    @abstractmethod
    def name(self, index: int) -> str:
        """Return the name at an index from 0 to the length less 1."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self.name(i) for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return self.name(place)


class TierNames(MadeNames):
    """``leaf-u0-r0`` (unit and rail), ``spine-p0-0`` (pod), ``core-0``."""

    def __init__(
        self, leaves: int, rails: int, spines: int, spines_per_pod: int, cores: int
    ) -> None:
        self._leaves = leaves
        self._rails = rails
        self._spines = spines
        self._spines_per_pod = max(spines_per_pod, 1)
        self._cores = cores

    def __len__(self) -> int:
        return self._leaves + self._spines + self._cores

    def name(self, index: int) -> str:
        """See ``MadeNames.name``."""
        if index < self._leaves:
            unit, rail = divmod(index, self._rails)
            return f"leaf-u{unit}-r{rail}"
        index -= self._leaves
        if index < self._spines:
            pod, spine = divmod(index, self._spines_per_pod)
            return f"spine-p{pod}-{spine}"
        return f"core-{index - self._spines}"


class PlaneNames(MadeNames):
    """Names of one plane with the plane behind: ``leaf-u0-r0-plane1``; plane fastest."""

    def __init__(self, one_plane: Sequence[str], planes: int) -> None:
        self._one_plane = one_plane
        self._planes = planes

    def __len__(self) -> int:
        return len(self._one_plane) * self._planes

    def name(self, index: int) -> str:
        """See ``MadeNames.name``."""
        switch, plane = divmod(index, self._planes)
        return f"{self._one_plane[switch]}-plane{plane}"


class NumberedNames(MadeNames):
    """``host0`` … ``host{n-1}``."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._count = count

    def __len__(self) -> int:
        return self._count

    def name(self, index: int) -> str:
        """See ``MadeNames.name``."""
        return f"{self._prefix}{index}"
