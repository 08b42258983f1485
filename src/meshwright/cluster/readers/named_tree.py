"""A scheduler's switches and blocks gathered from any file, with the checks of ``topology.conf``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from meshwright.cluster import hostlist
from meshwright.cluster.facts import Block, Switch, TreeSwitch
from meshwright.cluster.readers.document_values import is_null, items, text_of
from meshwright.cluster.readers.host_places_findings import leaf_only_tree, warn
from meshwright.cluster.readers.slurm_topology_conf_checks import check_definitions
from meshwright.cluster.readers.slurm_topology_conf_definitions import MAX_NAMES, Definitions
from meshwright.cluster.readers.slurm_topology_conf_lines import Line
from meshwright.documents import Node, SequenceNode
from meshwright.errors import InputError
from meshwright.findings import Finding, Place


class Hostlists(hostlist.Hostlists):
    """Writes hostlists out; all of one file together stand for at most ``MAX_NAMES`` names."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(MAX_NAMES)

    def of_node(self, node: Node | None, what: str) -> list[str]:
        """Return the names of a hostlist or a list of them; raises ``InputError`` with its place."""
        if node is None or is_null(node):
            return []
        parts = items(node, what) if isinstance(node, SequenceNode) else (node,)
        names: list[str] = []
        for part in parts:
            try:
                names += self.expand(text_of(part, what, node))
            except ValueError as error:
                remedy = "write a hostlist such as node[01-16,20]"
                raise InputError(part.problem(f"{what}: {error}", remedy=remedy)) from None
        return names


def line_of(node: Node) -> Line:
    """Return the place of a node as a line, for what ``topology.conf`` says of its own lines."""
    text = node.source.excerpt(node.at) or ""
    return Line(text, [(1 - node.column, node.line)], None)


def check_tree(
    path: str,
    switches: Sequence[tuple[TreeSwitch, Line]],
    blocks: Sequence[tuple[Block, Line]] = (),
) -> tuple[Finding, ...]:
    """Return what is odd about a tree and blocks.

    Raises ``InputError`` for a second definition of a name and a switch that is its own ancestor.
    """
    definitions = Definitions(path)
    for switch, line in switches:
        _define(definitions, f"switch {switch.name}", line)
        definitions.switches[switch.name] = switch
    for block, line in blocks:
        _define(definitions, f"block {block.name}", line)
        definitions.blocks[block.name] = block
    findings = (*check_definitions(definitions), *_mixed(path, switches))
    leaf_only = leaf_only_tree([switch for switch, _ in switches], path)
    if leaf_only is None:
        return findings
    # That leaves have no common root is the same news, said worse.
    others = (finding for finding in findings if finding.rule != "topology/no-common-root")
    return (*others, leaf_only)


def named_switches(tree: Iterable[TreeSwitch]) -> tuple[Switch, ...]:
    """Return every switch that is defined or named as a child, once."""
    names: dict[str, None] = {}
    for switch in tree:
        names.update(dict.fromkeys((switch.name, *switch.switches)))
    return tuple(Switch(name, name) for name in names)


def _mixed(path: str, switches: Sequence[tuple[TreeSwitch, Line]]) -> Iterator[Finding]:
    for switch, line in switches:
        if switch.switches and switch.hosts:
            message = (
                f"switch {switch.name} has both child switches and {len(switch.hosts)} hosts that "
                "no leaf below it names"
            )
            place = Place(path, *line.place(0), switch.name)
            yield warn("topology/switch-mixed", place, message, switch.hosts)


def _define(definitions: Definitions, key: str, line: Line) -> None:
    first = definitions.line_of.setdefault(key, line)
    if first is not line:
        message = f"the {key!r} was already defined in line {first.place(0)[0]}"
        raise line.error(definitions.path, 0, message, "keep one of the two")
