"""A host described by hand: so many GPUs and NICs, under PCIe switches of equal size."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.cluster.facts import PcieChain
from meshwright.cluster.gpus import GpuModel
from meshwright.cluster.link_facts import usable_bytes_per_s
from meshwright.cluster.nodes.node import PCIE_RATE_BYTES_PER_S, NodeNic, NodeType, default_nic_rate
from meshwright.cluster.nodes.pcie import LocalGraph, LocalLink, local_graph
from meshwright.cluster.nodes.presets import full_mesh
from meshwright.cluster.sections import NodeSection
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity
from meshwright.origin import Origin
from meshwright.units import format_rate

MOST_DEVICES = 64
"""GPUs, and NICs, of a host described by hand: paths are listed for every pair."""
HAND_KEYS = ("gpu", "nics", "nic", "pcie", "gpus_per_switch", "sockets", "cpu_link", "nvlink")
"""Keys of ``node`` that say something of the inside of a host besides the number of GPUs."""
_DEFAULT_CPU_LINK = "cpu-intel-spr"


def is_by_hand(node: NodeSection) -> bool:
    """Tell whether a section without a file says more than the number of GPUs."""
    return node.source is None and any(getattr(node, key) is not None for key in HAND_KEYS)


@dataclass(frozen=True, slots=True)
class _Box:
    """Where everything hangs: the switch of each GPU and NIC, the socket of each switch."""

    switch_of_gpu: list[int]
    switch_of_nic: list[int]
    socket_of_switch: list[int]

    @staticmethod
    def of(node: NodeSection, gpus: int) -> _Box:
        sockets = node.sockets or (2 if _switches(node, gpus, 1) > 1 else 1)
        switches = _switches(node, gpus, sockets)
        per_switch = -(-gpus // switches)
        count = node.nics or 0
        return _Box(
            [index // per_switch for index in range(gpus)],
            [index * switches // count for index in range(count)],
            [switch * sockets // switches for switch in range(switches)],
        )


def keys_beside_file(node: NodeSection) -> list[str]:
    """Return the keys of a box by hand that stand beside ``from``, where they change nothing."""
    completing = ("gpu", "nic")
    keys = [key for key in HAND_KEYS if key not in completing]
    return [key for key in keys if node.source is not None and getattr(node, key) is not None]


def node_by_hand(
    node: NodeSection, gpu: GpuModel | None, place: Place
) -> tuple[NodeType, list[Finding]]:
    """Return the node type a section describes without a file, and what it leaves to defaults.

    Switch i of s hangs on socket ``i * sockets // s``, NIC i of n on switch ``i * s // n``; a GPU
    sends by the NIC under its own switch, else by one of its socket, else by any, the least used.
    Raises ``InputError`` for a box that cannot be.
    """
    gpus = node.gpus or 0
    _check(node, gpus, gpu, place)
    box = _Box.of(node, gpus)
    nics, findings = _nics(node, gpu, place)
    kind, mesh = _nvlink(node, gpu, gpus)
    if kind == "unknown" and gpus > 1:
        findings.append(_nvlink_unknown(place))
    where = [(f"gpu{i}", switch) for i, switch in enumerate(box.switch_of_gpu)]
    where += [(nic.name, switch) for nic, switch in zip(nics, box.switch_of_nic, strict=True)]
    result = NodeType(
        name=_name(node, gpu, gpus),
        gpu=gpu.name if gpu else None,
        num_gpus=gpus,
        nics=nics,
        nic_of_gpu=_nic_of_gpu(box),
        nvlink=kind,
        nvlink_bytes_per_s=gpu.nvlink_bytes_per_s if gpu and kind == "switch" else None,
        graph=_graph(where, box.socket_of_switch, mesh, _rates(node, gpu)),
        origins=_origins(node, gpu),
    )
    return result, findings


def _switches(node: NodeSection, gpus: int, sockets: int) -> int:
    """Return the number of PCIe switches; without a size, one a socket."""
    if node.gpus_per_switch is None:
        return min(sockets, gpus)
    return -(-gpus // node.gpus_per_switch)


def _check(node: NodeSection, gpus: int, gpu: GpuModel | None, place: Place) -> None:
    message = remedy = None
    if gpus < 1:
        message, remedy = "a host by hand needs the number of its GPUs", "node: {gpus: 8, …}"
    elif gpus > MOST_DEVICES or (node.nics or 0) > MOST_DEVICES:
        most = max(gpus, node.nics or 0)
        message = f"{most:,} devices of a kind are too many for a host by hand"
        remedy = f"at most {MOST_DEVICES}; node: {{gpus: {gpus}}} alone where nothing else is known"
    elif node.nic is not None and not node.nics:
        message, remedy = "nic gives a rate, and there is no NIC", "nics: with their number"
    elif node.nvlink in ("switch", "mesh") and (gpu is None or not gpu.nvlink_bytes_per_s):
        named = gpu.name if gpu else "no GPU model"
        message = f"nvlink: {node.nvlink} needs a GPU model with such links ({named} is given)"
        remedy = "gpu: H100-SXM, or nvlink: none"
    elif (node.sockets or 1) > 1 and _switches(node, gpus, node.sockets or 1) < (node.sockets or 1):
        message = f"{node.sockets} sockets, and GPUs under fewer switches"
        remedy = "gpus_per_switch: smaller, or sockets: fewer"
    if message is not None:
        raise InputError(Problem(place, message, remedy=remedy))


def _name(node: NodeSection, gpu: GpuModel | None, gpus: int) -> str:
    """Return ``8 L40S, 4 NICs``."""
    count = node.nics or 0
    nics = f", {count} NIC{'s' if count != 1 else ''}"
    return f"{gpus} {gpu.name if gpu else 'GPUs'}{nics}"


def _nics(
    node: NodeSection, gpu: GpuModel | None, place: Place
) -> tuple[tuple[NodeNic, ...], list[Finding]]:
    """Return the NICs, and a note where their rate is not given."""
    rate, count = node.nic, node.nics or 0
    findings = []
    if rate is None and count:
        rate = default_nic_rate(gpu)
        text = f"no NIC rate is given; {format_rate(rate)} a direction is assumed."
        numbers = {"nic_bytes_per_s": rate}
        findings.append(
            Finding("assumed/nic-rate", Severity.NOTE, place, text, numbers, "nic: 400 Gbit/s")
        )
    return tuple(NodeNic(f"nic{index}", rate) for index in range(count)), findings


def _nvlink(node: NodeSection, gpu: GpuModel | None, gpus: int) -> tuple[str, list[LocalLink]]:
    """Return how GPUs are joined, and the links of a mesh: as said, else as the model's board."""
    kind: str = node.nvlink or "unknown"
    if node.nvlink is None and gpu is not None and gpu.nvlink_kind != "bridge":
        kind = gpu.nvlink_kind
    return kind, full_mesh(gpu, gpus) if kind == "mesh" and gpu is not None else []


