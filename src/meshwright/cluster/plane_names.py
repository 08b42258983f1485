"""Names of the switches of a fabric with several planes, made when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class PlaneNames(Sequence[str]):
    """Names of one plane with the plane behind: ``leaf-u0-r0-plane1``; plane fastest."""

    def __init__(self, one_plane: Sequence[str], planes: int) -> None:
        self._one_plane = one_plane
        self._planes = planes

    def __len__(self) -> int:
        return len(self._one_plane) * self._planes

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        switch, plane = divmod(index, self._planes)
        return f"{self._one_plane[switch]}-plane{plane}"
