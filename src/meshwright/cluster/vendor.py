"""Whose GPUs a source describes, and what that maker calls its links and tools."""

from __future__ import annotations

import re

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import UnknownGpuError, find_gpu

_AMD_FORMATS = ("rocm_smi_showtopo", "amd_smi_topology", "amd_smi_json")
_AMD_NAME = re.compile(r"amd\b|instinct\b|radeon\b|mi[0-9]{2,3}", re.IGNORECASE)
_CELL = re.compile(r"NV([0-9]{1,4})\Z")


class Maker(msgspec.Struct, frozen=True):
    """The words of one maker of GPUs."""

    link: str
    """Its direct links between GPUs, as a kind."""
    one_link: str
    """One of them, with its plural in s."""
    cell: str
    """What stands before the number of links in a cell: ``NV18``."""
    library: str
    """Its collective library."""
    visible: str
    """Environment that gives a process some GPUs by number, with ``{gpus}`` for the numbers."""
    variable: str
    """The variable of ``visible``, for prose."""
    link_tool: str
    """Command that shows the state of the links."""
    link_remedy: str
    """What to look at where a link is down."""
    matrix_tool: str
    """Command that prints the matrix."""

    def links(self, count: int | str) -> str:
        """Return ``1 NVLink``, ``2 NVLinks``, ``no xGMI links``."""
        return f"{count or 'no'} {self.one_link}{'' if count in (1, '1') else 's'}"


NVIDIA = Maker(
    link="NVLink",
    one_link="NVLink",
    cell="NV",
    library="NCCL",
    visible="CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={gpus}",
    variable="CUDA_VISIBLE_DEVICES",
    link_tool="nvidia-smi nvlink -s",
    link_remedy=(
        "look at nvidia-smi nvlink -s and -e on the host, and at dmesg for Xid 74; drain the host if the "
        "link stays down"
    ),
    matrix_tool="nvidia-smi topo -m",
)
AMD = Maker(
    link="xGMI",
    one_link="xGMI link",
    cell="xGMI",
    library="RCCL",
    visible="ROCR_VISIBLE_DEVICES={gpus}",
    variable="ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES",
    link_tool="amd-smi xgmi, or rocm-smi --showxgmierr",
    link_remedy=(
        "look at amd-smi xgmi (or rocm-smi --showxgmierr) on the host, and at dmesg for xGMI errors; drain "
        "the host if the link stays down"
    ),
    matrix_tool="rocm-smi --showtopo",
)


def is_amd(facts: Facts) -> bool:
    """Tell whether the GPUs are AMD's, by format, model name or the way they are listed."""
    gpus = facts.gpus or ()
    if facts.format in _AMD_FORMATS or any(gpu.name.startswith("rsmi") for gpu in gpus):
        return True
    if any(gpu.model is not None and _is_amd_model(gpu.model) for gpu in gpus):
        return True
    # RCCL writes the number of compute units where NCCL writes the compute capability.
    return (
        facts.format == "nccl_topo_xml"
        and facts.nvlink_pairs is not None
        and all(gpu.compute_capability is None for gpu in gpus)
    )


def _is_amd_model(name: str) -> bool:
    try:
        return find_gpu(name).link_protocol == "xgmi"
    except UnknownGpuError:
        return _AMD_NAME.match(name.strip()) is not None


def maker_of(facts: Facts) -> Maker:
    """Return the maker's words for a source; NVIDIA's where it does not say."""
    return AMD if is_amd(facts) else NVIDIA


def cell_text(cell: str, maker: Maker) -> str:
    """Return a cell of a matrix in the maker's words: xGMI stands as ``NV`` in the facts."""
    match = _CELL.match(cell)
    return cell if match is None else f"{maker.cell}{match[1]}"