def _nvlink_unknown(place: Place) -> Finding:
    return Finding(
        "topology/nvlink-unknown",
        Severity.WARNING,
        place,
        "nothing says whether NVLink joins the GPUs; they are routed over PCIe here.",
        {},
        "nvlink: none (or switch, mesh), or gpu: with the model",
    )


def _rates(node: NodeSection, gpu: GpuModel | None) -> tuple[float, float]:
    """Return the rates of PCIe links and of the link between sockets."""
    stated = gpu.pcie_bytes_per_s if gpu and gpu.pcie_bytes_per_s else PCIE_RATE_BYTES_PER_S
    return node.pcie or stated, node.cpu_link or usable_bytes_per_s(_DEFAULT_CPU_LINK)


def _graph(
    where: list[tuple[str, int]],
    socket_of_switch: list[int],
    mesh: list[LocalLink],
    rates: tuple[float, float],
) -> LocalGraph:
    pcie, cpu = rates
    chains = [
        PcieChain(device, (f"pcie{switch}", f"cpu{socket_of_switch[switch]}"), (pcie, pcie))
        for device, switch in where
    ]
    return local_graph([device for device, _ in where], chains, mesh, cpu, pcie)


def _nic_of_gpu(box: _Box) -> tuple[int, ...]:
    used = [0] * len(box.switch_of_nic)
    chosen = []
    for switch in box.switch_of_gpu:
        socket = box.socket_of_switch[switch]
        far = [(at != switch) + (box.socket_of_switch[at] != socket) for at in box.switch_of_nic]
        nic = min(range(len(used)), key=lambda one: (far[one], used[one], one), default=-1)
        chosen.append(nic)
        if nic >= 0:
            used[nic] += 1
    return tuple(chosen)


def _origins(node: NodeSection, gpu: GpuModel | None) -> dict[str, Origin]:
    pcie = Origin.STATED if gpu is not None and gpu.pcie_bytes_per_s else Origin.ASSUMED
    return {
        "nvlink": Origin.STATED if gpu else Origin.ASSUMED,
        "nic": Origin.PARSED if node.nic else Origin.ASSUMED,
        "pcie": Origin.PARSED if node.pcie else pcie,
        "cpu": Origin.PARSED if node.cpu_link else Origin.ASSUMED,
        "paths": Origin.PARSED if node.gpus_per_switch else Origin.ASSUMED,
    }
