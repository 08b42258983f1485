"""A box described by hand: where things hang, what is assumed, and boxes that cannot be."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.gpus import GpuModel, find_gpu
from meshwright.cluster.nodes.node import NodeType
from meshwright.cluster.nodes.node_by_hand import (
    HAND_KEYS,
    MOST_DEVICES,
    is_by_hand,
    keys_beside_file,
    node_by_hand,
)
from meshwright.cluster.nodes.presets import find_preset, node_from_preset
from meshwright.cluster.sections import NodeSection
from meshwright.errors import InputError
from meshwright.findings import Place
from meshwright.origin import Origin
from meshwright.units import gb_per_s, gbit_per_s, parse_rate
from support import ROOT

HERE = Place(subject="cluster.node")


def build(gpu: str | None = None, **keys: object) -> tuple[NodeType, list[str]]:
    """Return the node and the rules of what was found."""
    model: GpuModel | None = find_gpu(gpu) if gpu else None
    node, findings = node_by_hand(NodeSection(gpu=gpu, **keys), model, HERE)
    return node, [one.rule for one in findings]


def chain(node: NodeType, device: str) -> list[str]:
    """Return what stands above a device."""
    up = {link.tail: link.head for link in node.graph.links if link.head.startswith("pcie")}
    above = {
        link.tail: link.head
        for link in node.graph.links
        if link.kind == "pcie" and link.head.startswith("cpu")
    }
    return [up[device], above[up[device]]]


def test_two_switches_of_four() -> None:
    node, rules = build(gpus=8, nics=4, nic=12.5e9, pcie=12e9, gpus_per_switch=4, nvlink="none")
    assert rules == []
    assert (node.num_gpus, len(node.nics), node.nvlink) == (8, 4, "none")
    assert node.name == "8 GPUs, 4 NICs"
    assert [chain(node, f"gpu{i}") for i in (0, 3, 4, 7)] == [
        ["pcie0", "cpu0"],
        ["pcie0", "cpu0"],
        ["pcie1", "cpu1"],
        ["pcie1", "cpu1"],
    ]
    assert [chain(node, f"nic{i}")[0] for i in range(4)] == ["pcie0", "pcie0", "pcie1", "pcie1"]
    assert node.nic_of_gpu == (0, 1, 0, 1, 2, 3, 2, 3)
    rates = {(link.kind, link.rate_bytes_per_s) for link in node.graph.links}
    assert rates == {("pcie", 12e9), ("cpu", 22e9)}
    assert node.origins["pcie"] is Origin.PARSED
    assert node.origins["cpu"] is Origin.ASSUMED


def test_one_nic_serves_both_sockets() -> None:
    node, _ = build(gpus=8, nics=1, nic=12.5e9, pcie=12e9, gpus_per_switch=4, nvlink="none")
    assert node.nic_of_gpu == (0,) * 8
    assert len(node.graph.path(7, 8)) == 5  # two up, over the sockets, two down


def test_the_nic_of_a_socket_is_nearer_than_another() -> None:
    node, _ = build(
        gpus=8, nics=2, nic=25e9, pcie=32e9, gpus_per_switch=2, sockets=2, nvlink="none"
    )
    # Four switches: NIC 0 under switch 0, NIC 1 under switch 2.
    assert node.nic_of_gpu == (0, 0, 0, 0, 1, 1, 1, 1)


def test_the_model_says_what_the_keys_leave_out() -> None:
    node, rules = build("L40S", gpus=8, nics=2)
    assert rules == ["assumed/nic-rate"]
    assert (node.gpu, node.nvlink) == ("L40S", "none")
    assert node.nics[0].rate_bytes_per_s == gbit_per_s(200)
    assert {one.rate_bytes_per_s for one in node.graph.links if one.kind == "pcie"} == {
        gb_per_s(32)
    }
    assert node.origins["pcie"] is Origin.STATED
    board, _ = build("H100-SXM", gpus=8, nics=8, nic=50e9)
    assert (board.nvlink, board.nvlink_bytes_per_s) == ("switch", gb_per_s(450))
    mesh, _ = build("MI300X", gpus=8, nics=8, nic=50e9)
    same = node_from_preset(find_preset("mi300x-8"))
    assert {one for one in mesh.graph.links if one.kind == "xgmi"} == {
        one for one in same.graph.links if one.kind == "xgmi"
    }


def test_the_box_of_the_docs() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text()
    block = next(one for one in page.split("```") if "gpus_per_switch: 4" in one)
    entry = yaml.safe_load(block.removeprefix("yaml"))["node"]
    assert set(entry) - {"gpus"} == set(HAND_KEYS)
    for key in ("nic", "pcie", "cpu_link"):
        entry[key] = parse_rate(entry[key])
    model = find_gpu(entry["gpu"])
    node, findings = node_by_hand(NodeSection(**entry), model, HERE)
    assert (node.name, findings) == ("8 L40S, 4 NICs", [])


def test_unknown_nvlink_is_said() -> None:
    node, rules = build(gpus=2, pcie=16e9)
    assert (node.nvlink, rules, node.nic_of_gpu) == (
        "unknown",
        ["topology/nvlink-unknown"],
        (-1, -1),
    )
    # A card that may have a bridge or not.
    assert build("A100-PCIe", gpus=2, nics=1, nic=25e9)[0].nvlink == "unknown"
    assert build(gpus=1, pcie=16e9)[1] == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pcie": 1e9}, "number of its GPUs"),
        ({"gpus": MOST_DEVICES + 1, "pcie": 1e9}, "too many"),
        ({"gpus": 8, "nics": 1_000_000_000}, "too many"),
        ({"gpus": 8, "nic": 1e9}, "no NIC"),
        ({"gpus": 8, "nvlink": "switch"}, "no GPU model"),
        ({"gpus": 8, "nvlink": "mesh", "gpu": "L40S"}, "L40S is given"),
        ({"gpus": 2, "sockets": 3}, "3 sockets"),
        ({"gpus": 8, "gpus_per_switch": 8, "sockets": 2}, "2 sockets"),
        ({"gpus": 8, "sockets": 10**12}, "sockets"),
    ],
)
def test_boxes_that_cannot_be(keys: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build(**keys)


def test_which_sections_are_by_hand() -> None:
    assert not is_by_hand(NodeSection(gpus=8))
    assert not is_by_hand(NodeSection(source="topo.txt", nics=2))
    for key in HAND_KEYS:
        assert is_by_hand(NodeSection(gpus=8, **{key: "L40S" if key == "gpu" else 1}))
    assert keys_beside_file(NodeSection(source="topo.txt", gpu="L40S", nic=1e9)) == []
    assert keys_beside_file(NodeSection(source="topo.txt", pcie=1e9, nics=1)) == ["nics", "pcie"]
    assert keys_beside_file(NodeSection(gpus=8, pcie=1e9)) == []


@given(
    gpus=st.integers(1, 20),
    nics=st.integers(0, 20),
    per_switch=st.none() | st.integers(1, 24),
    sockets=st.none() | st.integers(1, 4),
    mesh=st.booleans(),
)
def test_any_box_is_whole(
    gpus: int, nics: int, per_switch: int | None, sockets: int | None, mesh: bool
) -> None:
    try:
        node, _ = build(
            "MI300X",
            gpus=gpus,
            nics=nics,
            nic=50e9 if nics else None,
            gpus_per_switch=per_switch,
            sockets=sockets,
            nvlink="mesh" if mesh else "none",
        )
    except InputError:
        switches = -(-gpus // per_switch) if per_switch else min(sockets or 1, gpus)
        assert sockets is not None
        assert switches < sockets
        return
    devices = len(node.graph.devices)
    assert devices == gpus + nics
    # Every device reaches every other, and the way begins and ends at them.
    for a in range(devices):
        for b in range(devices):
            path = [node.graph.links[index] for index in node.graph.path(a, b)]
            assert bool(path) == (a != b)
            if path:
                assert path[0].tail == node.graph.devices[a]
                assert path[-1].head == node.graph.devices[b]
    # All NICs hang somewhere; no NIC serves two GPUs more than another under the same switch.
    assert all((nic >= 0) == (nics > 0) for nic in node.nic_of_gpu)
    under: dict[str, list[int]] = {}
    for nic in range(nics):
        under.setdefault(chain(node, f"nic{nic}")[0], []).append(node.nic_of_gpu.count(nic))
    for switch, uses in under.items():
        mine = sum(chain(node, f"gpu{gpu}")[0] == switch for gpu in range(gpus))
        assert sum(uses) >= mine
        assert max(uses) - min(uses) <= 1
