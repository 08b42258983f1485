"""NCCL's buffers by group, and measured sizes."""

from __future__ import annotations

import pytest

from memory.building import BATCH, DENSE, EXPERTS, workload
from meshwright.groups.table import group_kinds
from meshwright.memory.communicators import (
    Communicator,
    buffer_bytes,
    communicators,
    network_bytes,
)
from meshwright.memory.constants import constants_with, default_constants
from meshwright.memory.measured import LiveMemory, halve_micro_batch, peak_trend
from meshwright.traffic.collective import unknown
from meshwright.units import GIB, MIB

CONSTANTS = default_constants()


def held(axis: str, op: str, domain: int = 8, **keys: object) -> list[Communicator]:
    """Return the communicators of one collective of a job."""
    work = workload(EXPERTS if "ep" in keys else DENSE, **BATCH, **keys)
    said = [unknown(axis, op, "forward", "")]
    return communicators(group_kinds(work.layout), said, domain, CONSTANTS)


def test_buffers_are_rounded_to_whole_granules():
    assert buffer_bytes(CONSTANTS) == (10 * MIB, 2 * MIB)
    assert network_bytes(CONSTANTS) == 20 * MIB
    exact = constants_with({"nccl_granularity_bytes": "0"})
    assert buffer_bytes(exact)[0] == 4194304 + 524288 + 4915200


def test_all_to_all_has_every_peer():
    (found,) = held("ep", "all_to_all", dp=8, ep=8)
    assert (found.use, found.peers_inside, found.peers_outside) == ("point-to-point", 7, 0)
    assert found.bytes == 32 * 7 * 12 * MIB


def test_all_to_all_over_hosts_shares_a_pool():
    (found,) = held("ep", "all_to_all", domain=4, dp=8, ep=8)
    assert (found.peers_inside, found.peers_outside) == (3, 4)
    assert found.bytes == 32 * 3 * 12 * MIB + 32 * 2 * 2 * MIB


def test_a_ring_has_one_peer_each_way():
    (found,) = held("tp", "all_gather", tp=4, dp=2)
    assert (found.use, found.channels, found.bytes) == ("ring", 32, 32 * 12 * MIB)


def test_an_all_reduce_over_the_network_adds_trees():
    ring = held("dp", "reduce_scatter", dp=16)[0]
    tree = held("dp", "all_reduce", dp=16)[0]
    assert (ring.use, tree.use) == ("ring", "ring and tree")
    assert tree.bytes > ring.bytes


def test_a_group_of_one_has_no_communicator():
    assert held("tp", "all_reduce", tp=1, dp=8) == []


def test_one_communicator_whatever_runs_on_it():
    work = workload(dp=8, **BATCH)
    said = [unknown("dp", op, "backward", "") for op in ("all_reduce", "all_gather", "all_reduce")]
    assert len(communicators(group_kinds(work.layout), said, 8, CONSTANTS)) == 1


def test_half_the_micro_batch_halves_activations_only():
    live = LiveMemory(100.0, {"state": 40.0, "activations": 50.0}, 120.0, 4)
    assert (live.rest, live.dominant) == (10.0, "activations")
    halved = halve_micro_batch(live)
    assert halved is not None
    assert (halved.activations, halved.live, halved.margin) == (25.0, 75.0, 45.0)
    assert halve_micro_batch(LiveMemory(1.0, {"state": 1.0}, 1.0, 3)) is None


def test_rising_peaks_are_buffers_under_1f1b():
    found = peak_trend([(16, 12.0 * GIB), (8, 4.0 * GIB), (32, None)], "1f1b")
    assert (found.expected, found.observed) == ("non_increasing", "increasing")
    assert found.slope == GIB
    assert found.causes[0].cause_class == "buffers_per_microbatch"


def test_falling_peaks_have_no_cause():
    found = peak_trend([(8, 4.0), (16, 3.0)], "1f1b")
    assert (found.observed, found.causes) == ("non_increasing", ())
    assert peak_trend([(8, 4.0), (16, 3.0), (32, 5.0)], "1f1b").observed == "mixed"


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zb-h1", "looped-bfs"])
def test_no_schedule_keeps_more_at_a_fixed_global_batch(schedule):
    assert peak_trend([(8, 1.0), (16, 1.0), (64, 1.0)], schedule).expected == "non_increasing"
