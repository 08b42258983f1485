"""Choosing GPUs: the worst pair decides, by links before path classes; numbers are the driver's."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.degraded.maker import Cells, box, each_its_own, matrix
from meshwright.cluster.facts import PATH_CLASSES, Facts
from meshwright.cluster.nodes.choose import choose_groups, choose_set
from meshwright.cluster.readers import nccl_topo_xml, nvidia_smi_topo_m, rocm_smi_showtopo
from meshwright.errors import UsageError
from support import FIXTURES


def _read(cells: Cells, gpus: int = 8, nics: list[list[str]] | None = None) -> Facts:
    return nvidia_smi_topo_m.read(matrix(cells, gpus, nics), "t.txt")


def test_a_gpu_with_a_link_down_is_left_out() -> None:
    facts = _read(box(links={3: 17}), nics=each_its_own())
    choice = choose_set(facts, 4)
    assert choice.groups == ((0, 1, 2, 4),)
    assert (choice.worst_class, choice.nic_class, choice.tried) == ("NV18", "PIX", 70)
    assert choose_groups(facts, 4).tried == 35
    assert choose_groups(facts, 2).tried == 105
    # With it the class is its own, whatever the box has.
    assert choose_set(facts, 3, [2, 3, 4]).worst_class == "NV17"
    assert choose_set(facts, 2, [4, 5]).worst_class == "NV18"
    assert choose_set(facts, 1, [3]).worst_class == "X"


def test_more_links_are_nearer() -> None:
    cells = {(0, 1): "NV1", (0, 2): "NV2", (1, 2): "NODE", (0, 3): "PIX", (1, 3): "NV2"}
    facts = _read(cells, 4)
    assert choose_set(facts, 2, [0, 1, 2]).groups == ((0, 2),)
    assert choose_set(facts, 2, [0, 1, 3]).groups == ((1, 3),)
    pairs = choose_groups(facts, 2)
    assert (pairs.groups, pairs.worst_class) == (((0, 2), (1, 3)), "NV2")
    # Ten is more than nine.
    assert choose_set(_read({(0, 1): "NV9", (0, 2): "NV10"}, 3), 2).worst_class == "NV10"


def test_equal_sets_stay_on_one_numa_node_then_take_the_lowest() -> None:
    rows = matrix(box(8)).splitlines()
    text = "\n".join(
        line[:-1] + str(int(line[3]) // 4) if line.startswith("GPU") else line for line in rows
    )
    facts = nvidia_smi_topo_m.read(text, "t.txt")
    assert choose_set(facts, 2, [1, 5, 4]).groups == ((4, 5),)
    assert choose_set(facts, 2).groups == ((0, 1),)
    assert choose_set(facts, 2, [7, 6, 5]).groups == ((5, 6),)


CELLS = ("NV1", "NV2", "NV12", "NV18", *PATH_CLASSES)


@settings(deadline=None)
@given(st.data())
def test_no_set_has_a_nearer_worst_pair(data: st.DataObject) -> None:
    gpus = data.draw(st.integers(2, 6))
    count = data.draw(st.integers(2, gpus))
    cells = {pair: data.draw(st.sampled_from(CELLS)) for pair in combinations(range(gpus), 2)}
    choice = choose_set(_read(cells, gpus), count)
    order = [*sorted(CELLS[:4], key=lambda cell: -int(cell[2:])), *PATH_CLASSES]

    def worst(chosen: tuple[int, ...]) -> int:
        return max(order.index(cells[pair]) for pair in combinations(chosen, 2))

    assert worst(choice.groups[0]) == min(map(worst, combinations(range(gpus), count)))
    assert choice.worst_class == order[worst(choice.groups[0])]


@settings(deadline=None)
@given(st.permutations(range(6)))
def test_divisions_have_the_nearest_pairs(order: list[int]) -> None:
    pairs = [tuple(sorted(order[at : at + 2])) for at in range(0, 6, 2)]
    cells = {(a, b): "NV4" if (a, b) in pairs else "SYS" for a, b in combinations(range(6), 2)}
    choice = choose_groups(_read(cells, 6), 2)
    assert sorted(choice.groups) == sorted(pairs)
    assert choice.worst_class == "NV4"


def _skeleton(addresses: tuple[str, ...]) -> Facts:
    """GPUs in this order of the file, the first two under one switch."""
    gpus = [
        f'<pci busid="{one}" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>'
        for one in addresses
    ]
    text = (
        '<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64">'
        '<pci busid="ffff:ff:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">'
        f"{gpus[0]}{gpus[1]}</pci>{''.join(gpus[2:])}</cpu></system>"
    )
    return nccl_topo_xml.read(text, "s.xml")


ADDRESSES = ("0001:00:00.0", "0002:00:00.0", "000a:00:00.0", "0010:00:00.0")


@pytest.mark.parametrize("order", [*permutations(ADDRESSES)])
def test_a_skeleton_is_numbered_by_its_pci_addresses(order: tuple[str, ...]) -> None:
    """The file's order is not the driver's: that of the PCI addresses is."""
    choice = choose_set(_skeleton(order), 2)
    near = sorted(order[:2])
    assert choice.groups == (tuple(ADDRESSES.index(one) for one in near),)
    assert choice.pci == (tuple(near),)
    only = choose_set(_skeleton(order), 1, [3])
    assert only.pci == (("0010:00:00.0",),)


def test_numbers_of_a_driver_stand_alone() -> None:
    assert choose_set(_read(box()), 2).pci is None


def test_whose_gpus_they_are() -> None:
    assert choose_set(_read(box()), 2).maker.library == "NCCL"
    path = FIXTURES / "topology/rocm_smi_showtopo/ring_of_four.txt"
    assert choose_set(rocm_smi_showtopo.read(path.read_text(), "r"), 2).maker.library == "RCCL"


@pytest.mark.parametrize(
    ("count", "among", "message"),
    [
        (9, None, "9 GPUs of 8 cannot"),
        (2, [0], "2 GPUs of 1 cannot"),
        (1, [8], "no GPU 8 here"),
        (1, [1, 1], "named twice"),
    ],
)
def test_what_cannot_be_chosen(count: int, among: list[int] | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_set(_read(box()), count, among)


def test_what_cannot_be_divided() -> None:
    with pytest.raises(UsageError, match="8 GPUs cannot be divided into groups of 3"):
        choose_groups(_read(box()), 3)
    with pytest.raises(UsageError, match="nothing to choose by"):
        choose_set(Facts(format="x", path="x.txt"), 1)
    with pytest.raises(UsageError, match=r"groups of 2 in 316,234,143,225 ways.*--among"):
        choose_groups(_read(box(24), 24), 2)
    with pytest.raises(UsageError, match=r"2,704,156 sets of 12, more than the 200,000.*--among"):
        choose_set(_read(box(24), 24), 12)


@pytest.mark.parametrize("count", [32, 48])
def test_large_boxes_are_refused_by_formula(count: int) -> None:
    facts = _read(box(64), 64)
    for size in (2, 4, 8, 16, 32):
        with pytest.raises(UsageError, match=r"over 10\^[0-9]+ ways"):
            choose_groups(facts, size)
    with pytest.raises(UsageError, match=r"over 10\^1[0-9] sets"):
        choose_set(facts, count)


def test_pairs_of_sixteen_are_divided_exactly() -> None:
    # Each GPU has one near neighbour, eight further on.
    cells = {(a, b): "PIX" if b - a == 8 else "SYS" for a, b in combinations(range(16), 2)}
    choice = choose_groups(_read(cells, 16), 2)
    assert choice.groups == tuple((at, at + 8) for at in range(8))
    assert (choice.worst_class, choice.tried) == ("PIX", 2_027_025)
