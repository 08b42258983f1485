"""Each rule of the rank grid: what it refuses, where, and what it leaves alone."""

from __future__ import annotations

import pytest

from groups.building import errors_of, findings_of, layout_of, rule_ids
from meshwright.findings import Severity
from meshwright.groups.table import MODELLED
from meshwright.rules.arithmetic import divisors
from meshwright.rules.grid import GRID_RULES, MOST_RANKS
from meshwright.rules.registry import RuleContext

DEEPSPEED = [
    ({"ep": 3, "framework": "deepspeed"}, 8, "deepspeed/experts-divide", "layout.ep"),
    (
        {"ep": 8, "tp": 2, "etp": 2, "framework": "deepspeed"},
        8,
        "deepspeed/experts-divide",
        "layout.ep",
    ),
    (
        {"tp": 4, "etp": 2, "framework": "deepspeed"},
        8,
        "deepspeed/expert-tensor-size",
        "layout.etp",
    ),
    (
        {"tp": 2, "mp_mode": "sp", "framework": "deepspeed"},
        8,
        "deepspeed/mp-mode",
        "layout.mp_mode",
    ),
    (
        {"cp": 2, "mp_mode": "tp", "framework": "deepspeed"},
        8,
        "deepspeed/mp-mode",
        "layout.mp_mode",
    ),
    (
        {"tp": 2, "etp": 2, "mp_mode": "tp", "framework": "deepspeed"},
        8,
        "deepspeed/mp-mode",
        "layout.etp",
    ),
    (
        {
            "tp": 2,
            "mp_mode": "tp",
            "use_data_before_expert_parallel": True,
            "framework": "deepspeed",
        },
        8,
        "deepspeed/data-before-expert-with-mp-mode",
        "layout.use_data_before_expert_parallel",
    ),
    ({"cp": 2, "tp": 2, "framework": "deepspeed"}, 8, "deepspeed/sequence-with-model", "layout.cp"),
    (
        {"tp": 2, "pp": 2, "ep": 2, "order": "pp-tp-dp", "framework": "deepspeed"},
        8,
        "deepspeed/expert-order",
        "layout.order",
    ),
    (
        {"zero_hpz_partition_size": 3, "sharding": "zero3", "framework": "deepspeed"},
        8,
        "deepspeed/hpz-divides-world",
        "layout.zero_hpz_partition_size",
    ),
]
NANOTRON = [
    ({"ep": 2, "framework": "nanotron"}, 8, "nanotron/expert-parallel", "layout.ep"),
    ({"tp": 2, "etp": 1, "framework": "nanotron"}, 8, "nanotron/expert-tensor", "layout.etp"),
    (
        {"tp": 2, "order": "dp-tp-cp-pp", "framework": "nanotron"},
        8,
        "nanotron/order-fixed",
        "layout.order",
    ),
]
DEEPSPEED += [
    ({"pp": 2, "sharding": sharding, "framework": "deepspeed"}, 8, "deepspeed/zero-with-pipeline", "layout.sharding")
    for sharding in ("zero2", "zero3", "fsdp")
]  # fmt: skip
MAXTEXT = [
    ({"ici": {"tensr": 4}}, 8, "maxtext/unknown-axis", "layout.ici"),
    ({"ici": {"data": -1}}, 8, "maxtext/axis-size", "layout.ici"),
    ({"ici": {"tensor": 0}}, 8, "maxtext/axis-size", "layout.ici"),
    ({"dcn": {"fsdp": -1}, "num_slices": 2}, 8, "maxtext/axis-size", "layout.dcn"),
    ({"num_slices": 3}, 8, "maxtext/slices-divide", "layout.num_slices"),
    ({"dcn": {"data": 3}}, 8, "maxtext/slices-divide", "layout.dcn"),
    ({"ici": {"tensor": 3}}, 8, "maxtext/mesh-product", "layout.ici"),
    ({"ici": {"tensor": 2, "fsdp": 2}}, 8, "maxtext/mesh-product", "layout.ici"),
    ({"dcn": {"data": 3}, "num_slices": 2}, 8, "maxtext/mesh-product", "layout.dcn"),
    ({"dcn": {"data": 2}, "num_slices": 1}, 8, "maxtext/dcn-needs-slices", "layout.num_slices"),
    ({"ici": {"tensor": 2}, "tp": 4}, 8, "maxtext/degrees-beside-axes", "layout.tp"),
    ({"ep": 3, "dp": 8}, 8, "maxtext/degrees-fill-mesh", "layout.dp"),
    ({"order": "tp-cp-dp-pp"}, 8, "maxtext/order-fixed", "layout.order"),
    ({"device_order": (0, 1, 1, 2, 3, 4, 5, 6)}, 8, "maxtext/device-order", "layout.device_order"),
    ({"device_order": (0, 1)}, 8, "maxtext/device-order", "layout.device_order"),
]
NOTES = [
    # what is said without refusing
    ({"hybrid_context_parallel": True}, 10, "cp/hybrid-slices-uneven", Severity.WARNING),
    ({"mp_mode": "tp", "tp": 2}, 8, "framework/key-without-effect", Severity.NOTE),
    (
        {"ici": {"tensor": 2}, "framework": "torch"},
        8,
        "framework/key-without-effect",
        Severity.NOTE,
    ),
    ({"framework": "maxtext"}, 8, "maxtext/device-order-assumed", Severity.NOTE),
    (
        {"zero_hpz_partition_size": 4, "sharding": "zero1", "framework": "deepspeed"},
        8,
        "deepspeed/hpz-needs-zero3",
        Severity.WARNING,
    ),
]
REFUSED = [
    # keys, slots, rule, place
    ({"tp": 0}, None, "layout/degree-positive", "layout.tp"),
    ({"tp": 0}, 16, "layout/degree-positive", "layout.tp"),
    ({"tp": -2, "world_size": 8}, None, "layout/degree-positive", "layout.tp"),
    ({"dp": -4}, None, "layout/degree-positive", "layout.dp"),
    ({"tp": 2, "vp": 0}, 8, "layout/degree-positive", "layout.vp"),
    ({"ep": 0}, 8, "layout/degree-positive", "layout.ep"),
    ({"etp": -1}, 8, "layout/degree-positive", "layout.etp"),
    ({"world_size": 0}, None, "layout/degree-positive", "layout.world_size"),
    ({"world_size": -8}, 8, "layout/degree-positive", "layout.world_size"),
    ({"tp": 1}, 0, "layout/degree-positive", "layout.world_size"),
    (
        {"distributed_optimizer_instances": 0},
        8,
        "layout/degree-positive",
        "layout.distributed_optimizer_instances",
    ),
    ({"world_size": MOST_RANKS * 2}, None, "grid/world-too-large", "layout.world_size"),
    ({"tp": 2**30}, None, "grid/world-too-large", "layout"),
    ({"tp": 3}, 16, "grid/world-divides", "layout.tp"),
    ({"tp": 2, "cp": 5}, 16, "grid/world-divides", "layout.cp"),
    ({"tp": 2, "pp": 7}, 16, "grid/world-divides", "layout.pp"),
    ({"dp": 4, "cp": 2, "world_size": 12}, None, "grid/world-product", "layout.dp"),
    (
        {"dp": 4, "cp": 2, "pp": 2, "world_size": 24},
        None,
        "grid/world-divides",
        "layout.world_size",
    ),
    ({"tp": 4, "dp": 4, "world_size": 32}, None, "grid/world-product", "layout.dp"),
    ({"dp": 2, "pp": 16, "world_size": 16}, None, "grid/world-product", "layout.dp"),
    (
        {"dp": 2, "pp": 2, "world_size": 16, "order": "tp-cp-ep-pp-dp"},
        None,
        "grid/world-product",
        "layout.dp",
    ),
    ({"tp": 4, "dp": 4}, 8, "grid/world-fits-cluster", "cluster"),
    ({"tp": 4, "world_size": 16}, 8, "grid/world-fits-cluster", "layout.world_size"),
    ({"tp": 2, "order": "tp-cp-xp-dp-pp"}, 8, "grid/order-axes", "layout.order"),
    ({"tp": 2, "order": "tp-tp-dp"}, 8, "grid/order-axes", "layout.order"),
    ({"tp": 2, "order": "tp--dp"}, 8, "grid/order-axes", "layout.order"),
    ({"tp": 2, "order": "cp-ep-dp-pp"}, 8, "grid/order-missing-axis", "layout.order"),
    ({"pp": 2, "order": "tp-cp-ep-dp"}, 8, "grid/order-missing-axis", "layout.order"),
    ({"ep": 2, "order": "tp-cp-dp-pp"}, 8, "grid/order-missing-axis", "layout.order"),
    # dp is 1 for attention, but 4 for experts; tp is 1, but experts are split in 2
    ({"tp": 4, "etp": 1, "order": "tp-cp-ep-pp"}, 4, "grid/order-missing-axis", "layout.order"),
    ({"etp": 2, "order": "cp-ep-dp-pp"}, 4, "grid/order-missing-axis", "layout.order"),
    ({"ep": 3}, 16, "grid/world-divides-expert", "layout.ep"),
    ({"etp": 3}, 16, "grid/world-divides-expert", "layout.etp"),
    ({"tp": 4, "ep": 4}, 8, "grid/world-divides-expert", "layout.ep"),
    (
        {"tp": 2, "cp": 2, "pp": 2, "order": "tp-cp-ep-pp-dp"},
        16,
        "grid/expert-dp-equals-dp-unless-pp-last",
        "layout.order",
    ),
    (
        {"tp": 2, "cp": 2, "pp": 2, "ep": 4, "etp": 1, "order": "tp-pp-cp-ep-dp"},
        16,
        "grid/pipeline-groups-equal",
        "layout.order",
    ),
    (
        {"tp": 2, "cp": 2, "pp": 2, "ep": 2, "order": "tp-cp-pp-ep-dp"},
        16,
        "grid/pipeline-groups-equal",
        "layout.order",
    ),
    ({"vp": 2}, 8, "pipeline/vp-needs-pp", "layout.vp"),
    (
        {"distributed_optimizer_instances": 3},
        8,
        "optimizer/instances-divide-dp",
        "layout.distributed_optimizer_instances",
    ),
    (
        {"distributed_optimizer_instances": 2, "ep": 8},
        8,
        "optimizer/instances-divide-dp",
        "layout.distributed_optimizer_instances",
    ),
    ({"cp": 8, "hierarchical_cp": (2, 2)}, 8, "cp/hierarchical-sizes", "layout.hierarchical_cp"),
    ({"cp": 4, "hierarchical_cp": (-2, -2)}, 8, "cp/hierarchical-sizes", "layout.hierarchical_cp"),
    (
        {"sharding": "hsdp", "framework": "torch"},
        8,
        "sharding/hsdp-needs-shard-degree",
        "layout.sharding",
    ),
    (
        {
            "sharding": "hsdp",
            "shard_degree": 4,
            "framework": "megatron",
            "distributed_optimizer_instances": 4,
        },
        8,
        "sharding/hsdp-instances",
        "layout.distributed_optimizer_instances",
    ),
    (
        {"sharding": "hsdp", "framework": "megatron"},
        8,
        "sharding/hsdp-needs-shard-degree",
        "layout.sharding",
    ),
    (
        {"sharding": "hsdp", "shard_degree": 4, "framework": "deepspeed"},
        8,
        "sharding/hsdp-not-in-framework",
        "layout.sharding",
    ),
    (
        {"sharding": "FULL_SHARD", "framework": "megatron"},
        8,
        "sharding/fsdp1-word-elsewhere",
        "layout.sharding",
    ),
    (
        {"sharding": "HYBRID_SHARD", "framework": "torch"},
        8,
        "sharding/hybrid-shard-hosts",
        "layout.sharding",
    ),
    (
        {"sharding": "HYBRID_SHARD", "shard_degree": 2, "tp": 2, "framework": "torch"},
        8,
        "sharding/hybrid-shard-world",
        "layout.sharding",
    ),
    (
        {"hybrid_context_parallel": True},
        9,
        "cp/hybrid-sizes",
        "layout.hybrid_context_parallel",
    ),
    (
        {"sharding": "hsdp", "shard_degree": 3, "framework": "torch"},
        8,
        "sharding/shard-degree-divides-dp",
        "layout.shard_degree",
    ),
    (
        {"sharding": "fsdp", "shard_degree": 0, "framework": "torch"},
        8,
        "sharding/shard-degree-divides-dp",
        "layout.shard_degree",
    ),
    (
        {"sharding": "fsdp", "ep": 3, "framework": "torchtitan"},
        8,
        "grid/ep-divides-sparse-region",
        "layout.ep",
    ),
    ({"tp": 2, "etp": 2, "framework": "torchtitan"}, 8, "grid/etp-not-on-mesh", "layout.etp"),
    (
        {"tp": 2, "order": "dp-tp-cp-pp", "framework": "torchtitan"},
        8,
        "grid/order-fixed-by-framework",
        "layout.order",
    ),
    (
        {"tp": 2, "pp": 2, "ep": 2, "order": "pp-tp-cp-dp", "framework": "torch"},
        8,
        "grid/expert-mesh-order",
        "layout.order",
    ),
    *DEEPSPEED,
    *NANOTRON,
]

