"""The mixed-radix engine on small examples done by hand."""

from __future__ import annotations

import numpy as np

from groups.building import layout_of
from meshwright.groups.grid import Grid, split_digits
from meshwright.groups.kinds import joined_axis
from meshwright.groups.table import coordinates, grids, group_kinds

GRID = Grid(("tp", "cp", "dp"), (2, 3, 2))


def _members(**keys):
    return {kind.name: kind.members().tolist() for kind in group_kinds(layout_of(**keys))}


def test_sizes_and_strides():
    assert GRID.world_size == 12
    assert [GRID.size(axis) for axis in ("tp", "cp", "dp", "pp")] == [2, 3, 2, 1]
    assert [GRID.stride(axis) for axis in ("tp", "cp", "dp")] == [1, 2, 6]


def test_members_along_one_axis():
    assert GRID.members(("cp",)).tolist() == [[0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]]


def test_members_along_two_axes_follow_the_grid_and_not_the_question():
    expected = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]
    assert GRID.members(("tp", "dp")).tolist() == expected
    assert GRID.members(("dp", "tp")).tolist() == expected


def test_members_along_nothing_and_along_everything():
    assert GRID.members(()).tolist() == [[rank] for rank in range(12)]
    assert GRID.members(("tp", "cp", "dp")).tolist() == [list(range(12))]
    assert GRID.members(("ep",)).tolist() == [[rank] for rank in range(12)]


def test_members_are_32_bit():
    assert GRID.members(("tp",)).dtype == np.int32


def test_coordinates():
    assert GRID.coordinates(0) == {"tp": 0, "cp": 0, "dp": 0}
    assert GRID.coordinates(9) == {"tp": 1, "cp": 1, "dp": 1}


def test_split_digits_of_sixteen_ranks():
    ranks = np.arange(16, dtype=np.int32)[None, :]
    assert split_digits(ranks, (2, 2, 4), 0).tolist()[:2] == [[0, 1], [2, 3]]
    assert split_digits(ranks, (2, 2, 4), 1).tolist()[:3] == [[0, 2], [1, 3], [4, 6]]
    assert split_digits(ranks, (2, 2, 4), 2).tolist() == [
        [0, 4, 8, 12],
        [1, 5, 9, 13],
        [2, 6, 10, 14],
        [3, 7, 11, 15],
    ]


def test_joined_axes_are_named_in_one_order():
    assert joined_axis(("cp", "dp")) == "dp-cp"
    assert joined_axis(("pp", "tp")) == "tp-pp"
    assert joined_axis(("pp", "etp", "ep")) == "pp-ep-etp"


def test_worked_example_of_sixteen_ranks():
    last = _members(world_size=16, tp=2, pp=4, order="tp-cp-ep-dp-pp")
    assert last["DATA_PARALLEL_GROUP"][:3] == [[0, 2], [1, 3], [4, 6]]
    assert last["PIPELINE_MODEL_PARALLEL_GROUP"][0] == [0, 4, 8, 12]
    before = _members(world_size=16, tp=2, pp=4, order="tp-cp-ep-pp-dp")
    assert before["DATA_PARALLEL_GROUP"][0] == [0, 8]
    assert before["PIPELINE_MODEL_PARALLEL_GROUP"][0] == [0, 2, 4, 6]


def test_partial_distributed_optimizer_of_sixteen_ranks():
    groups = _members(world_size=16, tp=2, distributed_optimizer_instances=2)
    assert groups["INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP"][:2] == [
        [0, 2, 4, 6],
        [8, 10, 12, 14],
    ]
    assert groups["HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_L1"][:2] == [[0, 8], [2, 10]]
    assert groups["INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP"] == [
        list(range(8)),
        list(range(8, 16)),
    ]


def test_the_worked_example_of_eight_billion_parameters():
    kinds = {kind.name: kind for kind in group_kinds(layout_of(tp=4, dp=4))}
    assert kinds["TENSOR_MODEL_PARALLEL_GROUP"].members().tolist()[0] == [0, 1, 2, 3]
    assert kinds["DATA_PARALLEL_GROUP"].members().tolist()[1] == [1, 5, 9, 13]
    turned = {
        kind.name: kind for kind in group_kinds(layout_of(tp=4, dp=4, order="dp-cp-ep-tp-pp"))
    }
    assert turned["TENSOR_MODEL_PARALLEL_GROUP"].members().tolist()[0] == [0, 4, 8, 12]
    assert turned["DATA_PARALLEL_GROUP"].members().tolist()[0] == [0, 1, 2, 3]


def test_coordinates_of_a_rank_on_both_grids():
    layout = layout_of(world_size=16, tp=2, cp=2, pp=2, ep=4, etp=1)
    dense = {"tp": 1, "cp": 1, "dp": 0, "pp": 1}
    assert coordinates(layout, 11) == dense | {"etp": 0, "ep": 3, "edp": 0}


def test_a_mesh_without_experts_has_one_grid():
    assert len(grids(layout_of(framework="torch", tp=2, dp=2))) == 1
    assert len(grids(layout_of(framework="torch", tp=2, dp=2, ep=2))) == 2


def test_members_arranged_by_hand():
    """tp 2, cp 3, dp 2: groups along cp, those of another dp next to each other."""
    assert GRID.arranged(("cp",), ("dp", "tp")).tolist() == [
        [0, 2, 4],
        [6, 8, 10],
        [1, 3, 5],
        [7, 9, 11],
    ]
    assert GRID.arranged(("dp", "cp"), ("tp",)).tolist()[0] == [0, 6, 2, 8, 4, 10]


def test_megatron_fsdp_shards_and_copies():
    kinds = {
        kind.axis: kind
        for kind in group_kinds(layout_of(world_size=16, tp=2, sharding="hsdp", shard_degree=4))
    }
    assert kinds["dp_shard"].name == "INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP"
    assert kinds["dp_shard"].members().tolist()[:2] == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert kinds["dp_replicate"].members().tolist()[:2] == [[0, 8], [2, 10]]
