"""PCIe inside one host: GPUs far from every NIC, trees hidden by a VM, links below their peers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from meshwright.cluster.degraded.peers import PlaceOf, gpu_name, some, usual
from meshwright.cluster.facts import Facts, Nic, PcieChain, nearest_nics
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import format_rate

_SHOWN = 20
_NEAR = ("PIX", "PXB")
_FEW = 3
"""So many GPUs with a NIC beside them, at least, for each one without: else the board is so made."""
_VENDOR_XML = (
    "give the cloud vendor's NCCL topology XML (Azure: ndv4-topo.xml, ndv5-topo.xml; else the file "
    "NCCL_TOPO_FILE names in the image) as the node's file"
)


def far_nics(facts: Facts, place_of: PlaceOf | None = None) -> list[Finding]:
    """Report GPUs whose nearest NIC is across sockets (SYS), else those that lack one beside them."""
    nearest = nearest_nics(facts)
    gpus, nics = facts.gpus or (), facts.nics or ()
    if nearest is None or len(gpus) < 2:
        return []
    places = place_of or (lambda at: Place(facts.path, subject=gpus[at].name))
    far = [at for at, (name, _) in nearest.items() if name == "SYS"]
    if not far:
        return _nic_gone(facts, nearest, places)
    names = some([gpu_name(gpus[at].name) for at in far], 8)
    message = f"{len(far)} of {len(gpus)} GPUs have no NIC nearer than SYS ({names})"
    remedy = "place ranks that talk to other hosts on the GPUs next to a NIC"
    if len(far) == len(gpus):
        message += ": which NIC is near is unknown, not equal"
        remedy = _VENDOR_XML if len(nics) > 1 else "add the host's RDMA NICs, if it has any"
    else:
        message += ": to other hosts they go by another NUMA node, mostly the other socket"
        remedy += ", or look for a NIC that is missing on their side (lspci)"
    numbers: dict[str, Number] = {
        "gpus": [gpus[at].index for at in far[:_SHOWN]],
        "far": len(far),
        "of": len(gpus),
        "nics": len(nics),
    }
    # One NIC for a whole host is no RDMA network: nobody expects it near every GPU.
    severity = Severity.WARNING if len(nics) > 1 else Severity.NOTE
    rule = "topology/gpu-without-near-nic"
    return [Finding(rule, severity, places(far[0]), message, numbers, remedy)]


def _nic_gone(
    facts: Facts, nearest: Mapping[int, tuple[str, tuple[int, ...]]], places: PlaceOf
) -> list[Finding]:
    """Report a few GPUs without a NIC below their PCIe switch where all others have one."""
    gpus = facts.gpus or ()
    far = [at for at, (name, _) in nearest.items() if name not in _NEAR]
    near = len(gpus) - len(far)
    if not far or len(far) * _FEW > near:
        return []
    names = some([gpu_name(gpus[at].name) for at in far], 8)
    has, its = ("has", "its") if len(far) == 1 else ("have", "their")
    classes = " or ".join(sorted({nearest[at][0] for at in far}))
    message = (
        f"{names} {has} no NIC below {its} PCIe switch where each of the other {near} GPUs has one: the "
        f"nearest NIC is {classes} away"
    )
    numbers: dict[str, Number] = {
        "gpus": [gpus[at].index for at in far[:_SHOWN]],
        "far": len(far),
        "of": len(gpus),
        "nics": len(facts.nics or ()),
    }
    remedy = (
        "look whether a NIC is missing there (lspci, ibstat), or is held by another driver (vfio)"
    )
    rule = "topology/gpu-without-near-nic"
    return [Finding(rule, Severity.WARNING, places(far[0]), message, numbers, remedy)]


def hidden_tree(facts: Facts, place_of: PlaceOf) -> list[Finding]:
    """Report a matrix in which a virtual machine hides the PCIe switches.

    PHB between GPUs and NICs and no switch anywhere is a warning. The same of NODE is a note:
    boards with a root port for each device (Grace) print it too.
    """
    gpus, nics = facts.gpus or (), facts.nics or ()
    to_nic = [cell for row in facts.gpu_nic_class or () for cell in row]
    among = [
        cell
        for table in (facts.gpu_gpu_class, facts.nic_nic_class)
        for row in table or ()
        for cell in row
    ]
    if any(cell in _NEAR for cell in (*to_nic, *among)) or len(gpus) < 2:
        return []
    cells = set(to_nic) if nics else {cell for cell in among if cell != "X"}
    if not cells or not cells <= {"PHB", "NODE", "SYS"}:
        return []
    nearest = nearest_nics(facts) or {}
    ties = bool(nics) and all(len(near) > 1 for name, near in nearest.values() if name != "SYS")
    if cells == {"SYS"} or (cells == {"NODE"} and not nics):
        return []
    if len(cells) > 1 and not ties:
        return []
    return [_hidden(facts, sorted(cells), place_of(0))]


def _hidden(facts: Facts, cells: list[str], place: Place) -> Finding:
    near = "PHB" if "PHB" in cells else "NODE"
    what = "GPU-NIC" if facts.nics else "GPU-GPU"
    if len(cells) == 1:
        shown = f"every {what} cell is {near}"
    else:
        shown = f"no {what} cell is nearer than {near}"
    subject = "which NIC is near" if facts.nics else "which GPUs are near each other"
    if near == "PHB":
        why = f"a virtual machine hides the PCIe tree, so {subject} is unknown, not equal"
    else:
        why = (
            f"{subject} is unknown, not equal, where a virtual machine hides the PCIe switches; a board with a "
            "root port for each device prints this too"
        )
    numbers: dict[str, Number] = {"class": near, "gpus": len(facts.gpus or ())}
    numbers["nics"] = len(facts.nics or ())
    severity = Severity.WARNING if near == "PHB" else Severity.NOTE
    rule = "topology/pcie-hidden-by-vm"
    return Finding(rule, severity, place, f"{shown}: {why}", numbers, _VENDOR_XML)


def pcie_rate_findings(facts: Facts) -> list[Finding]:
    """Report PCIe links above GPUs and NICs, and NIC ports, that are slower than their peers'."""
    if not facts.pcie_chains:
        return []
    names = {gpu.name: gpu_name(gpu.name) for gpu in facts.gpus or ()}
    nics = {nic.name: nic for nic in facts.nics or ()}
    beside = {(facts.nics or ())[at].name for at in _beside_gpus(facts)}
    by_kind: dict[object, list[PcieChain]] = defaultdict(list)
    for chain in facts.pcie_chains:
        if chain.device in names:
            by_kind["gpu"].append(chain)
        elif chain.device in nics and nics[chain.device].rate_bytes_per_s is not None:
            by_kind[nics[chain.device].rate_bytes_per_s].append(chain)
        elif chain.device in beside:
            # A skeleton gives no network rate; the NICs beside GPUs are alike.
            by_kind["nic"].append(chain)
    slow: dict[tuple[str, str], _Slow] = {}
    for kind, chains in by_kind.items():
        shown = names if kind == "gpu" else {one.device: _nic_name(one.device) for one in chains}
        _compare(chains, slow, shown)
    return [
        *(_slow_link(facts.path, link, one) for link, one in slow.items()),
        *_slow_ports(facts),
    ]


