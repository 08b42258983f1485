"""Which unit a host belongs to by its name alone, where the units' hosts follow one another by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

_DIGITS = re.compile(r"([0-9]{1,18})")

NaturalKey = tuple[tuple[str, int], ...]


def natural(name: str) -> NaturalKey:
    """Return a sort key by which ``n9`` stands before ``n10``."""
    parts = _DIGITS.split(name)
    numbers = [*(int(part) for part in parts[1::2]), -1]
    return tuple(zip(parts[::2], numbers, strict=True))


class NameOrder:
    """Hosts in the natural order of their names, with the unit of those whose unit is known."""

    def __init__(self, unit_of_host: Mapping[str, int], open_hosts: Iterable[str]) -> None:
        self._units = unit_of_host
        keyed = sorted((natural(host), host) for host in (*unit_of_host, *open_hosts))
        self._keys = {host: key for key, host in keyed}
        self._order = [host for _, host in keyed]
        self._position = {host: index for index, host in enumerate(self._order)}
        self.units_follow = self._units_follow()
        """Whether the hosts of a unit follow one another, in nearly all units."""

    def _units_follow(self) -> bool:
        units = [self._units[host] for host in self._order if host in self._units]
        breaks = sum(one != other for one, other in pairwise(units))
        return breaks <= (len(set(units)) - 1) * 5 // 4

    def best(self, ways: Sequence[Mapping[str, int]]) -> int | None:
        """Return which of several ways to give hosts a unit their names bear out; ``None``: none.

        A neighbour by name counts the more, the more of the name is the same.
        """
        if not self.units_follow:
            return None
        scores = [sum(self._near(host, unit) for host, unit in way.items()) for way in ways]
        most = max(scores)
        return scores.index(most) if scores.count(most) == 1 else None

    def open_runs(self) -> list[list[str]]:
        """Return the hosts of no known unit that follow one another without a known one between."""
        runs: list[list[str]] = [[]]
        for host in self._order:
            if host in self._units:
                runs.append([])
            else:
                runs[-1].append(host)
        return [run for run in runs if run]

    def _near(self, host: str, unit: int) -> int:
        at = self._position[host]
        beside = (self._order[i] for i in (at - 1, at + 1) if 0 <= i < len(self._order))
        return sum(self._alike(host, other) for other in beside if self._units.get(other) == unit)

    def _alike(self, host: str, other: str) -> int:
        count = 1
        for one, its in zip(self._keys[host], self._keys[other], strict=False):
            if one != its:
                break
            count += 1
        return count
