"""The cluster section of a job file, or a cluster file of its own, as typed structs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from meshwright.documents import Convert, Maximum, Minimum
from meshwright.units import parse_rate

Rate = Annotated[float, Convert(parse_rate)]
HostList = str | tuple[str, ...]
"""Hostlist text or a list of such; for ``from`` a file or a list of files."""


class NodeSection(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """``node``: a file that describes one host, with what the file cannot say."""

    source: HostList | None = None
    """One file that describes a host (``topo -m``, NCCL or hwloc XML, a capture), or several."""
    gpu: str | None = None
    """GPU model: NVLink and PCIe rates come from it."""
    nic: Rate | None = None
    """Rate of one NIC, one direction."""
    gpus: Annotated[int, Minimum(1)] | None = None
    """Without a file: the number of GPUs, alone or with the keys below (a box by hand)."""
    nics: Annotated[int, Minimum(0)] | None = None
    """Number of NICs, spread evenly over the PCIe switches."""
    pcie: Rate | None = None
    """Rate of every PCIe link, one direction; without it the GPU model's."""
    gpus_per_switch: Annotated[int, Minimum(1)] | None = None
    """GPUs under one PCIe switch; without it those of a socket."""
    sockets: Annotated[int, Minimum(1)] | None = None
    """CPUs; the switches are spread evenly over them."""
    cpu_link: Rate | None = None
    """Rate between two sockets, one direction."""
    nvlink: Literal["switch", "mesh", "none"] | None = None
    """How NVLink (or xGMI) joins the GPUs; without it as the GPU model's board does."""


class FabricSection(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """``fabric``: a file that describes the network, or a preset with its parameters."""

    source: HostList | None = None
    """One file of cables, a tree or places, or several that are joined."""
    preset: Literal["rail-optimized", "rail-only", "leaf-spine", "roce-pod", "none"] | None = None
    hosts_per_unit: Annotated[int, Minimum(1)] | None = None
    oversubscription: Annotated[float, Minimum(0.1)] | None = None
    """Bandwidth of a leaf's NICs to its uplinks'."""
    radix: Annotated[int, Minimum(2)] | None = None
    planes: Annotated[int, Minimum(1), Maximum(8)] | None = None
    """Separate fabrics side by side; every NIC has a port on each."""
    hosts_per_pod: Annotated[int, Minimum(1)] | None = None
    """Hosts under one set of spines; pods are joined by a core."""
    core_oversubscription: Annotated[float, Minimum(0.1)] | None = None
    """Bandwidth of a pod's NICs to its cables to the core."""
    full_units: bool = False
    """Leaves are cabled for a full unit even where fewer hosts are there."""


class ClusterSection(msgspec.Struct, frozen=True, kw_only=True):
    """What is there: node, hosts, fabric, NVLink domains, and the hosts the job really has."""

    preset: str | None = None
    """A whole cluster by number of units (``superpod-h100 x 4``) instead of node, nodes and fabric."""
    node: str | NodeSection | None = None
    nodes: Annotated[int, Minimum(1)] | None = None
    hosts: HostList | None = None
    fabric: str | FabricSection | None = None
    nvlink_domains: dict[str, HostList] | None = None
    """Name to hosts, or ``{from: file}``, or ``{from: [file, …]}``."""
    allocation: HostList | None = None
