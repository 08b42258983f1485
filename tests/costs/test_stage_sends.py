"""Times of pipeline messages, worked out by hand from the rates of the links they pass."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import place_ranks, workload_of
from meshwright.costs.stage_sends import NO_LINK, neighbours, stage_sends
from meshwright.traffic.pipeline import message_bytes

A = 8192 * 4096 * 2
"""Bytes of the activation between two layers of Llama 3 8B: tokens × hidden × bf16."""
NIC, NVLINK, PCIE = 2 * 1.35e-6, 2 * 0.3e-6, 2 * 0.5e-6
"""Latency of a hop: two links of each kind."""


def sends(tmp_path, cluster, pairs=None, **layout):
    path = tmp_path / "job.json"
    path.write_text(
        json.dumps(
            {
                "model": "llama3-8b",
                "cluster": cluster,
                "layout": {"framework": "megatron", **layout},
                "batch": {"num_microbatches": 8, "micro_batch": 1, "seq_len": 8192},
            }
        )
    )
    outline = outline_job(load_job(str(path)))
    assert outline.is_legal
    work = workload_of(outline)
    members = next(kind for kind in outline.kinds if kind.axis == "pp").members()
    slots = place_ranks(outline, outline.fabric).slot_by_rank
    pairs = neighbours(members.shape[1]) if pairs is None else pairs
    return stage_sends(members, slots, outline.fabric, message_bytes(work), pairs)


def test_pairs_that_exchange_messages():
    assert neighbours(1) == []
    assert neighbours(2) == [(0, 1), (1, 0)]
    assert set(neighbours(3)) == {(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)}
    assert len(neighbours(5)) == 10
    assert {(0, 2), (2, 0)} <= set(neighbours(4, [0, 2, 1, 3]))
    assert set(neighbours(2, [0, -1, 1])) == {(0, 1), (1, 0)}  # a stage that sits nowhere


def test_each_rank_on_a_nic_of_its_own(tmp_path):
    found = sends(tmp_path, "dgx-h100 x 4", tp=8, pp=4, sequence_parallel=True)
    for a, b in neighbours(4):
        assert found.send_s[a, b] == pytest.approx(A / 8 / 50e9 + NIC)
        assert found.kind[a][b] == "nic"
    assert found.send_s[0, 2] == 0
    assert found.lost == ()


def test_what_leaves_a_rank_shares_its_nic(tmp_path):
    found = sends(tmp_path, "dgx-h100 x 4", tp=8, pp=4, sequence_parallel=True)
    for rank in range(4):
        out = {int(found.link[rank, other]) for other in ((rank + 1) % 4, (rank - 1) % 4)}
        assert len(out) == 1
        assert out != {NO_LINK}
    assert len({int(found.link[rank, (rank + 1) % 4]) for rank in range(4)}) == 4


def test_stages_inside_a_host_and_between_hosts(tmp_path):
    found = sends(tmp_path, "dgx-h100 x 2", tp=2, pp=8)
    for a, b in neighbours(8):
        crosses = a // 4 != b // 4
        expected = A / 50e9 + NIC if crosses else A / 450e9 + NVLINK
        assert found.send_s[a, b] == pytest.approx(expected)
        assert found.kind[a][b] == ("nic" if crosses else "nvlink")


def test_tensor_ranks_that_share_a_nic(tmp_path):
    # 8 GPUs on 2 NICs: both ranks of the last stage in a host send over one NIC of 25 GB/s
    found = sends(tmp_path, "pcie-box x 2", tp=2, pp=8)
    assert found.send_s[3, 4] == pytest.approx(2 * A / 25e9 + NIC)
    assert found.send_s[0, 1] == pytest.approx(A / 32e9 + PCIE)  # under one PCIe switch
    assert found.send_s[1, 2] == pytest.approx(2 * A / 22e9 + PCIE)  # to the other socket
    assert found.kind[1][2] == "cpu"


def test_stages_that_share_the_way_between_sockets(tmp_path):
    found = sends(tmp_path, "pcie-box x 1", tp=2, pp=4)
    # 1 to 2 and 0 to 3 go from the first socket to the second, 2 to 1 and 3 to 0 back
    assert found.link[1, 2] == found.link[0, 3] != NO_LINK
    assert found.link[2, 1] == found.link[3, 0] != NO_LINK
    assert found.link[1, 2] != found.link[2, 1]
    assert found.link[0, 1] == NO_LINK


def test_all_pipelines_send_at_once(tmp_path):
    # four pipelines of one GPU a stage: four messages over one NIC, four between the sockets
    found = sends(tmp_path, "pcie-box x 2", tp=1, pp=4, dp=4)
    assert found.send_s[0, 1] == pytest.approx(4 * A / 22e9 + PCIE)
    assert found.send_s[1, 2] == pytest.approx(4 * A / 25e9 + NIC)


def test_only_pairs_that_are_asked_for(tmp_path):
    found = sends(tmp_path, "dgx-h100 x 4", [(0, 2)], tp=8, pp=4, sequence_parallel=True)
    assert np.argwhere(found.send_s).tolist() == [[0, 2]]
    assert (found.link == NO_LINK).all()


def test_twice_the_bytes_take_twice_the_time(tmp_path):
    whole = sends(tmp_path, "dgx-h100 x 4", tp=8, pp=4, sequence_parallel=False)
    part = sends(tmp_path, "dgx-h100 x 4", tp=8, pp=4, sequence_parallel=True)
    there = part.send_s > 0
    assert whole.send_s[there] - NIC == pytest.approx(8 * (part.send_s[there] - NIC))


def test_hosts_without_a_network_lose_messages(tmp_path):
    node = {"gpus": 8, "gpu": "H100 SXM 80G", "nvlink": "switch", "nics": 0}
    cluster = {"node": node, "nodes": 2, "fabric": {"preset": "none"}}
    found = sends(tmp_path, cluster, tp=8, pp=2)
    assert found.lost == ((0, 1), (1, 0))
    assert not found.send_s.any()


def groups(found, pairs):
    """Return which messages share a link."""
    shared = {}
    for a, b in pairs:
        if found.link[a, b] != NO_LINK:
            shared.setdefault(int(found.link[a, b]), set()).add((a, b))
    return sorted(map(sorted, shared.values()))


def by_sender(pp):
    return [sorted([(rank, (rank - 1) % pp), (rank, (rank + 1) % pp)]) for rank in range(pp)]


def test_a_nic_faster_than_pcie_is_shared_by_its_sender_alone(tmp_path):
    # 400 Gbit/s behind PCIe of 40 GB/s: GPU to switch and switch to NIC are equally slow on both
    # sides. What rank r sends leaves over its own links; what it receives comes over the others.
    node = {"gpus": 8, "gpu": "H800-SXM", "nics": 8, "nic": "400 Gbit/s", "pcie": "40 GB/s"}
    cluster = {"node": node | {"gpus_per_switch": 2}, "nodes": 4, "fabric": "rail-optimized"}
    found = sends(tmp_path, cluster, tp=8, pp=4, sequence_parallel=True)
    assert found.kind[0][1] == "pcie"
    assert found.send_s[0, 1] == pytest.approx(A / 8 / 40e9 + PCIE)
    assert groups(found, neighbours(4)) == by_sender(4)


def test_gpus_under_one_pcie_switch_share_what_they_send(tmp_path):
    # one GPU a stage, all four under one switch: each sends over its own link into the switch
    one_switch = sends(tmp_path, "pcie-box x 1", tp=1, pp=4, dp=1)
    assert one_switch.send_s[1, 2] == pytest.approx(A / 32e9 + PCIE)
    assert groups(one_switch, neighbours(4)) == by_sender(4)


def test_both_ways_over_the_link_between_sockets(tmp_path):
    # stage 0 on the first socket, stage 1 on the second: one direction of the link there, the other back
    found = sends(tmp_path, "pcie-box x 1", tp=4, pp=2)
    assert found.send_s[0, 1] == pytest.approx(4 * A / 22e9 + PCIE)
    assert groups(found, neighbours(2)) == []


def test_direct_links_between_gpus_are_shared_by_nobody(tmp_path):
    # MI300X: a link of its own from each GPU to each other one, so no two messages meet
    found = sends(tmp_path, "mi300x x 1", tp=1, pp=8)
    assert found.kind[0][1] == "xgmi"
    assert groups(found, neighbours(8)) == []


def test_switched_gpus_share_their_own_link_into_the_switch(tmp_path):
    found = sends(tmp_path, "dgx-h100 x 1", tp=2, pp=4)
    assert found.kind[0][1] == "nvlink"
    assert groups(found, neighbours(4)) == by_sender(4)
