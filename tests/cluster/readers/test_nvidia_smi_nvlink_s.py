"""The ``nvidia-smi nvlink -s`` reader: states of links, peers, and anything else as data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.nvidia_smi_nvlink_s import FORMAT, looks_like, read
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
_START = "GPU 0: A\n\t Link 0: 25 GB/s\n"


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
    assert len(rows) == 2
    for row in rows:
        check_counts(read(Path(row["path"]).read_text(), row["file"]), row)


@pytest.mark.captured
def test_captured_samples_give_models_and_links() -> None:
    found = {}
    for row in rows_of(FORMAT):
        facts = read(Path(row["path"]).read_text(), row["file"])
        assert facts.findings == ()
        found[Path(row["path"]).stem] = {
            (gpu.model, gpu.nvlinks, gpu.nvlinks_down) for gpu in facts.gpus or ()
        }
    assert found == {
        "a100_p4de_1gpu_12x25": {("NVIDIA A100-SXM4-80GB", 12, 0)},
        "b300_7gpu_18x53": {("NVIDIA B300 SXM6 AC", 18, 0)},
    }


def test_links_inactive_missing_and_slow() -> None:
    facts = _fixture("h100_4gpu_degraded.txt")
    assert [(gpu.index, gpu.name, gpu.nvlinks, gpu.nvlinks_down) for gpu in facts.gpus or ()] == [
        (0, "GPU0", 6, 0),
        (1, "GPU1", 4, 2),
        (2, "GPU2", 4, 0),
        (3, "GPU3", 6, 0),
    ]
    assert {gpu.model for gpu in facts.gpus or ()} == {"NVIDIA H100 80GB HBM3"}
    assert rules(facts) == ["nvlinks-down", "nvlinks-down", "nvlink-rate-differs"]
    inactive, unlisted, slow = facts.findings
    assert {finding.severity for finding in facts.findings} == {Severity.WARNING}
    assert inactive.message == "GPU1: 4 of 6 NVLinks up (inactive: 2-3; a peer has 6 up)"
    assert str(inactive.place) == "h100_4gpu_degraded.txt:11:1"
    assert inactive.numbers == {
        "gpus": [1],
        "up": 4,
        "most_up": 6,
        "inactive": [2, 3],
        "unlisted": [],
    }
    assert unlisted.numbers["gpus"] == [2]
    assert unlisted.numbers["unlisted"] == [4, 5]
    assert slow.numbers == {"count": 1, "links": [[3, 5]]}
    assert "25.781 GB/s (raw) where 26.562 is usual" in slow.message
    assert (facts.nvlink_pairs, facts.nics, facts.numa_ids, facts.hosts) == (None,) * 4


def test_drivers_words_in_place_of_links() -> None:
    facts = _fixture("without_links.txt")
    assert [(gpu.model, gpu.nvlinks, gpu.nvlinks_down) for gpu in facts.gpus or ()] == [
        ("NVIDIA A100 80GB PCIe", 0, None),
        ("NVIDIA A100 80GB PCIe", 0, None),
        ("NVIDIA L40S", 0, 0),
        ("NVIDIA T4", None, None),
    ]
    found = finding_of(facts, "nvlinks-down")
    assert "GPU0, GPU1: 0 NVLinks up (the driver calls all of them inactive)" in found.message
    assert found.numbers["gpus"] == [0, 1]


def test_list_and_remote_ends_in_the_same_text() -> None:
    facts = _fixture("list_status_remote.txt")
    assert [(gpu.nvlinks, gpu.nvlinks_down) for gpu in facts.gpus or ()] == [(2, 1), (4, 0)]
    assert rules(facts) == ["nvlinks-down", "nvlink-state-unknown"]
    unknown = finding_of(facts, "nvlink-state-unknown")
    assert (unknown.place.line, unknown.severity) == (7, Severity.NOTE)


def test_gpus_that_lack_the_same_links_are_one_finding() -> None:
    links = "\t Link 0: <inactive>\n\t Link 1: 25 GB/s\n"
    facts = read("".join(f"GPU {gpu}: A\n{links}" for gpu in range(30)), "t.txt")
    found = finding_of(facts, "nvlinks-down")
    assert found.numbers["gpus"] == [*range(30)]
    assert "GPU19 and 10 more: 1 of 2 NVLinks up (inactive: 0)" in found.message


@pytest.mark.parametrize(
    "end", ["L", "Link", "Link 1", "Link 1:", "Link 1: 25", "Link 1: 25 GB/", "Link 1: <inac"]
)
def test_file_cut_within_a_link(end: str) -> None:
    (problem,) = _error(f"GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t {end}").problems
    assert str(problem.place) == "t.txt:3:1"
    assert "cut off" in problem.message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("GPU 0: A\n\t Link 0: 25 GB/s\nGPU 0: A\n", 3, "a second GPU 0"),
        ("GPU 0: A (UUID: GPU-1)\nGPU 0: A (UUID: GPU-2)\n", 2, "a second GPU 0"),
        ("GPU 0: A\n\t Link 3: 25 GB/s\n\t Link 3: 25 GB/s\n", 3, "a second Link 3 of GPU 0"),
        ("\t Link 0: 25 GB/s\nGPU 0: A\n", 1, "stands under no GPU"),
        ("GPU 999999999: A\n\t Link 0: 25 GB/s\n", 1, "too large"),
        ("GPU 0: A\n\t Link 999999999: 25 GB/s\n", 2, "too large"),
    ],
)
def test_broken_listings_are_errors(text: str, line: int, message: str) -> None:
    (problem,) = _error(text).problems
    assert problem.place.line == line
    assert message in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: " * 700_000,
        "GPU 0: A\n" + "Link 0: 25 GB/s " * 300_000,
        "GPU 0: A\n" + "\t Link 0:" + " " * 5_000_000,
        "GPU 0: A\n\t Link 0: " + "9" * 5_000_000 + " GB/s\n",
        "".join(f"GPU {gpu}: A{gpu}\n\t Link 0: {gpu}.5 GB/s\n" for gpu in range(1024)),
        "".join(f"GPU {gpu}: A\n\t Link {gpu % 256}: {gpu}.5 GB/s\n" for gpu in range(1024)),
        "(" * 1_000_000,
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789.:<>/"), looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="GPULinkB 0123456789.:<>/s\t\n()", max_size=300))
def test_noise_gives_facts_or_an_input_error(text: str) -> None:
    facts_or_input_error(_START + text, looks_like, read)


@pytest.mark.parametrize("text", ["", "\n\n", "GPU0 and GPU1 were OK", "\x00\x01\xff" * 400])
def test_no_such_output(text: str) -> None:
    assert not looks_like(text)
    (problem,) = _error(text).problems
    assert str(problem.place) == "t.txt:1:1"
    assert problem.remedy
