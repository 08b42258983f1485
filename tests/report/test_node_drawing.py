"""The drawing of one host, on our own fixtures, line by line."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair, PcieChain
from meshwright.cluster.readers import read_topology
from meshwright.report.node_drawing import WIDTH, draw_node
from meshwright.report.nvlink_text import nvlink_text, ranges
from support import FIXTURES
from topology_samples import captured_files

_TOPOLOGY = FIXTURES / "topology"


def drawn(name: str) -> str:
    return draw_node(read_topology(_TOPOLOGY / name))


def facts(**fields: object) -> Facts:
    return Facts(**({"format": "made", "path": "made"} | fields))  # type: ignore[arg-type]


def test_a_matrix_gives_a_guessed_tree() -> None:
    assert (
        drawn("nvidia_smi_topo_m/tabs_4gpu_2nic.txt")
        == """\
PCIe tree guessed from the matrix (others print the same matrix)
NUMA 2
└─ PCIe switch
   ├─ GPU1 NVIDIA H100 80GB HBM3  through 1 bridge
   └─ PCIe switch
      ├─ GPU0 NVIDIA H100 80GB HBM3
      └─ NIC0 mlx5_2
NUMA 0
└─ PCIe switch
   ├─ GPU2  through 1 bridge
   └─ PCIe switch
      ├─ GPU3
      └─ NIC1 mlx5_7
NVLink switch: GPU0-3, 9 links each"""
    )


def test_a_real_tree_has_addresses_and_rates() -> None:
    assert (
        drawn("nccl_topo_xml/dgx_like.xml")
        == """\
PCIe tree, rates one direction
NUMA 0
├─ GPU0 0000:10:00.0
├─ GPU1 0000:11:00.0
└─ NIC eth9
NUMA 1
└─ PCIe switch 0000:20:00.0  24.0 GB/s
   ├─ GPU2 0000:22:00.0  48.0 GB/s, through 1 bridge
   ├─ GPU3 0000:23:00.0  3.00 GB/s
   ├─ NIC mlx5_4  96.0 GB/s  network 50.0 GB/s
   └─ NIC mlx5_5  96.0 GB/s  network 22.5 GB/s
NVLink through 2 NVSwitches: GPU0, GPU2, 9 links each; GPU3, 8 links each
NVLink: not joined: GPU1"""
    )


def test_a_tree_of_hwloc() -> None:
    assert (
        drawn("hwloc_xml/switched_4gpu.xml")
        == """\
PCIe tree, rates one direction
NUMA 2
└─ PCIe switch 0000:81:00.0  31.5 GB/s
   ├─ GPU0 0000:83:00.0 Synthetic G40  31.5 GB/s
   ├─ GPU1 0000:84:00.0 Synthetic G40  31.5 GB/s
   └─ NIC mlx5_0  15.8 GB/s
NUMA 0,1
├─ NIC eno1  0.985 GB/s
├─ NIC 0000:20:00.1  0.985 GB/s
└─ PCIe switch 0000:11:00.0  31.5 GB/s
   ├─ GPU2 0000:13:00.0 Synthetic G40  31.5 GB/s
   ├─ GPU3 0000:14:00.0 Synthetic G40  31.5 GB/s
   └─ NIC mlx5_1  15.8 GB/s
NVLink through 2 NVSwitches: GPU0-3, 5 links each"""
    )


def test_amd_tables_say_nothing_of_pcie() -> None:
    assert (
        drawn("amd_smi_json/ring_of_four.json")
        == """\
xGMI, direct links between pairs (links x peers):
  GPU0: 2 x GPU1, GPU3
  GPU1: 2 x GPU0, GPU2
  GPU2: 2 x GPU1, GPU3
  GPU3: 2 x GPU0, GPU2
Peer access: OK between all 6 pairs of GPU0-3"""
    )


def test_remote_ends_give_the_links_alone() -> None:
    assert drawn("nvidia_smi_nvlink_r/switches_two_links_down.txt") == (
        "NVLink through 4 NVSwitches: GPU0-2, GPU4-7, 18 links each; GPU3, 16 links each"
    )
    assert drawn("nvidia_smi_nvlink_r/mesh_4gpu.txt") == (
        "NVLink directly between all of GPU0-3, links a pair: 2"
    )
    assert drawn("nvidia_smi_nvlink_r/one_gpu.txt") == (
        "GPU0 NVIDIA A100-SXM4-40GB: 12 NVLinks up, how many are down is unknown"
    )


def test_counted_links_and_their_rate() -> None:
    assert (
        drawn("nvidia_smi_nvlink_s/h100_4gpu_degraded.txt")
        == """\
GPU0, GPU3 NVIDIA H100 80GB HBM3: 6 NVLinks up, 0 down
  26.6 GB/s a link and direction, 159.4 GB/s together (raw rates)
GPU1 NVIDIA H100 80GB HBM3: 4 NVLinks up, 2 down
  26.6 GB/s a link and direction, 106.2 GB/s together (raw rates)
GPU2 NVIDIA H100 80GB HBM3: 4 NVLinks up, 0 down
  26.6 GB/s a link and direction, 106.2 GB/s together (raw rates)"""
    )


def test_peer_access_by_code() -> None:
    assert (
        drawn("nvidia_smi_topo_p2p/mixed_4gpu.txt")
        == """\
