"""One host drawn as text: CPUs, PCIe switches under them, GPUs and NICs at the ends, NVLink across.

The tree is the source's own where it shows one, else a guess from the matrix, and says so. Bridges
with one thing below them are folded into it, and NICs alike beside each other into one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from meshwright.cluster.facts import PATH_CLASSES, Facts, Gpu, Nic, PcieChain
from meshwright.cluster.join.host_devices import driver_numbers, is_numbered
from meshwright.cluster.nodes.pcie import guess_chains
from meshwright.report.nvlink_text import nvlink_text, peer_access_text, ranges
from meshwright.report.text import paragraph
from meshwright.units import format_rate

WIDTH = 100
_MAX_DEVICES = 256
_MAX_LINES = 120
_FOLD_FROM = 3
"""So many NICs alike beside each other become one line."""
_MAX_NAMES = 40
"""Characters of their names; beyond, only the first and the last are named."""


class _Branch(msgspec.Struct):
    """A CPU, a bridge or a device, with what is below it in the order found."""

    name: str
    rate_bytes_per_s: float | None = None
    """Of the link above it, one direction."""
    below: dict[str, _Branch] = {}
    device: Gpu | Nic | None = None


class _Line(msgspec.Struct, frozen=True):
    """A drawn thing: its text, and what is drawn below it."""

    text: str
    below: tuple[_Line, ...] = ()
    fold: tuple[str, str] | None = None
    """For a NIC: its short name, and what must be alike to share a line."""


def draw_node(facts: Facts) -> str:
    """Return the drawing of the one host that the facts describe.

    Empty where they describe several hosts, or relate no device to another.
    """
    facts = _numbered(facts)
    gpus, nics = facts.gpus or (), facts.nics or ()
    if not gpus or len({gpu.host for gpu in gpus}) > 1:
        return ""
    if len(gpus) + len(nics) > _MAX_DEVICES:
        return paragraph(f"{len(gpus)} GPUs and {len(nics)} NICs are too many to draw.")
    parts = [*_tree(facts)]
    parts += filter(None, (nvlink_text(facts), peer_access_text(facts)))
    return "\n".join(_fit(line) for part in parts for line in part.split("\n"))


def _numbered(facts: Facts) -> Facts:
    """Return the facts with the GPUs numbered as drivers do, where the source has its own order."""
    if is_numbered(facts):
        return facts
    gpus, numbers = facts.gpus or (), driver_numbers(facts)
    new = {gpu.index: numbers[at] for at, gpu in enumerate(gpus)}
    pairs = facts.nvlink_pairs
    if pairs is not None:
        pairs = tuple(
            msgspec.structs.replace(
                pair,
                a=min(new[pair.a], new[pair.b]),
                b=max(new[pair.a], new[pair.b]),
            )
            for pair in pairs
        )
    renumbered = tuple(msgspec.structs.replace(gpu, index=new[gpu.index]) for gpu in gpus)
    return msgspec.structs.replace(facts, gpus=renumbered, nvlink_pairs=pairs)


def _fit(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 2] + " …"


def _tree(facts: Facts) -> Iterator[str]:
    """Yield the title and the lines of the PCIe tree; nothing where no source tells of one."""
    chains = facts.pcie_chains
    guessed = chains is None
    if chains is None:
        if not _tells_of_paths(facts):
            return
        chains = guess_chains(facts)
    if not chains:
        return
    roots = _branches(facts, chains)
    title = "PCIe tree, rates one direction"
    if guessed:
        title = "PCIe tree guessed from the matrix (others print the same matrix)"
    lines = [title]
    for root in roots.values():
        drawn = _Line(_root_name(root, guessed=guessed), _drawn_below(root))
        lines.append(drawn.text)
        lines += _indented(drawn.below, "")
    if len(lines) > _MAX_LINES:
        lines = [*lines[:_MAX_LINES], f"… and {len(lines) - _MAX_LINES} more lines"]
    yield "\n".join(lines)
    apart = _without_chain(facts, chains)
    if apart:
        yield f"Place in the tree not given: {ranges(apart)}"


def _devices(facts: Facts) -> dict[str, Gpu | Nic]:
    """Return the devices by every name that chains call them."""
    found: dict[str, Gpu | Nic] = {}
    for gpu in facts.gpus or ():
        found[gpu.name] = gpu
        if facts.pcie_chains is None:
            found[f"gpu{gpu.index}"] = gpu
    for nic in facts.nics or ():
        found.setdefault(nic.name, nic)
    return found


def _branches(facts: Facts, chains: Sequence[PcieChain]) -> dict[str, _Branch]:
    """Return the CPUs with all that hangs below them."""
    devices = _devices(facts)
    roots: dict[str, _Branch] = {}
    for chain in chains:
        way = (*reversed(chain.nodes), chain.device)
        rates = (None, *reversed(chain.rates_bytes_per_s))
        level = roots
        for name, rate in zip(way, rates, strict=False):
            branch = level.setdefault(name, _Branch(name, rate))
            level = branch.below
        branch.device = devices.get(chain.device)
    return roots


def _tells_of_paths(facts: Facts) -> bool:
    """Tell whether a matrix says anything of PCIe: a path class, or the NUMA nodes of GPUs."""
    cells = {
        cell
        for rows in (facts.gpu_gpu_class, facts.gpu_nic_class)
        for row in rows or ()
        for cell in row
    }
    return not cells.isdisjoint(PATH_CLASSES) or (
        bool(cells) and any(gpu.numa for gpu in facts.gpus or ())
    )


def _root_name(root: _Branch, *, guessed: bool) -> str:
    """Return ``NUMA 1`` where all GPUs below are of one NUMA node, else the name of the CPU."""
    numa = {one.numa for one in _gpus_below(root)}
    if len(numa) == 1:
        (nodes,) = numa
        if nodes:
            return f"NUMA {','.join(map(str, nodes))}"
    # The numbers of guessed CPUs are those of devices.
    return "NUMA node not given" if guessed else root.name.replace("cpu", "CPU ")


def _gpus_below(branch: _Branch) -> Iterator[Gpu]:
    if isinstance(branch.device, Gpu):
        yield branch.device
    for one in branch.below.values():
        yield from _gpus_below(one)


def _drawn_below(branch: _Branch) -> tuple[_Line, ...]:
    """Return what is below a branch: GPUs, NICs, then bridges in the order of their first device."""
    lines = [_drawn(one) for one in branch.below.values()]
    order = sorted(range(len(lines)), key=lambda at: (bool(lines[at].below), at))
    return tuple(_folded([lines[at] for at in order]))


def _drawn(branch: _Branch) -> _Line:
    """Return a device or a bridge; bridges over a single thing are told on its line."""
    bridges: list[_Branch] = []
    while len(branch.below) == 1:
        bridges.append(branch)
        branch = next(iter(branch.below.values()))
    rates = [one.rate_bytes_per_s for one in (*bridges, branch) if one.rate_bytes_per_s]
    notes = []
    if branch.rate_bytes_per_s:
        notes.append(format_rate(branch.rate_bytes_per_s))
    if bridges:
        notes.append(f"through {len(bridges)} bridge{'s' if len(bridges) > 1 else ''}")
        if rates and branch.rate_bytes_per_s and min(rates) < branch.rate_bytes_per_s:
            notes.append(f"narrowest {format_rate(min(rates))}")
    suffix = f"  {', '.join(notes)}" if notes else ""
    device = branch.device
    if isinstance(device, Nic):
        network = ""
        if device.rate_bytes_per_s:
            network = f"  network {format_rate(device.rate_bytes_per_s)}"
        return _Line(
            f"{_nic_name(device)}{suffix}{network}", fold=(_short(device), suffix + network)
        )
    if isinstance(device, Gpu):
        return _Line(f"GPU{device.index}{_gpu_detail(device)}{suffix}")
    return _Line(f"{_bridge_name(branch)}{suffix}", _drawn_below(branch))


def _gpu_detail(gpu: Gpu) -> str:
    parts = [part for part in (gpu.pci, gpu.model) if part]
    return f" {' '.join(parts)}" if parts else ""


def _short(nic: Nic) -> str:
    return nic.label or nic.name


def _nic_name(nic: Nic) -> str:
    kind = "" if (nic.label or nic.name).upper().startswith("NIC") else "NIC "
    return kind + (nic.name if nic.label in (None, nic.name) else f"{nic.label} {nic.name}")


def _bridge_name(branch: _Branch) -> str:
    if not branch.below:
        return branch.name
    address = f" {branch.name}" if ":" in branch.name and not branch.name.startswith("ffff") else ""
    return f"PCIe switch{address}"


def _folded(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Yield the lines, NICs that are alike but for their names in one."""
    alike: dict[str, list[str]] = {}
    for line in lines:
        if line.fold is not None:
            alike.setdefault(line.fold[1], []).append(line.fold[0])
    done: set[str] = set()
    for line in lines:
        if line.fold is None or len(alike[line.fold[1]]) < _FOLD_FROM:
            yield line
        elif line.fold[1] not in done:
            done.add(line.fold[1])
            names = alike[line.fold[1]]
            kind = "" if names[0].upper().startswith("NIC") else "NICs "
            listed = ranges(names)
            if len(listed) > _MAX_NAMES:
                listed = f"{names[0]} … {names[-1]}"
            yield _Line(f"{kind}{listed} ({len(names)}){line.fold[1]}")


def _indented(lines: Sequence[_Line], indent: str) -> Iterator[str]:
    for at, line in enumerate(lines):
        last = at == len(lines) - 1
        yield f"{indent}{'└─' if last else '├─'} {line.text}"
        yield from _indented(line.below, indent + ("   " if last else "│  "))


def _without_chain(facts: Facts, chains: Sequence[PcieChain]) -> list[str]:
    placed = {chain.device for chain in chains}
    names = [
        f"GPU{gpu.index}" for gpu in facts.gpus or () if not {gpu.name, f"gpu{gpu.index}"} & placed
    ]
    return names + [_short(nic) for nic in facts.nics or () if nic.name not in placed]
