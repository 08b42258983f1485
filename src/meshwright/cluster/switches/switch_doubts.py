"""Misplaced host cables of which the cables alone do not tell which they are, as findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.switch_names import short_name
from meshwright.cluster.switches.switch_swaps import RULE, Misplaced, numbers_of, port_words
from meshwright.findings import Finding, Place, Severity


class Doubt(msgspec.Struct, frozen=True):
    """One fault and the ways to explain it: the cables that are misplaced by each of them."""

    ways: tuple[tuple[Misplaced, ...], ...]
    """Two or more; the first is taken for the right one."""
    by_names: bool
    """True where the names of the hosts beside bear out the first."""

    def hosts(self) -> set[str]:
        """Return the hosts concerned."""
        return {move.plug.host for way in self.ways for move in way}


class DoubtFinder:
    """Makes findings of doubts; ``names`` has each switch's name by its id."""

    def __init__(self, path: str, names: Mapping[str, str]) -> None:
        self._path = path
        self._names = names

    def finding(self, doubt: Doubt) -> Finding:
        """Return one finding that names the cables of every explanation."""
        first, *others = [self._words(way) for way in doubt.ways]
        what = _what(doubt.ways[0])
        if doubt.by_names:
            message = (
                f"{what}: {first}, by {_whose(doubt.ways[0])} (by the cables alone it may as well be "
                f"that {', or that '.join(others)})"
            )
        else:
            message = (
                f"{what}: either {first}; or {'; or '.join(others)}; the cables do not say which"
            )
        numbers = {**numbers_of(doubt.ways[0], self._names), "by_names": doubt.by_names}
        numbers["alternatives"] = [
            {key: value for key, value in numbers_of(way, self._names).items() if key != "host"}
            for way in doubt.ways[1:]
        ]
        place = Place(self._path, subject=self._at(doubt.ways[0][0]))
        return Finding(RULE, Severity.WARNING, place, message, numbers, self._remedy(doubt))

    def _remedy(self, doubt: Doubt) -> str:
        swap = "exchange the cables at" if _is_exchange(doubt.ways[0]) else "move the cable at"
        ways = [f"{swap} {' and '.join(map(self._at, way[:8]))}" for way in doubt.ways]
        if doubt.by_names:
            return f"look where {_hosts(doubt.ways[0])} stand, then {ways[0]}, and list the fabric again"
        return (
            f"{', or '.join(ways)} (each makes these units regular: look where the hosts stand, and whether the "
            "leaves are meant so), and list the fabric again"
        )

    def _words(self, way: Sequence[Misplaced]) -> str:
        return ", and ".join(
            f"host {move.plug.host} {move.plug.name}{port_words(move.plug.port)} on {self._at(move)} "
            f"belongs on {short_name(self._names[move.right])}"
            for move in way
        )

    def _at(self, move: Misplaced) -> str:
        return f"{short_name(self._names[move.plug.leaf])}{port_words(move.plug.leaf_port)}"


def _what(way: Sequence[Misplaced]) -> str:
    if len(way) == 1:
        return "a cable is on a wrong leaf"
    if _is_exchange(way):
        return "two cables are swapped" if len(way) == 2 else f"{len(way)} cables are swapped"
    return f"{len(way)} cables are on wrong leaves"


def _is_exchange(way: Sequence[Misplaced]) -> bool:
    """Tell whether each cable hangs where another one belongs."""
    return sorted(move.plug.leaf for move in way) == sorted(move.right for move in way)


def _hosts(way: Sequence[Misplaced]) -> str:
    return " and ".join(dict.fromkeys(move.plug.host for move in way))


def _whose(way: Sequence[Misplaced]) -> str:
    return "the host's name" if len({move.plug.host for move in way}) == 1 else "the hosts' names"
