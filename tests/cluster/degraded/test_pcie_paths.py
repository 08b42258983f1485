"""PCIe findings: GPUs far from every NIC, trees a VM hides, slow links."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.degraded.maker import box, each_its_own, loud, matrix
from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import nccl_topo_xml, nvidia_smi_topo_m
from meshwright.findings import Finding, Severity


def _read(nics: list[list[str]] | None, gpus: int = 8) -> Facts:
    return nvidia_smi_topo_m.read(matrix(box(gpus), gpus, nics), "t.txt")


def _only(facts: Facts, rule: str) -> Finding:
    (found,) = loud(facts)
    assert found.rule == f"topology/{rule}"
    assert found.remedy
    return found


def _both(facts: Facts) -> list[Finding]:
    return [*facts.findings, *degradations(facts)]


# GPUs and NICs ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1, max_size=7))
def test_gpus_without_a_near_nic_are_named(far: set[int]) -> None:
    nics = [["SYS"] * 8 if gpu in far else row for gpu, row in enumerate(each_its_own())]
    found = _only(_read(nics), "gpu-without-near-nic")
    assert found.numbers == {"gpus": sorted(far), "far": len(far), "of": 8, "nics": 8}
    assert found.place.line == min(far) + 2
    assert f"{len(far)} of 8 GPUs have no NIC nearer than SYS" in found.message


def test_no_gpu_has_a_near_nic() -> None:
    found = _only(_read([["SYS"] * 2] * 4, 4), "gpu-without-near-nic")
    assert "unknown, not equal" in found.message
    assert "topology XML" in str(found.remedy)
    # One NIC for a host is no RDMA network.
    (note,) = _both(_read([["SYS"]] * 4, 4))
    assert (note.rule, note.severity) == ("topology/gpu-without-near-nic", Severity.NOTE)


@pytest.mark.parametrize(
    "nics", [None, each_its_own(), [["PXB", "SYS"]] * 4 + [["SYS", "PXB"]] * 4]
)
def test_near_nics_or_none_give_nothing(nics: list[list[str]] | None) -> None:
    assert _both(_read(nics)) == []


def test_a_vm_that_hides_the_tree() -> None:
    found = _only(_read([["PHB"] * 8] * 8), "pcie-hidden-by-vm")
    assert found.severity is Severity.WARNING
    assert "every GPU-NIC cell is PHB" in found.message
    assert "unknown, not equal" in found.message
    assert "NCCL topology XML" in str(found.remedy)
    assert found.place.line == 2
    # Two sockets: the same inside each.
    halves = [["PHB"] * 4 + ["SYS"] * 4] * 4 + [["SYS"] * 4 + ["PHB"] * 4] * 4
    assert "nearer than PHB" in _only(_read(halves), "pcie-hidden-by-vm").message
    # A switch anywhere: the tree is shown.
    shown = [["PIX", *["PHB"] * 7], *[["PHB"] * 8] * 7]
    assert loud(_read(shown)) == []


def test_node_everywhere_may_be_the_board() -> None:
    halves = [["NODE"] * 2 + ["SYS"] * 2] * 2 + [["SYS"] * 2 + ["NODE"] * 2] * 2
    (note,) = _both(_read(halves, 4))
    assert (note.rule, note.severity) == ("topology/pcie-hidden-by-vm", Severity.NOTE)
    # One NIC beside each: that is an answer.
    apart = [["NODE" if nic == gpu else "SYS" for nic in range(4)] for gpu in range(4)]
    assert _both(_read(apart, 4)) == []


def test_gpus_without_nics_in_a_vm() -> None:
    cells = dict.fromkeys(box(4), "PHB")
    facts = nvidia_smi_topo_m.read(matrix(cells, 4), "t.txt")
    assert "which GPUs are near each other is unknown" in _only(facts, "pcie-hidden-by-vm").message


# Rates in the tree of an NCCL file ----------------------------------------------------------------


def _xml(
    gpu_width: dict[int, int] | None = None,
    bridge_width: dict[int, int] | None = None,
    nic: dict[int, tuple[int, int]] | None = None,
) -> str:
    """Four switches, each with two GPUs and a NIC; widths by number, else x16; NIC width and Mbit/s."""
    parts = [
        '<system version="1">',
        '<cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel">',
    ]
    for switch in range(4):
        width = (bridge_width or {}).get(switch, 16)
        parts.append(
            f'<pci busid="0000:{switch + 1}0:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="{width}">'
        )
        for gpu in (2 * switch, 2 * switch + 1):
            width = (gpu_width or {}).get(gpu, 16)
            parts.append(
                f'<pci busid="0000:{switch + 1}{gpu % 2 + 1}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" '
                f'link_width="{width}"><gpu dev="{gpu}" sm="90" rank="{gpu}"/></pci>'
            )
        width, speed = (nic or {}).get(switch, (16, 400000))
        parts.append(
            f'<pci busid="0000:{switch + 1}8:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="{width}">'
            f'<nic><net name="mlx5_{switch}" dev="{switch}" speed="{speed}" port="1"/></nic></pci>'
        )
        parts.append("</pci>")
    return "\n".join([*parts, "</cpu></system>"])


def _tree(**given: dict[int, int] | dict[int, tuple[int, int]]) -> Facts:
    return nccl_topo_xml.read(_xml(**given), "t.xml")  # type: ignore[arg-type]


def test_equal_links_give_nothing() -> None:
    assert loud(_tree()) == []
    # All alike at a lower width: a design.
    assert loud(_tree(gpu_width=dict.fromkeys(range(8), 8))) == []
    assert loud(_tree(bridge_width=dict.fromkeys(range(4), 8))) == []


@settings(deadline=None)
@given(st.integers(0, 7), st.sampled_from([1, 2, 4, 8]))
def test_a_gpu_at_lower_width_is_named(gpu: int, width: int) -> None:
    found = _only(_tree(gpu_width={gpu: width}), "pcie-link-slow")
    assert f"GPU {gpu}: the PCIe link to 0000:{gpu // 2 + 1}0:00.0 runs at" in found.message
    assert "where 7 peers have 48.0 GB/s" in found.message
    assert found.numbers["bytes_per_s"] == 48e9 * width / 16
    assert found.numbers["link"] == [str(gpu), f"0000:{gpu // 2 + 1}0:00.0"]


def test_a_slow_bridge_is_one_fault_of_all_below_it() -> None:
    found = _only(_tree(bridge_width={2: 4}), "pcie-link-slow")
    assert found.numbers["link"] == ["0000:30:00.0", "cpu0"]
    assert found.numbers["devices"] == ["GPU 4", "GPU 5", "mlx5_2"]


def test_a_nic_at_lower_width_or_rate() -> None:
    found = _only(_tree(nic={1: (8, 400000)}), "pcie-link-slow")
    assert found.numbers["devices"] == ["mlx5_1"]
    low = _only(_tree(nic={1: (16, 200000)}), "nic-rate-low")
    assert low.message == "NIC mlx5_1 runs at 25.0 GB/s where 3 NICs beside GPUs have 50.0 GB/s"


# Skeletons: PCI addresses and link speeds only ---------------------------------------------------


def _skeleton(slow: int | None = None, gone: tuple[int, ...] = ()) -> Facts:
    """Eight switches, each with a GPU and a NIC; one NIC at gen 4, some NICs absent."""
    parts = ['<system version="1">', '<cpu numaid="0" affinity="ff" arch="x86_64">']
    for at in range(8):
        speed = "16.0" if at == slow else "32.0"
        nic = f'<pci busid="0{at}02:00:00.0" class="0x020700" link_speed="{speed} GT/s PCIe" link_width="16"/>'
        parts += [
            f'<pci busid="ffff:ff:0{at}.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">',
            f'<pci busid="0{at}01:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>',
            "" if at in gone else nic,
            "</pci>",
        ]
    return nccl_topo_xml.read("\n".join([*parts, "</cpu></system>"]), "t.xml")


@settings(deadline=None)
@given(st.integers(0, 7))
def test_a_slow_nic_of_a_skeleton_is_named(nic: int) -> None:
    found = _only(_skeleton(slow=nic), "pcie-link-slow")
    assert found.message == (
        f"NIC 0{nic}02:00:00.0: the PCIe link to ffff:ff:0{nic}.0 runs at 24.0 GB/s where 7 peers have "
        "48.0 GB/s"
    )
    assert found.numbers["devices"] == [f"NIC 0{nic}02:00:00.0"]


@settings(deadline=None)
@given(st.sets(st.integers(0, 7), max_size=2))
def test_a_nic_that_is_gone_is_missed(gone: set[int]) -> None:
    facts = _skeleton(gone=tuple(gone))
    if not gone:
        assert loud(facts) == []
        return
    found = _only(facts, "gpu-without-near-nic")
    assert found.numbers == {"gpus": sorted(gone), "far": len(gone), "of": 8, "nics": 8 - len(gone)}
    assert f"where each of the other {8 - len(gone)} GPUs has one" in found.message


def test_a_board_with_nics_beside_half_of_its_gpus_is_so_made() -> None:
    assert loud(_skeleton(gone=(0, 1, 2, 3))) == []
    half = [["PIX", "NODE"], ["NODE", "NODE"], ["NODE", "PIX"], ["NODE", "NODE"]]
    assert loud(_read(half, 4)) == []
