"""A node type: the inside of one host, as many hosts share it.

It names the GPU model, how the GPUs reach each other (NVLink switch, a mesh of links, PCIe only),
which NIC each GPU sends by, and the PCIe paths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.cluster.degraded.nvlink import model_of
from meshwright.cluster.degraded.nvlink_model import below_model
from meshwright.cluster.facts import PATH_CLASSES, Facts, Nic, nearest_nics
from meshwright.cluster.gpus import GpuModel
from meshwright.cluster.nodes.pcie import LocalGraph, LocalLink, guess_chains, local_graph
from meshwright.cluster.nvlink_shape import NvlinkShape, nvlink_shape, pair_counts
from meshwright.cluster.vendor import is_amd
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin
from meshwright.units import format_rate, gb_per_s, gbit_per_s

CPU_RATE_BYTES_PER_S = gb_per_s(22.0)
"""Between sockets, one direction: NCCL's figure for Sapphire Rapids (``src/graph/topo.h``)."""
PCIE_RATE_BYTES_PER_S = gb_per_s(64.0)
"""PCIe 5 x16, one direction, where the GPU model does not say."""


class NodeNic(msgspec.Struct, frozen=True):
    """A network adapter of a node type; ports of one card that serve one GPU are one NIC."""

    name: str
    rate_bytes_per_s: float | None
    """One direction, all ports together."""
    ports: tuple[str, ...] = ()
    """Device names of the ports (empty: the name itself)."""


class NodeType(msgspec.Struct, frozen=True, kw_only=True):
    """See the module docstring. Rates are one direction; ``None`` is unknown."""

    name: str
    gpu: str | None
    num_gpus: int
    nics: tuple[NodeNic, ...]
    nic_of_gpu: tuple[int, ...]
    """Index of the NIC each GPU sends by; -1 without one."""
    nvlink: str
    """``switch``, ``mesh``, ``none`` or ``unknown``."""
    nvlink_bytes_per_s: float | None
    """One GPU into the switch (``switch`` only); what most GPUs have where links are down."""
    graph: LocalGraph
    nvlink_domain_hosts: int = 1
    """Hosts of one NVLink domain (18 in an NVL72 rack)."""
    nvlink_rates: tuple[float | None, ...] | None = None
    """Rate of each GPU into the switch where they differ; ``None``: all as above."""
    nvlink_gpus: tuple[int, ...] | None = None
    """Positions of the GPUs that hang on the switch where some do not; ``None``: all."""
    origins: Mapping[str, Origin] = {}
    """Origin of ``nvlink``, ``nic``, ``pcie`` and ``cpu`` rates and of the ``paths``."""

    def on_switch(self) -> tuple[bool, ...]:
        """Tell for each GPU whether it hangs on an NVLink switch."""
        if self.nvlink != "switch" or self.nvlink_gpus is None:
            return (self.nvlink == "switch",) * self.num_gpus
        return tuple(gpu in self.nvlink_gpus for gpu in range(self.num_gpus))

    def serving_nics(self) -> tuple[int, ...]:
        """Return the NICs that a GPU sends by; all of them where no GPU is known to have one."""
        return tuple(sorted({*self.nic_of_gpu} - {-1})) or tuple(range(len(self.nics)))

    def switch_rates_bytes_per_s(self) -> tuple[float | None, ...]:
        """Return the rate of each GPU into the switch, one direction."""
        return self.nvlink_rates or (self.nvlink_bytes_per_s,) * self.num_gpus


def assign_nics(
    nearest: Mapping[int, tuple[str, tuple[int, ...]]], num_gpus: int
) -> tuple[int, ...]:
    """Return the NIC of each GPU: of the nearest class, the one with the fewest GPUs so far."""
    used: dict[int, int] = {}
    chosen = []
    for gpu in range(num_gpus):
        candidates = nearest[gpu][1] if gpu in nearest else ()
        if not candidates:
            chosen.append(-1)
            continue
        nic = min(candidates, key=lambda one: (used.get(one, 0), one))
        used[nic] = used.get(nic, 0) + 1
        chosen.append(nic)
    return tuple(chosen)


