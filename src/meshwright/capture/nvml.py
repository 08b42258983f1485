"""GPUs as NVIDIA's management library sees them, through ``pynvml`` (package ``nvidia-ml-py``).

Every question may fail by itself: a call that this driver, library version or GPU does not know
leaves its field out. Structure layouts are NVML's own (``nvml.h``): those of older ``pynvml``
releases (12.5) give 80 bytes to the 16 of ``clusterUuid`` and so misread what follows it.
"""

from __future__ import annotations

import ctypes
import importlib
import uuid
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

from meshwright.capture.document import GpuFabric, Missing, NvLink, Nvml, NvmlGpu
from meshwright.capture.sysfs import is_pci_address, printable

T = TypeVar("T")

INSTALL = "pip install 'meshwright[capture]' (package nvidia-ml-py)"
_MAX_GPUS = 1024
_MAX_LINKS = 64
_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
_REMOTE_TYPES = {0: "gpu", 1: "npu", 2: "switch"}
_NO_ADDRESS = ("0000:00:00.0", "ffff:ff:ff.f")


class _FabricInfo(ctypes.Structure):
    """``nvmlGpuFabricInfo_t`` of ``nvml.h``."""

    _fields_ = (
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_uint),
    )


class _FabricInfoV2(ctypes.Structure):
    """``nvmlGpuFabricInfo_v2_t`` of ``nvml.h``."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_uint),
        ("healthMask", ctypes.c_uint),
    )


_FABRIC_V2 = ctypes.sizeof(_FabricInfoV2) | 2 << 24


def load_nvml() -> ModuleType | None:
    """Return ``pynvml``, or ``None`` where it is not installed or does not import."""
    try:
        return importlib.import_module("pynvml")
    except Exception:
        return None


def read_nvml(pynvml: Any | None) -> Nvml | Missing:
    """Return what NVML says, or why it says nothing. ``pynvml`` is the module, if installed."""
    if pynvml is None:
        return Missing(
            what="nvml", why="the Python package nvidia-ml-py is not installed", remedy=INSTALL
        )
    try:
        pynvml.nvmlInit()
    except Exception as error:
        reason = printable(str(error)) or type(error).__name__
        return Missing(
            what="nvml",
            why=f"NVML does not start: {reason}",
            remedy="load the NVIDIA driver; in a container, start it with the GPUs",
        )
    try:
        count = _ask(pynvml, "nvmlDeviceGetCount", _whole) or 0
        gpus = (_gpu(pynvml, index) for index in range(min(count, _MAX_GPUS)))
        return Nvml(
            driver=_ask(pynvml, "nvmlSystemGetDriverVersion", _text),
            gpus=tuple(gpu for gpu in gpus if gpu is not None),
        )
    finally:
        _ask(pynvml, "nvmlShutdown", lambda _: None)


def _ask(pynvml: Any, name: str, to: Callable[[Any], T | None], *arguments: Any) -> T | None:
    """Return the converted answer of one call, ``None`` where it fails in whatever way."""
    try:
        return to(getattr(pynvml, name)(*arguments))
    except Exception:
        # Besides NVMLError: functions that another release lacks, text that is none.
        return None


def _text(value: Any) -> str | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return printable(text) or None if isinstance(text, str) else None


def _whole(value: Any) -> int | None:
    known = isinstance(value, int) and 0 <= value < 1 << 62
    return int(value) if known else None


def _gpu(pynvml: Any, index: int) -> NvmlGpu | None:
    handle = _ask(pynvml, "nvmlDeviceGetHandleByIndex", lambda one: one, index)
    if handle is None:
        return None

    def number(name: str) -> int | None:
        return _ask(pynvml, name, _whole, handle)

    return NvmlGpu(
        index=index,
        pci=_ask(pynvml, "nvmlDeviceGetPciInfo", _address, handle),
        uuid=_ask(pynvml, "nvmlDeviceGetUUID", _text, handle),
        model=_ask(pynvml, "nvmlDeviceGetName", _text, handle),
        memory_bytes=_ask(
            pynvml, "nvmlDeviceGetMemoryInfo", lambda info: _whole(info.total), handle
        ),
        mig=_ask(pynvml, "nvmlDeviceGetMigMode", lambda modes: bool(_whole(modes[0])), handle),
        pcie_generation=number("nvmlDeviceGetCurrPcieLinkGeneration"),
        pcie_width=number("nvmlDeviceGetCurrPcieLinkWidth"),
        max_pcie_generation=number("nvmlDeviceGetMaxPcieLinkGeneration"),
        max_pcie_width=number("nvmlDeviceGetMaxPcieLinkWidth"),
        fabric=_fabric(pynvml, handle),
        nvlinks=tuple(_links(pynvml, handle)),
    )


def _address(info: Any) -> str | None:
    """Return ``00000000:18:00.0`` as the kernel writes it, ``None`` for none."""
    domain, _, rest = (_text(info.busId) or "").lower().partition(":")
    address = f"{domain.lstrip('0'):0>4}:{rest}"
    return address if is_pci_address(address) and address not in _NO_ADDRESS else None


def _links(pynvml: Any, handle: Any) -> Iterator[NvLink]:
    """Yield the links whose state is told; others are not on this GPU."""
    most = _whole(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 18)) or 18
    for link in range(min(most, _MAX_LINKS)):
        state = _ask(pynvml, "nvmlDeviceGetNvLinkState", _whole, handle, link)
        if state is None:
            continue
        kind = _ask(pynvml, "nvmlDeviceGetNvLinkRemoteDeviceType", _whole, handle, link)
        yield NvLink(
            number=link,
            up=state == 1,
            version=_ask(pynvml, "nvmlDeviceGetNvLinkVersion", _whole, handle, link),
            remote=_ask(pynvml, "nvmlDeviceGetNvLinkRemotePciInfo", _address, handle, link),
            remote_type=None if kind is None else _REMOTE_TYPES.get(kind),
        )


def _fabric(pynvml: Any, handle: Any) -> GpuFabric | None:
    newer = _FabricInfoV2(version=_FABRIC_V2)
    if _filled(pynvml, "nvmlDeviceGetGpuFabricInfoV", handle, newer):
        return _told(newer, newer.healthMask)
    older = _FabricInfo()
    if _filled(pynvml, "nvmlDeviceGetGpuFabricInfo", handle, older):
        return _told(older, None)
    return None


def _filled(pynvml: Any, name: str, handle: Any, info: ctypes.Structure) -> bool:
    return _ask(pynvml, name, lambda _: True, handle, ctypes.byref(info)) is True


def _told(info: Any, health_mask: int | None) -> GpuFabric:
    state = int(info.state)
    if state != _FABRIC_STATES.index("completed"):
        known = state < len(_FABRIC_STATES)
        return GpuFabric(state=_FABRIC_STATES[state] if known else str(state))
    return GpuFabric(
        state="completed",
        status=int(info.status),
        cluster_uuid=str(uuid.UUID(bytes=bytes(info.clusterUuid))),
        clique_id=int(info.cliqueId),
        health_mask=health_mask,
    )
