"""Link facts: every row has a source and sensible figures, and agrees with what the code uses."""

from __future__ import annotations

import pytest

from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.link_facts import (
    LinkFact,
    find_link_fact,
    intel_p2p_pcie_cost,
    latency_source,
    link_facts,
    step_latencies,
    step_latency_s,
    usable_bytes_per_s,
)
from meshwright.cluster.links import LATENCY_S
from meshwright.cluster.nodes.node import CPU_RATE_BYTES_PER_S, PCIE_RATE_BYTES_PER_S
from meshwright.cluster.nodes.presets import node_presets
from meshwright.units import gb_per_s, gbit_per_s, microseconds

FACTS = link_facts()


@pytest.mark.parametrize("fact", FACTS, ids=lambda one: one.name)
def test_every_row_is_complete(fact: LinkFact) -> None:
    assert fact.source
    assert fact.what
    assert fact.kind in LATENCY_S
    assert fact.per in ("link", "GPU", "pair", "x16", "NIC")
    assert fact.stated_bytes_per_s or fact.usable_bytes_per_s
    assert (fact.usable_bytes_per_s is None) == (fact.usable_is == "")
    if fact.stated_bytes_per_s and fact.usable_bytes_per_s:
        assert 0.7 <= fact.usable_bytes_per_s / fact.stated_bytes_per_s <= 1.0


def test_names_are_unique_and_wrong_ones_refused() -> None:
    names = [fact.name for fact in FACTS]
    assert len(set(names)) == len(names)
    with pytest.raises(KeyError, match="near: nvlink4"):
        find_link_fact("nvlink44")
    with pytest.raises(KeyError):
        find_link_fact("")
    with pytest.raises(ValueError, match="nic-800g"):
        usable_bytes_per_s("nic-800g")


@pytest.mark.parametrize(
    ("name", "stated", "usable"),
    [
        ("nvlink3", 300, 240),
        ("nvlink4", 450, 370.8),
        ("nvlink5", 900, 721.8),
        ("xgmi-mi300x", 64, 48),
        ("pcie5-x16", 64, 48),
        ("cpu-intel-spr", None, 22),
        ("cpu-amd", None, 16),
        ("nic-400g", 50, 48),
        ("nic-800g", 100, None),
    ],
)
def test_figures(name: str, stated: float | None, usable: float | None) -> None:
    fact = find_link_fact(name)
    found = (fact.stated_bytes_per_s, fact.usable_bytes_per_s)
    assert found == tuple(None if one is None else gb_per_s(one) for one in (stated, usable))


def test_facts_agree_with_the_gpu_models() -> None:
    for name, gpu in (("nvlink3", "A100"), ("nvlink4", "H100"), ("nvlink5", "B200")):
        assert find_link_fact(name).stated_bytes_per_s == find_gpu(gpu).nvlink_bytes_per_s
    assert find_link_fact("nvlink4-h800").stated_bytes_per_s == find_gpu("H800").nvlink_bytes_per_s
    pair = find_gpu("MI300X").nvlink_link_bytes_per_s
    assert find_link_fact("xgmi-mi300x").stated_bytes_per_s == pair
    for gbit in (100, 200, 400, 800):
        assert find_link_fact(f"nic-{gbit}g").stated_bytes_per_s == gbit_per_s(gbit)


def test_facts_agree_with_the_constants_of_the_code() -> None:
    assert usable_bytes_per_s("cpu-intel-spr") == CPU_RATE_BYTES_PER_S
    assert find_link_fact("pcie5-x16").stated_bytes_per_s == PCIE_RATE_BYTES_PER_S
    # A step of a ring passes two links of its kind (NVLink, PCIe, NIC), one of xGMI.
    for kind, path in (("nvlink", "nvlink"), ("pcie", "pcie"), ("nic", "network")):
        assert step_latency_s(path, "ring", "ll") == pytest.approx(2 * LATENCY_S[kind])
    assert step_latency_s("nvlink", "ring", "ll") == pytest.approx(LATENCY_S["xgmi"])


def test_every_node_preset_names_a_row() -> None:
    for preset in node_presets():
        assert find_link_fact(preset.cpu).kind == "cpu"


def test_latencies() -> None:
    assert step_latency_s("network", "ring", "ll128") == pytest.approx(microseconds(4.0))
    assert step_latency_s("base", "tree", "simple") == pytest.approx(microseconds(8.4))
    assert step_latency_s("network", "nvls-tree", "simple") == pytest.approx(microseconds(20.9))
    assert len(step_latencies()) == 12
    assert "tuning.cc" in latency_source()
    with pytest.raises(KeyError):
        step_latency_s("network", "nvls", "ll")
    with pytest.raises(KeyError):
        step_latency_s("pcie", "nvls", "simple")


def test_intel_peer_to_peer_costs_more() -> None:
    assert intel_p2p_pcie_cost() == pytest.approx(6 / 5)
