"""Facts: what one topology source says, in the words of no format.

Every reader under ``cluster/readers/`` returns one ``Facts``. A field is ``None`` when the format
(or this file) does not give it, and an empty tuple when the format lists such things and the file
lists none: *unknown* and *zero* are two answers. Merging (``cluster/assembly/``) turns facts of
several sources into one fabric.
"""

from __future__ import annotations

import msgspec

from meshwright.findings import Finding

PATH_CLASSES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCIe path classes of ``nvidia-smi topo -m``, nearest first."""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU of a host; ``index`` is its number in the source (NVML order, local in a container)."""

    index: int
    name: str
    """The source's own key: ``GPU0``, an NCCL ``dev`` number, or a PCI address in a skeleton."""
    host: str | None = None
    pci: str | None = None
    model: str | None = None
    numa: tuple[int, ...] = ()
    compute_capability: int | None = None
    """NCCL ``sm`` (90 for H100); ``None`` where the field means something else (AMD)."""
    nvlinks: int | None = None
    """NVLinks (XGMI links) that are up, where the source lists them one by one."""
    nvlinks_down: int | None = None
    uuid: str | None = None
    """The driver's own id of the card (``GPU-…``)."""
    nvlink_raw_bytes_per_s: float | None = None
    """Signalling rate of one link that is up, one direction, of most of its links."""


class Nic(msgspec.Struct, frozen=True):
    """One network adapter port of a host."""

    index: int
    name: str
    """Device name where known (``mlx5_0``), else the source's key."""
    label: str | None = None
    """Column label of ``topo -m`` (``NIC0``)."""
    host: str | None = None
    pci: str | None = None
    guid: str | None = None
    port: int | None = None
    rate_bytes_per_s: float | None = None
    """One direction."""
    lid: int | None = None
    """Local id of the port, which forwarding tables name."""


class OtherDevice(msgspec.Struct, frozen=True):
    """An end point of a fabric that is no host adapter: SHARP aggregation node, manager."""

    id: str
    name: str
    kind: str
    """``sharp`` or ``manager``."""


class Switch(msgspec.Struct, frozen=True):
    """A network switch (or, in scheduler and cloud formats, an inner node of the network tree)."""

    id: str
    name: str
    guid: str | None = None


class Cable(msgspec.Struct, frozen=True):
    """One cable, counted once; ends are ids of switches, NICs (GUID) or other devices."""

    a: str
    b: str
    a_port: int | None = None
    b_port: int | None = None
    rate_bytes_per_s: float | None = None
    """One direction."""
    listed_twice: bool = True
    """False when only one end's stanza shows the cable."""


class NvlinkPair(msgspec.Struct, frozen=True):
    """Two GPUs (indices, ``a < b``) joined by NVLink, XGMI or a vendor's like."""

    a: int
    b: int
    count: int
    """Links as the source prints them (``NV18`` is 18); through a switch they are shared."""
    via_switch: bool | None = None
    """``None``: the source does not say (a full ``topo -m`` matrix is settled in the merge)."""
    both_ways: bool = True
    """False when only one of the two cells says so."""


class ForwardingTable(msgspec.Struct, frozen=True):
    """The unicast table of one switch: by which port it sends to each local id (LID)."""

    guid: str
    """16 hex digits."""
    name: str
    ports: bytes
    """Port by LID; ``NO_PORT`` where the table has no entry. LIDs beyond the end have none."""
    line: int | None = None


NO_PORT = 255
"""No entry in a forwarding table (the architecture's own mark, InfiniBand 1.4, 14.2.5.10)."""


class PcieChain(msgspec.Struct, frozen=True):
    """The way from a device up to its CPU in a source that shows the PCIe tree."""

    device: str
    """``name`` of the GPU or NIC."""
    nodes: tuple[str, ...]
    """Bridges from the device upwards (PCI addresses), the CPU (``cpu0``) last."""
    rates_bytes_per_s: tuple[float | None, ...]
    """Rate of the link above the device, above the first bridge, …; one per entry of ``nodes``.

    One direction; ``None`` where the source does not say."""


class TreeSwitch(msgspec.Struct, frozen=True):
    """One switch of a scheduler's tree: its child switches and the hosts directly under it."""

    name: str
    switches: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    line: int | None = None
    comment: str | None = None
    """A real name kept in a comment by topograph."""


class Block(msgspec.Struct, frozen=True):
    """A scheduler's block of hosts (an NVLink domain only where something else says so)."""

    name: str
    hosts: tuple[str, ...]
    line: int | None = None
    comment: str | None = None


class HostPlace(msgspec.Struct, frozen=True):
    """Where labels, a cloud or a model file put one host: names of its domains, nearest first.

    A name may be unique only under its parent (rack ``r1`` in two blocks): readers make it whole
    (``b1/r1``).
    """

    host: str
    tiers: tuple[str, ...]
    """Leaf, spine, core …; what is missing at the far end is not listed."""
    nvlink_domain: str | None = None
    """Cluster UUID and clique id, or a named accelerator domain; "unknown" is no domain."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one source says; see the module docstring for ``None`` against empty."""

    format: str
    path: str
    host: str | None = None
    """The one host the source describes, where it names it."""
    gpus: tuple[Gpu, ...] | None = None
    nics: tuple[Nic, ...] | None = None
    other_devices: tuple[OtherDevice, ...] | None = None
    hosts: tuple[str, ...] | None = None
    switches: tuple[Switch, ...] | None = None
    nvswitches: tuple[str, ...] | None = None
    cables: tuple[Cable, ...] | None = None
    """NIC-switch, switch-switch and cables to other devices."""
    nvlink_pairs: tuple[NvlinkPair, ...] | None = None
    numa_ids: tuple[int, ...] | None = None
    gpu_gpu_class: tuple[tuple[str, ...], ...] | None = None
    """``[gpu][gpu]``: ``X``, ``NV18`` or a path class; row by row as the source prints it."""
    gpu_nic_class: tuple[tuple[str, ...], ...] | None = None
    """``[gpu][nic]``: a path class."""
    nic_nic_class: tuple[tuple[str, ...], ...] | None = None
    pcie_chains: tuple[PcieChain, ...] | None = None
    tree: tuple[TreeSwitch, ...] | None = None
    blocks: tuple[Block, ...] | None = None
    block_sizes: tuple[int, ...] | None = None
    places: tuple[HostPlace, ...] | None = None
    peer_access: tuple[tuple[str, ...], ...] | None = None
    """``[gpu][gpu]`` of ``topo -p2p``: ``X``, ``OK``, ``CNS``, ``GNS``, ``TNS``, ``NS``, ``DR``, ``U``."""
    tables: tuple[ForwardingTable, ...] | None = None
    """Forwarding tables: the exact way of every flow, not an even spread."""
    counts: dict[str, int] = {}
    """Further counts by name that only some formats have (rings, racks, layers …)."""
    findings: tuple[Finding, ...] = ()


def nearest_nics(facts: Facts) -> dict[int, tuple[str, tuple[int, ...]]] | None:
    """Return for each GPU position its best path class and all NIC positions of that class.

    ``None`` when the source relates no GPU to a NIC (no matrix, no GPU or no NIC).
    """
    if not facts.gpu_nic_class or not facts.nics:
        return None
    order = {name: rank for rank, name in enumerate(PATH_CLASSES)}
    nearest: dict[int, tuple[str, tuple[int, ...]]] = {}
    for gpu, row in enumerate(facts.gpu_nic_class):
        best = min(row, key=lambda name: order.get(name, len(order)))
        nearest[gpu] = (best, tuple(nic for nic, name in enumerate(row) if name == best))
    return nearest
