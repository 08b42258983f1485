"""Names of the host, and what kind of machine it is. No name service is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from meshwright.capture.cpus import cpu_flags
from meshwright.capture.document import Host, Slurm
from meshwright.capture.sysfs import is_there, printable, read_text, read_value

_VIRTUAL = re.compile(
    r"qemu|kvm|bochs|xen|vmware|innotek|virtualbox|openstack|google compute|parallels|nutanix", re.I
)
_CONTAINER_FILES = {".dockerenv": "/.dockerenv", "run/.containerenv": "/run/.containerenv"}
_CONTAINER_VARIABLES = (
    "container",
    "ENROOT_ROOTFS",
    "SINGULARITY_CONTAINER",
    "APPTAINER_CONTAINER",
    "KUBERNETES_SERVICE_HOST",
)
_CGROUP = re.compile(r"docker|kubepods|containerd|crio|libpod|lxc|enroot")
_CGROUP_BYTES = 1 << 14


def read_host(root: Path, environ: Mapping[str, str]) -> Host:
    """Return the host's names and kind.

    ``name`` is Slurm's name of the node where this runs under Slurm: it stays right in a container,
    whose own host name may be anything.
    """
    hostname = read_value(root / "proc/sys/kernel/hostname")
    slurm = _slurm(environ)
    name = (slurm.node_name if slurm else None) or hostname or "unknown"
    vendor = read_value(root / "sys/class/dmi/id/sys_vendor")
    product = read_value(root / "sys/class/dmi/id/product_name")
    return Host(
        name=name.split(".")[0] or "unknown",
        hostname=hostname,
        slurm=slurm,
        kernel=read_value(root / "proc/sys/kernel/osrelease"),
        vendor=vendor,
        product=product,
        virtual_machine=_is_virtual(root, f"{vendor or ''} {product or ''}"),
        container=_container(root, environ),
    )


def _slurm(environ: Mapping[str, str]) -> Slurm | None:
    def value(name: str) -> str | None:
        return printable(environ.get(name, "")) or None

    found = Slurm(
        node_name=value("SLURMD_NODENAME"),
        node_id=value("SLURM_NODEID"),
        topology_address=value("SLURM_TOPOLOGY_ADDR"),
        topology_pattern=value("SLURM_TOPOLOGY_ADDR_PATTERN"),
    )
    return None if found == Slurm() else found


def _is_virtual(root: Path, maker: str) -> bool | None:
    """Tell a virtual machine by the hypervisor's own marks; ``None`` where nothing tells."""
    if read_value(root / "sys/hypervisor/type") or _VIRTUAL.search(maker):
        return True
    if "virtual machine" in maker.lower():
        return True
    flags = cpu_flags(root)
    # Only x86 shows flags, and only there their absence says something.
    return "hypervisor" in flags if flags else None


def _container(root: Path, environ: Mapping[str, str]) -> str | None:
    for file, sign in _CONTAINER_FILES.items():
        if is_there(root / file):
            return sign
    for name in _CONTAINER_VARIABLES:
        if environ.get(name):
            return f"${name}"
    groups = read_text(root / "proc/1/cgroup", _CGROUP_BYTES) or ""
    match = _CGROUP.search(groups)
    return f"cgroup {match[0]}" if match else None