Peer access, pairs by code:
  TNS  2 of 6: GPU0-GPU2, GPU1-GPU3
  DR  1 of 6: GPU1-GPU2
  OK  1 of 6: GPU0-GPU1
  OK/NS  1 of 6: GPU0-GPU3
  U  1 of 6: GPU2-GPU3"""
    )
    assert drawn("nvidia_smi_topo_p2p/single_gpu.txt") == ""
    gpus = tuple(Gpu(index, f"GPU{index}") for index in range(2))
    two = facts(gpus=gpus, peer_access=(("X", "CNS"), ("CNS", "X")))
    assert draw_node(two) == "Peer access: CNS between GPU0 and GPU1"


def test_gpus_of_a_skeleton_have_the_drivers_numbers() -> None:
    """Drivers number GPUs by PCI address, whatever the order of the file."""
    pci = ("0002:00:00.0", "0001:00:00.0")
    gpus = tuple(Gpu(index, one, pci=one) for index, one in enumerate(pci))
    chains = tuple(PcieChain(one, ("cpu0",), (48e9,)) for one in pci)
    text = draw_node(facts(format="nccl_topo_xml", gpus=gpus, pcie_chains=chains))
    assert "GPU1 0002:00:00.0" in text
    assert "GPU0 0001:00:00.0" in text


def test_many_virtual_functions_are_one_line() -> None:
    gpus = tuple(Gpu(index, f"GPU{index}") for index in range(8))
    nics = tuple(Nic(index, f"mlx5_{index}", label=f"NIC{index}") for index in range(26))
    chains = [
        PcieChain(f"GPU{gpu}", (f"0000:{gpu:02x}:00.0", f"cpu{gpu // 4}"), (64e9, 64e9))
        for gpu in range(8)
    ]
    chains += [
        PcieChain(f"mlx5_{nic}", (f"0000:{nic % 2:02x}:00.0", "cpu0"), (32e9, 64e9))
        for nic in range(26)
    ]
    text = draw_node(facts(gpus=gpus, nics=nics, pcie_chains=tuple(chains)))
    assert (
        text
        == """\
PCIe tree, rates one direction
CPU 0
├─ GPU2  64.0 GB/s, through 1 bridge
├─ GPU3  64.0 GB/s, through 1 bridge
├─ PCIe switch 0000:00:00.0  64.0 GB/s
│  ├─ GPU0  64.0 GB/s
│  └─ NIC0 … NIC24 (13)  32.0 GB/s
└─ PCIe switch 0000:01:00.0  64.0 GB/s
   ├─ GPU1  64.0 GB/s
   └─ NIC1 … NIC25 (13)  32.0 GB/s
CPU 1
├─ GPU4  64.0 GB/s, through 1 bridge
├─ GPU5  64.0 GB/s, through 1 bridge
├─ GPU6  64.0 GB/s, through 1 bridge
└─ GPU7  64.0 GB/s, through 1 bridge"""
    )


def test_bridges_narrower_than_the_device_are_told() -> None:
    chain = PcieChain("0", ("a", "b", "cpu3"), (48e9, 48e9, 6e9))
    text = draw_node(facts(gpus=(Gpu(0, "0"), Gpu(1, "1")), pcie_chains=(chain,)))
    assert text.split("\n") == [
        "PCIe tree, rates one direction",
        "CPU 3",
        "└─ GPU0  48.0 GB/s, through 2 bridges, narrowest 6.00 GB/s",
        "Place in the tree not given: GPU1",
    ]


def test_several_hosts_or_none_are_not_drawn() -> None:
    two = (Gpu(0, "GPU0", host="a"), Gpu(0, "GPU0", host="b"))
    assert draw_node(facts(gpus=two, nvlink_pairs=())) == ""
    assert draw_node(facts()) == ""
    many = tuple(Gpu(index, f"GPU{index}") for index in range(300))
    assert "too many to draw" in draw_node(facts(gpus=many, nvlink_pairs=()))


def test_two_switched_sets_and_a_gpu_outside() -> None:
    gpus = tuple(Gpu(index, f"GPU{index}") for index in range(7))
    sets = ((0, 1, 2), (3, 4, 5))
    pairs = tuple(
        NvlinkPair(a, b, 6, via_switch=True) for one in sets for a in one for b in one if a < b
    )
    assert nvlink_text(facts(gpus=gpus, nvlink_pairs=pairs, nvswitches=("x", "y"))).split("\n") == [
        "NVLink through 2 NVSwitches: GPU0-2, 6 links each; GPU3-5, 6 links each",
        "NVLink: not joined: GPU6",
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["NIC0", "NIC1", "NIC2", "NIC7"], "NIC0-2, NIC7"),
        (["mlx5_0", "mlx5_1", "ens3"], "mlx5_0-1, ens3"),
        (["a", "b"], "a, b"),
        (["NIC2", "NIC1"], "NIC2, NIC1"),
    ],
)
def test_ranges(names: list[str], text: str) -> None:
    assert ranges(names) == text


@pytest.mark.captured
def test_no_captured_file_is_drawn_wider_and_every_device_is_there() -> None:
    drawings = 0
    for path in captured_files():
        source = read_topology(path)
        text = draw_node(source)
        assert max(map(len, text.split("\n"))) <= WIDTH, path.name
        if "PCIe tree" in text:
            drawings += 1
            for gpu in source.gpus or ():
                assert f"GPU{gpu.index}" in text, (path.name, gpu.index)
    assert drawings > 35
