"""Context parallelism: each kind's pieces, steps, axes, and which of them move the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.catalogue import find_model
from meshwright.traffic.axes import degree_of_axis
from meshwright.traffic.context import context_collectives
from traffic.building import count, named, ops, sent_bytes, workload

M = 32
"""Microbatches of global batch 64 over dp 2."""
TOKENS = 8192


def _all(kind="p2p", cp=4, **keys):
    return context_collectives(workload(dp=2, cp=cp, cp_kind=kind, **keys))


def _of(found, phase):
    return [one for one in found if one.phase == phase]


def test_without_context_parallelism_nothing_runs():
    assert context_collectives(workload(dp=4)) == []


@pytest.mark.parametrize("kind", [None, "p2p"])
def test_the_ring(kind):
    """Llama-3-8B: 8 key and value heads of 128, 2048 tokens a rank: K_c is 8 MiB."""
    found = _all(kind)
    assert [(one.op, one.phase, one.reverse) for one in found] == [
        ("send", "forward", False),
        ("send", "backward", True),
        ("send", "backward", True),
    ]
    for one in found:
        assert one.bytes_by_stage.tolist() == [2 * 2048 * 8 * 128 * 2]
        assert one.count_by_stage.tolist() == [3 * 32 * M]
        assert (one.each, one.per) == (3, "layer and microbatch")
        assert one.hides_behind


def test_backward_of_the_ring_sends_twice_the_forward():
    found = _all()
    assert sent_bytes(_of(found, "backward"), 4) == 2 * sent_bytes(_of(found, "forward"), 4)


@given(
    cp=st.sampled_from((2, 4, 8)),
    tp=st.sampled_from((1, 2, 4)),
    model=st.sampled_from(("llama-3-8b", "qwen3-30b-a3b", "deepseek-v3")),
)
def test_gathering_moves_what_the_ring_moves(cp, tp, model):
    """(c - 1) K_c forward and twice that backward, either way."""
    keys = {"model": model, "cp": cp, "tp": tp, "sequence_parallel": True}
    round_the_ring, gathered = _all("p2p", **keys), _all("all_gather", **keys)
    for phase in ("forward", "backward"):
        assert sent_bytes(_of(gathered, phase), cp) == pytest.approx(
            sent_bytes(_of(round_the_ring, phase), cp)
        )


def test_gathered_keys_and_values():
    found = _all("all_gather")
    assert sorted(set(ops(found))) == [
        ("all_gather", "backward"),
        ("all_gather", "forward"),
        ("reduce_scatter", "backward"),
    ]
    assert {float(one.bytes_by_stage[0]) for one in found} == {TOKENS * 8 * 128 * 2}
    assert {one.hides_behind for one in found} == {None}


def test_heads_against_sequence():
    found = _all("a2a")
    assert len(_of(found, "forward")) == len(_of(found, "backward")) == 4
    assert {one.op for one in found} == {"all_to_all"}
    queries, keys = 2048 * 32 * 128 * 2, 2048 * 8 * 128 * 2
    sizes = {one.what: float(one.bytes_by_stage[0]) for one in _of(found, "forward")}
    assert sizes == {
        "queries": queries,
        "keys": keys,
        "values": keys,
        "attention's output": queries,
    }
    assert sent_bytes(_of(found, "forward"), 4) == sent_bytes(_of(found, "backward"), 4)


def test_all_to_all_inside_and_ring_between():
    """The ring's piece has half the heads and twice the tokens: K_c, fewer steps."""
    found = _all("a2a+p2p", cp=8, hierarchical_cp=(2, 4))
    exchanged = [one for one in found if one.op == "all_to_all"]
    sends = [one for one in found if one.op == "send"]
    assert {one.axis for one in exchanged} == {"cp_l0"}
    assert {one.axis for one in sends} == {"cp_l1"}
    assert {one.each for one in sends} == {3}
    ring, flat = _all("p2p", cp=8), _all("a2a", cp=8)
    assert sends[0].bytes_by_stage[0] == ring[0].bytes_by_stage[0]
    assert [float(one.bytes_by_stage[0]) for one in exchanged] == [
        float(one.bytes_by_stage[0]) for one in flat
    ]
    layout = workload(dp=2, cp=8, cp_kind="a2a+p2p", hierarchical_cp=(2, 4)).layout
    assert [degree_of_axis(layout, axis) for axis in ("cp_l0", "cp_l1")] == [2, 4]


def test_more_tensor_ranks_than_key_heads_keep_one_head_each():
    few = _all(tp=8, model="qwen3-30b-a3b")  # 4 key and value heads
    many = _all(tp=4, model="qwen3-30b-a3b")
    assert few[0].bytes_by_stage[0] == many[0].bytes_by_stage[0]


def test_latent_attention_sends_whole_heads():
    model = find_model("deepseek-v3")
    [forward, *_] = _all(model="deepseek-v3", cp=2)
    assert forward.bytes_by_stage.tolist() == [TOKENS / 2 * model.heads * (192 + 128) * 2]


@pytest.mark.parametrize(
    ("framework", "recompute", "repeats"),
    [
        ("megatron", "none", False),
        ("megatron", "selective", True),  # of the core attention, which the ring is part of
        ("megatron", "full", True),
    ],
)
def test_recompute_of_attention_repeats_the_forward(framework, recompute, repeats):
    found = _all(framework=framework, training={"recompute": recompute})
    assert count(_of(found, "recompute")) == (count(_of(found, "forward")) if repeats else 0)


def test_every_stage_sends_for_its_layers():
    found = _all(pp=2, first_stage_layers=12)
    assert found[0].count_by_stage.tolist() == [3 * 12 * M, 3 * 20 * M]


def test_what_is_not_known_says_why():
    [note] = {one.reason for one in _all(None, framework="torchtitan")}
    assert "cp_kind" in note
    assert {one.reason for one in _all(batch={})} == {
        "micro_batch, seq_len or the number of microbatches is not given"
    }
    assert all(one.is_known for one in _all("all_gather", framework="torchtitan"))
    assert named(_all(None, framework="deepspeed"), "queries")[0].op == "all_to_all"
