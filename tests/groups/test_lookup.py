"""From what a log prints to the groups it means."""

from __future__ import annotations

import pytest

from groups.building import layout_of
from meshwright.groups.creation import groups_numbered, has_numbers
from meshwright.groups.lookup import Asked, find_groups, nearest_names, read_name, why_nothing
from meshwright.groups.table import group_kinds

WATCHDOG = (
    "[rank11]:[E ProcessGroupNCCL.cpp:632] [PG ID 3 PG GUID 17(TENSOR_MODEL_PARALLEL_GROUP) Rank 1] "
    "Watchdog caught collective operation timeout"
)


def _found(text, **keys):
    layout = layout_of(**keys)
    matches = find_groups(layout, group_kinds(layout), read_name(text))
    return [match.twin or match.kind.name for match in matches]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("mesh_tp", ("mesh_tp", None, None, None)),
        (" 41 ", (None, 41, None, None)),
        (WATCHDOG, ("TENSOR_MODEL_PARALLEL_GROUP", 17, 1, 11)),
        ("PG GUID 5(mesh_dp_shard) Rank 3", ("mesh_dp_shard", 5, 3, None)),
        ("[PG ID 0 PG GUID 0(default_pg) Rank 7]", ("default_pg", 0, 7, None)),
        ('["41", "mesh_tp"]', ("mesh_tp", 41, None, None)),
        ("('0', 'default_pg')", ("default_pg", 0, None, None)),
        ("PG GUID 9f3ab0(undefined) Rank 3", ("undefined", None, 3, None)),
        ("PG GUID 12()", (None, 12, None, None)),
        ("9" * 40, ("9" * 40, None, None, None)),
    ],
)
def test_what_a_text_says(text, asked):
    found = read_name(text)
    assert (found.name, found.number, found.group_rank, found.rank) == asked


@pytest.mark.parametrize("text", ["", "   ", "x" * 5000])
def test_no_name(text):
    with pytest.raises(ValueError, match="characters"):
        read_name(text)


@pytest.mark.parametrize(
    ("text", "keys", "names"),
    [
        ("DATA_PARALLEL_GROUP_WITH_CP_AG", {"tp": 2, "dp": 4}, ["DATA_PARALLEL_GROUP_WITH_CP_AG"]),
        ("data_parallel_group_gloo", {"tp": 2, "dp": 4}, ["DATA_PARALLEL_GROUP_GLOO"]),
        ("edp", {"tp": 2, "dp": 4}, ["EXPERT_DATA_PARALLEL_GROUP"]),
        ("mesh_dp_shard", {"framework": "torch", "sharding": "fsdp", "dp": 8}, ["dp_shard"]),
        ("mesh_fsdp", {"framework": "torchtitan", "sharding": "fsdp", "dp": 8}, ["fsdp"]),
        ("default_pg", {"tp": 2, "dp": 4}, ["default_pg"]),
        ("0", {"framework": "torch", "tp": 2, "dp": 4}, ["default_pg"]),
        # a dimension of all ranks has no group but the world's
        ("0", {"framework": "torch", "tp": 8}, ["default_pg", "tp"]),
        (
            "default_pg",
            {"framework": "torch", "sharding": "fsdp", "dp": 8},
            ["default_pg", "dp_shard", "batch"],
        ),
        (
            "default_pg",
            {"framework": "torch", "sharding": "FULL_SHARD", "dp": 8},
            ["default_pg", "dp_shard", "batch"],
        ),
        (
            "default_pg",
            {"framework": "torch", "sharding": "HYBRID_SHARD", "shard_degree": 8, "dp": 8},
            ["default_pg"],
        ),
        ("dp_cp_pg", {"framework": "nanotron", "dp": 8}, ["dp_cp"]),
        (
            "_EXPERT_PARALLEL_GROUP",
            {"framework": "deepspeed", "dp": 8, "ep": 2},
            ["expert_parallel"],
        ),
        (
            "ep_size_2",
            {"framework": "deepspeed", "dp": 8, "ep": 2},
            ["expert_data_parallel", "expert_parallel"],
        ),
        (
            "HYBRID_DP_CP_GROUP_4",
            {"dp": 8, "hybrid_context_parallel": True},
            ["HYBRID_DP_CP_GROUP_4"],
        ),
        (
            "HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_GLOO_L0",
            {"dp": 8, "distributed_optimizer_instances": 2},
            ["HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_GLOO_L0"],
        ),
        ("nonsense", {"tp": 2, "dp": 4}, []),
    ],
)
def test_names(text, keys, names):
    assert _found(text, **keys) == names


