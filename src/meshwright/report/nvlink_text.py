"""NVLink (or xGMI) and peer access of one host in a few words.

Links go through a switch, or pair by pair, or are only counted by GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

from meshwright.cluster.facts import Facts, Gpu, NvlinkPair
from meshwright.cluster.nvlink_shape import NvlinkShape, nvlink_shape, pair_counts
from meshwright.cluster.vendor import Maker, maker_of
from meshwright.units import format_rate

_PAIRS = 8
"""Pairs named, of those that a peer access code has."""


def ranges(names: Iterable[str]) -> str:
    """Return ``NIC0-3, NIC7`` for names of one stem with numbers, in their order."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        stem = name.rstrip("0123456789")
        number = int(name[len(stem) :] or -1)
        if runs and number >= 0 and runs[-1][0] == stem and runs[-1][2] + 1 == number:
            runs[-1] = (stem, runs[-1][1], number)
        else:
            runs.append((stem, number, number))
    texts = []
    for stem, first, last in runs:
        end = "" if first == last else f"-{last}"
        texts.append(f"{stem}{first if first >= 0 else ''}{end}")
    return ", ".join(texts)


def nvlink_text(facts: Facts) -> str:
    """Return the line on direct links between GPUs; empty where the source says nothing."""
    pairs = facts.nvlink_pairs
    name = maker_of(facts).link
    if pairs is None:
        return _counted_links(facts)
    if not pairs:
        return f"{name}: none"
    switched: list[str] = []
    direct: list[NvlinkPair] = []
    for part in _joined_sets(pairs):
        shape = _shape(facts, part)
        if shape is None:
            direct += part
        else:
            switched += _links_into_switch(shape)
    parts = []
    if switched:
        through = f"through {len(facts.nvswitches)} NVSwitches" if facts.nvswitches else "switch"
        parts.append(f"{name} {through}: {'; '.join(switched)}")
    if direct:
        parts.append(_mesh(facts, direct, name))
    joined = {gpu for pair in pairs for gpu in (pair.a, pair.b)}
    outside = [f"GPU{gpu.index}" for gpu in facts.gpus or () if gpu.index not in joined]
    if outside:
        parts.append(f"{name}: not joined: {ranges(outside)}")
    return "\n".join(parts)


def _joined_sets(pairs: Sequence[NvlinkPair]) -> list[list[NvlinkPair]]:
    """Return the pairs by connected set of GPUs, in the order of the sets' first GPUs."""
    root: dict[int, int] = {}

    def find(gpu: int) -> int:
        while root.setdefault(gpu, gpu) != gpu:
            root[gpu] = root[root[gpu]]
            gpu = root[gpu]
        return gpu

    for pair in pairs:
        low, high = sorted((find(pair.a), find(pair.b)))
        root[high] = low
    sets: dict[int, list[NvlinkPair]] = {}
    for pair in pairs:
        sets.setdefault(find(pair.a), []).append(pair)
    return [sets[gpu] for gpu in sorted(sets)]


def _shape(facts: Facts, pairs: Sequence[NvlinkPair]) -> NvlinkShape | None:
    """Return how a set is joined through a switch; ``None`` where its links are direct."""
    if all(pair.via_switch is False for pair in pairs):
        return None
    shown = bool(facts.nvswitches) or any(pair.via_switch for pair in pairs)
    shape = nvlink_shape(pair_counts(pairs), None, via_switch=shown)
    return shape if shape.is_switch else None


def _links_into_switch(shape: NvlinkShape) -> list[str]:
    """Return GPUs by how many links each has into the switch."""
    by_links: dict[int, list[str]] = {}
    for gpu in shape.joined:
        by_links.setdefault(shape.links[gpu], []).append(f"GPU{gpu}")
    return [f"{ranges(gpus)}, {links} links each" for links, gpus in by_links.items()]


def _mesh(facts: Facts, pairs: Sequence[NvlinkPair], name: str) -> str:
    """Return direct links: one sentence where all pairs have them alike, else each GPU's peers."""
    gpus = [gpu.index for gpu in facts.gpus or ()]
    counts = {pair.count for pair in pairs}
    if len(pairs) == math.comb(len(gpus), 2) and len(counts) == 1:
        names = ranges(f"GPU{gpu}" for gpu in gpus)
        return f"{name} directly between all of {names}, links a pair: {counts.pop()}"
    peers: dict[int, dict[int, list[int]]] = {}
    for pair in pairs:
        for a, b in ((pair.a, pair.b), (pair.b, pair.a)):
            peers.setdefault(a, {}).setdefault(pair.count, []).append(b)
    lines = [f"{name}, direct links between pairs (links x peers):"]
    for gpu, found in sorted(peers.items()):
        parts = [
            f"{count} x {ranges(f'GPU{peer}' for peer in sorted(others))}"
            for count, others in sorted(found.items(), reverse=True)
        ]
        lines.append(f"  GPU{gpu}: {'; '.join(parts)}")
    return "\n".join(lines)


def _counted_links(facts: Facts) -> str:
    """Return GPUs by how many links each lists up and down, where a source only counts them."""
    alike: dict[str, list[str]] = {}
    for gpu in facts.gpus or ():
        if gpu.nvlinks is not None or gpu.nvlinks_down is not None:
            alike.setdefault(_own_links(gpu, maker_of(facts)), []).append(f"GPU{gpu.index}")
    return "\n".join(f"{ranges(gpus)}{links}" for links, gpus in alike.items())


def _own_links(gpu: Gpu, maker: Maker) -> str:
    """Return model, links up and down, and their rate: the figure of the tool is the lanes' own."""
    model = f" {gpu.model}" if gpu.model else ""
    up = f"{maker.links(gpu.nvlinks)} up" if gpu.nvlinks is not None else f"{maker.link}"
    down = "how many are down is unknown"
    if gpu.nvlinks_down is not None:
        down = f"{gpu.nvlinks_down} down"
    rate = gpu.nvlink_raw_bytes_per_s
    if rate is None or not gpu.nvlinks:
        return f"{model}: {up}, {down}"
    return (
        f"{model}: {up}, {down}\n"
        f"  {format_rate(rate)} a link and direction, {format_rate(rate * gpu.nvlinks)} together (raw rates)"
    )


def peer_access_text(facts: Facts) -> str:
    """Return how many pairs have which peer access code; empty where no source gives them."""
    codes = facts.peer_access
    if codes is None or len(codes) < 2:
        return ""
    names = [f"GPU{gpu.index}" for gpu in facts.gpus or ()]
    by_code: dict[str, list[str]] = {}
    for a, b in combinations(range(len(codes)), 2):
        both = codes[a][b] if codes[a][b] == codes[b][a] else f"{codes[a][b]}/{codes[b][a]}"
        by_code.setdefault(both, []).append(f"{names[a]}-{names[b]}")
    total = math.comb(len(codes), 2)
    if len(by_code) == 1:
        code = next(iter(by_code))
        every = " and ".join(names) if total == 1 else f"all {total} pairs of {ranges(names)}"
        return f"Peer access: {code} between {every}"
    lines = ["Peer access, pairs by code:"]
    for code, pairs in sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0])):
        named = ""
        if len(pairs) * 2 <= total:
            more = f" and {len(pairs) - _PAIRS} more" if len(pairs) > _PAIRS else ""
            named = f": {', '.join(pairs[:_PAIRS])}{more}"
        lines.append(f"  {code}  {len(pairs)} of {total}{named}")
    return "\n".join(lines)