ACCEPTED = [
    ({}, 8),
    ({"tp": 8}, 8),
    ({"tp": 4, "dp": 2}, 16),  # fewer ranks than GPUs
    ({"tp": 2, "order": "tp-dp"}, 8),  # axes of one rank need no place
    ({"tp": 2, "order": " tp - dp "}, 8),
    ({"pp": 2, "vp": 2}, 8),
    ({"pp": 2, "order": "tp-pp-cp-ep-dp"}, 8),
    ({"tp": 2, "cp": 2, "pp": 2, "ep": 4, "etp": 1, "order": "tp-cp-ep-pp-dp"}, 16),
    ({"tp": 2, "pp": 2, "order": "cp-tp-pp-dp"}, 8),
    ({"cp": 8, "hierarchical_cp": (2, 2, 2)}, 8),
    ({"distributed_optimizer_instances": 4}, 8),
    ({"sharding": "hsdp", "shard_degree": 4, "framework": "torch"}, 8),
    ({"order": "pp-dp-cp-tp", "tp": 2, "pp": 2, "framework": "torch"}, 8),
    ({"tp": 2, "ep": 2, "order": "tp-cp-dp-pp", "framework": "torch"}, 8),
    ({"tp": 4, "dp": 2, "framework": "torchtitan"}, None),
    ({"sharding": "hsdp", "shard_degree": 4, "framework": "megatron"}, 8),
    ({"sharding": "hsdp", "distributed_optimizer_instances": 2, "cp": 2}, 16),
    ({"sharding": "HYBRID_SHARD", "shard_degree": 4, "framework": "torch"}, 8),
    ({"hybrid_context_parallel": True, "cp": 2}, 12),
    ({"tp": 2, "pp": 2, "order": "pp-dp-tp", "framework": "deepspeed"}, 8),
    ({"tp": 2, "ep": 4, "mp_mode": "tp", "framework": "deepspeed"}, 8),
    ({"zero_hpz_partition_size": 16, "sharding": "zero3", "framework": "deepspeed"}, 8),
    ({"tp": 2, "pp": 2, "framework": "nanotron"}, 8),
    ({"world_size": MOST_RANKS}, None),
]


