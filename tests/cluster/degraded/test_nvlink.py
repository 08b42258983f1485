"""NVLink findings: the odd GPU is named, a healthy box gives none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.degraded.maker import Cells, box, each_its_own, loud, matrix
from meshwright.cluster.degraded.nvlink_model import below_model
from meshwright.cluster.facts import Facts
from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.nodes.node import node_from_facts
from meshwright.cluster.readers import nvidia_smi_nvlink_s, nvidia_smi_topo_m, rocm_smi_showtopo
from meshwright.findings import Finding, Severity

HEALTHY = each_its_own()


def _read(cells: Cells, gpus: int = 8, head: str = "") -> Facts:
    return nvidia_smi_topo_m.read(head + matrix(cells, gpus, each_its_own(gpus)), "t.txt")


def _only(facts: Facts, rule: str) -> Finding:
    (found,) = loud(facts)
    assert found.rule == f"topology/{rule}"
    assert found.severity is Severity.WARNING
    assert found.remedy
    return found


@pytest.mark.parametrize("gpus", [4, 6, 8])
def test_a_healthy_box_gives_nothing(gpus: int) -> None:
    assert _read(box(gpus), gpus).findings == ()
    assert loud(_read(box(gpus), gpus)) == []


def test_one_gpu_with_a_link_down() -> None:
    facts = _read(box(links={3: 17}))
    found = _only(facts, "nvlink-count-differs")
    assert found.message == (
        "GPU3 has 17 NVLinks into the switch where 7 peers have 18: to and from it NVLink runs at "
        "17/18 of its rate"
    )
    assert (found.place.line, found.place.subject) == (5, "GPU3")
    assert found.numbers == {"gpus": [3], "links": 17, "most": 18, "peers": 7}


def test_each_odd_gpu_has_its_own_finding() -> None:
    found = loud(_read(box(links={1: 17, 6: 12})))
    assert [one.rule for one in found] == ["topology/nvlink-count-differs"] * 2
    assert [(one.numbers["gpus"], one.numbers["links"]) for one in found] == [([1], 17), ([6], 12)]
    # Most are low: one finding names them all.
    many = _only(_read(box(links=dict.fromkeys(range(6), 17))), "nvlink-count-differs")
    assert many.numbers["gpus"] == [0, 1, 2, 3, 4, 5]
    assert "GPU5 have 17" in many.message


@settings(deadline=None)
@given(st.integers(0, 7), st.integers(4, 17))
def test_the_injected_gpu_is_named(gpu: int, links: int) -> None:
    found = _only(_read(box(links={gpu: links})), "nvlink-count-differs")
    assert found.numbers == {"gpus": [gpu], "links": links, "most": 18, "peers": 7}
    assert found.place.line == gpu + 2


@settings(deadline=None)
@given(st.sets(st.integers(0, 7), min_size=1, max_size=4))
def test_gpus_off_the_switch(off: set[int]) -> None:
    facts = _read(box(off=tuple(off)))
    found = _only(facts, "gpu-outside-nvlink")
    assert found.numbers == {"outside": sorted(off), "joined": 8 - len(off)}
    assert found.place.line == min(off) + 2
    joined = 8 - len(off)
    assert f"the other {joined} GPUs hang on one switch" in found.message
    assert f"({joined * (joined - 1) // 2} pairs)" in found.message
    node, _ = node_from_facts(facts, find_gpu("H100-SXM"), None, "x")
    assert node.nvlink == "switch"
    assert node.on_switch() == tuple(gpu not in off for gpu in range(8))


def test_a_gpu_off_the_switch_and_one_with_a_link_down_are_two_faults() -> None:
    found = loud(_read(box(links={2: 17}, off=(5,))))
    assert sorted(one.rule for one in found) == [
        "topology/gpu-outside-nvlink",
        "topology/nvlink-count-differs",
    ]


def test_one_pair_alone_is_odd() -> None:
    cells = box() | {(1, 4): "NV17"}
    found = _only(_read(cells), "nvlink-pair-differs")
    assert found.numbers == {"count": 1, "pairs": [[1, 4, 17, 18]]}
    assert "GPU1 and GPU4 show 17 NVLinks where both have 18" in found.message
    missing = _only(_read(box() | {(1, 4): "SYS"}), "nvlink-pair-differs")
    assert "GPU1 and GPU4 show no NVLinks" in missing.message


def test_an_asymmetric_matrix_names_both_cells_and_nothing_else() -> None:
    found = _only(_read(box() | {(2, 0): "SYS", (0, 2): "NV18"}), "matrix-asymmetric")
    assert found.message == "GPU0 to GPU2 is NV18 (line 2), but GPU2 to GPU0 is SYS (line 4)"
    whole = {(2, gpu): "SYS" for gpu in (0, 1, 3, 4, 5, 6, 7)}
    rest = {(gpu, 2): "NV18" for gpu in (0, 1, 3, 4, 5, 6, 7)}
    found = _only(_read(box() | whole | rest), "matrix-asymmetric")
    assert found.numbers["count"] == 7
    assert found.message.endswith("(6 more such pairs, all with GPU2)")
    # A pair of 17 and 18 is asymmetric, and no second fault.
    _only(_read(box() | {(2, 0): "NV17", (0, 2): "NV18"}), "matrix-asymmetric")


def _mesh(counts: dict[tuple[int, int], int], gpus: int) -> Facts:
    cells = {pair: f"NV{count}" if count else "NODE" for pair, count in counts.items()}
    return _read(cells, gpus)


def test_directly_joined_gpus_are_compared_by_their_sums() -> None:
    full = {(a, b): 6 for a in range(4) for b in range(a + 1, 4)}
    assert loud(_mesh(full, 4)) == []
    found = _only(_mesh(full | {(1, 2): 5}, 4), "nvlink-count-differs")
    assert found.numbers == {"gpus": [1, 2], "links": [17, 17], "most": 18}
    assert "GPU1-GPU2 NV5 where other pairs have at least NV6" in found.message
    bridges = {(0, 1): 8, (2, 3): 8}
    assert loud(_mesh(bridges, 4)) == []
    found = _only(_mesh(bridges | {(2, 3): 4}, 4), "nvlink-count-differs")
    assert found.numbers["gpus"] == [2, 3]
    # A bridge on two of four cards is how the box was bought.
    assert loud(_mesh({(0, 1): 8}, 4)) == []


def test_a_display_card_is_not_off_the_switch() -> None:
    models = [f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i})\n" for i in range(7)]
    other = "GPU 7: NVIDIA T400 4GB (UUID: GPU-7)\n"
    facts = _read(box(off=(7,)), head="".join([*models, other]))
    assert loud(facts) == []


# Fewer links than the model has --------------------------------------------------------------


def _named(model: str, cells: Cells, gpus: int) -> Facts:
    head = "".join(f"GPU {i}: {model} (UUID: GPU-{i})\n" for i in range(gpus))
    return _read(cells, gpus, head)


def test_fewer_links_than_the_model_has() -> None:
    half = box(4, dict.fromkeys(range(4), 9))
    found = _only(_named("NVIDIA H100 80GB HBM3", half, 4), "nvlinks-below-model")
    assert found.message == (
        "each of the 4 GPUs at most shows 9 NVLinks, and H100 SXM 80G has 18: NVLink runs at 9/18 of its rate"
    )
    assert loud(_named("NVIDIA H100 80GB HBM3", box(4), 4)) == []
    # Without NVLink at all.
    none = dict.fromkeys(box(4), "NODE")
    assert (
        "shows no NVLinks"
        in _only(_named("NVIDIA H100 80GB HBM3", none, 4), "nvlinks-below-model").message
    )
    assert loud(_named("NVIDIA L40S", none, 4)) == []


def test_what_a_mesh_does_not_show_may_be_hidden() -> None:
    three = {(a, b): "NV6" for a in range(3) for b in range(a + 1, 3)}
    (note,) = below_model(_named("NVIDIA H100 80GB HBM3", three, 3))
    assert note.severity is Severity.NOTE
    assert "GPUs that this file does not show" in note.message


def test_a_gpu_below_its_peers_is_not_said_twice() -> None:
    facts = _named("NVIDIA H100 80GB HBM3", box(links={3: 17}), 8)
    _only(facts, "nvlink-count-differs")


def _status(counts: list[int], listed: int = 18) -> Facts:
    text = ""
    for gpu, up in enumerate(counts):
        text += f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
        text += "".join(
            f"\t Link {k}: {'26.562 GB/s' if k < up else '<inactive>'}\n" for k in range(listed)
        )
    return nvidia_smi_nvlink_s.read(text, "s.txt")


def test_the_list_of_links_is_compared_with_the_model() -> None:
    assert loud(_status([18, 18])) == []
    found = _only(_status([16, 16], listed=16), "nvlinks-below-model")
    assert found.numbers == {"links": 16, "model_links": 18, "gpus": 2}
    _only(_status([16, 18]), "nvlinks-down")
    _only(_status([16, 16]), "nvlinks-down")


def test_the_model_given_in_the_cluster_file_counts() -> None:
    facts = _read(box(4, dict.fromkeys(range(4), 6)), 4)
    assert below_model(facts) == []
    (found,) = below_model(facts, find_gpu("A100-SXM"))
    assert found.numbers == {"links": 6, "model_links": 12, "gpus": 4}


# Bridges and makers ----------------------------------------------------------------------------


def _bridges(pairs: int, gpus: int) -> Facts:
    """``pairs`` pairs of GPUs, each with a bridge; the GPUs after them have none."""
    cells = dict.fromkeys(box(gpus), "NODE")
    cells |= {(2 * at, 2 * at + 1): "NV4" for at in range(pairs)}
    return _read(cells, gpus)


def test_a_pair_without_its_bridge() -> None:
    assert loud(_bridges(4, 8)) == []
    found = _only(_bridges(3, 8), "nvlink-bridge-missing")
    assert found.message == (
        "GPU6 and GPU7 have no NVLink bridge where the other 6 GPUs are joined in pairs: what they send "
        "each other goes by PCIe"
    )
    assert found.numbers == {"outside": [6, 7], "joined": 6, "pairs": 3}
    assert (found.place.line, found.place.subject) == (8, "GPU6")
    # Half of the box with bridges, or one card over: how it was bought, or what is shown of it.
    assert loud(_bridges(2, 8)) == []
    assert loud(_bridges(3, 7)) == []


@settings(deadline=None)
@given(st.integers(0, 8), st.integers(2, 16))
def test_a_bridge_is_missed_only_where_most_have_one(pairs: int, gpus: int) -> None:
    pairs = min(pairs, gpus // 2)
    alone = gpus - 2 * pairs
    found = [one.rule for one in loud(_bridges(pairs, gpus))]
    missing = pairs > 0 and alone >= 2 and 2 * pairs >= 3 * alone
    assert found == ["topology/nvlink-bridge-missing"] * missing


def _amd(lost: tuple[int, int]) -> Facts:
    rows = ["=" * 20 + " Link Type between two GPUs " + "=" * 20]
    rows.append("       " + "         ".join(f"GPU{gpu}" for gpu in range(4)))
    for row in range(4):
        cells = [
            "0" if row == to else "PCIE" if {row, to} == {*lost} else "XGMI" for to in range(4)
        ]
        rows.append(f"GPU{row}   " + "         ".join(cells))
    return rocm_smi_showtopo.read("\n".join(rows) + "\n", "r.txt")


def test_links_of_amd_are_called_so() -> None:
    found = _only(_amd((1, 2)), "nvlink-count-differs")
    assert found.message == (
        "GPU1 has 2, GPU2 has 2 xGMI links over all peers where 2 GPUs have 3 (GPU1 and GPU2 have no link "
        "where all other pairs do)"
    )
    assert "amd-smi" in str(found.remedy)
    assert "nvidia" not in str(found.remedy)


def test_remedies_count_the_gpus() -> None:
    one, two = (
        str(_only(_read(box(off=off)), "gpu-outside-nvlink").remedy) for off in ((3,), (3, 6))
    )
    assert "of this GPU" in one
    assert "keep jobs off it (" in one
    assert "of these GPUs" in two
    assert "keep jobs off them (" in two
