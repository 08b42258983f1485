"""megatron-core's own parallel_state agrees on random layouts: the groups, their order, the refusals."""

from __future__ import annotations

from typing import Any

import pytest

from groups.building import errors_of, layout_of
from groups.test_golden_megatron import KEY_OF_ARGUMENT
from meshwright.groups.table import group_kinds
from meshwright.job.layout import Layout
from oracles.asking import ask
from oracles.layouts_megatron import random_cases

pytestmark = pytest.mark.oracles

_COUNT, _SEED = 300, 16
_RULES_OF_ERROR = {
    "is not divisible by expert_tensor_model_pipeline": "grid/world-divides-expert",
    "is not divisible by": "grid/world-divides",
    "haven'tspecified the order": "grid/order-missing-axis",
    "KeyError": "grid/order-axes",
    "ZeroDivisionError": "layout/degree-positive",
    "not using pp-last rank ordering": "grid/expert-dp-equals-dp-unless-pp-last",
    "Pipeline parallel groups are expected to be the same": "grid/pipeline-groups-equal",
    "pipeline-model-parallel size should be greater than 1": "pipeline/vp-needs-pp",
    "divisible by partial DistOpt shard factor": "optimizer/instances-divide-dp",
    "Hybrid context parallel requires an even number": "cp/hybrid-sizes",
    "AssertionError: ": "cp/hierarchical-sizes",  # the one assertion without a text
}


def _layout(case: dict[str, Any]) -> Layout:
    keys = {KEY_OF_ARGUMENT.get(name, name): value for name, value in case["args"].items()}
    if "hierarchical_cp" in keys:
        keys["hierarchical_cp"] = tuple(keys["hierarchical_cp"])
    return layout_of(world_size=case["world"], framework="megatron", **keys)


def _rule_of(error: str) -> str:
    return next(rule for part, rule in _RULES_OF_ERROR.items() if part in error)


def test_random_layouts_have_the_groups_and_refusals_of_megatron_core():
    cases = random_cases(_COUNT, _SEED)
    answers = ask("megatron_groups.py", cases)
    refused = 0
    met = set()
    for case, answer in zip(cases, answers, strict=True):
        layout = _layout(case)
        rules = [one.rule for one in errors_of(layout)]
        if "refused" in answer:
            refused += 1
            assert _rule_of(answer["refused"]) in rules, (case, answer, rules)
            met.add(_rule_of(answer["refused"]))
            continue
        assert rules == [], case
        _same(layout, case, answer)
    assert refused >= 60
    assert _COUNT - refused >= 150
    assert met == set(_RULES_OF_ERROR.values())


def _same(layout: Layout, case: dict[str, Any], answer: dict[str, Any]) -> None:
    """Hold kinds, lists and order against what was made, and the groups that one rank holds."""
    ours = {kind.name: kind.members().tolist() for kind in group_kinds(layout)}
    made = answer["groups"]
    if layout.hybrid_context_parallel:
        # sizes that leave a shorter group are not listed, and a warning says so
        sizes = {name: {len(ranks) for ranks in groups} for name, groups in made.items()}
        made = {name: groups for name, groups in made.items() if len(sizes[name]) == 1}
    assert list(ours.items()) == list(made.items()), case
    for name, ranks in answer["held"].items():
        assert [one for one in ours[name] if case["rank"] in one] == [ranks], (case, name)
