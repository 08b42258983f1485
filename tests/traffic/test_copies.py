"""Copies of a token: closed form against all choices, limits, domains."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.traffic.copies import Copies


def _by_counting(copies: Copies, ranks: int) -> float:
    """Return the chance of a set of the first ranks, over all choices of groups and experts."""
    size = copies.experts // copies.groups
    held = range(copies.experts * ranks // copies.ranks)
    hits = every = 0
    for groups in combinations(range(copies.groups), copies.chosen_groups):
        experts = [g * size + i for g in groups for i in range(size)]
        for chosen in combinations(experts, copies.top_k):
            every += 1
            hits += any(one in held for one in chosen)
    return hits / every


@pytest.mark.parametrize(
    ("experts", "top_k", "ranks", "groups", "chosen"),
    [(8, 2, 4, 1, 1), (8, 3, 8, 1, 1), (12, 2, 4, 4, 2), (12, 3, 12, 4, 2), (16, 4, 8, 4, 2)],
)
def test_the_closed_form_counts_all_choices(experts, top_k, ranks, groups, chosen):
    copies = Copies(experts, top_k, ranks, groups, chosen)
    for some in range(ranks + 1):
        assert copies.hit(some) == pytest.approx(_by_counting(copies, some))


def test_deepseek_v3():
    """256 experts, 8 of them, 4 of 8 groups; 64 ranks on 8 hosts: at most 4 hosts a token."""
    free, limited = Copies(256, 8, 64), Copies(256, 8, 64, 8, 4)
    assert free.per_token == pytest.approx(64 * (1 - _choose(252, 8) / _choose(256, 8)))
    assert free.domains_hit(8) == pytest.approx(8 * (1 - _choose(224, 8) / _choose(256, 8)))
    assert 5 < free.domains_hit(8) < 6
    # One of the chosen groups is seldom left without any of the 8.
    assert limited.domains_hit(8) == pytest.approx(4 * (1 - _choose(96, 8) / _choose(128, 8)))
    assert limited.domains_hit(8) < 4
    assert limited.per_token < free.per_token < 8


def _choose(n: int, k: int) -> float:
    value = 1.0
    for taken in range(k):
        value *= (n - taken) / (k - taken)
    return value


@given(
    ranks=st.sampled_from((1, 2, 4, 8, 16, 32)),
    top_k=st.integers(1, 8),
    limit=st.sampled_from(((1, 1), (8, 4), (8, 2), (4, 4))),
    etp=st.sampled_from((1, 2)),
)
def test_bounds(ranks, top_k, limit, etp):
    copies = Copies(64, top_k, ranks, *limit, etp)
    assert 0 < copies.per_token <= min(top_k, ranks) * etp + 1e-9
    assert copies.hit(ranks) == pytest.approx(1)
    assert copies.hit(0) == pytest.approx(0)
    chances = [copies.hit(some) for some in range(ranks + 1)]
    assert chances == sorted(chances)
    for domain in (1, 2, 4):
        if ranks % domain == 0:
            # A token goes to no more domains than ranks, and to one at least.
            hit = copies.domains_hit(domain * etp)
            assert 1 - 1e-9 <= hit <= copies.per_token / etp + 1e-9


def test_one_expert_a_rank_and_token_goes_to_k_ranks():
    assert Copies(64, 6, 64).per_token == pytest.approx(6)


def test_absurd_numbers_take_no_time():
    huge = Copies(2**31 - 1, 10**9, 64, 2**20, 2**19)
    assert huge.per_token == pytest.approx(64)
    nearly = Copies(10**6, 2000, 1000)
    by_steps = 1.0
    for taken in range(2000):
        by_steps *= (10**6 - 1000 - taken) / (10**6 - taken)
    assert nearly.hit(1) == pytest.approx(1 - by_steps)
