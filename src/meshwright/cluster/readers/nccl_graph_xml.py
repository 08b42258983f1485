"""NCCL graph XML (``NCCL_GRAPH_FILE``, ``NCCL_GRAPH_DUMP_FILE``): the channels NCCL chose.

``graphs > graph > channel > (net | gpu)*``, NVIDIA/nccl ``src/graph/search.cc``. It is evidence of
what one job used, not a list of hardware: what no channel uses is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from meshwright.cluster.facts import Facts, Gpu, Nic
from meshwright.cluster.readers.safe_xml import Element, parse_xml
from meshwright.cluster.readers.xml_root import root_tag
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Number, Severity
from meshwright.units import gb_per_s

FORMAT = "nccl_graph_xml"
_MAX_GRAPHS = 64
_MAX_DEV = 1 << 20
_PATTERNS = {
    1: "balanced tree",
    2: "split tree",
    3: "tree",
    4: "ring",
    5: "nvls",
    6: "collnet direct",
}
"""``NCCL_TOPO_PATTERN_*`` of ``src/include/graph.h``."""


def looks_like(text: str) -> bool:
    """Tell whether the text is an NCCL graph file: its root element is ``graphs``."""
    return root_tag(text) == "graphs"


def read(text: str, path: str) -> Facts:
    """Return the GPUs and NICs that the channels name, by their ``dev`` numbers.

    ``counts`` holds the numbers of graphs and channels; the note ``topology/graph-channels`` holds
    each graph's pattern, classes and rates (bytes per second, one direction).

    Raises
    ------
    InputError
        The text is no well-formed graph file, or a number in it is none.
    """
    root = parse_xml(text, path)
    if root.tag != "graphs":
        raise _bad(root, path, f"the root element is {root.tag}, not graphs")
    graphs = [element for element in root.children if element.tag == "graph"]
    if not graphs:
        raise _bad(root, path, "graphs holds no graph element")
    if len(graphs) > _MAX_GRAPHS:
        raise _bad(graphs[_MAX_GRAPHS], path, f"more than {_MAX_GRAPHS} graph elements")
    channels = [channel for graph in graphs for channel in _named(graph.children, "channel")]
    gpus = _devices(channels, "gpu", path)
    nets = _devices(channels, "net", path)
    hosts = tuple(dict.fromkeys(host for host, _ in (*gpus, *nets) if host is not None))
    several = len(hosts) > 1
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(
            Gpu(
                at if several else dev, _name(host, dev, several=several), host if several else None
            )
            for at, (host, dev) in enumerate(gpus)
        )
        or None,
        nics=tuple(
            Nic(at, _name(host, dev, several=several), host=host if several else None)
            for at, (host, dev) in enumerate(nets)
        )
        or None,
        hosts=hosts if several else None,
        counts={"graphs": len(graphs), "channels": len(channels)},
        findings=(_chosen(graphs, path), *_count_differs(graphs, path)),
    )


def _named(elements: Iterable[Element], tag: str) -> list[Element]:
    return [element for element in elements if element.tag == tag]


def _name(host: str | None, dev: int, *, several: bool) -> str:
    return f"{host}/{dev}" if several else str(dev)


def _devices(channels: Sequence[Element], tag: str, path: str) -> list[tuple[str | None, int]]:
    """Return the distinct (``host_hash``, ``dev``) of one sort of element, sorted."""
    found: set[tuple[str | None, int]] = set()
    for channel in channels:
        for element in _named(channel.children, tag):
            dev = _integer(element, "dev", path)
            if dev is None or not 0 <= dev <= _MAX_DEV:
                raise _bad(element, path, f"dev of {tag} must be a number from 0 to {_MAX_DEV}")
            found.add((element.attributes.get("host_hash") or None, dev))
    return sorted(found, key=lambda one: (one[0] or "", one[1]))


def _chosen(graphs: Sequence[Element], path: str) -> Finding:
    described: list[Number] = [_describe(graph, path) for graph in graphs]
    return Finding(
        rule="topology/graph-channels",
        severity=Severity.NOTE,
        place=graphs[0].place(path),
        message=f"{len(graphs)} graphs of channels that NCCL chose for one job: "
        "GPUs and NICs that no channel uses are not in this file",
        numbers={"graphs": described},
        remedy="give the topology too: NCCL_TOPO_DUMP_FILE",
    )


def _describe(graph: Element, path: str) -> dict[str, Number]:
    pattern = _integer(graph, "pattern", path)
    return {
        "id": _integer(graph, "id", path),
        "pattern": _PATTERNS.get(pattern, str(pattern)) if pattern is not None else None,
        "channels": len(_named(graph.children, "channel")),
        "intra_bytes_per_s": _rate(graph, "speedintra", path),
        "inter_bytes_per_s": _rate(graph, "speedinter", path),
        "intra_class": graph.attributes.get("typeintra"),
        "inter_class": graph.attributes.get("typeinter"),
    }


def _count_differs(graphs: Sequence[Element], path: str) -> Iterator[Finding]:
    for graph in graphs:
        stated = _integer(graph, "nchannels", path)
        listed = len(_named(graph.children, "channel"))
        if stated is not None and stated != listed:
            yield Finding(
                rule="topology/channel-count-differs",
                severity=Severity.WARNING,
                place=graph.place(path),
                message=f"nchannels is {stated} and {listed} channel elements follow",
                numbers={"stated": stated, "listed": listed},
            )


def _integer(element: Element, name: str, path: str) -> int | None:
    """Return an integer attribute, ``None`` when absent."""
    text = element.attributes.get(name)
    if text is None:
        return None
    try:
        value = int(text) if len(text) <= 18 else None
    except ValueError:
        value = None
    if value is None:
        raise _bad(element, path, f"{name}={text[:40]!r} of {element.tag} is no integer")
    return value


def _rate(element: Element, name: str, path: str) -> float | None:
    """Return a ``speed`` attribute (GB/s a channel) in bytes per second."""
    text = element.attributes.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1_000_000:
        raise _bad(element, path, f"{name}={text[:40]!r} of {element.tag} is no rate in GB/s")
    return gb_per_s(value)


def _bad(element: Element, path: str, message: str) -> InputError:
    remedy = "give the file that NCCL_GRAPH_DUMP_FILE writes"
    return InputError(Problem(element.place(path), message, remedy=remedy))
