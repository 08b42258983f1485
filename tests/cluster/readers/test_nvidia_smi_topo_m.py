"""The ``nvidia-smi topo -m`` reader: captured samples, each trap, and anything else as data."""

from __future__ import annotations

import csv
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair, nearest_nics
from meshwright.cluster.readers.nvidia_smi_topo_m import FORMAT, looks_like, read
from meshwright.errors import InputError
from meshwright.findings import Finding, Severity
from support import FIXTURES, shared_path

_COUNTS = (
    "n_gpus",
    "n_nics",
    "n_nvswitches",
    "n_nvlink_pairs",
    "n_numa",
    "n_hosts",
    "n_switches",
    "n_links",
)
_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.glob("*.txt"))


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _finding(facts: Facts, rule: str) -> Finding:
    (found,) = [finding for finding in facts.findings if finding.rule == rule]
    return found


def _rules(facts: Facts) -> list[str]:
    return [finding.rule for finding in facts.findings]


def _error(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    return caught.value


def _count(things: tuple[object, ...] | None) -> str:
    return "" if things is None else str(len(things))


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    base = shared_path("data/topology")
    with (base / "MANIFEST.csv").open() as file:
        samples = [row for row in csv.DictReader(file) if row["format"] == FORMAT]
    assert len(samples) == 29
    for row in samples:
        facts = read((base / row["file"]).read_text(), row["file"])
        assert {
            "n_gpus": _count(facts.gpus),
            "n_nics": _count(facts.nics),
            "n_nvswitches": _count(facts.nvswitches),
            "n_nvlink_pairs": _count(facts.nvlink_pairs),
            "n_numa": _count(facts.numa_ids),
            "n_hosts": _count(facts.hosts),
            "n_switches": _count(facts.switches),
            "n_links": _count(facts.cables),
        } == {key: row[key] for key in _COUNTS}, row["file"]
        ids = json.loads(row["numa_ids"]) if row["numa_ids"] else None
        assert (None if facts.numa_ids is None else list(facts.numa_ids)) == ids, row["file"]
        _check_nearest(facts, row)


def _check_nearest(facts: Facts, row: dict[str, str]) -> None:
    nearest = nearest_nics(facts)
    if not row["nearest_nic"]:
        assert nearest is None
        return
    assert nearest is not None
    nics = facts.nics or ()
    names = [nic.index if str(nic.label).startswith("NIC") else nic.label for nic in nics]
    gpus = [str(gpu.index) for gpu in facts.gpus or ()]
    assert {gpus[at]: [names[nic] for nic in near] for at, (_, near) in nearest.items()} == (
        json.loads(row["nearest_nic"])
    ), row["file"]
    assert {gpus[at]: name for at, (name, _) in nearest.items()} == (
        json.loads(row["nearest_class"])
    ), row["file"]


def test_tabs_indented_header_and_a_legend() -> None:
    facts = _fixture("tabs_4gpu_2nic.txt")
    assert facts.format == FORMAT
    assert [gpu.name for gpu in facts.gpus or ()] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert [gpu.model for gpu in facts.gpus or ()] == ["NVIDIA H100 80GB HBM3"] * 2 + [None] * 2
    assert [gpu.numa for gpu in facts.gpus or ()] == [(2,), (2,), (0,), (0,)]
    assert [(n.index, n.label, n.name) for n in facts.nics or ()] == [
        (0, "NIC0", "mlx5_2"),
        (1, "NIC1", "mlx5_7"),
    ]
    assert facts.numa_ids == (0, 2)
    assert facts.gpu_gpu_class == (
        ("X", "NV9", "NV9", "NV9"),
        ("NV9", "X", "NV9", "NV9"),
        ("NV9", "NV9", "X", "NV9"),
        ("NV9", "NV9", "NV9", "X"),
    )
    assert facts.gpu_nic_class == (("PIX", "SYS"), ("PXB", "SYS"), ("SYS", "PXB"), ("SYS", "PIX"))
    assert facts.nic_nic_class == (("X", "SYS"), ("SYS", "X"))
    assert facts.nvlink_pairs is not None
    assert len(facts.nvlink_pairs) == 6
    assert facts.nvlink_pairs[0] == NvlinkPair(0, 1, 9)
    assert (facts.nvswitches, facts.hosts, facts.switches, facts.cables) == (None,) * 4
    assert facts.findings == ()


def test_fused_labels_and_cells_under_a_broken_colour_code() -> None:
    facts = _fixture("fused_header_ansi.txt")
    assert [nic.name for nic in facts.nics or ()] == ["mlx5_0", "mlx5_1", "mlx5_bond_0"]
    assert facts.gpu_nic_class == (("PIX", "NODE", "SYS"), ("NODE", "PIX", "SYS"))
    assert facts.nic_nic_class == (("X", "NODE", "SYS"), ("NODE", "X", "SYS"), ("SYS", "SYS", "X"))
    assert facts.numa_ids == (0,)


def test_escape_codes_are_dropped() -> None:
    text = _text("fused_header_ansi.txt").replace("[4m", "\x1b[4m").replace("[0m", "\x1b[0m\x1b(B")
    assert read(text, "t").gpu_nic_class == _fixture("fused_header_ansi.txt").gpu_nic_class


def test_log_prefix_and_device_names_as_labels() -> None:
    facts = _fixture("log_prefix_mlx_labels.txt")
    assert [(n.index, n.name, n.label) for n in facts.nics or ()] == [
        (0, "mlx5_0", "mlx5_0"),
        (1, "mlx5_bond_1", "mlx5_bond_1"),
    ]
    assert facts.gpu_nic_class == (("PIX", "SYS"), ("PHB", "SYS"))
    assert facts.nvlink_pairs == ()
    assert facts.numa_ids is None


def test_fused_cpu_list_is_settled_by_its_sibling_range() -> None:
    facts = _fixture("fused_cpu_numa.txt")
    assert [gpu.numa for gpu in facts.gpus or ()] == [(0,), (0,), (1,), (1,)]
    found = _finding(facts, "topology/cpu-numa-fused")
    assert (found.severity, found.place.line) == (Severity.NOTE, 2)
    assert found.numbers["rows"] == ["GPU0", "GPU1", "GPU3"]
    assert found.numbers["unsettled"] == 0


def test_fused_single_range_is_settled_by_another_row_or_left_unknown() -> None:
    facts = _fixture("fused_cpu_numa_single_range.txt")
    assert [gpu.numa for gpu in facts.gpus or ()] == [(0,), (), (0,)]
    assert _finding(facts, "topology/cpu-numa-fused").numbers["unsettled"] == 1


@pytest.mark.parametrize("values", ["0-7,  N/A", "0-7- N/A", "0-7,8-15,1 N/A", "0-7-0 N/A"])
def test_cpu_lists_that_end_oddly_leave_numa_unknown(values: str) -> None:
    text = f"GPU0 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X {values}\n"
    assert read(text, "t").numa_ids is None


def test_asymmetry_degraded_links_and_a_gpu_outside() -> None:
    facts = _fixture("asymmetric_degraded.txt")
    found = _finding(facts, "topology/matrix-asymmetric")
    assert found.severity is Severity.WARNING
    assert found.numbers == {"count": 1, "cells": [["GPU0", "GPU2", "NV18", "SYS"]]}
    assert found.place.line == 2
    assert facts.nvlink_pairs is not None
    assert NvlinkPair(0, 2, 18, both_ways=False) in facts.nvlink_pairs
    assert NvlinkPair(0, 3, 17) in facts.nvlink_pairs
    differs = _finding(facts, "topology/nvlink-count-differs")
    assert differs.numbers == {"gpus": [3], "links": 17, "most": 18, "peers": 3}
    assert "GPU3 has 17 NVLinks" in differs.message
    assert differs.place.line == 5
    outside = _finding(facts, "topology/gpu-outside-nvlink")
    assert outside.numbers == {"outside": [4], "joined": 4}
    assert facts.gpu_gpu_class is not None
    assert (facts.gpu_gpu_class[0][2], facts.gpu_gpu_class[2][0]) == ("NV18", "SYS")
    assert facts.numa_ids == (0, 1)


def test_cube_mesh_of_equal_sums_is_sound() -> None:
    facts = _fixture("cube_mesh_4gpu.txt")
    assert [(p.a, p.b, p.count) for p in facts.nvlink_pairs or ()] == [
        (0, 1, 2),
        (0, 2, 1),
        (1, 3, 1),
        (2, 3, 2),
    ]
    assert facts.findings == ()
    assert facts.nics == ()
    assert nearest_nics(facts) is None


def test_virtual_machine_and_cut_cpu_list() -> None:
    facts = _fixture("vm_phb_cut_list.txt")
    assert _rules(facts) == ["topology/pcie-hidden-by-vm", "topology/cpu-list-cut"]
    assert [one.severity for one in facts.findings] == [Severity.WARNING, Severity.NOTE]
    assert _finding(facts, "topology/cpu-list-cut").numbers == {
        "0,4,8,12,16,": 1,
        "2,6,10,14,18": 1,
    }
    assert facts.numa_ids is None


def test_metax_columns_and_links() -> None:
    facts = _fixture("metax.txt")
    assert facts.nvlink_pairs == (NvlinkPair(0, 1, 1),)
    assert facts.numa_ids == (0, 1)
    assert _rules(facts) == ["topology/gpu-without-near-nic"]
    assert facts.findings[0].severity is Severity.NOTE  # one NIC, so no RDMA network


def test_blank_cpu_cell_and_grace_gpu_numa_id() -> None:
    facts = _fixture("blank_cpu_cell.txt")
    assert [gpu.numa for gpu in facts.gpus or ()] == [(0, 1), (1,)]
    assert facts.numa_ids == (0, 1)


def test_nv_count_touching_the_cpu_list() -> None:
    text = "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X NV40-15 0\nGPU1 NV4 X 0-15 0\n"
    assert [pair.count for pair in read(text, "t").nvlink_pairs or ()] == [4]


def test_only_the_first_matrix_is_read() -> None:
    text = _text("cube_mesh_4gpu.txt") + "\n" + _text("metax.txt")
    facts = read(text, "t")
    assert len(facts.gpus or ()) == 4
    assert _finding(facts, "topology/more-matrices").numbers == {"lines": [7]}


def test_a_peer_matrix_before_it_is_passed_over() -> None:
    peer = "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\n"
    assert not looks_like(peer)
    assert len(read(peer + _text("cube_mesh_4gpu.txt"), "t").gpus or ()) == 4


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 GPU1 were busy", "\x00\x01\xff" * 400])
def test_no_matrix(text: str) -> None:
    assert not looks_like(text)
    problem = _error(text).problems[0]
    assert str(problem.place) == "t.txt:1:1"
    assert problem.remedy


def test_short_row_names_line_and_counts() -> None:
    text = _text("tabs_4gpu_2nic.txt").replace(
        "GPU2\tNV9\tNV9\t X \tNV9\tSYS\tPXB\t32-47,96-111", "GPU2\tNV9\tNV9\t X \tNV9\tSYS\t32-47"
    )
    (problem,) = _error(text).problems
    assert str(problem.place) == "t.txt:7:26"
    assert "row GPU2 has 5 cells where the header promises 6" in problem.message


def test_file_cut_within_a_row_and_between_rows() -> None:
    text = _text("cube_mesh_4gpu.txt")
    (problem,) = _error(text[: text.index("GPU2\tNV1") + 9]).problems
    assert "row GPU2 has 1 cells where the header promises 4" in problem.message
    (problem,) = _error(text[: text.index("GPU2\tNV1")]).problems
    assert "2 rows where the header promises 4; no row for GPU2, GPU3" in problem.message
    assert problem.place.line == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("NV2\tNV1\tSYS", "NV2\tQQQ\tSYS", "unknown cell 'QQQ' in row GPU0 at GPU2"),
        ("GPU1\tNV2", "GPU0\tNV2", "a second row GPU0"),
        ("GPU1\tNV2", "GPU9\tNV2", "row GPU9 has no column of its own"),
        ("GPU0\t X \tNV2", "GPU0\tNV2\t X ", "row GPU0 has X under GPU1"),
        ("NV1\tSYS\t0-9\t0\nGPU1", "NV1\tSYS\tPIX\t0-9\t0\nGPU1", "row GPU0 has more cells"),
        ("\tGPU0\tGPU1\tGPU2", "\tGPU0\tGPU1\tGPU1", "names a device twice"),
    ],
)
def test_broken_rows_are_errors(old: str, new: str, message: str) -> None:
    text = _text("cube_mesh_4gpu.txt")
    assert old in text
    assert message in str(_error(text.replace(old, new, 1)))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    lines = _text(name).split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        start = data.draw(st.integers(0, max(len(lines[at]), 1)))
        width = data.draw(st.integers(0, 12))
        match data.draw(
            st.sampled_from(["drop", "copy", "swap", "cut", "text", "digit", "column"])
        ):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "copy":
                lines.insert(other, lines[at])
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][:start] + lines[at][start + width :]
            case "text":
                lines[at] = lines[at][:start] + data.draw(st.text(max_size=8)) + lines[at][start:]
            case "digit":
                old, new = data.draw(st.tuples(*[st.sampled_from("0123456789,-NX")] * 2))
                lines = [line.replace(old, new) for line in lines]
            case "column":
                lines = [line[:start] + line[start + width :] for line in lines]
    _read_or_input_error("\n".join(lines))


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="GPUNIC0123 \t\nXV,-/ASYPBODE\x1b[m", max_size=300))
def test_noise_gives_facts_or_an_input_error(text: str) -> None:
    _read_or_input_error("GPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n" + text)


def _read_or_input_error(text: str) -> None:
    looks_like(text)
    with suppress(InputError):
        facts = read(text, "t.txt")
        assert len(facts.gpu_gpu_class or ()) == len(facts.gpus or ())


@pytest.mark.parametrize(
    "text",
    [
        " " * 1_000_000,
        "GPU0 " * 200_000,
        "GPU0 CPU Affinity\n" + "GPU0 X " * 100_000,
        "\x1b[" * 300_000,
        "GPU0 GPU1 CPU Affinity\n" + "GPU0 X NV1 0-1\nGPU1 NV1 X 0-1\n" * 20_000,
        "GPU0 CPU Affinity\n" * 50_000,
        "GPU0 CPU Affinity NUMA Affinity\nGPU0 X " + "1-2," * 100_000 + "3\n",
        "GPU0 CPU Affinity NUMA Affinity\nGPU0 X 0-1 0-999999999999999999999\n",
    ],
)
def test_hostile_text_ends_soon(text: str) -> None:
    looks_like(text)
    with suppress(InputError):
        read(text, "t.txt")