@pytest.mark.parametrize(("keys", "slots", "rule", "place"), REFUSED)
def test_refused_by_one_rule_at_one_place(keys, slots, rule, place):
    findings = findings_of(layout_of(slots, **keys), slots)
    assert [(one.rule, str(one.place)) for one in findings] == [(rule, place)]
    [finding] = findings
    assert finding.severity is Severity.ERROR
    assert finding.numbers
    assert finding.remedy


@pytest.mark.parametrize(("keys", "slots", "rule", "place"), MAXTEXT)
def test_a_mesh_is_refused_by_one_rule_at_one_place(keys, slots, rule, place):
    errors = errors_of(layout_of(slots, framework="maxtext", **keys), slots)
    assert [(one.rule, str(one.place)) for one in errors] == [(rule, place)]
    assert errors[0].numbers
    assert errors[0].remedy


@pytest.mark.parametrize(("keys", "slots", "rule", "severity"), NOTES)
def test_said_without_refusing(keys, slots, rule, severity):
    [finding] = findings_of(layout_of(slots, **keys), slots)
    assert (finding.rule, finding.severity) == (rule, severity)
    assert finding.remedy


@pytest.mark.parametrize(("keys", "slots"), ACCEPTED)
def test_accepted(keys, slots):
    assert findings_of(layout_of(slots, **keys), slots) == []