def test_group_ranks_follow_the_order_of_torch_and_not_of_the_list():
    """Megatron passes an instance's ranks by replica; new_group sorts them (torch 2.13, run)."""
    layout = layout_of(tp=2, pp=2, dp=2)
    kind = next(one for one in group_kinds(layout) if one.axis == "instance")
    assert kind.members().tolist() == [[0, 1, 4, 5, 2, 3, 6, 7]]
    assert kind.by_group_rank(0) == list(range(8))


def test_jaxs_order_is_that_of_its_mesh():
    layout = layout_of(
        framework="maxtext",
        ici={"fsdp": 4},
        dcn={"data": 1},
        world_size=4,
        device_order=(0, 2, 1, 3),
    )
    kind = next(one for one in group_kinds(layout) if one.degree == 4)
    assert kind.by_group_rank(0) == kind.members()[0].tolist()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("embd", "EMBEDDING_GROUP"),
        ("mp", "MODEL_PARALLEL_GROUP"),
        ("pipeline", "PIPELINE_MODEL_PARALLEL_GROUP"),
        ("tensor_modl_paralel", "TENSOR_MODEL_PARALLEL_GROUP"),
        ("dpcp", "DATA_PARALLEL_GROUP_WITH_CP"),
    ],
)
def test_the_nearest_names_are_few_and_the_likeliest_first(word, name):
    kinds = group_kinds(layout_of(tp=2, pp=2, dp=2))
    near = nearest_names(kinds, word).split(", ")
    assert len(near) == 4
    assert near[0].split(" ")[0] == name
    assert len(nearest_names(kinds, word * 1000).split(", ")) == 4


def test_undefined_is_any_group_where_the_framework_describes_none():
    assert "expert_parallel" in _found("undefined", framework="deepspeed", dp=8, ep=2)
    assert _found("undefined", tp=2, dp=4) == []
    layout = layout_of(tp=2, dp=4)
    why = why_nothing(layout, group_kinds(layout), read_name("undefined"))
    assert "something else" in why


def test_numbers_of_nanotron_skip_groups_with_ranks_it_has_already():
    """World 0, its clone 1; tp 2-5; cp singletons 6-13; dp 14-15; pp and ep are those of cp."""
    layout = layout_of(framework="nanotron", tp=2, dp=4)
    kinds = group_kinds(layout)

    def at(number):
        return [(one.kind.name, one.index) for one in groups_numbered(layout, kinds, number)]

    assert at(2) == [("tp", 0)]
    assert at(5) == [("tp", 3)]
    assert at(6) == [("cp", 0)]
    assert at(14) == [("dp", 0)]
    assert at(15) == [("dp", 1)]
    assert at(16) == []
    assert at(1) == []


def test_a_number_says_nothing_where_the_script_decides_the_order():
    layout = layout_of(framework="deepspeed", dp=8)
    kinds = group_kinds(layout)
    assert not has_numbers(layout)
    assert find_groups(layout, kinds, Asked("7", number=7)) == []
    assert "order in which groups are made" in why_nothing(layout, kinds, Asked("7", number=7))


def test_numbers_are_not_known_where_groups_of_unequal_size_are_made():
    """dp-cp lists of 18 ranks are cut into groups of 4 with a last one of 2, of 8 with one of 2."""
    layout = layout_of(dp=18, hybrid_context_parallel=True)
    kinds = group_kinds(layout)
    hybrid = [kind for kind in kinds if kind.name.startswith("HYBRID")]
    assert [(kind.name, kind.num_groups) for kind in hybrid] == [("HYBRID_DP_CP_GROUP_2", 9)]
    assert not has_numbers(layout)
    assert groups_numbered(layout, kinds, 3) == []
    assert has_numbers(layout_of(dp=16, hybrid_context_parallel=True))


def test_numbers_of_a_large_world_are_found_without_listing_it():
    layout = layout_of(world_size=131_072, tp=8, pp=16, ep=8, etp=1)
    [with_gloo, without] = groups_numbered(layout, group_kinds(layout), 300_000)
    assert with_gloo.index < with_gloo.kind.num_groups
    assert with_gloo.kind.name != without.kind.name or with_gloo.index != without.index
