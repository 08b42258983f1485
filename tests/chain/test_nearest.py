"""Legal layouts nearby: what is shown, what is warned of, and what is said when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.nearest import nearest
from meshwright.chain.outline import outline_job
from meshwright.report.check_report import check_text


@pytest.fixture
def searched(tmp_path: Path):
    """Return what is near a job, and the page of ``check``."""

    def search(text: str):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        outline = outline_job(load_job(path))
        judgement = judge(outline)
        near = nearest(outline)
        return near, " ".join(check_text(outline, judgement, near).split())

    return search


MIXTRAL = """\
model: mixtral-8x7b
cluster: dgx-h100 x 4
layout: {tp: 2, pp: 1, ep: 4, framework: deepspeed, sharding: zero2}
batch: {global_batch: 64, micro_batch: 2, seq_len: 4096}
"""
"""Does not fit."""


def test_every_changed_degree_is_shown(searched):
    near, page = searched(MIXTRAL)
    texts = [one.text for one in near.layouts]
    assert any(one.endswith(" etp 2") for one in texts), "etp is changed, and said"
    assert "tp 2 dp 16 ep 4" not in texts, "that is the job itself"
    for one in near.layouts:
        assert ("etp" in one.text) == (one.degrees["etp"] != 1), "left out it is 1 in DeepSpeed"
    assert all("tp 1" in one.text for one in near.layouts if one.degrees["tp"] == 1)
    assert texts[0] in page


def test_zero2_never_gets_a_pipeline(searched):
    near, _ = searched(MIXTRAL)
    assert near.layouts
    assert {one.degrees["pp"] for one in near.layouts} == {1}


def test_layouts_without_warnings_come_first_and_warnings_stand_beside(searched):
    near, page = searched(
        "model: llama3.1-8b\ncluster: dgx-h100 x 8\n"
        "layout: {tp: 8, dp: 8, sequence_parallel: true, sharding: zero1, framework: megatron}\n"
        "batch: {global_batch: 16, micro_batch: 1, seq_len: 131072}\n"
    )
    warned = [bool(one.warnings) for one in near.layouts]
    assert warned == sorted(warned)
    for one in near.layouts:
        assert ("placement/tp-exceeds-nvlink-domain" in one.warnings) == (one.degrees["tp"] > 8)
        if one.warnings:
            assert f"{one.text} (warning: {', '.join(one.warnings)})" in page


@pytest.mark.parametrize(
    ("layout", "batch", "rest", "stays"),
    [
        ("tp: 2, pp: 2, dp: 8", "global_batch: 64, micro_batch: 2, num_microbatches: 20", "", "batch/contradiction"),
        ("tp: 2, pp: 2, dp: 4", "global_batch: 64, micro_batch: 1", "cluster: dgx-a100 x 2\ntraining: {precision: fp8}\n",
         "precision/gpu-cannot"),
    ],
)  # fmt: skip
def test_what_no_degree_cures_is_named(searched, layout, batch, rest, stays):
    near, page = searched(
        f"model: llama3-8b\nlayout: {{{layout}, framework: megatron}}\nbatch: {{{batch}}}\n{rest}"
    )
    assert near.layouts == ()
    assert near.stays == (stays,)
    assert f"No change of one or two degrees cures {stays}: the remedy stands" in page


def test_a_job_larger_than_its_cluster_gets_layouts_of_the_cluster(searched):
    near, page = searched(
        "model: llama3-8b\ncluster: dgx-h100 x 4\nlayout: {tp: 4, dp: 12, sharding: zero1, framework: megatron}\n"
        "batch: {global_batch: 64, micro_batch: 1, seq_len: 4096}\n"
    )
    assert near.world_size == 32
    assert near.layouts[0].text == "tp 4 dp 8"
    for one in near.layouts:
        assert one.degrees["tp"] * one.degrees["cp"] * one.degrees["pp"] * one.degrees["dp"] == 32
    assert "pass every rule on the 32 GPUs of the cluster" in page


def test_layouts_that_pass_and_do_not_fit_are_counted(searched):
    near, page = searched(
        "model: deepseek-v3\ncluster: dgx-h100 x 4\nlayout: {ep: 12, framework: megatron}\n"
        "batch: {global_batch: 64, micro_batch: 1, seq_len: 4096}\n"
    )
    assert near.layouts == ()
    assert near.too_large > 0
    assert f"The {near.too_large} nearest layouts that pass every other rule do not fit" in page


def test_a_degree_that_divides_the_experts_is_found_however_far(searched):
    near, _ = searched(
        "model: mixtral-8x7b\nlayout: {world_size: 144, ep: 36, framework: megatron}\n"
        "batch: {global_batch: 144, micro_batch: 1, seq_len: 4096}\n"
    )
    assert {one.degrees["ep"] for one in near.layouts} <= {1, 2, 4, 8}
    assert near.layouts


def test_an_expert_degree_that_follows_is_no_silent_change(searched):
    """DeepSpeed keeps experts whole where etp is left out, whatever tp is."""
    near, _ = searched(
        "model: {name: u, num_layers: 28, hidden: 4096, ffn: 8192, heads: 64, kv_heads: 16, head_dim: 64, "
        "vocab: 32000, experts: 64, top_k: 2, moe_ffn: 1024}\ncluster: dgx-h100 x 24\n"
        "layout: {tp: 8, cp: 1, pp: 3, dp: 8, ep: 4, world_size: 192, framework: deepspeed}\n"
        "batch: {micro_batch: 1, num_microbatches: 4, seq_len: 8192}\n"
    )
    given = {"tp": 8, "cp": 1, "pp": 3, "dp": 8, "ep": 4, "etp": 1, "vp": 1}
    assert [one.text for one in near.layouts][:2] == ["tp 8 pp 2 dp 12 ep 4", "tp 8 pp 4 dp 6 ep 4"]
    for one in near.layouts:
        changed = [name for name, value in one.degrees.items() if value != given[name]]
        assert len(changed) <= 2
        assert ("etp" in one.text) == ("etp" in changed)


def test_chunks_are_tried_where_the_schedule_wants_them(searched):
    near, _ = searched(
        "model: llama3-8b\nlayout: {pp: 8, dp: 1, framework: megatron}\n"
        "batch: {micro_batch: 1, num_microbatches: 64, seq_len: 4096}\ntraining: {schedule: interleaved}\n"
    )
    assert near.layouts[0].text == "pp 8 vp 2"


def test_hosts_of_the_job_bound_what_is_near(searched):
    near, _ = searched(
        "model: llama3-8b\ncluster: dgx-h100 x 4\nlayout: {tp: 3, world_size: 32, framework: megatron}\n"
        'batch: {global_batch: 64, micro_batch: 1, seq_len: 4096}\nplacement: {hosts: "host[0-1]"}\n'
    )
    assert near.world_size == 16
    assert near.layouts
    for one in near.layouts:
        assert one.degrees["tp"] * one.degrees["cp"] * one.degrees["pp"] * one.degrees["dp"] == 16
