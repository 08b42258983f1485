"""MaxText's mesh: sizes by axis, -1, slices, and an order of devices that is not that of ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groups.building import errors_of, layout_of, rule_ids
from meshwright.groups.maxtext import mesh_grid, mesh_of
from meshwright.groups.table import coordinates, group_kinds, stage_of_rank
from meshwright.job.jax_mesh import AXES_OF, MESH_AXES


def _mesh(**keys):
    return layout_of(framework="maxtext", **keys)


def _kinds(layout):
    assert errors_of(layout) == []
    return {kind.name: kind for kind in group_kinds(layout)}


def test_one_axis_of_each_family_is_inferred():
    layout = _mesh(ici={"tensor": 4}, dcn={}, num_slices=2, world_size=32)
    assert mesh_of(layout).size("fsdp") == 4
    assert mesh_of(layout).size("data") == 2
    assert (layout.tp, layout.dp, layout.dp_shard, layout.dp_replicate) == (4, 8, 4, 2)
    assert layout.sharding == "hsdp"


def test_pipeline_is_the_axis_stage():
    layout = _mesh(ici={"pipeline": 2, "fsdp": -1}, world_size=8)
    assert layout.pp == 2
    assert _kinds(layout)["stage"].axis == "pp"
    assert stage_of_rank(layout).tolist() == [0] * 4 + [1] * 4


def test_degrees_make_a_mesh():
    layout = _mesh(tp=4, pp=2, world_size=64, num_slices=2)
    mesh = mesh_of(layout)
    sizes = {axis: mesh.size(axis) for axis in MESH_AXES if mesh.size(axis) > 1}
    assert sizes == {"data": 2, "stage": 2, "fsdp": 4, "tensor": 4}
    assert (mesh.dcn[MESH_AXES.index("data")], layout.shard_degree) == (2, 4)
    assert errors_of(layout) == []
    one = _mesh(tp=4, pp=2, world_size=64)
    assert mesh_of(one).size("fsdp") == 8
    assert errors_of(one) == []


def test_axes_above_one_that_are_one_of_ours_make_one_kind_more():
    layout = _mesh(ici={"fsdp": 2, "expert": 2, "tensor": 2, "tensor_sequence": 2}, world_size=16)
    kinds = _kinds(layout)
    assert kinds["tensor,tensor_sequence"].axis == "tp"
    assert kinds["fsdp,expert"].axis == "dp_shard"
    assert kinds["expert"].axis == "ep"
    assert (layout.tp, layout.ep, layout.dp, layout.shard_degree) == (4, 2, 4, 4)
    assert len({kind.axis for kind in kinds.values()}) == len(kinds)


@pytest.mark.parametrize("sizes", [(2, 3), (4, 2)])
def test_an_order_of_devices_moves_every_member(sizes):
    world = sizes[0] * sizes[1]
    keys = {"ici": {"fsdp": sizes[0], "tensor": sizes[1]}, "world_size": world}
    order = list(np.random.default_rng(7).permutation(world))
    plain = _mesh(**keys)
    given_order = _mesh(**keys, device_order=tuple(map(int, order)))
    kinds, moved = _kinds(plain), _kinds(given_order)
    for name, kind in kinds.items():
        assert kind.oracle is None
        assert moved[name].oracle is not None
        assert moved[name].members().tolist() == [[order[r] for r in g] for g in kind.members()]
    for rank in range(world):
        assert coordinates(given_order, order[rank]) == coordinates(plain, rank)
    assert stage_of_rank(given_order).tolist() == [0] * world


@st.composite
def _meshes(draw):
    axes = draw(st.lists(st.sampled_from(MESH_AXES), unique=True, min_size=1, max_size=4))
    ici = {axis: draw(st.sampled_from((1, 2, 3))) for axis in axes}
    dcn = {axis: draw(st.sampled_from((1, 2))) for axis in axes[:2]}
    slices = int(np.prod(list(dcn.values())))
    world = int(np.prod(list(ici.values()))) * slices
    keys = {"ici": {"fsdp": 1} | ici, "world_size": world}
    if slices > 1:
        keys["dcn"] = {"data": 1} | dcn
    return keys


@given(_meshes(), st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_axis_covers_every_rank_once_and_degrees_multiply(keys, shuffled):
    if shuffled:
        order = np.random.default_rng(keys["world_size"]).permutation(keys["world_size"])
        keys = keys | {"device_order": tuple(map(int, order))}
    layout = _mesh(**keys)
    assert errors_of(layout) == []
    assert layout.tp * layout.cp * layout.pp * layout.dp == layout.world_size
    degree = {kind.axis: kind.degree for kind in group_kinds(layout)}
    assert {ours: degree[ours] for ours in AXES_OF} == {
        ours: mesh_of(layout).degree(ours) for ours in AXES_OF
    }
    for kind in group_kinds(layout):
        ranks = kind.members()
        assert ranks.shape == (kind.num_groups, kind.degree)
        assert sorted(ranks.ravel().tolist()) == list(range(layout.world_size))
    stages = stage_of_rank(layout)
    for rank in range(0, layout.world_size, 5):
        assert coordinates(layout, rank).get("stage", 0) == stages[rank]
    assert mesh_grid(mesh_of(layout)).world_size == layout.world_size


def test_the_default_of_ici_is_counted_as_asked():
    assert rule_ids(framework="maxtext", ici={"data": -1}, world_size=8)[:1] == [
        "maxtext/axis-size"
    ]
    assert errors_of(_mesh(ici={"data": -1, "fsdp": 1}, world_size=8)) == []
