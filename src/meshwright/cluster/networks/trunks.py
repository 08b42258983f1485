"""Cables between switches in one order and direction, for all who number them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from meshwright.cluster.facts import Cable, Facts

_UNKNOWN_LEVEL = 99
"""A switch without a way to any host stands above all others."""


def trunk_cables(facts: Facts, level_by_switch: Mapping[str, int]) -> list[Cable]:
    """Return the cables between switches, in the order of the file; ``a`` is the lower end.

    Where both ends have the same level, ``a`` is the end that the file names first.
    """
    known = {switch.id for switch in facts.switches or ()}
    return [
        _turned(cable)
        if _level(level_by_switch, cable.a) > _level(level_by_switch, cable.b)
        else cable
        for cable in facts.cables or ()
        if cable.a in known and cable.b in known
    ]


def _level(levels: Mapping[str, int], switch: str) -> int:
    return levels.get(switch, _UNKNOWN_LEVEL)


def _turned(cable: Cable) -> Cable:
    return msgspec.structs.replace(
        cable, a=cable.b, b=cable.a, a_port=cable.b_port, b_port=cable.a_port
    )
