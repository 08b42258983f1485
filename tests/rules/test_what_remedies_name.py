"""Remedies name keys that are there, and words the framework has."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.findings import Place
from meshwright.job.sections import TrafficItem
from meshwright.rules.told_traffic import given_notes


@pytest.fixture
def found(tmp_path: Path):
    def one(text: str):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        outline = outline_job(load_job(path))
        judge(outline)
        return {f.rule: f for f in outline.findings}

    return one


@pytest.mark.parametrize(
    ("word", "remedy"),
    [("HYBRID_SHARD", "leave sharding out; or framework: torch"), ("FULL_SHARD", "sharding: fsdp; or leave sharding out")],
)  # fmt: skip
def test_maxtext_knows_no_zero(found, word, remedy):
    findings = found(
        f"cluster: dgx-h100 x 1\nlayout: {{dp: 8, sharding: {word}, framework: maxtext}}\n"
    )
    assert "zero1" not in findings["sharding/fsdp1-word-elsewhere"].remedy
    if word == "FULL_SHARD":
        assert findings["sharding/fsdp1-word-elsewhere"].remedy == remedy


@pytest.mark.parametrize("degree", ["", "shard_degree: 4, "])
def test_a_shard_degree_that_is_not_there_is_not_left_out(found, degree):
    error = found(
        f"layout: {{dp: 8, sharding: hsdp, {degree}distributed_optimizer_instances: 3, framework: megatron}}\n"
    )["sharding/hsdp-instances"]
    assert ("leave shard_degree out" in error.remedy) == bool(degree)


def test_experts_of_axes_are_cured_in_the_axes(found):
    error = found(
        "model: llama3-8b\nlayout: {ici: {expert: 2}, world_size: 8, framework: maxtext}\n"
    )["experts/divide-ep"]
    assert error.remedy == "expert: 1 in ici and dcn"
    assert found("model: llama3-8b\nlayout: {dp: 4, ep: 2}\n")["experts/divide-ep"].remedy == (
        "leave ep out"
    )


def test_a_tp_that_does_not_follow_is_no_etp(found):
    findings = found("layout: {pp: 3, cp: 3, dp: 3, world_size: 16, etp: 1, framework: nanotron}\n")
    assert "grid/world-divides" in findings
    assert "nanotron/expert-tensor" not in findings


@pytest.mark.parametrize(
    ("framework", "order"), [("megatron", "tp-cp-ep-dp-pp"), ("torch", "tp-cp-dp-pp")]
)
def test_an_empty_order_is_said_once(found, framework, order):
    findings = found(f'layout: {{tp: 2, dp: 2, order: "", framework: {framework}}}\n')
    assert findings["grid/order-axes"].remedy == f"leave order out, or order: {order}"
    assert "grid/order-missing-axis" not in findings


def test_positions_below_one_are_said(found):
    findings = found(
        "model: {name: u, num_layers: 24, hidden: 4096, ffn: 16384, heads: 32, kv_heads: 4, head_dim: 128, "
        "vocab: 32000, max_positions: -5}\nlayout: {dp: 2}\n"
    )
    assert "max_positions -5" in findings["sequence/longer-than-model"].message


def test_traffic_of_an_axis_of_one_has_a_remedy():
    [warning] = given_notes(
        [TrafficItem(axis="tp", op="all_reduce", bytes=1)],
        {"tp": 1},
        [],
        lambda path: Place(subject=path),
    )
    assert warning.rule == "traffic/axis-of-one"
    assert warning.remedy == "leave it out, or give it for an axis of more ranks"


@pytest.mark.parametrize(
    ("batch", "missing"),
    [("", ["micro_batch", "seq_len", "num_microbatches"]), ("global_batch: 8, micro_batch: 1", ["seq_len"])],
)  # fmt: skip
def test_the_figures_that_memory_lacks_are_named(tmp_path, batch, missing):
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: llama3-8b\nlayout: {{pp: 2, dp: 1, framework: megatron}}\nbatch: {{{batch}}}\n"
    )
    outline = outline_job(load_job(path))
    judge(outline)
    [note] = [
        one
        for one in outline.findings
        if one.rule == "memory/not-known" and "missing" in one.numbers
    ]
    assert note.numbers == {"missing": missing}
    assert all(f"{name}: " in note.remedy for name in missing)