def _beside_gpus(facts: Facts) -> list[int]:
    """Return the positions of the NICs that stand next to a GPU."""
    nearest = nearest_nics(facts) or {}
    near = (found for name, found in nearest.values() if name in _NEAR)
    return list(dict.fromkeys(nic for found in near for nic in found))


def _nic_name(name: str) -> str:
    """Return a NIC's name as people write it: a PCI address alone does not say what it is."""
    return f"NIC {name}" if ":" in name else name


class _Slow:
    """One slow link: its rate, what peers have there, and the devices above which it lies."""

    def __init__(self, rate: float, peers: float, count: int) -> None:
        self.rate = rate
        self.peers = peers
        self.count = count
        self.devices: list[str] = []


def _compare(
    chains: list[PcieChain], slow: dict[tuple[str, str], _Slow], names: dict[str, str]
) -> None:
    """Add the links that make a device's way to its CPU slower than that of most of its kind."""
    bottleneck = {}
    for chain in chains:
        known = [rate for rate in chain.rates_bytes_per_s if rate]
        if known:
            bottleneck[chain.device] = min(known)
    peers = usual(bottleneck.values())
    if peers is None or len(bottleneck) < 3:
        return
    for chain in chains:
        if bottleneck.get(chain.device, peers) >= peers:
            continue
        way = (chain.device, *chain.nodes)
        for at, rate in enumerate(chain.rates_bytes_per_s):
            if rate and rate < peers:
                count = sum(one == peers for one in bottleneck.values())
                one = slow.setdefault((way[at], way[at + 1]), _Slow(rate, peers, count))
                one.devices.append(names.get(chain.device, chain.device))


def _slow_link(path: str, link: tuple[str, str], slow: _Slow) -> Finding:
    low, high = link
    below = some(slow.devices, 8)
    where = f"{below}: the PCIe link to {high}" if len(slow.devices) == 1 else ""
    message = (
        f"{where or f'the PCIe link from {low} to {high} (above {below})'} runs at {format_rate(slow.rate)} where "
        f"{slow.count} peers have {format_rate(slow.peers)}"
    )
    numbers: dict[str, Number] = {
        "link": [low, high],
        "devices": [*slow.devices[:_SHOWN]],
        "bytes_per_s": slow.rate,
        "peers_bytes_per_s": slow.peers,
    }
    return Finding(
        "topology/pcie-link-slow",
        Severity.WARNING,
        Place(path, subject=slow.devices[0]),
        message,
        numbers,
        "compare LnkSta with LnkCap (lspci -vv) at idle and under load; reseat the card or riser",
    )


def _slow_ports(facts: Facts) -> Iterator[Finding]:
    """Compare the rates of the NICs that stand next to a GPU."""
    nics = facts.nics or ()
    rated: list[tuple[Nic, float]] = [
        (nics[at], rate)
        for at in _beside_gpus(facts)
        if (rate := nics[at].rate_bytes_per_s) is not None
    ]
    peers = usual(rate for _, rate in rated)
    if peers is None or len(rated) < 3:
        return
    for nic, rate in rated:
        if rate < peers:
            count = sum(one == peers for _, one in rated)
            message = (
                f"NIC {nic.name} runs at {format_rate(rate)} where {count} NICs beside GPUs have "
                f"{format_rate(peers)}"
            )
            numbers: dict[str, Number] = {
                "nic": nic.name,
                "bytes_per_s": rate,
                "peers_bytes_per_s": peers,
            }
            remedy = "look at its cable and at the port of the switch (ibstat, mlxlink)"
            place = Place(facts.path, subject=nic.name)
            rule = "topology/nic-rate-low"
            yield Finding(rule, Severity.WARNING, place, message, numbers, remedy)