def node_from_facts(
    facts: Facts, gpu: GpuModel | None, nic_rate_bytes_per_s: float | None, name: str
) -> tuple[NodeType, list[Finding]]:
    """Return the node type a ``topo -m`` matrix or an NCCL XML describes, and what is missing.

    ``gpu`` supplies the rates that the file cannot give; ``nic_rate_bytes_per_s`` overrides the
    NIC rate (one direction).
    """
    findings: list[Finding] = []
    gpus = facts.gpus or ()
    nics, members = _bundle_ports(facts.nics or (), nic_rate_bytes_per_s, gpu)
    nearest = _nearest_bundles(facts, members)
    nvlink = _nvlink(facts, gpu)
    chains = facts.pcie_chains
    if chains is None:
        chains = guess_chains(facts)
        findings.append(_paths_guessed(facts.path))
    device_of = {gpu_.name: f"gpu{gpu_.index}" for gpu_ in gpus}
    device_of |= {
        port: nic.name for nic, ports in zip(nics, members, strict=True) for port in ports
    }
    chains = tuple(
        msgspec.structs.replace(chain, device=device_of.get(chain.device, chain.device))
        for chain in chains
    )
    origins = {
        "nvlink": Origin.STATED if gpu else Origin.ASSUMED,
        "nic": _nic_origin(facts.nics or (), nic_rate_bytes_per_s),
        "pcie": _pcie_origin(facts, gpu),
        "cpu": Origin.ASSUMED,
        "paths": Origin.PARSED if facts.pcie_chains is not None else Origin.ASSUMED,
    }
    devices = [f"gpu{one.index}" for one in gpus] + [nic.name for nic in nics]
    pcie_rate = gpu.pcie_bytes_per_s if gpu and gpu.pcie_bytes_per_s else PCIE_RATE_BYTES_PER_S
    node = NodeType(
        name=name,
        gpu=gpu.name if gpu else None,
        num_gpus=len(gpus),
        nics=nics,
        nic_of_gpu=assign_nics(nearest, len(gpus)),
        nvlink=nvlink.kind,
        nvlink_bytes_per_s=nvlink.bytes_per_s,
        graph=local_graph(devices, chains, nvlink.mesh, CPU_RATE_BYTES_PER_S, pcie_rate),
        nvlink_rates=nvlink.rates,
        nvlink_gpus=nvlink.gpus,
        origins=origins,
    )
    return node, [*findings, *_said(facts, gpu, node)]


def _said(facts: Facts, gpu: GpuModel | None, node: NodeType) -> list[Finding]:
    """Return what the file does not say or what falls short of the model."""
    findings = below_model(facts, gpu) if model_of(facts) is None else []
    if node.nvlink == "unknown" and node.num_gpus > 1:
        findings.append(_nvlink_unknown(facts.path))
    if node.nics and node.origins["nic"] is Origin.ASSUMED:
        findings.append(_nic_rate_assumed(facts.path, node.nics[0].rate_bytes_per_s))
    return findings


def _pcie_origin(facts: Facts, gpu: GpuModel | None) -> Origin:
    """Return the origin of PCIe rates: a tree with unknown hops is no better than what fills them."""
    chains = facts.pcie_chains
    if chains and all(rate for chain in chains for rate in chain.rates_bytes_per_s):
        return Origin.PARSED
    return Origin.STATED if gpu is not None and gpu.pcie_bytes_per_s else Origin.ASSUMED


def _nic_origin(nics: tuple[Nic, ...], override: float | None) -> Origin:
    if override is not None or all(nic.rate_bytes_per_s for nic in nics):
        return Origin.PARSED
    return Origin.ASSUMED


def _bundle_ports(
    nics: tuple[Nic, ...], rate: float | None, gpu: GpuModel | None
) -> tuple[tuple[NodeNic, ...], list[tuple[str, ...]]]:
    """Join the ports of one card (equal PCI address): together they serve its GPU."""
    cards: dict[str, list[Nic]] = {}
    for nic in nics:
        cards.setdefault(nic.pci or nic.name, []).append(nic)
    bundles, members = [], []
    for ports in cards.values():
        rates = [rate or nic.rate_bytes_per_s or default_nic_rate(gpu) for nic in ports]
        names = tuple(nic.name for nic in ports)
        bundles.append(NodeNic(names[0], sum(rates), names if len(names) > 1 else ()))
        members.append(names)
    return tuple(bundles), members


def default_nic_rate(gpu: GpuModel | None) -> float:
    """Return the usual NIC of a GPU generation, one direction (assumed, said in a note)."""
    if gpu is not None and gpu.name.startswith(("A100", "V100", "A30", "A10", "L4")):
        return gbit_per_s(200)
    return gbit_per_s(400)


