"""The cluster section of a job file, or a cluster file of its own, as typed structs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from meshwright.documents import Convert, Minimum
from meshwright.units import parse_rate

Rate = Annotated[float, Convert(parse_rate)]


class NodeSection(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """``node``: a file that describes one host, with what the file cannot say."""

    source: str | None = None
    """``topo -m`` text or NCCL topology XML."""
    gpu: str | None = None
    """GPU model: NVLink and PCIe rates come from it."""
    nic: Rate | None = None
    """Rate of one NIC, one direction."""
    gpus: Annotated[int, Minimum(1)] | None = None
    """Without a file: only the number of GPUs is known."""


class FabricSection(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "from"}):
    """``fabric``: a file that describes the network, or a preset with its parameters."""

    source: str | None = None
    preset: Literal["rail-optimized", "rail-only", "leaf-spine", "none"] | None = None
    hosts_per_unit: Annotated[int, Minimum(1)] | None = None
    oversubscription: Annotated[float, Minimum(0.1)] | None = None
    radix: Annotated[int, Minimum(2)] | None = None


HostList = str | tuple[str, ...]


class ClusterSection(msgspec.Struct, frozen=True, kw_only=True):
    """What is there: node, hosts, fabric, NVLink domains, and the hosts the job really has."""

    node: str | NodeSection | None = None
    nodes: Annotated[int, Minimum(1)] | None = None
    hosts: HostList | None = None
    fabric: str | FabricSection | None = None
    nvlink_domains: dict[str, HostList] | None = None
    """Name to hosts, or ``{from: file}``."""
    allocation: HostList | None = None
