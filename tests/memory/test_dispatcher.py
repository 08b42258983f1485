"""Buffers of the dispatcher of tokens, by the formulas of its source."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from memory.building import BATCH, DENSE, EXPERTS, workload
from meshwright.memory.constants import constants_with, default_constants
from meshwright.memory.dispatcher import (
    dispatcher_buffers,
    low_latency_bytes,
    nvlink_bytes,
    rdma_bytes,
)

KEYS = {"dp": 8, "ep": 8, "etp": 1, **BATCH}
WORKSPACE = 32 * 2**20
NINE = msgspec.structs.replace(EXPERTS, experts=9)


def found(model=EXPERTS, constants=None, **keys):
    return dispatcher_buffers(workload(model, **{**KEYS, **keys}), constants or default_constants())


def test_inside_a_host_by_hand():
    """Ten channels, eight peers, 256 tokens: data, 8 bytes of origin, 128 choices, 128 scales."""
    token = 64 * 2 + 8 + 128 * (8 + 4) + 128 * 4
    size = 10 * 8 * (256 * token + (2 * 1 + 3) * 4)
    size += -size % 128
    assert nvlink_bytes(128, 8, 10) == size
    assert rdma_bytes(128, 8, 10) == 0
    buffers = found(dispatcher="deepep")
    assert buffers.bytes.tolist() == [size + WORKSPACE]


def test_over_the_network_both_buffers():
    """DeepSeek-V3 over 32 ranks: about half a gigabyte."""
    token = 7168 * 2 + 8 + 128 * 12 + 128 * 4 + 16
    size = 2 * 10 * 4 * (128 * token + 18 * 4) + 2**20
    assert rdma_bytes(7168 * 2, 32, 10) == size + -size % 128
    assert nvlink_bytes(7168 * 2, 32, 10) == pytest.approx(10 * 8 * 288 * (token - 16), rel=1e-4)


def test_low_latency_grows_with_experts_and_tokens():
    one = low_latency_bytes(128, 7168, 256)
    out, back = 16 + 7168 * 2, 56 * 4 + 7168 * 2
    assert one == pytest.approx(2 * 256 * 128 * (back + max(out, back)), rel=1e-5)
    assert low_latency_bytes(256, 7168, 256) == pytest.approx(2 * one, rel=1e-3)
    assert low_latency_bytes(128, 7168, 128) == pytest.approx(one / 2, rel=1e-3)


def test_channels_follow_the_constant():
    half = found(dispatcher="deepep", constants=constants_with({"deepep_sms": "10"})).bytes
    whole = found(dispatcher="deepep").bytes
    # each rounded up to 128 bytes
    assert (half[0] - WORKSPACE) * 2 == pytest.approx(whole[0] - WORKSPACE, abs=256)


@pytest.mark.parametrize(
    ("model", "keys", "word"),
    [
        (EXPERTS, {"dispatcher": "hybridep"}, "HybridEP"),
        (EXPERTS, {"dispatcher": "deepep", "deepep_buffer": "elastic"}, "elastic"),
        (NINE, {"dispatcher": "deepep", "ep": 3, "dp": 3}, "no configuration for 3 ranks"),
    ],
)
def test_what_no_source_says_is_null_with_a_reason(model, keys, word):
    buffers = found(model, **keys)
    assert buffers.bytes is None
    assert word in buffers.reason


def test_others_keep_nothing():
    for keys in ({"dispatcher": "alltoall"}, {"dispatcher": "allgather"}, {"ep": 1}):
        assert not found(**keys).bytes.any()
    assert not found(DENSE, ep=None, dispatcher="deepep").bytes.any()


def test_only_stages_with_experts_have_a_buffer():
    work_keys = {"pp": 2, "dp": 8, "ep": 8, "dispatcher": "deepep", "num_microbatches": 4}
    both = found(**work_keys).bytes
    assert both.shape == (2,)
    assert np.all(both > 0)
