"""Jobs for tests of the memory room."""

from __future__ import annotations

from typing import Any

from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.job.model import Model
from meshwright.job.sections import BatchSection, LayoutSection, MoeSection, TrainingSection
from meshwright.job.stages import layers_by_stage
from meshwright.traffic.workload import Workload

DENSE = Model(
    name="dense", num_layers=8, hidden=64, ffn=192, heads=8, kv_heads=4, head_dim=8, vocab=1024
)
EXPERTS = Model(
    name="experts",
    num_layers=8,
    hidden=64,
    ffn=192,
    heads=8,
    kv_heads=8,
    head_dim=8,
    vocab=1024,
    experts=8,
    top_k=2,
    moe_ffn=32,
    shared_experts=1,
    shared_ffn_total=48,
    first_dense_layers=1,
)
LATENT = Model(
    name="latent",
    num_layers=4,
    hidden=64,
    ffn=192,
    heads=4,
    kv_heads=4,
    head_dim=24,
    vocab=1024,
    q_lora_rank=32,
    kv_lora_rank=16,
    qk_nope_dim=16,
    qk_rope_dim=8,
    v_head_dim=16,
)


def workload(model: Model = DENSE, **keys: Any) -> Workload:
    """Return a job: keys of layout, batch, training and moe, by their names."""

    def section(kind: type) -> Any:
        mine = {key: keys.pop(key) for key in list(keys) if key in kind.__struct_fields__}
        return kind(**mine)

    batch, training, moe = section(BatchSection), section(TrainingSection), section(MoeSection)
    layout_section = section(LayoutSection)
    assert not keys, keys
    layout = resolve_layout(layout_section, None)
    counts = layers_by_stage(layout, model.num_layers)
    assert counts is not None
    return Workload(
        model=model,
        layout=layout,
        batch=resolve_batch(batch, layout.dp, layout.framework, layout.pp),
        training=training,
        moe=moe,
        section=layout_section,
        stage_layers=tuple(counts),
    )


BATCH = {"micro_batch": 2, "num_microbatches": 8, "seq_len": 128}
