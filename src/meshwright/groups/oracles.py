"""What the members of each group kind were compared with, by framework.

A kind is verified when the tests compare its lists, in order, with what the original code made;
everything else follows from reading the code and says so in the output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshwright.groups.kinds import GroupKind
from meshwright.job.layout import Layout

_DEEPSPEED_TESTED = {
    "pipe": "DeepSpeed edaa7221 PipeModelDataParallelTopology",
    "data": "DeepSpeed edaa7221 PipeModelDataParallelTopology",
    "model": "DeepSpeed edaa7221 PipeModelDataParallelTopology",
    "expert_parallel": "DeepSpeed edaa7221 utils/groups.py",
    "expert_data_parallel": "DeepSpeed edaa7221 utils/groups.py",
    "sequence": "DeepSpeed 0.19.8 initialize_sequence_parallel",
    "sequence_data": "DeepSpeed 0.19.8 initialize_sequence_parallel",
    "ds_model": "DeepSpeed 0.19.8 PipelineParallelGrid",
    "p2p": "DeepSpeed 0.19.8 PipelineParallelGrid",
    "zero_param_intra_parallel": "DeepSpeed 0.19.8 _create_zero_param_parallel_group",
}
_NANOTRON_TESTED = ("tp", "cp", "dp", "pp", "mp", "dp_cp")


def with_oracles(layout: Layout, kinds: Sequence[GroupKind]) -> list[GroupKind]:
    """Return the kinds with the original code they were compared with, where there is one."""
    return [dataclasses.replace(kind, oracle=_oracle(layout, kind)) for kind in kinds]


def _oracle(layout: Layout, kind: GroupKind) -> str | None:
    if layout.framework == "megatron":
        return f"{layout.framework_version} initialize_model_parallel"
    if layout.framework in ("torch", "torchtitan"):
        if layout.fsdp1 is not None and kind.name in ("dp_shard", "dp_replicate"):
            return "torch 2.13.0 fsdp/_init_utils.py"
        return "torch 2.13.0 DeviceMesh"
    if layout.framework == "deepspeed":
        return _DEEPSPEED_TESTED.get(kind.name)
    if layout.framework == "nanotron":
        return "nanotron 2411b022 ParallelContext" if kind.name in _NANOTRON_TESTED else None
    if layout.framework == "maxtext" and layout.device_order is not None:
        return "jax 0.10.2 mesh_utils"  # the axes; which device stands where is the job's word
    return None
