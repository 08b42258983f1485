"""Rings of context parallelism and fused dispatch on a fabric: what each link carries."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import plan_job
from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.sections import ClusterSection, FabricSection
from meshwright.findings import Place
from meshwright.groups.grid import Grid
from meshwright.routes.axis import Ground, route_axis
from meshwright.routes.tiers import tiers_of
from meshwright.traffic.collective import Collective
from meshwright.traffic.copies import Copies

SIZE = 1e9


def _fabric(nodes, node="dgx-h100"):
    section = ClusterSection(node=node, nodes=nodes, fabric=FabricSection(preset="rail-optimized"))
    return merge_cluster(section, Path(), lambda key: Place(subject=key))[0]


def _ground(fabric, stages=1):
    slots = np.arange(fabric.num_slots)
    return Ground(fabric, slots, tiers_of(fabric), slots * stages // len(slots))


def _exchange(copies=None, size=SIZE):
    one = np.array([size])
    return Collective("ep", "all_to_all", "forward", "test", one, np.ones(1), copies=copies)


def test_a_ring_of_sends_goes_round():
    """Eight members on two hosts, four each: an edge out of a host, one back in, six inside."""
    fabric = _fabric(2)
    ranks = np.array([[0, 1, 2, 3, 8, 9, 10, 11]])
    send = Collective("cp", "send", "forward", "test", np.array([SIZE]), np.ones(1))
    load = route_axis("cp", "cp", ranks, [send], _ground(fabric)).load_bytes
    assert load[fabric.nvlink_out].sum() == 6 * SIZE
    assert load[fabric.nic_out].sum() == load[fabric.nic_in].sum() == 2 * SIZE
    assert load[fabric.nic_out[3]] == load[fabric.nic_out[11]] == SIZE
    back = Collective("cp", "send", "backward", "test", np.array([SIZE]), np.ones(1), reverse=True)
    load = route_axis("cp", "cp", ranks, [back], _ground(fabric)).load_bytes
    assert load[fabric.nic_out[0]] == load[fabric.nic_out[8]] == SIZE


def test_rings_of_other_stages_carry_their_own_bytes():
    """Two stages of one host each; the second has half the layers."""
    fabric = _fabric(2)
    ranks = np.arange(16).reshape(2, 8)
    sizes = np.array([SIZE, SIZE / 2])
    send = Collective("cp", "send", "forward", "test", sizes, np.ones(2))
    load = route_axis("cp", "cp", ranks, [send], _ground(fabric, stages=2)).load_bytes
    assert load[fabric.nvlink_out].tolist() == [SIZE] * 8 + [SIZE / 2] * 8


def test_inside_one_island_a_fused_dispatch_is_an_all_to_all():
    fabric = _fabric(1)
    ranks = Grid(("ep",), (8,)).members(("ep",))
    copies = Copies(experts=64, top_k=6, ranks=8)
    plain, fused = (
        route_axis("ep", "ep", ranks, [_exchange(one)], _ground(fabric)).load_bytes
        for one in (None, copies)
    )
    np.testing.assert_allclose(fused, plain)


@pytest.mark.parametrize("hosts", [2, 4, 8])
@pytest.mark.parametrize("limit", [(1, 1), (8, 4)])
def test_between_islands_a_token_crosses_once_for_each_remote_one(hosts, limit):
    """NIC: remote hosts hit; NVLink: every rank hit but the sender's, less what NICs bring home."""
    fabric = _fabric(hosts)
    ranks = np.arange(8 * hosts).reshape(1, -1)
    copies = Copies(256, 8, 8 * hosts, *limit)
    tokens = 1e6
    send = _exchange(copies, tokens * copies.per_token)
    route = route_axis("ep", "ep", ranks, [send], _ground(fabric))
    load = route.load_bytes
    remote = tokens * copies.hit(8) * (hosts - 1)
    np.testing.assert_allclose(load[fabric.nic_out], remote)
    np.testing.assert_allclose(load[fabric.nic_in], remote)
    if limit != (1, 1) and hosts == 8:
        assert remote < tokens * 4
    # A GPU passes on what came to it from its position on every host, its own tokens included.
    np.testing.assert_allclose(load[fabric.nvlink_out], tokens * hosts * copies.hit(1) * 7)
    np.testing.assert_allclose(load[fabric.nvlink_in], load[fabric.nvlink_out])
    assert route.lost_bytes == 0
    plain = route_axis("ep", "ep", ranks, [_exchange(size=tokens * 8)], _ground(fabric))
    assert load[fabric.nic_out].max() < plain.load_bytes[fabric.nic_out].max()


def test_nothing_is_lost_between_unequal_islands():
    """Six members on one host and two on another: each pair of ranks is served once."""
    fabric = _fabric(2)
    ranks = np.array([[0, 1, 2, 3, 4, 5, 8, 9]])
    copies = Copies(64, 4, 8)
    tokens = 1e6
    send = _exchange(copies, tokens * copies.per_token)
    load = route_axis("ep", "ep", ranks, [send], _ground(fabric)).load_bytes
    over = tokens * (6 * copies.hit(2) + 2 * copies.hit(6))
    assert load[fabric.nic_out].sum() == pytest.approx(over)
    assert load[fabric.nic_in].sum() == pytest.approx(over)
    # Six senders' tokens are passed on by the two, and the reverse.
    inside = tokens * copies.hit(1) * (8 * 5 + 8 * 1)
    assert load[fabric.nvlink_out].sum() == pytest.approx(inside)


def test_ranks_that_share_experts_all_get_the_token():
    fabric = _fabric(1)
    ranks = np.arange(8).reshape(1, -1)
    shared = Copies(64, 4, ranks=4, etp=2)
    assert shared.per_token == pytest.approx(2 * 4 * Copies(64, 4, 4).hit(1))
    tokens = 1e6
    send = _exchange(shared, tokens * shared.per_token)
    load = route_axis("ep", "ep", ranks, [send], _ground(fabric)).load_bytes
    np.testing.assert_allclose(load[fabric.nvlink_out], tokens * 7 * shared.hit(1))


def test_low_latency_dispatch_goes_straight_over_the_network(tmp_path):
    """T 2048, k 4, h 1024, bf16, ep 32 on four hosts: three quarters of S leave a rank by its NIC."""
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: {name: m, num_layers: 1, hidden: 1024, ffn: 1024, heads: 8, kv_heads: 8, head_dim: 128,\n"
        "  vocab: 1024, experts: 64, top_k: 4, moe_ffn: 512}\n"
        "cluster: dgx-h100 x 4\nlayout: {framework: megatron, ep: 32, etp: 1, dp: 32}\n"
        "batch: {micro_batch: 1, seq_len: 2048, num_microbatches: 1}\n"
        "moe: {dispatcher: deepep, deepep_mode: low_latency}\n"
    )
    plan = plan_job(outline_job(load_job(path)))
    [route] = [one for one in plan.routes if one.axis == "ep"]
    assert {float(one.bytes_by_stage[0]) for one in route.collectives} == {16_777_216}
    calls = len(route.collectives)
    fabric, load = plan.fabric, route.load_bytes
    assert set(load[fabric.nic_out].tolist()) == {calls * 12_582_912}
    assert set(load[fabric.nic_in].tolist()) == {calls * 12_582_912}
    # nothing is passed on over NVLink: the seven peers of the host alone
    assert set(load[fabric.nvlink_out].tolist()) == {calls * 16_777_216 * 7 / 32}
