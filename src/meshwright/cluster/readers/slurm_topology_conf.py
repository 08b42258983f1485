"""Slurm ``topology.conf``: the switches, blocks and hosts of the tree, block and ring plugins."""

from __future__ import annotations

import re

from meshwright.cluster.facts import Facts, Switch
from meshwright.cluster.readers.slurm_topology_conf_checks import check_definitions
from meshwright.cluster.readers.slurm_topology_conf_definitions import Definitions
from meshwright.cluster.readers.slurm_topology_conf_lines import logical_lines
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place

FORMAT = "slurm_topology_conf"

_LOOKS = re.compile(r"^[ \t]*(?:SwitchName|BlockName|BlockSizes|RingName)[ \t]*=", re.I | re.M)
_SCONTROL = re.compile(
    r"^[ \t]*(?:Switch|Block)Name=[^\n]*[ \t](?:Level|Block(?:Index|Size))=", re.M
)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def looks_like(text: str) -> bool:
    """Tell by content whether the text is a ``topology.conf`` (``scontrol`` output is not)."""
    return _LOOKS.search(text) is not None and _SCONTROL.search(text) is None


def read(text: str, path: str) -> Facts:
    """Return the tree, the blocks and the hosts of a ``topology.conf``.

    ``tree`` and ``switches`` are ``None`` without a ``SwitchName`` line, ``blocks`` without a
    ``BlockName`` line; ``switches`` also holds children that no line defines.

    Raises ``InputError`` for a line that cannot be read, a hostlist that is none, a switch or
    block defined twice, a switch that is its own ancestor, and a file without any definition.
    """
    bad = _CONTROL.search(text)
    if bad is not None:
        line = text.count("\n", 0, bad.start()) + 1
        column = bad.start() - text.rfind("\n", 0, bad.start())
        raise InputError(Problem(Place(path, line, column), "the file holds binary data"))
    definitions = Definitions(path)
    for logical in logical_lines(text, path):
        definitions.take(logical)
    if not (definitions.switches or definitions.blocks or definitions.has_ring):
        message = "the file defines no switch and no block: it is empty or cut off"
        raise InputError(Problem(Place(path, 1, 1), message))
    return _facts(definitions, check_definitions(definitions))


def _facts(definitions: Definitions, odd: tuple[Finding, ...]) -> Facts:
    tree = tuple(definitions.switches.values())
    blocks = tuple(definitions.blocks.values())
    names = dict.fromkeys((*definitions.switches, *(x for switch in tree for x in switch.switches)))
    hosts: dict[str, None] = {}
    for switch in tree:
        hosts.update(dict.fromkeys(switch.hosts))
    for block in blocks:
        hosts.update(dict.fromkeys(block.hosts))
    hosts.update(dict.fromkeys(definitions.ring_hosts))
    return Facts(
        format=FORMAT,
        path=definitions.path,
        hosts=tuple(hosts),
        switches=tuple(Switch(name, name) for name in names) if tree else None,
        tree=tree or None,
        blocks=blocks or None,
        block_sizes=tuple(definitions.block_sizes) or None,
        findings=(*definitions.findings, *odd),
    )
