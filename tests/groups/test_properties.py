"""What must hold for the groups of any layout, and the engine against plain loops."""

from __future__ import annotations

import math
import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from groups.building import any_keys, errors_of, findings_of, layout_of, likely_keys
from groups.slow import groups_along, megatron_groups, mesh_groups
from meshwright.findings import Severity
from meshwright.groups.grid import Grid, split_digits
from meshwright.groups.megatron import decoder_grid, expert_grid
from meshwright.groups.mesh import dense_mesh, sparse_mesh
from meshwright.groups.table import MODELLED, coordinates, grids, group_kinds, stage_of_rank
from meshwright.job.layout import Layout

PART_OF_THE_RANKS = ("EMBEDDING_GROUP", "POSITION_EMBEDDING_GROUP")
MESHES = ("torch", "torchtitan")
ANY_MODELLED = likely_keys(
    ("megatron", "megatron", *MESHES, "deepspeed", "deepspeed", "nanotron", "maxtext")
)


def _legal(keys) -> Layout:
    layout = layout_of(**keys)
    assume(not errors_of(layout))
    return layout


@given(ANY_MODELLED)
@settings(max_examples=300, deadline=None)
def test_every_kind_has_each_rank_once(keys):
    layout = _legal(keys)
    for kind in group_kinds(layout):
        ranks = kind.members()
        assert ranks.shape == (kind.num_groups, kind.degree), kind.name
        flat = sorted(ranks.ravel().tolist())
        if kind.name in PART_OF_THE_RANKS:
            assert len(set(flat)) == len(flat)
            assert set(flat) <= set(range(layout.world_size))
            assert kind.num_groups == layout.world_size // layout.pp
        elif kind.name == "p2p":  # every rank with the next stage and with the one before
            assert flat == sorted([*range(layout.world_size)] * 2)
        else:
            assert flat == list(range(layout.world_size)), kind.name
            assert kind.num_groups * kind.degree == layout.world_size


@given(ANY_MODELLED)
@settings(max_examples=300, deadline=None)
def test_names_are_met_once_and_degrees_follow_from_the_layout(keys):
    layout = _legal(keys)
    kinds = group_kinds(layout)
    assert len({kind.name for kind in kinds}) == len(kinds)
    degree = {kind.axis: kind.degree for kind in kinds}
    assert [degree[axis] for axis in ("tp", "cp", "pp", "dp")] == [
        layout.tp,
        layout.cp,
        layout.pp,
        layout.dp,
    ]
    if layout.framework == "megatron":
        assert (degree["ep"], degree["etp"], degree["edp"]) == (layout.ep, layout.etp, layout.edp)
        assert degree["instance"] * layout.instances == layout.world_size


@given(ANY_MODELLED)
@settings(max_examples=200, deadline=None)
def test_coordinates_make_the_rank_again(keys):
    layout = _legal(keys)
    if layout.framework == "maxtext":
        return  # names axes of its mesh: test_maxtext.py
    for rank in range(layout.world_size):
        merged = coordinates(layout, rank)
        for grid in grids(layout):
            on_grid = grid.coordinates(rank)
            assert sum(at * grid.stride(axis) for axis, at in on_grid.items()) == rank
            assert all(0 <= at < grid.size(axis) for axis, at in on_grid.items())
            assert all(merged[axis] == at for axis, at in on_grid.items())


@given(likely_keys())
@settings(max_examples=400, deadline=None)
def test_attention_and_experts_have_the_same_pipelines(keys):
    layout = _legal(keys)
    dense, expert = decoder_grid(layout), expert_grid(layout)
    assert dense.world_size == expert.world_size == layout.world_size
    assert dense.members(("pp",)).tolist() == expert.members(("pp",)).tolist()


@given(likely_keys(MESHES))
@settings(max_examples=300, deadline=None)
def test_dense_and_sparse_meshes_share_pipelines_and_replicas(keys):
    layout = _legal(keys)
    dense, sparse = dense_mesh(layout), sparse_mesh(layout)
    assume(layout.ep > 1)
    assert dense.world_size == sparse.world_size == layout.world_size
    for axis in ("pp", "dp_replicate"):
        assert dense.members((axis,)).tolist() == sparse.members((axis,)).tolist()


def _divides_all(layout: Layout) -> bool:
    sizes = (layout.tp, layout.cp, layout.pp, layout.dp, layout.etp, layout.ep, layout.edp)
    return (
        min(sizes) >= 1
        and layout.dp * layout.cp % layout.instances == 0
        and layout.edp % layout.instances == 0
    )


@given(likely_keys())
@settings(max_examples=400, deadline=None)
def test_a_megatron_layout_is_refused_exactly_when_its_code_raises(keys):
    """The checks of ``initialize_model_parallel``, done on lists made by plain loops."""
    layout = layout_of(**keys)
    size = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep, "dp": layout.dp, "pp": layout.pp}
    expert = {"tp": layout.etp, "ep": layout.ep, "dp": layout.edp, "pp": layout.pp}
    runs = _divides_all(layout)
    if runs:
        missing = [axis for axis in size if axis not in layout.order]
        runs = all(size[axis] == 1 and expert.get(axis, 1) == 1 for axis in missing)
    if runs:
        runs = layout.order[-1] == "pp" or layout.pp == 1 or layout.edp == layout.dp
    if runs:
        order = [*layout.order, *(axis for axis in size if axis not in layout.order)]
        dense_axes = [(axis, size[axis] if axis != "ep" else 1) for axis in order]
        expert_axes = [(axis, expert.get(axis, 1)) for axis in order]
        runs = groups_along(dense_axes, ("pp",)) == groups_along(expert_axes, ("pp",))
    assert (not errors_of(layout)) == runs


