"""Batch arithmetic: what follows, and what cannot all hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.batch import FIGURES, implied_dp, resolve_batch
from meshwright.job.sections import BatchSection


def _batch(dp, **keys):
    return resolve_batch(BatchSection(**keys), dp)


def _figures(batch):
    return batch.micro_batch, batch.num_microbatches, batch.global_batch


@pytest.mark.parametrize(
    ("dp", "keys", "expected"),
    [
        (4, {"global_batch": 64, "micro_batch": 1}, (1, 16, 64)),
        (4, {"global_batch": 64, "num_microbatches": 8}, (2, 8, 64)),
        (4, {"micro_batch": 2, "num_microbatches": 8}, (2, 8, 64)),
        (4, {"micro_batch": 2, "grad_accum": 8}, (2, 8, 64)),
        (4, {"micro_batch": 2, "num_microbatches": 8, "global_batch": 64}, (2, 8, 64)),
        (4, {"micro_batch": 2, "grad_accum": 8, "num_microbatches": 8}, (2, 8, 64)),
        (4, {"local_batch": 16, "micro_batch": 2}, (2, 8, 64)),
        (4, {"local_batch": 16}, (None, None, 64)),
        (4, {"local_batch": 8, "grad_accum": 2, "micro_batch": 2}, (2, 8, 64)),
        (4, {"local_batch": 8, "global_batch": 64, "micro_batch": 2}, (2, 8, 64)),
        (4, {"local_batch": 8, "micro_batch": 2, "num_microbatches": 8}, (2, 8, 64)),
        (8, {"local_batch": 4, "micro_batch": 1, "global_batch": 512}, (1, 64, 512)),
        (4, {"global_batch": 64}, (None, None, 64)),
        (4, {"micro_batch": 2}, (2, None, None)),
        (4, {}, (None, None, None)),
    ],
)
def test_what_follows(dp, keys, expected):
    batch = _batch(dp, seq_len=8192, **keys)
    assert _figures(batch) == expected
    assert batch.seq_len == 8192
    assert batch.contradiction is None


@pytest.mark.parametrize(
    ("dp", "keys", "reason"),
    [
        (3, {"global_batch": 64}, "64 is not divisible by dp 3"),
        (4, {"global_batch": 2, "micro_batch": 1}, "2 is not divisible by dp 4"),
        (4, {"global_batch": 64, "micro_batch": 3}, "16 sequences a replica"),
        (4, {"global_batch": 64, "num_microbatches": 5}, "not divisible by 5 microbatches"),
        (
            4,
            {"global_batch": 64, "micro_batch": 1, "num_microbatches": 8},
            "micro_batch 1 × num_microbatches 8 × dp 4 = 32, global_batch is 64",
        ),
        (4, {"num_microbatches": 8, "grad_accum": 4, "micro_batch": 1}, "both count microbatches"),
        (
            4,
            {"local_batch": 6, "micro_batch": 4},
            "local_batch 6 is not divisible by micro_batch 4",
        ),
        (4, {"local_batch": 6, "global_batch": 64}, "no multiple of local_batch 6 × dp 4 = 24"),
        (
            4,
            {"local_batch": 4, "grad_accum": 2, "global_batch": 64},
            "local_batch 4 × grad_accum 2 × dp 4 = 32, global_batch is 64",
        ),
        (
            2,
            {"local_batch": 16, "micro_batch": 2, "num_microbatches": 4},
            "= 8 is no multiple of local_batch 16",
        ),
        (
            2,
            {"local_batch": 4, "grad_accum": 3, "micro_batch": 2, "num_microbatches": 4},
            "= 8, but local_batch 4 × grad_accum 3 = 12",
        ),
    ],
)
def test_what_cannot_all_hold(dp, keys, reason):
    assert reason in (_batch(dp, **keys).contradiction or "")


def test_without_a_known_dp_nothing_is_divided():
    batch = _batch(0, global_batch=64, micro_batch=1)
    assert _figures(batch) == (1, None, 64)
    assert batch.contradiction is None


_COUNT = st.none() | st.integers(1, 64)


_KEYS = ("global_batch", "micro_batch", "num_microbatches", "local_batch", "grad_accum")


@given(
    dp=st.integers(-1, 9),
    keys=st.fixed_dictionaries(dict.fromkeys(_KEYS, _COUNT)),
    framework=st.sampled_from(["megatron", "torch", "torchtitan", "deepspeed"]),
    pp=st.integers(0, 3),
)
def test_figures_agree_or_are_said_not_to(dp, keys, framework, pp):
    batch = resolve_batch(BatchSection(**keys), dp, framework, pp)
    for name in _KEYS:  # what is given stays, a contradiction or not
        if keys[name] is not None:
            assert getattr(batch, name) == keys[name]
    if batch.contradiction is not None or dp < 1:
        return
    if None not in _figures(batch):
        assert batch.micro_batch * batch.num_microbatches * dp == batch.global_batch
    if None not in (batch.local_batch, batch.grad_accum, batch.global_batch):
        assert batch.local_batch * batch.grad_accum * dp == batch.global_batch


@pytest.mark.parametrize(
    ("dp", "keys", "expected"),
    [
        # local_batch, grad_accum, microbatches a pass
        (8, {"local_batch": 4, "micro_batch": 1, "global_batch": 512}, (4, 16, 4)),
        (8, {"local_batch": 8, "micro_batch": 1, "global_batch": 512}, (8, 8, 8)),
        (4, {"global_batch": 64, "micro_batch": 1}, (16, 1, 16)),
        (4, {"micro_batch": 2, "num_microbatches": 8}, (16, 1, 8)),
        (4, {"local_batch": 8, "grad_accum": 2, "num_microbatches": 8}, (8, 2, 4)),
        (4, {"local_batch": 8}, (8, 1, None)),
        (4, {"local_batch": 6, "micro_batch": 4}, (6, 1, None)),
        (4, {"local_batch": 8, "global_batch": 64}, (8, 2, None)),
        (4, {"local_batch": 16, "num_microbatches": 8}, (16, 1, 8)),
        # grad_accum in the place of num_microbatches stays what was given
        (4, {"micro_batch": 2, "grad_accum": 8}, (2, 8, 8)),
        (4, {"global_batch": 64, "grad_accum": 8}, (2, 8, 8)),
        # one pass, but without a local batch a printed 1 would read as one microbatch
        (4, {"num_microbatches": 8}, (None, None, 8)),
        (4, {}, (None, None, None)),
    ],
)
def test_passes_and_local_batches_follow_too(dp, keys, expected):
    batch = _batch(dp, **keys)
    assert (batch.local_batch, batch.grad_accum, batch.microbatches_per_pass) == expected


@pytest.mark.parametrize(
    ("keys", "framework", "pp", "expected"),
    [
        # micro_batch, num_microbatches, global_batch, local_batch, grad_accum
        ({"local_batch": 8}, "torchtitan", 1, (8, 1, 32, 8, 1)),
        ({"local_batch": 8, "global_batch": 64}, "torchtitan", 1, (8, 2, 64, 8, 2)),
        ({"local_batch": 8, "grad_accum": 3}, "torchtitan", 1, (8, 3, 96, 8, 3)),
        ({"micro_batch": 8, "global_batch": 64}, "torchtitan", 1, (8, 2, 64, 8, 2)),
        ({"local_batch": 8}, "torchtitan", 4, (1, 8, 32, 8, 1)),
        ({"local_batch": 8, "global_batch": 64}, "torchtitan", 4, (1, 16, 64, 8, 2)),
        ({"local_batch": 8, "micro_batch": 2}, "torchtitan", 4, (2, 4, 32, 8, 1)),
        ({"local_batch": 8, "num_microbatches": 2}, "torchtitan", 4, (4, 2, 32, 8, 1)),
        ({"local_batch": 4, "global_batch": 64}, "torch", 1, (4, 4, 64, 4, 4)),
        ({"local_batch": 4, "global_batch": 64}, "torch", 2, (None, None, 64, 4, 4)),
        ({"local_batch": 4, "global_batch": 64}, "megatron", 1, (None, None, 64, 4, 4)),
    ],
)
def test_a_local_batch_is_cut_as_the_framework_does(keys, framework, pp, expected):
    batch = resolve_batch(BatchSection(**keys), 4, framework, pp)
    assert (*_figures(batch), batch.local_batch, batch.grad_accum) == expected
    assert batch.contradictions == ()


@pytest.mark.parametrize(
    ("keys", "framework", "pp", "assumed"),
    [
        ({"local_batch": 8, "global_batch": 64}, "torchtitan", 1, set()),
        ({"local_batch": 8}, "torchtitan", 1, {"global_batch", "num_microbatches", "grad_accum"}),
        ({"local_batch": 8, "global_batch": 64}, "torchtitan", 4, {"micro_batch", "num_microbatches"}),
        ({"local_batch": 8, "global_batch": 64}, "torch", 1, {"micro_batch", "num_microbatches"}),
        ({"local_batch": 8}, "megatron", 2, {"global_batch", "grad_accum"}),
        ({"global_batch": 64, "micro_batch": 2}, "torchtitan", 4, set()),
    ],
)  # fmt: skip
def test_what_follows_from_a_default_is_assumed(keys, framework, pp, assumed):
    assert set(resolve_batch(BatchSection(**keys), 4, framework, pp).assumed) == assumed


def test_torchtitan_without_a_pipeline_does_not_cut_its_local_batch():
    section = BatchSection(local_batch=8, micro_batch=2)
    [reason] = resolve_batch(section, 4, "torchtitan", 1).contradictions
    assert "runs local_batch 8 as one forward" in reason
    assert resolve_batch(section, 4, "torchtitan", 2).contradictions == ()


def test_tokens_of_a_step():
    assert _batch(4, global_batch=64, micro_batch=1, seq_len=8192).tokens_per_step == 64 * 8192
    assert _batch(4, global_batch=64).tokens_per_step is None


@pytest.mark.parametrize(
    ("keys", "dp"),
    [
        ({"global_batch": 64, "micro_batch": 1, "num_microbatches": 8}, 8),
        ({"global_batch": 64, "micro_batch": 1, "grad_accum": 8}, 8),
        ({"global_batch": 64, "local_batch": 4, "grad_accum": 4}, 4),
        ({"global_batch": 64, "micro_batch": 1}, None),
        ({"global_batch": 64, "local_batch": 4}, None),
        ({"global_batch": 65, "micro_batch": 1, "num_microbatches": 8}, None),
        ({"micro_batch": 1, "num_microbatches": 8}, None),
    ],
)
def test_figures_imply_the_replicas_or_leave_them_open(keys, dp):
    assert implied_dp(BatchSection(**keys)) == dp


def test_every_contradiction_is_kept():
    batch = _batch(3, global_batch=64, micro_batch=3, num_microbatches=8, grad_accum=4)
    assert len(batch.contradictions) == 3
    assert batch.contradiction == batch.contradictions[0]


@given(
    micro=st.integers(1, 8),
    per_pass=st.integers(1, 8),
    passes=st.integers(1, 8),
    dp=st.integers(1, 8),
)
def test_any_sufficient_subset_gives_the_rest(micro, per_pass, passes, dp):
    """Forward from the small figures, backward from the global batch: the same chain."""
    whole = {
        "micro_batch": micro,
        "local_batch": micro * per_pass,
        "grad_accum": passes,
        "num_microbatches": per_pass * passes,
        "global_batch": micro * per_pass * passes * dp,
    }
    for given_names in (
        ("micro_batch", "local_batch", "grad_accum"),
        ("micro_batch", "local_batch", "num_microbatches"),
        ("micro_batch", "local_batch", "global_batch"),
        ("num_microbatches", "local_batch", "grad_accum"),
        tuple(whole),
    ):
        batch = _batch(dp, **{name: whole[name] for name in given_names})
        assert batch.contradictions == ()
        assert {name: getattr(batch, name) for name in whole} == whole, given_names
        assert batch.microbatches_per_pass == per_pass
    without_dp = {name: whole[name] for name in ("micro_batch", "num_microbatches", "global_batch")}
    assert implied_dp(BatchSection(**without_dp)) == dp


FRAMEWORKS = ("megatron", "torch", "torchtitan", "deepspeed")
FEW = st.one_of(st.none(), st.sampled_from((1, 2, 3, 4, 6, 8, 12, 24)))


@given(
    st.fixed_dictionaries(dict.fromkeys(FIGURES, FEW)),
    st.sampled_from((0, 1, 2, 4)),
    st.sampled_from(FRAMEWORKS),
    st.sampled_from((1, 2, 4)),
)
def test_printed_figures_are_accepted_again(keys, dp, framework, pp):
    batch = resolve_batch(BatchSection(**keys), dp, framework, pp)
    if batch.contradictions:
        return
    if batch.local_batch and batch.micro_batch:
        assert batch.local_batch % batch.micro_batch == 0
    printed = {name: getattr(batch, name) for name in FIGURES}
    again = resolve_batch(BatchSection(**printed), dp, framework, pp)
    assert again.contradictions == ()
    assert {name: getattr(again, name) for name in FIGURES} == printed


def test_a_microbatch_larger_than_the_local_batch_contradicts():
    figures = BatchSection(global_batch=144, num_microbatches=6, local_batch=6)
    assert "microbatches of 24" in (resolve_batch(figures, 1).contradiction or "")
