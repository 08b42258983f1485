"""FLOPs by stage against the model's closed form, which Megatron-LM's count holds."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import workload_of
from meshwright.costs.stage_flops import chain_layers, stage_flops
from meshwright.job.flops import flops_per_token
from meshwright.schedules.orders import loop_ranks, v_ranks


def workload(tmp_path, **layout):
    training = layout.pop("training", {})
    job = {
        "model": layout.pop("model", "llama3-70b"),
        "layout": {"dp": 1, "framework": "megatron", **layout},
        "batch": {"num_microbatches": 16, "micro_batch": 2, "seq_len": 4096},
        "training": training,
    }
    path = tmp_path / "job.json"
    path.write_text(__import__("json").dumps(job))
    work = workload_of(outline_job(load_job(str(path))))
    assert work is not None
    return work


@pytest.mark.parametrize("model", ["llama3-70b", "deepseek-v3", "qwen3-30b-a3b", "mixtral-8x7b"])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_stages_sum_to_the_models_flops(tmp_path, model, recompute):
    work = workload(tmp_path, model=model, pp=1, tp=1)
    found = stage_flops(work, loop_ranks(1), recompute)
    flops = flops_per_token(work.model, 4096)
    assert found.total.sum() == pytest.approx(2 * 4096 * flops.hardware(recompute), rel=1e-12)
    assert found.layer.sum() + found.output == pytest.approx(found.total.sum(), rel=1e-12)


def test_tp_and_cp_divide_and_the_last_stage_has_the_output_layer(tmp_path):
    whole = stage_flops(workload(tmp_path, pp=4, tp=1), loop_ranks(4), "none")
    cut = stage_flops(workload(tmp_path, pp=4, tp=8), loop_ranks(4), "none")
    assert cut.total * 8 == pytest.approx(whole.total)
    assert whole.layers == (20, 20, 20, 20)
    assert np.ptp(whole.forward[:3]) == pytest.approx(0)
    logits = 2 * 4096 * flops_per_token(workload(tmp_path, pp=4).model, 4096).logits / 3
    assert whole.forward[3] - whole.forward[0] == pytest.approx(logits)


def test_chunks_in_the_order_a_microbatch_passes_them(tmp_path):
    looped = chain_layers(workload(tmp_path, pp=4, vp=2), loop_ranks(4, 2))
    assert [one[0] for one in looped] == [0, 10, 20, 30, 40, 50, 60, 70]
    turned = workload(tmp_path, pp=4, vp=2, training={"schedule": "zb-v"})
    assert turned.is_folded
    layers = chain_layers(turned, v_ranks(4))
    assert [len(one) for one in layers] == [10] * 8
    held = turned.held_layers()
    for rank in range(4):
        assert sorted(layers[rank] + layers[7 - rank]) == sorted(held[rank])


def test_uneven_stages_keep_every_layer(tmp_path):
    work = workload(tmp_path, pp=4, vp=2, stages=[22, 20, 20, 18])
    layers = chain_layers(work, loop_ranks(4, 2))
    assert sum(map(len, layers)) == 80
    assert [len(layers[rank]) + len(layers[rank + 4]) for rank in range(4)] == [22, 20, 20, 18]
