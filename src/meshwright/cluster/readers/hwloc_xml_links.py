"""hwloc XML, third step: NVLink and XGMI from the bandwidth matrices.

``distances2`` and ``distances2hetero`` named ``NVLinkBandwidth`` or ``XGMIBandwidth``: rows and
columns are objects by ``gp_index``, values are MB/s in one direction, row after row over many
``u64values`` elements; the diagonal means nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import msgspec

from meshwright.cluster.facts import Gpu, NvlinkPair
from meshwright.cluster.readers.hwloc_xml_devices import Gpus
from meshwright.cluster.readers.hwloc_xml_tree import Tree, bad_element, integer
from meshwright.cluster.readers.safe_xml import Element

_TAGS = ("distances2", "distances2hetero")
_NVLINK, _XGMI = "NVLinkBandwidth", "XGMIBandwidth"
_MAX_OBJECTS = 256
_MAX_DIGITS = 18
_INDEX = re.compile(r"(?:[A-Za-z0-9]{1,32}:)?([0-9]{1,18})\Z")
_LINK_MB_PER_S = (25_000, 20_000)
"""What hwloc enters for one link: 25000 from NVLink 2 on, 20000 before (``topology-nvml.c``)."""

_End = tuple[str, int]
"""``gpu`` and its position, ``switch`` and its PCI device, or ``cpu`` and its ``gp_index``."""


class Matrix(msgspec.Struct):
    """One bandwidth matrix: positive cells between different ends."""

    name: str
    element: Element
    cells: dict[tuple[_End, _End], int] = msgspec.field(default_factory=dict)
    unknown: list[str] = msgspec.field(default_factory=list)
    """Indexes of objects that the file does not hold."""
    link_mb_per_s: int | None = None
    """Bandwidth of one link; ``None``: a cell counts as one link."""

    def between(self, a: _End, b: _End) -> int:
        """Return the higher of the two cells of a pair."""
        return max(self.cells.get((a, b), 0), self.cells.get((b, a), 0))

    def links(self, value: int) -> int:
        """Return how many links a cell stands for."""
        return value // self.link_mb_per_s if self.link_mb_per_s else 1


def read_matrices(root: Element, tree: Tree, gpus: Gpus) -> list[Matrix]:
    """Return the NVLink and XGMI matrices of a file.

    Raises ``InputError`` when indexes or values are no numbers, or not as many as announced.
    """
    end_of_gp: dict[int, _End] = {gp: ("cpu", gp) for gp in tree.cpu_gps}
    end_of_gp |= {gp: ("switch", number) for gp, number in tree.pci_of_gp.items()}
    position = {unit.pci: at for at, unit in enumerate(gpus.units) if unit.pci is not None}
    loose = {id(one): at for at, unit in enumerate(gpus.units) for one in unit.osdevs}
    for gp, number in tree.pci_of_gp.items():
        if number in position:
            end_of_gp[gp] = ("gpu", position[number])
    for gp, number in tree.osdev_of_gp.items():
        if id(tree.osdevs[number]) in loose:
            end_of_gp[gp] = ("gpu", loose[id(tree.osdevs[number])])
    return [
        _matrix(element, tree.path, end_of_gp)
        for element in root.children
        if element.tag in _TAGS and element.attributes.get("name") in (_NVLINK, _XGMI)
    ]


def _matrix(element: Element, path: str, end_of_gp: dict[int, _End]) -> Matrix:
    size = integer(element, "nbobjs", path)
    if size is None or not 0 < size <= _MAX_OBJECTS:
        raise bad_element(element, path, f"nbobjs must be a number from 1 to {_MAX_OBJECTS}")
    indexes = _words(element, "indexes", size, path)
    values = _words(element, "u64values", size * size, path)
    matrix = Matrix(element.attributes["name"], element)
    ends: list[_End | None] = []
    for index in indexes:
        match = _INDEX.match(index)
        if match is None:
            raise bad_element(element, path, f"index {index[:40]!r} is no gp_index")
        ends.append(end_of_gp.get(int(match[1])))
        if ends[-1] is None:
            matrix.unknown.append(index)
    for place, text in enumerate(values):
        if not text.isdecimal() or len(text) > _MAX_DIGITS:
            raise bad_element(element, path, f"value {text[:40]!r} is no number")
        value = int(text)
        row, column = ends[place // size], ends[place % size]
        if value and row is not None and column is not None and row != column:
            matrix.cells[row, column] = max(value, matrix.cells.get((row, column), 0))
    if matrix.name == _NVLINK:
        divides = (one for one in _LINK_MB_PER_S if not any(v % one for v in matrix.cells.values()))
        matrix.link_mb_per_s = next(divides, None)
    return matrix


def _words(element: Element, tag: str, expected: int, path: str) -> list[str]:
    words: list[str] = []
    for child in element.children:
        if child.tag == tag:
            words += child.text.split()
        if len(words) > expected:
            break
    if len(words) != expected:
        some = f"more than {expected}" if len(words) > expected else f"{len(words)}"
        raise bad_element(element, path, f"{tag} hold {some} numbers, not {expected}")
    return words


def pairs_of(matrix: Matrix, gpus: tuple[Gpu, ...]) -> tuple[NvlinkPair, ...]:
    """Return the pairs of GPUs that a matrix relates, directly or through the same switches.

    Through switches the count is, over all groups of joined switches, the smaller of the two
    GPUs' links into the group, shared by all their peers.
    """
    pairs: dict[tuple[int, int], NvlinkPair] = {}
    into: dict[int, Counter[int]] = defaultdict(Counter)
    group_of = switch_groups(matrix)
    for row, column in matrix.cells:
        if row[0] == "gpu" and column[0] == "switch":
            into[row[1]][group_of[column[1]]] += matrix.links(matrix.between(row, column))
        elif row[0] == "switch" and column[0] == "gpu" and (column, row) not in matrix.cells:
            into[column[1]][group_of[row[1]]] += matrix.links(matrix.between(row, column))
    on_switch = sorted(into)
    for at, one in enumerate(on_switch):
        for other in on_switch[at + 1 :]:
            count = sum((into[one] & into[other]).values())
            if count:
                a, b = sorted((gpus[one].index, gpus[other].index))
                pairs[a, b] = NvlinkPair(a, b, count, via_switch=True)
    for row, column in matrix.cells:
        if row[0] == column[0] == "gpu":
            a, b = sorted((gpus[row[1]].index, gpus[column[1]].index))
            count = matrix.links(matrix.between(row, column))
            both = (column, row) in matrix.cells
            pairs[a, b] = NvlinkPair(a, b, count, via_switch=False, both_ways=both)
    return tuple(pairs[key] for key in sorted(pairs))


def switch_groups(matrix: Matrix) -> dict[int, int]:
    """Return for each switch the lowest one that it reaches through links between switches."""
    edges = [(row[1], column[1]) for row, column in matrix.cells if row[0] == column[0] == "switch"]
    switches = {end[1] for cell in matrix.cells for end in cell if end[0] == "switch"}
    return _components(switches, edges)


def planes(matrix: Matrix) -> list[tuple[list[int], list[int]]]:
    """Return the parts of the switched fabric that no cell joins: (GPU positions, PCI devices)."""
    edges = [
        (_node(row), _node(column))
        for row, column in matrix.cells
        if "switch" in (row[0], column[0]) and "cpu" not in (row[0], column[0])
    ]
    label = _components({node for edge in edges for node in edge}, edges)
    parts: dict[int, tuple[list[int], list[int]]] = {}
    for node in sorted(label):
        part = parts.setdefault(label[node], ([], []))
        part[node % 2].append(node // 2)
    return [part for part in parts.values() if part[0]]


def _node(end: _End) -> int:
    """Return one number for a GPU (even) or a switch (odd)."""
    return 2 * end[1] + (end[0] == "switch")


def _components(nodes: set[int], edges: list[tuple[int, int]]) -> dict[int, int]:
    """Return for each node the lowest node of its connected component."""
    beside: dict[int, list[int]] = {node: [] for node in nodes}
    for a, b in edges:
        beside[a].append(b)
        beside[b].append(a)
    label: dict[int, int] = {}
    for start in sorted(nodes):
        reached = [] if start in label else [start]
        while reached:
            node = reached.pop()
            if node not in label:
                label[node] = start
                reached += beside[node]
    return label


def link_totals(matrix: Matrix) -> Counter[int]:
    """Return for each GPU position how many links it has in all."""
    totals: Counter[int] = Counter()
    for row, column in {tuple(sorted(cell)) for cell in matrix.cells}:
        for end in (row, column):
            if end[0] == "gpu":
                totals[end[1]] += matrix.links(matrix.between(row, column))
    return totals
