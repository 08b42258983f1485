"""GPU models: memory, rates and links as vendors state them (``data/gpus.json``)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal

import msgspec

from meshwright import units
from meshwright.data.load import load_records
from meshwright.data.names import Key, name_key, near_names

_FILE = "gpus.json"
_DROP = frozenset({"nvidia", "amd", "instinct", "tesla", "graphics", "device"})

LinkLayout = Literal["switch", "bridge", "mesh", "none"]
LinkProtocol = Literal["nvlink", "xgmi", "none"]


class UnknownGpuError(KeyError):
    """No GPU model of this name; ``near`` holds names that look like it."""

    def __init__(self, name: str, near: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.near = near

    def __str__(self) -> str:
        text = f"unknown GPU {self.name!r}"
        return f"{text}: did you mean {', '.join(self.near)}?" if self.near else text


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU product, SI base units; rates of links are one direction, FLOPs are dense.

    ``None`` is *not stated* (or, for a number format, not supported: ``note`` says which).
    """

    name: str
    form: str
    """``SXM5``, ``PCIe``, ``OAM``, ``superchip``."""
    memory_bytes: int
    """The label, read in decimal GB."""
    usable_memory_bytes: int | None
    """As ``nvidia-smi`` prints it. Labels mix GB and GiB, so this may exceed ``memory_bytes``."""
    hbm_bytes_per_s: float
    bf16_flops_per_s: float | None
    fp16_flops_per_s: float | None
    fp8_flops_per_s: float | None
    fp4_flops_per_s: float | None
    nvlink_kind: LinkLayout
    """``switch``: any peer at the full rate; ``mesh``, ``bridge``: each link has a fixed peer."""
    link_protocol: LinkProtocol
    """What the ``nvlink_`` fields speak of: AMD's xGMI fills them too."""
    nvlink_links: int
    nvlink_link_bytes_per_s: float
    nvlink_bytes_per_s: float
    """All links together; 0 without NVLink."""
    scaleup: str
    """The source's own words."""
    pcie_bytes_per_s: float
    tdp_w: int | None
    multiprocessors: int | None
    """SMs, or compute units."""
    aliases: tuple[str, ...]
    source: str
    mark: str
    """S read in the source, P from memory (not checked); the parts it speaks of are named."""
    note: str

    @property
    def capacity_bytes(self) -> int:
        """Memory a job can have: what the driver reports where known, else the label."""
        return self.memory_bytes if self.usable_memory_bytes is None else self.usable_memory_bytes


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file, in the units of data sheets."""

    name: str
    form: str
    memory_gb: float
    usable_mib: int | None = None
    hbm_tb_per_s: float
    bf16_dense_tflops: float | None = None
    fp16_dense_tflops: float | None = None
    fp8_dense_tflops: float | None = None
    fp4_dense_tflops: float | None = None
    nvlink_gb_per_s_per_direction: float
    nvlink_kind: LinkLayout
    link_protocol: LinkProtocol
    nvlink_links: int
    nvlink_link_gb_per_s: float
    scaleup: str
    pcie_gb_per_s_per_direction: float
    tdp_w: int | None = None
    sms_or_cus: int | None = None
    aliases: tuple[str, ...] = ()
    source: str
    mark: str
    note: str = ""


def gpu_names() -> tuple[str, ...]:
    """Return the name of every known GPU model."""
    return tuple(gpu.name for gpu in _gpus())


def find_gpu(name: str) -> GpuModel:
    """Return a GPU model by name, alias or the name ``nvidia-smi`` prints.

    Case, spaces, dashes and the vendor's name do not matter. A bare ``A100`` is the SXM 80 GB part.
    Raises ``UnknownGpuError`` (a ``KeyError``) with names that look like it.
    """
    gpu = _by_key().get(_key(name))
    if gpu is None:
        raise UnknownGpuError(name[:200], suggest_gpus(name))
    return gpu


def common_gpu(names: Iterable[str | None]) -> GpuModel | None:
    """Return the one known model that all these names mean (``None`` among them: not said)."""
    models = set(names) - {None}
    if len(models) != 1:
        return None
    try:
        return find_gpu(str(models.pop()))
    except UnknownGpuError:
        return None


def suggest_gpus(name: str) -> list[str]:
    """Return up to five known names that look like ``name``, nearest first."""
    return near_names(" ".join(_key(name)), gpu_names())


@functools.cache
def _gpus() -> tuple[GpuModel, ...]:
    return tuple(_to_model(row) for row in load_records(_FILE, tuple[_Row, ...]))


@functools.cache
def _by_key() -> dict[Key, GpuModel]:
    keys = {_key(alias): gpu for gpu in _gpus() for alias in gpu.aliases}
    return keys | {_key(gpu.name): gpu for gpu in _gpus()}


def _key(name: str) -> Key:
    # 80GB and 80G are one spelling.
    return tuple("g" if part == "gb" else part for part in name_key(name, drop=_DROP))


def _tera(value: float | None) -> float | None:
    return None if value is None else units.tera(value)


def _to_model(row: _Row) -> GpuModel:
    usable = row.usable_mib
    return GpuModel(
        name=row.name,
        form=row.form,
        memory_bytes=round(units.giga(row.memory_gb)),
        usable_memory_bytes=None if usable is None else usable * units.MIB,
        hbm_bytes_per_s=units.tera(row.hbm_tb_per_s),
        bf16_flops_per_s=_tera(row.bf16_dense_tflops),
        fp16_flops_per_s=_tera(row.fp16_dense_tflops),
        fp8_flops_per_s=_tera(row.fp8_dense_tflops),
        fp4_flops_per_s=_tera(row.fp4_dense_tflops),
        nvlink_kind=row.nvlink_kind,
        link_protocol=row.link_protocol,
        nvlink_links=row.nvlink_links,
        nvlink_link_bytes_per_s=units.gb_per_s(row.nvlink_link_gb_per_s),
        nvlink_bytes_per_s=units.gb_per_s(row.nvlink_gb_per_s_per_direction),
        scaleup=row.scaleup,
        pcie_bytes_per_s=units.gb_per_s(row.pcie_gb_per_s_per_direction),
        tdp_w=row.tdp_w,
        multiprocessors=row.sms_or_cus,
        aliases=row.aliases,
        source=row.source,
        mark=row.mark,
        note=row.note,
    )
