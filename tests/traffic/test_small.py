"""Small collectives: who waits for whom at the ends of a step and of a microbatch."""

from __future__ import annotations

from meshwright.traffic.small import small_collectives
from traffic.building import named, on, workload

M = 16


def _all(**keys):
    return small_collectives(workload(**keys))


def test_data_go_to_the_stages_that_use_them():
    found = on(_all(tp=2, pp=4, dp=4), "tp")
    assert {one.op for one in found} == {"broadcast"}
    assert {one.what: (one.bytes_by_stage[0], one.count_by_stage.tolist()) for one in found} == {
        "tokens": (8192 * 8, [M, 0, 0, 0]),
        "positions": (8192 * 8, [M, 0, 0, 0]),
        "labels": (8192 * 8, [0, 0, 0, M]),
        "loss mask": (8192 * 4, [0, 0, 0, M]),
    }
    # before the sequence is cut
    assert on(_all(tp=2, cp=2, dp=4), "tp")[0].bytes_by_stage[0] == 8192 * 8


def test_the_norm_is_added_over_all_that_hold_other_parameters():
    assert named(_all(tp=2, pp=2, dp=4), "gradient norm")[0].axis == "tp-pp"
    assert named(_all(tp=2, dp=4), "gradient norm")[0].axis == "tp"
    assert named(_all(pp=2, dp=4), "gradient norm")[0].axis == "pp"
    assert named(_all(tp=2, dp=4, sharding="zero1"), "gradient norm")[0].axis == "instance"
    torch = {"framework": "torch", "sharding": "fsdp", "dp": 8}
    assert [one.axis for one in _all(**torch)] == ["dp_shard"]


def test_overflow_is_looked_for_in_fp16_alone():
    assert named(_all(tp=2, dp=4), "overflow") == []
    [one] = named(_all(tp=2, dp=4, training={"precision": "fp16"}), "overflow")
    assert one.bytes_by_stage.tolist() == [4]


def test_the_loss_is_logged_by_the_last_stage():
    [one] = named(_all(pp=4, dp=4, cp=2), "loss to be logged")
    assert (one.axis, one.count_by_stage.tolist()) == ("dp-cp", [0, 0, 0, 1])


def test_token_counts_are_told_where_the_loss_needs_them():
    assert named(_all(pp=4, dp=4), "token count") == []
    spread, total = named(_all(pp=4, dp=4, training={"per_token_loss": True}), "token count")
    assert (spread.axis, spread.op) == ("pp", "broadcast")
    assert (total.axis, total.op) == ("dp", "all_reduce")


def test_all_of_them_are_minor():
    found = _all(tp=2, pp=2, dp=4, training={"precision": "fp16", "per_token_loss": True})
    assert len(found) == 9
    assert all(one.is_minor for one in found)


def test_other_frameworks_say_nothing_of_theirs():
    assert _all(dp=4, framework="deepspeed") == []
