"""DeepSpeed's topologies and its functions for groups agree on random layouts."""

from __future__ import annotations

from typing import Any

import pytest

from groups.building import errors_of, layout_of
from meshwright.groups.table import group_kinds
from meshwright.job.layout import Layout
from oracles.asking import ask
from oracles.layouts_deepspeed import random_cases

pytestmark = pytest.mark.oracles

_COUNT, _SEED = 300, 16
_RULES_OF_ERROR = {
    "Invalid Grid": ("grid/world-product", "layout/degree-positive"),
    "sequence_parallel_size": ("grid/world-divides",),
    "NotImplementedError": ("deepspeed/data-before-expert-with-mp-mode",),
    "is not divisible by": ("deepspeed/experts-divide", "deepspeed/hpz-divides-world"),
}
_OF_THE_ENGINE = "deepspeed/zero-with-pipeline"
"""What the pipeline's engine refuses, which is not asked here: topologies know no ZeRO."""
_OF_PIPELINES = ("ds_model", "p2p")
"""What DeepSpeed's grid makes with one stage too, and its pipeline engine alone uses."""


def test_random_layouts_have_the_groups_and_refusals_of_deepspeed():
    cases = random_cases(_COUNT, _SEED)
    answers = ask("deepspeed_groups.py", cases)
    refused = 0
    met: set[str] = set()
    compared: dict[str, int] = {}
    for case, answer in zip(cases, answers, strict=True):
        layout = layout_of(**case["keys"])
        rules = {one.rule for one in errors_of(layout)} - {_OF_THE_ENGINE}
        if "refused" in answer:
            refused += 1
            [expected] = [
                rules_of for part, rules_of in _RULES_OF_ERROR.items() if part in answer["refused"]
            ][:1]
            assert rules & set(expected), (case, answer, rules)
            met |= rules
            continue
        assert rules == set(), case
        for name in _same(layout, case, answer):
            compared[name] = compared.get(name, 0) + 1
    assert refused >= 60
    assert _COUNT - refused >= 150
    assert met >= {rule for rules in _RULES_OF_ERROR.values() for rule in rules}
    assert len(compared) == 10
    assert min(compared.values()) >= 20, compared


def _same(layout: Layout, case: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Hold lists and order against what was made; return the kinds that were compared."""
    ours = {kind.name: kind.members().tolist() for kind in group_kinds(layout)}
    made = answer["groups"]
    if layout.pp == 1:
        made = {name: groups for name, groups in made.items() if name not in _OF_PIPELINES}
    for name, groups in made.items():
        assert ours[name] == groups, (case, name)
    for name, ranks in answer["held"].items():
        if name in made:
            assert [one for one in ours[name] if case["rank"] in one] == [ranks], (case, name)
    return list(made)
