"""What makes hosts one type, and what is said of a host that differs."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import capture, classes, nccl_xml, of_rule, pairs, pci, rules
from meshwright.cluster.facts import Facts, Gpu, Nic, PcieChain
from meshwright.cluster.join.host_differences import differences, shape_of, words
from meshwright.cluster.join.host_groups import join_hosts
from meshwright.units import gb_per_s, gbit_per_s


def _host(name: str, slow: dict[str, float] | None = None, bus: int = 0) -> Facts:
    """Return a capture with a PCIe tree; ``slow``: GB/s above some devices; ``bus`` moves addresses."""
    rates = slow or {}
    chains = tuple(
        PcieChain(
            device,
            (f"0000:{bus + at}1:00.0", f"cpu{at // 2}"),
            (gb_per_s(rates.get(device, 48)),) * 2,
        )
        for kind in ("GPU", "mlx5_")
        for at in range(4)
        for device in [f"{kind}{at}"]
    )
    return capture(name, pcie_chains=chains)


def test_a_slow_pcie_link_is_another_type_and_the_commonest_counts() -> None:
    """Sorted by name the bad host comes first: it must not stand for the others."""
    bad = _host("a18", {"GPU2": 24})
    joined = join_hosts([bad, *(_host(f"n{i}", bus=i) for i in range(3))])
    assert [one.hosts for one in joined.types] == [("n0", "n1", "n2"), ("a18",)]
    rates = {chain.device: chain.rates_bytes_per_s for chain in joined.types[0].facts.pcie_chains}
    assert rates["GPU2"] == (gb_per_s(48),) * 2
    found = of_rule(joined.findings, "hosts-differ")
    assert found.numbers["hosts"] == ["a18"]
    for text in ("a18 differs from 3 hosts", "GPU2", "0000:21:00.0", "24.0 GB/s", "48.0 GB/s"):
        assert text in found.message
    assert len(found.numbers["differences"]) == 1


def test_addresses_alone_make_no_type() -> None:
    assert shape_of(_host("n0")) == shape_of(_host("n1", bus=3))
    assert differences(_host("n0"), _host("n1", bus=3)) == []


def test_a_link_of_a_switch_is_said_once() -> None:
    def through(rate: float) -> Facts:
        chains = tuple(
            PcieChain(f"GPU{i}", ("sw0", "cpu0"), (gb_per_s(48), gb_per_s(rate))) for i in range(4)
        )
        return capture("n0", pcie_chains=chains)

    (found,) = differences(through(48), through(12))
    assert found.what == "the PCIe link of sw0 (above GPU0) to cpu0"
    assert (found.left, found.right) == ("12.0 GB/s", "48.0 GB/s")


SLOW_NIC = tuple(
    Nic(i, f"mlx5_{i}", pci=pci(i, 2), rate_bytes_per_s=gbit_per_s(200 if i == 1 else 400))
    for i in range(4)
)
CASES = {
    "a lost GPU": ({"gpus": capture("x").gpus[:3]}, "GPUs 3 against 4 (no GPU3)"),
    "links down": (
        {
            "gpus": tuple(
                msgspec.structs.replace(gpu, nvlinks=17 if gpu.index == 2 else 18)
                for gpu in capture("x").gpus
            )
        },
        "NVLinks up of GPU2 17 against 18",
    ),
    "another model": (
        {"gpus": tuple(Gpu(i, f"GPU{i}", model="NVIDIA H200", nvlinks=18) for i in range(4))},
        "the model of GPU0 NVIDIA H200 against NVIDIA H100 80GB HBM3 (3 more)",
    ),
    "a slow NIC": ({"nics": SLOW_NIC}, "the rate of mlx5_1 25.0 GB/s against 50.0 GB/s"),
    "a lost NIC": ({"nics": capture("x").nics[:2]}, "NICs 2 against 4 (no mlx5_2, mlx5_3)"),
    "pairs": ({"nvlink_pairs": pairs(4, 18)[1:]}, "pairs with NVLink 5 against 6"),
    "one pair": (
        {"nvlink_pairs": (msgspec.structs.replace(pairs(4, 18)[0], count=6), *pairs(4, 18)[1:])},
        "links a pair 18, 6 against 18",
    ),
    "NUMA": ({"numa_ids": (0, 1)}, "NUMA nodes 0,1 against unknown"),
    "paths": (
        {"gpu_nic_class": classes(4, 4, "PXB")},
        "the path class of GPU0 and NIC0 PXB against PIX (3 more)",
    ),
    "no paths": ({"gpu_nic_class": None}, "path classes GPU-NIC unknown against known"),
    "a tree": ({"pcie_chains": nccl_xml().pcie_chains}, "the PCIe tree known against unknown"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_differs_is_said_with_both_values(case: str) -> None:
    fields, text = CASES[case]
    odd = msgspec.structs.replace(capture("n9"), **fields)
    joined = join_hosts([capture("n0"), capture("n1"), odd])
    assert rules(joined.findings) == ["hosts-differ"]
    assert text in joined.findings[0].message
    assert joined.findings[0].numbers["count"] == 1


def test_pairs_with_other_counts_are_named() -> None:
    """Both hosts have pairs of 6 and of 18: only which pairs differs."""
    first, *rest = pairs(4, 18)
    one = msgspec.structs.replace(
        capture("n0"), nvlink_pairs=(msgspec.structs.replace(first, count=6), *rest)
    )
    last = msgspec.structs.replace(rest[-1], count=6)
    other = msgspec.structs.replace(capture("n1"), nvlink_pairs=(first, *rest[:-1], last))
    found = differences(one, other)
    assert words(found[0]) == "links between GPU0 and GPU1 18 against 6 (1 more)"


@settings(deadline=None)
@given(st.sets(st.sampled_from(sorted(CASES)), min_size=1, max_size=4))
def test_hosts_of_two_shapes_always_have_a_difference(chosen: set[str]) -> None:
    """The message never falls back on saying that something differs."""
    usual = capture("n0")
    odd = capture("n9")
    for case in sorted(chosen):
        odd = msgspec.structs.replace(odd, **CASES[case][0])
    assert shape_of(usual) != shape_of(odd)
    assert differences(usual, odd)
    assert differences(odd, odd) == []
