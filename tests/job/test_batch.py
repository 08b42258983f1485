"""Batch arithmetic: what follows, and what cannot all hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.batch import implied_dp, resolve_batch
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


@given(st.integers(-1, 9), st.fixed_dictionaries(dict.fromkeys(_KEYS, _COUNT)))
def test_figures_agree_or_are_said_not_to(dp, keys):
    batch = _batch(dp, **keys)
    for name in ("global_batch", "micro_batch", "num_microbatches"):
        if keys[name] is not None:
            assert getattr(batch, name) == keys[name]
    if batch.contradiction is not None or dp < 1:
        return
    if None not in _figures(batch):
        assert batch.micro_batch * batch.num_microbatches * dp == batch.global_batch
    if keys["local_batch"] is not None and batch.global_batch is not None:
        assert batch.global_batch % (keys["local_batch"] * dp) == 0


@pytest.mark.parametrize(
    ("dp", "keys", "expected"),
    [
        # local_batch, grad_accum, microbatches a pass
        (8, {"local_batch": 4, "micro_batch": 1, "global_batch": 512}, (4, 16, 4)),
        (8, {"local_batch": 8, "micro_batch": 1, "global_batch": 512}, (8, 8, 8)),
        (4, {"global_batch": 64, "micro_batch": 1}, (16, 1, 16)),
        (4, {"micro_batch": 2, "num_microbatches": 8}, (16, 1, 8)),
        (4, {"local_batch": 8, "grad_accum": 2, "num_microbatches": 8}, (8, 2, 4)),
        (4, {"local_batch": 8}, (8, None, None)),
        (4, {"local_batch": 6, "micro_batch": 4}, (6, None, None)),
        (4, {}, (None, None, None)),
    ],
)
def test_passes_and_local_batches_follow_too(dp, keys, expected):
    batch = _batch(dp, **keys)
    assert (batch.local_batch, batch.grad_accum, batch.microbatches_per_pass) == expected


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
