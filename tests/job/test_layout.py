"""Layout resolution: what follows from what, and what was assumed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groups.building import any_keys, layout_of
from meshwright.job.layout import ASSUMED_VERSION, MEGATRON_ORDER, TORCHTITAN_ORDER


def _degrees(layout):
    return layout.tp, layout.cp, layout.pp, layout.dp


@pytest.mark.parametrize("missing", ["tp", "cp", "pp", "dp"])
def test_one_degree_left_out_follows_from_the_world_size(missing):
    whole = {"tp": 2, "cp": 3, "pp": 4, "dp": 5}
    given_keys = {name: value for name, value in whole.items() if name != missing}
    layout = layout_of(world_size=120, **given_keys)
    assert _degrees(layout) == (2, 3, 4, 5)
    assert missing in layout.assumed


@pytest.mark.parametrize("missing", ["tp", "cp", "pp"])
def test_a_degree_left_out_is_one_when_the_rest_fills_the_world(missing):
    whole = {"tp": 2, "cp": 3, "pp": 4, "dp": 5}
    del whole[missing]
    product = 120 // {"tp": 2, "cp": 3, "pp": 4}[missing]
    assert getattr(layout_of(world_size=product, **whole), missing) == 1


def test_dp_is_derived_first_and_the_others_are_one():
    assert _degrees(layout_of(world_size=24)) == (1, 1, 1, 24)
    assert _degrees(layout_of(world_size=24, tp=4)) == (4, 1, 1, 6)
    assert _degrees(layout_of(world_size=24, pp=3, cp=2)) == (1, 2, 3, 4)


def test_two_degrees_left_out_beside_dp_are_both_one():
    layout = layout_of(world_size=24, dp=2, pp=3)
    assert _degrees(layout) == (1, 1, 3, 2)  # and grid/world-product says that it does not fit


def test_the_world_is_that_of_the_key_then_of_the_degrees_then_of_the_cluster():
    assert layout_of(64, world_size=32, tp=2).world_size == 32
    assert layout_of(64, tp=2, dp=4).world_size == 8
    assert layout_of(64, tp=2).world_size == 64
    assert layout_of(None, tp=2, pp=2).world_size == 4


def test_without_dp_and_cluster_the_world_is_the_smallest_that_experts_allow():
    layout = layout_of(tp=2, cp=3, pp=2, ep=4, etp=1)
    assert layout.world_size == 24
    assert (layout.dp, layout.edp) == (2, 3)


def test_what_does_not_divide_is_zero():
    assert layout_of(world_size=16, tp=3).dp == 0
    assert layout_of(world_size=16, tp=2, ep=3).edp == 0
    assert layout_of(world_size=24, dp=4, cp=2, pp=2).tp == 0


def test_degrees_that_are_no_degrees_are_kept_for_the_rules():
    assert layout_of(world_size=8, tp=0).tp == 0
    assert layout_of(world_size=8, tp=-2).tp == -2
    assert layout_of(world_size=-8).world_size == -8


def test_defaults_of_megatron():
    layout = layout_of(world_size=16, tp=4, ep=2)
    assert layout.framework == "megatron"
    assert layout.framework_version == ASSUMED_VERSION["megatron"]
    assert layout.order == MEGATRON_ORDER
    assert layout.etp == 4
    assert layout.edp == 2
    assert (layout.vp, layout.instances, layout.hierarchical_cp) == (1, 1, ())
    assert not layout.sequence_parallel
    assert layout.sharding == "none"
    assert (layout.dp_shard, layout.dp_replicate) == (1, 4)
    assert layout.has_experts
    assert not layout_of(world_size=16, tp=4).has_experts
    assert layout_of(world_size=16, tp=4, etp=1).has_experts


def test_defaults_of_meshes():
    layout = layout_of(world_size=16, tp=4, framework="torchtitan", sharding="fsdp")
    assert layout.order == TORCHTITAN_ORDER
    assert layout.etp == 1
    assert (layout.dp_shard, layout.dp_replicate) == (4, 1)


def test_the_shard_degree_of_hsdp():
    layout = layout_of(world_size=16, framework="torch", sharding="hsdp", shard_degree=8)
    assert (layout.dp_shard, layout.dp_replicate) == (8, 2)
    assert layout_of(world_size=16, shard_degree=0).dp_replicate == 0


def test_the_order_string():
    assert layout_of(world_size=8, order="tp-pp-dp").order == ("tp", "pp", "dp")
    assert layout_of(world_size=8, order=" tp -dp").order == ("tp", "dp")
    assert layout_of(world_size=8, order="").order == ("",)


def test_what_was_left_out_is_remembered():
    layout = layout_of(world_size=16, tp=4, order="tp-dp", sequence_parallel=False)
    assert {"tp", "order", "sequence_parallel", "world_size"}.isdisjoint(layout.assumed)
    assert {"dp", "cp", "pp", "ep", "etp", "sharding", "framework"} <= layout.assumed


@given(any_keys(), st.none() | st.integers(0, 100))
@settings(max_examples=500, deadline=None)
def test_resolution_never_raises(keys, slots):
    layout = layout_of(slots, **keys)
    for name in ("tp", "cp", "pp", "dp", "ep", "etp", "vp"):
        if keys.get(name) is not None:
            assert getattr(layout, name) == keys[name]
        assert (name in layout.assumed) == (keys.get(name) is None)
    assert isinstance(layout.dp_replicate, int)
    if keys.get("world_size") is not None:
        assert layout.world_size == keys["world_size"]
