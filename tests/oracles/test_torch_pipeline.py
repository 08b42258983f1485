"""torch's own runtime executes the schedule files written here, with the gradients of the whole model."""

from __future__ import annotations

import pytest

from meshwright.schedules.make import make_orders
from meshwright.schedules.orders import LETTERS, Orders
from meshwright.schedules.torch_form.csv_write import torch_csv
from oracles.asking import ask

pytestmark = pytest.mark.oracles

_RANKS = 4
_SCHEDULES = [
    ("gpipe", 6, {}),
    ("1f1b", 8, {}),
    ("interleaved", 8, {"chunks": 2}),
    ("interleaved", 6, {"chunks": 3, "convention": "torch"}),
    ("interleaved", 12, {"chunks": 2, "group": 6}),
    ("looped-bfs", 5, {"chunks": 2}),
    ("interleaved-zb", 8, {"chunks": 2}),
    ("zb-h1", 8, {}),
    ("zb-h2", 8, {}),
    ("zb-v", 8, {}),
    ("zb-v", 8, {"convention": "torch"}),
    ("v-half", 8, {}),
    ("v-min", 8, {}),
    ("dualpipev", 8, {}),
]
_ENOUGH = 1e-12
"""Difference of gradients against the largest: the sums are taken in another order, in double precision."""


def test_gradients_and_the_order_that_ran_are_ours():
    made = [make_orders(name, _RANKS, count, **options) for name, count, options in _SCHEDULES]
    cases = [
        {
            "csv": torch_csv(orders),
            "ranks": orders.ranks,
            "stages": orders.chain_length,
            "microbatches": orders.microbatches,
        }
        for orders in made
    ]
    answers = ask("torch_pipeline_runs.py", cases, GLOO_SOCKET_IFNAME="lo")
    for (name, _, options), orders, answer in zip(_SCHEDULES, made, answers, strict=True):
        assert answer["difference"] < _ENOUGH, (name, options)
        assert answer["gradients"] == 2 * orders.chain_length, name  # weight and bias of each stage
        assert answer["orders"] == _listed(orders), name


def _listed(orders: Orders) -> list[list[str]]:
    """Return every rank's operations, a pair that torch overlaps as two: it runs one after the other."""
    rows = zip(orders.stage.tolist(), orders.kind.tolist(), orders.microbatch.tolist(), strict=True)
    names = [f"{stage}{LETTERS[kind]}{microbatch}" for stage, kind, microbatch in rows]
    return [names[orders.of_rank(rank)] for rank in range(orders.ranks)]
