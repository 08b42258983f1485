"""The ``nvidia-smi topo -p2p`` reader: peer access by direction, and anything else as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers.nvidia_smi_topo_p2p import FORMAT, looks_like, read
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
_START = "\tGPU0\tGPU1\n GPU0\tX\tOK\n"


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


@pytest.mark.captured
def test_captured_samples_give_peer_access() -> None:
    found = {}
    for row in rows_of(FORMAT):
        facts = read(Path(row["path"]).read_text(), row["file"])
        cells = {cell for line in facts.peer_access or () for cell in line}
        found[Path(row["path"]).stem] = (sorted(cells), rules(facts))
    assert found == {
        "h100_8gpu_ok": (["OK", "X"], []),
        "l4_2gpu_cns": (["CNS", "X"], ["peer-access-off"]),
        "rtx5090_2gpu_gns": (["GNS", "X"], ["peer-access-off"]),
    }


def test_every_reason_and_a_direction_that_differs() -> None:
    facts = _fixture("mixed_4gpu.txt")
    assert facts.gpus == tuple(Gpu(index=at, name=f"GPU{at}") for at in range(4))
    assert facts.peer_access == (
        ("X", "OK", "TNS", "OK"),
        ("OK", "X", "DR", "TNS"),
        ("TNS", "DR", "X", "U"),
        ("NS", "TNS", "U", "X"),
    )
    assert rules(facts) == ["peer-access-differs", *["peer-access-off"] * 4]
    differs = finding_of(facts, "peer-access-differs")
    assert differs.numbers == {"count": 1, "cells": [["GPU0", "GPU3", "OK", "NS"]]}
    assert "GPU0 to GPU3 is OK, back it is NS" in differs.message
    assert str(differs.place) == "mixed_4gpu.txt:3:1"
    off = facts.findings[1:]
    assert [(one.numbers["code"], one.numbers["count"]) for one in off] == [
        ("TNS", 2),
        ("NS", 1),
        ("DR", 1),
        ("U", 1),
    ]
    assert off[0].numbers["pairs"] == [["GPU0", "GPU2"], ["GPU1", "GPU3"]]
    assert [one.severity for one in off] == [Severity.WARNING] * 3 + [Severity.NOTE]
    assert (
        "no peer access in 2 of 6 pairs (TNS: this topology does not support it)" in off[0].message
    )
    assert (facts.nvlink_pairs, facts.gpu_gpu_class, facts.nics, facts.numa_ids) == (None,) * 4


def test_log_prefix_and_only_the_first_of_two_matrices() -> None:
    facts = _fixture("read_then_write.txt")
    assert [gpu.index for gpu in facts.gpus or ()] == [2, 5]
    assert facts.peer_access == (("X", "OK"), ("OK", "X"))
    assert rules(facts) == ["more-matrices"]
    assert finding_of(facts, "more-matrices").numbers == {"lines": [5]}


def test_single_gpu_is_known_by_its_legend() -> None:
    facts = _fixture("single_gpu.txt")
    assert facts.peer_access == (("X",),)
    assert facts.findings == ()
    assert not looks_like(" GPU0\n GPU0 X\n")


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("OK      TNS     OK", "OK      TNS", "3:2", "row GPU0 has 3 cells"),
        ("OK      TNS     OK", "OK      TNS     OK OK", "3:2", "row GPU0 has 5 cells"),
        ("OK      TNS     OK", "OK      QQQ     OK", "3:25", "unknown cell 'QQQ' in row GPU0"),
        ("X       OK      TNS", "OK      X       TNS", "3:9", "row GPU0 has OK under itself"),
        ("TNS     OK", "TNS     X", "3:33", "row GPU0 has X under GPU3, not under itself"),
        (" GPU1   OK", " GPU0   OK", "4:2", "a second row GPU0"),
        (" GPU1   OK", " GPU9   OK", "4:2", "row GPU9 has no column of its own"),
        ("GPU2    GPU3", "GPU2    GPU2", "2:1", "names a device twice"),
    ],
)
def test_broken_rows_are_errors(old: str, new: str, place: str, message: str) -> None:
    text = _text("mixed_4gpu.txt")
    assert old in text
    problem = _error(text.replace(old, new, 1)).problems[0]
    assert str(problem.place) == f"t.txt:{place}"
    assert message in problem.message
    assert problem.excerpt


def test_cut_off_matrix() -> None:
    text = _text("mixed_4gpu.txt")
    (problem,) = _error(text[: text.index(" GPU2   TNS")]).problems
    assert "2 rows where the header promises 4; no row for GPU2, GPU3" in problem.message
    assert problem.place.line == 4


@pytest.mark.parametrize(
    "text",
    [
        "GPU0 " * 1_000_000,
        "GPU0 GPU1\nGPU0 X OK" + " " * 5_000_000 + "\n",
        "GPU0 GPU1\nGPU0 X " + "OK " * 1_700_000,
        " ".join(f"GPU{at}" for at in range(3000)) + "\nGPU0 X OK\n",
        "GPU0 GPU1\nGPU0 X OK\n" * 50_000,
        "GPU0 GPU1\n" * 100_000 + "GPU0 X OK\n",
        "GPU0\tGPU1\nGPU0\tX\tOK\n" + "[" * 1_000_000,
        "GPU99999999999999999999 GPU1\nGPU1 X OK\n",
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789OKCNSXU"), looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="GPU0123 \t\nXOKCNSTDRU", max_size=300))
def test_noise_gives_facts_or_an_input_error(text: str) -> None:
    facts_or_input_error(_START + text, looks_like, read)


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 and GPU1 were OK", "\x00\x01\xff" * 400])
def test_no_such_output(text: str) -> None:
    assert not looks_like(text)
    (problem,) = _error(text).problems
    assert str(problem.place) == "t.txt:1:1"
    assert problem.remedy