def test_every_rule_has_a_case():
    assert {case[2] for case in (*REFUSED, *MAXTEXT, *NOTES)} == {rule.id for rule in GRID_RULES}


def test_rules_are_told_apart_and_documented():
    assert len({rule.id for rule in GRID_RULES}) == len(GRID_RULES)
    for rule in GRID_RULES:
        assert rule.summary.endswith(".")
        assert rule.source
        assert set(rule.frameworks) <= set(MODELLED)


@pytest.mark.parametrize(
    ("keys", "slots", "remedy"),
    [
        ({"tp": 3}, 8, "tp: 1, 2, 4, 8; or world_size: 6 or 9"),
        ({"ep": 3}, 16, "ep: 1, 2, 4, 8; or world_size: 15 of the 16 GPUs"),
        ({"tp": 4, "ep": 4}, 8, "ep: 1, 2; or etp: 1"),
        ({"etp": 3}, 16, "etp: 1, 2, 4, 8; or world_size: 15 of the 16 GPUs"),
        ({"etp": 3, "ep": 5}, 16, "ep: 1 and etp: 1; or world_size: 15 of the 16 GPUs"),
        ({"tp": 4, "dp": 4, "world_size": 32}, None, "dp: 8"),
        ({"tp": 4, "dp": 4, "world_size": 30}, None, "world_size: 16"),
        ({"tp": 4, "dp": 4}, 8, "dp: 2, or more hosts"),
        ({"tp": 16, "dp": 4}, 8, "a smaller layout, or more hosts"),
        ({"tp": 2, "order": "cp-dp-pp"}, 8, "order: cp-dp-tp-pp, or the place where tp belongs"),
        (
            {"distributed_optimizer_instances": 4, "ep": 4},
            8,
            "distributed_optimizer_instances: 1, 2",
        ),
    ],
)
def test_remedies_are_legal(keys, slots, remedy):
    [finding] = findings_of(layout_of(slots, **keys), slots)
    assert finding.remedy == remedy


