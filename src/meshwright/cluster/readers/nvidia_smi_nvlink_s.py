"""``nvidia-smi nvlink -s``: the NVLinks of each GPU, one by one.

Grammar: ``GPU 0: NAME (UUID: ...)``, then ``Link 0: 26.562 GB/s`` or ``Link 0: <inactive>``, or one
``NVML: Unable to retrieve NVLink information ...`` in their place. The printed rate is the raw
rate of the lanes, above what the link carries (53.125 where the vendor states 50), so only count
and state are taken; a rate serves to find a link that differs from the others of its GPU.
"""

from __future__ import annotations

import re
from collections import Counter

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.nvidia_smi_nvlink_s_findings import link_findings
from meshwright.cluster.readers.nvidia_smi_nvlink_s_listing import (
    LINK,
    NO_LINKS,
    GpuLinks,
    read_listing,
)
from meshwright.units import gb_per_s

FORMAT = "nvidia_smi_nvlink_s"
_HEADER = re.compile(r"\bGPU [0-9]{1,4}: ")


def looks_like(text: str) -> bool:
    """Tell whether the text lists NVLinks by GPU."""
    if "GPU " not in text or _HEADER.search(text) is None:
        return False
    return LINK.search(text) is not None or NO_LINKS.search(text) is not None


def read(text: str, path: str) -> Facts:
    """Return GPUs with their models and how many NVLinks are up and down.

    Raises
    ------
    InputError
        There is no GPU, one is listed twice, or the file is cut off within a line.
    """
    listed = read_listing(text, path)
    return Facts(
        format=FORMAT,
        path=path,
        gpus=tuple(_gpu(gpu) for gpu in listed),
        findings=tuple(link_findings(listed, path)),
    )


def _gpu(gpu: GpuLinks) -> Gpu:
    states = Counter(link.up for link in gpu.links.values())
    up: int | None = states[True]
    down: int | None = states[False]
    if not gpu.links:
        # "All links are inactive" gives no number of them; "Not Supported" is none at all.
        up = None if gpu.no_links is None else 0
        down = 0 if gpu.no_links == "unsupported" else None
    rates = Counter(link.rate for link in gpu.links.values() if link.up and link.rate)
    return Gpu(
        index=gpu.index,
        name=f"GPU{gpu.index}",
        model=gpu.model,
        nvlinks=up,
        nvlinks_down=down,
        uuid=gpu.uuid,
        nvlink_raw_bytes_per_s=gb_per_s(rates.most_common(1)[0][0]) if rates else None,
    )
