"""The document of one host: what ``collect`` writes and the capture reader of ``topo`` reads.

A list is ``None`` (left out) where its source could not be asked, and empty where the source says
that there is none. Rates and link states stay as the system words them; the reader interprets.
Serial numbers, IP addresses and MAC addresses are left out. GUIDs are kept, since they join a host
to its fabric; on an Ethernet adapter the node GUID is made from a MAC address by its maker.
"""

from __future__ import annotations

import msgspec

SCHEMA = "meshwright/capture/1"
SCHEMA_FAMILY = "meshwright/capture/"


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the document; what is not known is left out."""


class Missing(_Record, frozen=True):
    """A source that gave nothing: what, why, and what would help."""

    what: str
    why: str
    remedy: str | None = None


class Told(_Record, frozen=True):
    """One of ``missing`` in the form of a finding, as every document of the program has them."""

    rule: str
    severity: str
    message: str
    place: str | None = None
    subject: str | None = None
    numbers: dict[str, float] = {}
    remedy: str | None = None


class Slurm(_Record, frozen=True):
    """What the environment of a Slurm task says of its node."""

    node_name: str | None = None
    """``SLURMD_NODENAME``."""
    node_id: str | None = None
    """``SLURM_NODEID``: the number within the job."""
    topology_address: str | None = None
    """``SLURM_TOPOLOGY_ADDR``: switches from the top down and the node, divided by dots."""
    topology_pattern: str | None = None
    """``SLURM_TOPOLOGY_ADDR_PATTERN``: what each part of the address is."""


class Host(_Record, frozen=True):
    """Names of the host, and what kind of machine this is."""

    name: str
    """By which it is joined to other sources: Slurm's name for it, else the short host name."""
    hostname: str | None = None
    """As the kernel has it."""
    slurm: Slurm | None = None
    kernel: str | None = None
    vendor: str | None = None
    """DMI ``sys_vendor``."""
    product: str | None = None
    """DMI ``product_name``."""
    virtual_machine: bool | None = None
    container: str | None = None
    """By what it is seen that this is a container; ``None``: no sign of one."""


class NumaNode(_Record, frozen=True):
    """One NUMA node; a node without CPUs is a device's or an expander's memory."""

    id: int
    cpus: str
    """Kernel's list (``0-55,112-167``), empty without CPUs."""
    distances: tuple[int, ...] = ()
    """To every node in the order of their ids (10 is local)."""


class Cpus(_Record, frozen=True):
    """Processors and NUMA nodes."""

    model: str | None = None
    online: str | None = None
    numa_nodes: tuple[NumaNode, ...] | None = None


class PciDevice(_Record, frozen=True):
    """One PCI function: a GPU, accelerator, network adapter, NVSwitch, or a bridge above one."""

    address: str
    """``0000:18:00.0``."""
    code: str
    """Class, six hexadecimal digits: ``030200``."""
    vendor: str
    device: str
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    speed: str | None = None
    """``current_link_speed`` as the kernel words it: ``32.0 GT/s PCIe``."""
    width: int | None = None
    """``current_link_width``."""
    max_speed: str | None = None
    max_width: int | None = None
    numa_node: int | None = None
    """``None``: the firmware does not say."""
    parent: str | None = None
    """Bridge above (an address), or host bridge (``pci0000:00``)."""
    physical_function: str | None = None
    """Address of the device that this is a virtual function of."""


class InfinibandPort(_Record, frozen=True):
    """One port of an RDMA device; words are those of the kernel."""

    number: int
    rate: str | None = None
    """``400 Gb/sec (4X NDR)``."""
    state: str | None = None
    """``4: ACTIVE``."""
    physical_state: str | None = None
    """``5: LinkUp``."""
    lid: str | None = None
    link_layer: str | None = None
    """``InfiniBand`` or ``Ethernet``."""
    gid: str | None = None
    """First GID, of InfiniBand ports only: on Ethernet it holds an address."""


class InfinibandDevice(_Record, frozen=True):
    """One RDMA device (``mlx5_0``), InfiniBand or Ethernet."""

    name: str
    pci: str | None = None
    """``None``: a device without PCI (soft RDMA)."""
    node_guid: str | None = None
    node_description: str | None = None
    board: str | None = None
    """``board_id``."""
    type: str | None = None
    """``hca_type``."""
    firmware: str | None = None
    netdevs: tuple[str, ...] = ()
    ports: tuple[InfinibandPort, ...] = ()


class NetworkDevice(_Record, frozen=True):
    """One network interface with a PCI device behind it."""

    name: str
    pci: str
    driver: str | None = None
    speed_mbit: int | None = None
    state: str | None = None
    """``operstate``."""
    bond: str | None = None
    """The bond it is a member of."""


class NvLink(_Record, frozen=True):
    """One NVLink of a GPU."""

    number: int
    up: bool
    version: int | None = None
    """As NVML numbers generations."""
    remote: str | None = None
    """PCI address of the far end."""
    remote_type: str | None = None
    """``gpu``, ``switch``, ``npu``."""


class GpuFabric(_Record, frozen=True):
    """The NVLink domain that the driver puts a GPU in (``nvmlDeviceGetGpuFabricInfoV``)."""

    state: str
    """``completed``, ``in_progress``, ``not_started`` or ``not_supported``."""
    status: int | None = None
    """NVML's return code of the registration; 0 is success."""
    cluster_uuid: str | None = None
    clique_id: int | None = None
    health_mask: int | None = None


class NvmlGpu(_Record, frozen=True):
    """One GPU as NVML sees it."""

    index: int
    pci: str | None = None
    uuid: str | None = None
    model: str | None = None
    memory_bytes: int | None = None
    mig: bool | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    max_pcie_generation: int | None = None
    max_pcie_width: int | None = None
    fabric: GpuFabric | None = None
    nvlinks: tuple[NvLink, ...] | None = None


class Nvml(_Record, frozen=True):
    """What NVML says."""

    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()


class Tool(_Record, frozen=True):
    """What a tool printed, line by line as it was printed."""

    name: str
    """``nvidia-smi topo -m``."""
    lines: tuple[str, ...]


class Capture(_Record, frozen=True):
    """The document; see the module docstring."""

    schema: str
    captured_at: str
    """UTC, ISO 8601."""
    meshwright: str
    """Version that wrote it."""
    host: Host
    cpus: Cpus
    pci: tuple[PciDevice, ...] | None = None
    infiniband: tuple[InfinibandDevice, ...] | None = None
    network: tuple[NetworkDevice, ...] | None = None
    nvml: Nvml | None = None
    tools: tuple[Tool, ...] = ()
    missing: tuple[Missing, ...] = ()
    findings: tuple[Told, ...] = ()
    """What is missing again, as findings."""
    origin: dict[str, str] = {}
    """Part of the document to the origin of its numbers."""