def test_a_place_comes_from_the_file_when_there_is_one():
    layout = layout_of(8, tp=3)
    asked = []

    def place(path):
        asked.append(path)
        return RuleContext(layout).place(path)

    [rule] = [one for one in GRID_RULES if one.id == "grid/world-divides"]
    assert len(list(rule.findings(RuleContext(layout, place)))) == 1
    assert asked == ["layout.tp"]


@pytest.mark.parametrize("framework", ["torch", "torchtitan"])
def test_rules_of_megatron_leave_meshes_alone(framework):
    said = rule_ids(8, framework=framework, distributed_optimizer_instances=3)
    assert said == ["framework/key-without-effect"]
    assert rule_ids(8, framework=framework, vp=2) == []


def test_divisors():
    assert divisors(1) == [1]
    assert divisors(12) == [1, 2, 3, 4, 6, 12]
    assert divisors(49) == [1, 7, 49]
    assert divisors(2**16 * 65537) == sorted(
        {2**i for i in range(17)} | {65537 << i for i in range(17)}
    )
    # of enormous numbers only those near the ends: nobody waits for the rest
    assert divisors(2**62) == [2**i for i in range(17)] + [2**i for i in range(46, 63)]
    for number in range(1, 300):
        assert divisors(number) == [value for value in range(1, number + 1) if number % value == 0]


@pytest.mark.parametrize("world_size", [2**61 - 1, 2**63 - 1, 2**62])
def test_enormous_numbers_are_refused(world_size):
    assert "grid/world-too-large" in rule_ids(world_size=world_size, tp=2, ep=3)
    assert "grid/world-too-large" in rule_ids(dp=world_size, shard_degree=7)
