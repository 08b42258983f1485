"""Ask megatron-core's parallel_state which groups it makes. See ``recording.answer``.

In: ``{"world", "rank", "args"}`` with the arguments of ``initialize_model_parallel``. Out:
``{"groups": {description: lists}, "held": {description: ranks of the group the rank holds}}``, or
``{"refused": message}``.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from megatron.core import parallel_state
from recording import answer, pretended_world

HELD = {
    "TENSOR_MODEL_PARALLEL_GROUP": parallel_state.get_tensor_model_parallel_group,
    "PIPELINE_MODEL_PARALLEL_GROUP": parallel_state.get_pipeline_model_parallel_group,
    "CONTEXT_PARALLEL_GROUP": parallel_state.get_context_parallel_group,
    "DATA_PARALLEL_GROUP": parallel_state.get_data_parallel_group,
    "EXPERT_MODEL_PARALLEL_GROUP": parallel_state.get_expert_model_parallel_group,
    "EXPERT_TENSOR_PARALLEL_GROUP": parallel_state.get_expert_tensor_parallel_group,
    "EXPERT_DATA_PARALLEL_GROUP": parallel_state.get_expert_data_parallel_group,
}


def groups_of(case: dict[str, Any]) -> dict[str, Any]:
    with pretended_world(case["world"], case["rank"]) as made:
        try:
            # the fake store cannot back gloo groups
            parallel_state.initialize_model_parallel(
                create_gloo_process_groups=False, **case["args"]
            )
            held = {name: dist.get_process_group_ranks(get()) for name, get in HELD.items()}
        finally:
            parallel_state.destroy_model_parallel()
    groups: dict[str, list[list[int]]] = {}
    for name, ranks in made:
        groups.setdefault(name, []).append(ranks)
    return {"groups": groups, "held": held}


if __name__ == "__main__":
    answer(groups_of)