@given(likely_keys())
@settings(max_examples=300, deadline=None)
def test_megatron_groups_are_those_of_plain_loops(keys):
    layout = _legal(keys)
    ours = [(kind.name, kind.members().tolist()) for kind in group_kinds(layout)]
    assert ours == list(megatron_groups(layout).items())


@given(likely_keys(MESHES))
@settings(max_examples=300, deadline=None)
def test_mesh_groups_are_those_of_plain_loops(keys):
    layout = _legal(keys)
    ours = [(kind.name, kind.members().tolist()) for kind in group_kinds(layout)]
    assert ours == list(mesh_groups(layout).items())


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_members_of_any_grid_are_those_of_plain_loops(data):
    names = data.draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=1, max_size=5))
    sizes = tuple(data.draw(st.integers(1, 4)) for _ in names)
    along = data.draw(st.sets(st.sampled_from("abcdef")))
    ours = Grid(tuple(names), sizes).members(along).tolist()
    assert ours == groups_along(list(zip(names, sizes, strict=True)), along)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
@settings(max_examples=100, deadline=None)
def test_split_groups_differ_in_one_digit_only(sizes, data):
    grid = Grid(("x", "y"), (math.prod(sizes), 2))
    level = data.draw(st.integers(0, len(sizes) - 1))
    step = math.prod(sizes[:level])
    parts = split_digits(grid.members(("x",)), tuple(sizes), level).tolist()
    assert sorted(rank for part in parts for rank in part) == list(range(grid.world_size))
    for part in parts:
        assert [rank - part[0] for rank in part] == [step * digit for digit in range(sizes[level])]


@given(any_keys(), st.none() | st.sampled_from((0, 1, 8, 16, 96)))
@settings(max_examples=1000, deadline=None)
def test_whatever_is_typed_is_refused_with_a_remedy_or_has_groups(keys, slots):
    layout = layout_of(slots, **keys)
    findings = findings_of(layout, slots)
    for one in findings:
        assert one.message
        assert one.numbers
        assert one.remedy
        assert one.place.subject
    if any(one.severity is Severity.ERROR for one in findings):
        return
    assert layout.framework in MODELLED
    for grid in grids(layout):
        assert grid.world_size == layout.world_size
    if layout.world_size <= 4096:
        for kind in group_kinds(layout):
            assert kind.members().shape == (kind.num_groups, kind.degree)


_FIRST = ("layout/degree-positive", "grid/order-axes", "grid/world-too-large")
_SET = re.compile(r"(\w+): ([0-9]+|[a-z]+(?:-[a-z]+)+)")


def _pasted(remedy: str) -> dict[str, object]:
    """Return the keys that the first proposal of a remedy sets."""
    first = re.split(r"[,;(]| or ", remedy)[0]
    found = {key: int(value) if value.isdigit() else value for key, value in _SET.findall(first)}
    return {
        "distributed_optimizer_instances" if k == "instances" else k: v for k, v in found.items()
    }


@given(
    st.one_of(any_keys(), likely_keys(("megatron", *MESHES))),
    st.none() | st.sampled_from((8, 16, 96)),
)
@settings(max_examples=1000, deadline=None)
def test_a_pasted_remedy_ends_its_finding(keys, slots):
    before = findings_of(layout_of(slots, **keys), slots)
    for one in before:
        change = _pasted(one.remedy or "")
        if not change:
            continue
        after = findings_of(layout_of(slots, **(keys | change)), slots)
        if any(other.rule in _FIRST and other.rule != one.rule for other in before):
            continue  # several things are wrong at once, and this one may stem from another
        same = [
            other
            for other in after
            if (other.rule, other.place.subject, other.numbers.get("axis"))
            == (one.rule, one.place.subject, one.numbers.get("axis"))
        ]
        assert not same, (one, change, same)


@given(likely_keys(("deepspeed",)))
@settings(max_examples=200, deadline=None)
def test_positions_in_expert_groups_are_the_coordinates(keys):
    layout = _legal(keys)
    assume(layout.ep > 1)
    for kind in group_kinds(layout):
        if kind.axis in ("ep", "edp"):
            for group in kind.members().tolist():
                assert [coordinates(layout, rank)[kind.axis] for rank in group] == list(
                    range(kind.degree)
                )


@given(ANY_MODELLED)
@settings(max_examples=150, deadline=None)
def test_stages_are_positions_in_pipelines(keys):
    layout = _legal(keys)
    stages = stage_of_rank(layout)
    [pipes] = [kind.members() for kind in group_kinds(layout) if kind.axis == "pp"]
    assert (stages[pipes] == range(layout.pp)).all()