def _nearest_bundles(
    facts: Facts, members: list[tuple[str, ...]]
) -> dict[int, tuple[str, tuple[int, ...]]]:
    nearest = nearest_nics(facts) or {}
    names = [nic.name for nic in facts.nics or ()]
    bundle_of = {name: index for index, ports in enumerate(members) for name in ports}
    return {
        gpu: (best, tuple(dict.fromkeys(bundle_of[names[nic]] for nic in near)))
        for gpu, (best, near) in nearest.items()
    }


class _Nvlink(msgspec.Struct, frozen=True):
    """NVLink of a host, as ``NodeType`` has it; ``mesh`` are its direct links."""

    kind: str
    bytes_per_s: float | None = None
    rates: tuple[float | None, ...] | None = None
    gpus: tuple[int, ...] | None = None
    mesh: tuple[LocalLink, ...] = ()


def _nvlink(facts: Facts, gpu: GpuModel | None) -> _Nvlink:
    """Return how the GPUs are joined."""
    pairs = facts.nvlink_pairs
    if pairs is None:
        # A skeleton says nothing of NVLink; NCCL fills it in at run time.
        if gpu is not None and gpu.nvlink_kind == "switch":
            return _Nvlink("switch", gpu.nvlink_bytes_per_s)
        return _Nvlink("unknown")
    if not pairs:
        return _Nvlink("none")
    via_switch = any(pair.via_switch for pair in pairs)
    shape = nvlink_shape(pair_counts(pairs), gpu, via_switch=via_switch)
    if shape.is_switch:
        return _on_switch(shape, gpu, [one.index for one in facts.gpus or ()])
    # Without the model a link's rate is unknown, not some usual rate.
    per_link = gpu.nvlink_link_bytes_per_s if gpu and gpu.nvlink_link_bytes_per_s else math.nan
    mesh = []
    amd = gpu.link_protocol == "xgmi" if gpu is not None else is_amd(facts)
    kind = "xgmi" if amd else "nvlink"
    for pair in pairs:
        a, b = f"gpu{pair.a}", f"gpu{pair.b}"
        mesh += [LocalLink(t, h, kind, per_link * pair.count) for t, h in ((a, b), (b, a))]
    return _Nvlink("mesh", mesh=tuple(mesh))


def _on_switch(shape: NvlinkShape, gpu: GpuModel | None, numbers: Sequence[int]) -> _Nvlink:
    """Return who hangs on the switch and at which rate: a link that is down slows its GPU only."""
    rate_of = {links: _switch_rate(links, gpu) for links in set(shape.links.values())}
    counts = Counter(shape.links.values())
    usual = max(counts, key=lambda links: (counts[links], links))
    rates = None
    if len(set(rate_of.values())) > 1:
        rates = tuple(
            rate_of[shape.links[number]] if number in shape.links else None for number in numbers
        )
    gpus = tuple(at for at, number in enumerate(numbers) if number in shape.links)
    return _Nvlink("switch", rate_of[usual], rates, gpus if len(gpus) < len(numbers) else None)


def _switch_rate(links: int, gpu: GpuModel | None) -> float | None:
    if gpu is None:
        return None
    full = gpu.nvlink_links
    if links >= full > 0 and gpu.nvlink_bytes_per_s:
        return gpu.nvlink_bytes_per_s
    return gpu.nvlink_link_bytes_per_s * links or None


def _paths_guessed(path: str) -> Finding:
    return Finding(
        "topology/pcie-tree-guessed",
        Severity.NOTE,
        Place(file=path),
        "the PCIe tree is one that prints this matrix; others do too. Its load is a consistent guess.",
        {},
        "give the NCCL topology XML of the host (NCCL_TOPO_DUMP_FILE) to have the real tree",
    )


def _nvlink_unknown(path: str) -> Finding:
    return Finding(
        "topology/nvlink-unknown",
        Severity.WARNING,
        Place(file=path),
        "the file does not say whether NVLink joins the GPUs (NCCL finds it at run time); they are "
        "routed over PCIe here.",
        {},
        "node: {from: …, gpu: …}, or the matrix of nvidia-smi topo -m",
    )


def _nic_rate_assumed(path: str, rate: float | None) -> Finding:
    text = format_rate(rate) if rate else "?"
    return Finding(
        "assumed/nic-rate",
        Severity.NOTE,
        Place(file=path),
        f"the file gives no NIC rate; {text} a direction is assumed, the usual NIC beside this GPU.",
        {"nic_bytes_per_s": rate},
        "node: {from: …, nic: 400 Gbit/s}",
    )


__all__ = [
    "CPU_RATE_BYTES_PER_S",
    "PATH_CLASSES",
    "NodeNic",
    "NodeType",
    "assign_nics",
    "default_nic_rate",
    "node_from_facts",
]
