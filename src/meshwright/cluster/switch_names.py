"""Names of the switches of a regular fabric, made when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class TierNames(Sequence[str]):
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

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if index < self._leaves:
            unit, rail = divmod(index, self._rails)
            return f"leaf-u{unit}-r{rail}"
        index -= self._leaves
        if index < self._spines:
            pod, spine = divmod(index, self._spines_per_pod)
            return f"spine-p{pod}-{spine}"
        return f"core-{index - self._spines}"


class NumberedNames(Sequence[str]):
    """``host0`` … ``host{n-1}``, made when asked for."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix = prefix
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not 0 <= index < self._count:
            raise IndexError(index)
        return f"{self._prefix}{index}"
