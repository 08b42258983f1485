"""Groups and refusals of Megatron-Core 0.16.1, as its own code gave them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groups.building import errors_of, findings_of, layout_of
from meshwright.groups.table import group_kinds
from meshwright.job.layout import Layout
from support import shared_path

pytestmark = pytest.mark.golden

KEY_OF_ARGUMENT = {
    "tensor_model_parallel_size": "tp",
    "context_parallel_size": "cp",
    "pipeline_model_parallel_size": "pp",
    "virtual_pipeline_model_parallel_size": "vp",
    "expert_model_parallel_size": "ep",
    "expert_tensor_parallel_size": "etp",
    "num_distributed_optimizer_instances": "distributed_optimizer_instances",
    "hierarchical_context_parallel_sizes": "hierarchical_cp",
    "order": "order",
}

RULE_OF_ERROR = {
    "is not divisible by expert_tensor_model_pipeline": "grid/world-divides-expert",
    "When not using pp-last rank ordering": "grid/expert-dp-equals-dp-unless-pp-last",
    "pipeline-model-parallel size should be greater than 1": "pipeline/vp-needs-pp",
    "divisible by partial DistOpt shard factor": "optimizer/instances-divide-dp",
    "specified the order": "grid/order-missing-axis",
    "world_size (8) is not divisible by 3": "grid/world-divides",
}


def _cases() -> list[dict[str, Any]]:
    path = shared_path("reference/golden/rank_groups_megatron_core_0_16_1.json")
    cases: list[dict[str, Any]] = json.loads(path.read_text())["cases"]
    return cases


def _layout(case: dict[str, Any]) -> Layout:
    keys = {KEY_OF_ARGUMENT[name]: value for name, value in case["args"].items()}
    if "hierarchical_cp" in keys:
        keys["hierarchical_cp"] = tuple(keys["hierarchical_cp"])
    return layout_of(world_size=case["world"], framework="megatron", **keys)


def test_every_accepted_case_has_the_same_groups_in_the_same_order():
    accepted = [case for case in _cases() if "groups" in case]
    assert len(accepted) == 34
    for case in accepted:
        layout = _layout(case)
        assert findings_of(layout) == [], case["args"]
        ours = [(kind.name, kind.members().tolist()) for kind in group_kinds(layout)]
        assert ours == list(case["groups"].items()), case["args"]


def test_every_refused_case_is_refused_by_the_rule_of_its_error_alone():
    refused = [case for case in _cases() if "groups" not in case]
    assert len(refused) == 11
    met = set()
    for case in refused:
        [expected] = [rule for part, rule in RULE_OF_ERROR.items() if part in case["error"]]
        errors = errors_of(_layout(case))
        assert [one.rule for one in errors] == [expected], (case["args"], case["error"])
        met.add(expected)
    assert met == set(RULE_OF_ERROR.values())


def test_refusals_say_where_with_which_numbers_and_what_to_do():
    for case in _cases():
        for one in findings_of(_layout(case)):
            assert one.numbers, one
            assert one.remedy, one
            assert one.place.subject is not None, one
            assert one.place.subject.startswith("layout."), one
            for value in one.numbers.values():
                assert str(value) in one.message, one
