"""The ``rocm-smi --showtopo`` reader: XGMI pairs, classes by weight, and anything else as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair
from meshwright.cluster.readers.rocm_smi_showtopo import FORMAT, looks_like, read
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES
from topology_samples import (
    check_counts,
    facts_or_input_error,
    finding_of,
    mutated,
    rows_of,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.glob("*.txt"))
_START = "=== Weight between two GPUs ===\n GPU0 GPU1\nGPU0 0 15\n"


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _error(text: str) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    return caught.value


@pytest.mark.captured
def test_captured_samples_give_the_manifest() -> None:
    rows = rows_of(FORMAT)
    assert len(rows) == 3
    for row in rows:
        check_counts(read(Path(row["path"]).read_text(), row["file"]), row)


def _pairs(facts: Facts) -> list[tuple[int, int]]:
    return [(pair.a, pair.b) for pair in facts.nvlink_pairs or ()]


@pytest.mark.captured
def test_captured_hives_follow_neither_numa_nor_order() -> None:
    (row,) = [row for row in rows_of(FORMAT) if "two_hives" in row["file"]]
    facts = read(Path(row["path"]).read_text(), row["file"])
    hives = [(0, 2, 3, 7), (1, 4, 5, 6)]
    assert _pairs(facts) == sorted((a, b) for hive in hives for a in hive for b in hive if a < b)
    assert rules(facts) == ["xgmi-hives-interleaved"]
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[1] == ("PHB", "X", "PHB", "PHB", "NV1", "NV1", "NV1", "SYS")


def test_two_hives_over_two_sockets() -> None:
    facts = _fixture("two_hives_6gpu.txt")
    assert _pairs(facts) == [(0, 2), (0, 4), (1, 3), (1, 5), (2, 4), (3, 5)]
    assert facts.nvlink_pairs is not None
    assert facts.nvlink_pairs[0] == NvlinkPair(0, 2, 1, via_switch=False)
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0] == ("X", "PHB", "NV1", "SYS", "NV1", "SYS")
    assert [gpu.numa for gpu in facts.gpus or ()] == [(0,)] * 3 + [(1,)] * 3
    assert facts.numa_ids == (0, 1)
    found = finding_of(facts, "xgmi-hives-interleaved")
    assert found.severity is Severity.WARNING
    assert found.numbers == {"hives": [[0, 2, 4], [1, 3, 5]]}
    assert str(found.remedy).endswith("HIP_VISIBLE_DEVICES=0,2,4,1,3,5")
    assert len(facts.findings) == 1
    assert (facts.nics, facts.nvswitches, facts.hosts, facts.peer_access) == (None,) * 4
    assert {(gpu.model, gpu.nvlinks) for gpu in facts.gpus or ()} == {(None, None)}


def test_link_types_alone_amid_other_text() -> None:
    facts = _fixture("link_type_only.txt")
    assert _pairs(facts) == [(0, 1)]
    assert facts.gpu_gpu_class == (
        ("X", "NV1", "unknown"),
        ("NV1", "X", "unknown"),
        ("unknown", "unknown", "X"),
    )
    assert facts.numa_ids is None
    assert rules(facts) == ["xgmi-taken-as-direct"]
    assert finding_of(facts, "xgmi-taken-as-direct").severity is Severity.NOTE


def test_a_weight_of_two_hops_is_no_link_though_hops_say_one() -> None:
    facts = _fixture("ring_of_four.txt")
    assert _pairs(facts) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0] == ("X", "NV1", "unknown", "NV1")
    assert finding_of(facts, "xgmi-indirect").numbers["pairs"] == [
        ["GPU0", "GPU2"],
        ["GPU1", "GPU3"],
    ]
    assert [gpu.numa for gpu in facts.gpus or ()] == [(3,), (2,), (), ()]
    assert facts.numa_ids == (2, 3)
    assert finding_of(facts, "numa-unknown").numbers == {"count": 2, "gpus": ["GPU2", "GPU3"]}


def test_contradicting_cells_and_numbers_that_do_not_start_at_zero() -> None:
    facts = _fixture("contradicting.txt")
    assert [gpu.index for gpu in facts.gpus or ()] == [2, 4, 7]
    assert facts.gpu_gpu_class == (
        ("X", "SYS", "unknown"),
        ("PHB", "X", "NV1"),
        ("unknown", "PHB", "X"),
    )
    assert facts.nvlink_pairs == (NvlinkPair(4, 7, 1, via_switch=False, both_ways=False),)
    assert rules(facts) == ["matrix-asymmetric", "link-type-contradicts-weight"]
    asymmetric, contradicting = facts.findings
    assert asymmetric.numbers["pairs"] == [["GPU2", "GPU4"], ["GPU4", "GPU7"]]
    assert contradicting.numbers["pairs"] == [["GPU2", "GPU7"], ["GPU4", "GPU7"]]
    assert contradicting.place.line == 4


def test_weights_alone() -> None:
    facts = _fixture("weights_only.txt")
    assert _pairs(facts) == [(0, 1)]
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0] == ("X", "NV1", "PHB", "unknown")
    assert facts.gpu_gpu_class[1] == ("NV1", "X", "SYS", "unknown")
    assert facts.gpu_gpu_class[2] == ("PHB", "SYS", "X", "unknown")


def test_one_gpu_outside_and_a_second_dump() -> None:
    facts = _fixture("one_outside.txt")
    assert _pairs(facts) == [(0, 1), (0, 2), (1, 2)]
    assert finding_of(facts, "gpu-outside-nvlink").numbers == {"outside": [3], "joined": 3}
    assert finding_of(facts, "more-matrices").numbers == {"lines": [18]}


def test_hops_alone_and_a_single_gpu() -> None:
    hops = read("=== Hops between two GPUs ===\n GPU0 GPU1\nGPU0 0 1\nGPU1 1 0\n", "t")
    assert (hops.nvlink_pairs, hops.gpu_gpu_class) == (None, None)
    single = read("=== Link Type between two GPUs ===\n GPU0 \nGPU0 0 \n", "t")
    assert (single.nvlink_pairs, single.gpu_gpu_class) == ((), (("X",),))


def test_types_unknown_to_the_tool_leave_pairs_unknown() -> None:
    text = "=== Link Type between two GPUs ===\n GPU0 GPU1\nGPU0 0 XXXX\nGPU1 0 0\n"
    facts = read(text, "t")
    assert facts.nvlink_pairs is None
    assert facts.gpu_gpu_class == (("X", "unknown"), ("unknown", "X"))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("XGMI         PCIE         XGMI", "XGMI         QQQQ", 24, "unknown cell 'QQQQ'"),
        ("GPU2   XGMI ", "GPU2   ", 26, "row GPU2 has PCIE under itself"),
        (
            "GPU2   15           40           0 ",
            "GPU2   15           40           7 ",
            8,
            "under itself",
        ),
        (
            "GPU[5]\t\t: (Topology) Numa Node",
            "GPU[6]\t\t: (Topology) Numa Node",
            42,
            "no row in the tables",
        ),
        (
            "GPU4         GPU5         \nGPU0   0            2",
            "GPU4         GPU9         \nGPU0   0            2",
            20,
            "row GPU5 has no column",
        ),
    ],
)
def test_broken_tables_are_errors(old: str, new: str, line: int, message: str) -> None:
    text = _text("two_hives_6gpu.txt")
    assert old in text
    problem = _error(text.replace(old, new, 1)).problems[0]
    assert message in problem.message
    assert problem.place.line == line


def test_tables_of_different_machines() -> None:
    one = "=== Weight between two GPUs ===\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n"
    other = "=== Link Type between two GPUs ===\n GPU0 GPU2\nGPU0 0 XGMI\nGPU2 XGMI 0\n"
    (problem,) = _error(one + other).problems
    assert "other devices" in problem.message
    assert problem.place.line == 6


def test_file_cut_in_a_table_that_is_not_used() -> None:
    text = _text("two_hives_6gpu.txt")
    for end in (text.index("=== Link Type") - 200, text.index("= Hops between") + 60):
        assert "cut off" in str(_error(text[:end])) or "cells" in str(_error(text[:end]))


@pytest.mark.parametrize(
    "text",
    [
        "=" * 5_000_000 + " between two GPUs",
        "= Weight between two GPUs ===\n" + "GPU0 " * 1_000_000,
        "= Weight between two GPUs ===\nGPU0 GPU1\nGPU0 0 " + "9" * 5_000_000,
        "= Weight between two GPUs ===\n" * 100_000,
        "= Weight between two GPUs ===\nGPU0\nGPU0 0\n" * 50_000,
        "= Link Type between two GPUs ===\nGPU0\nGPU0 0\n===\nGPU[0] : (Topology) Numa Node: "
        + "9" * 99,
        "= Weight between two GPUs ===\nGPU0\nGPU0 0\nGPU[0]" + " " * 5_000_000 + ": (Topology)",
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789-=XGPCIE"), looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="GPU0123456 \t\nXMIPCE[]=-/NA", max_size=300))
def test_noise_gives_facts_or_an_input_error(text: str) -> None:
    facts_or_input_error(_START + text, looks_like, read)


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 and GPU1 were OK", "\x00\x01\xff" * 400])
def test_no_such_output(text: str) -> None:
    assert not looks_like(text)
    (problem,) = _error(text).problems
    assert str(problem.place) == "t.txt:1:1"
    assert problem.remedy
