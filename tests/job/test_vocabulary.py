"""Rows of the vocabulary: who pads, to what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.job.vocabulary import padded_rows


@pytest.mark.parametrize(
    ("vocab", "tp", "framework", "given_multiple", "rows"),
    [
        (151669, 4, "megatron", None, 152064),
        (151669, 4, "megatron", 64, 151808),
        (151669, 4, "nanotron", None, 151672),
        (151669, 4, "torchtitan", None, 151669),
        (151669, 4, "torchtitan", 128, 152064),
        (128256, 8, "megatron", 1, 128256),
    ],
)
def test_by_framework(vocab, tp, framework, given_multiple, rows):
    assert padded_rows(vocab, tp, framework, given_multiple) == rows


@given(st.integers(1, 10**6), st.integers(1, 64), st.integers(1, 256))
def test_the_least_multiple(vocab, tp, multiple):
    rows = padded_rows(vocab, tp, "megatron", multiple)
    assert rows % (multiple * tp) == 0
    assert vocab <= rows < vocab + multiple * tp
    assert padded_rows(rows, tp, "megatron", multiple) == rows
