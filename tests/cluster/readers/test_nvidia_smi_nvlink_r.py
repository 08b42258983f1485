"""The ``nvidia-smi nvlink -R`` reader: switches, direct pairs, what cannot be told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.nvidia_smi_nvlink_r import FORMAT, looks_like, read
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES
from topology_samples import (
    facts_or_input_error,
    finding_of,
    mutated,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.glob("*.txt"))


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _pairs(facts: Facts) -> dict[tuple[int, int], int]:
    return {(pair.a, pair.b): pair.count for pair in facts.nvlink_pairs or ()}


def test_four_switches_of_4_5_5_4_links() -> None:
    facts = _fixture("switches_8gpu.txt")
    assert facts.nvswitches == ("0000:07:00.0", "0000:08:00.0", "0000:09:00.0", "0000:0a:00.0")
    assert {gpu.nvlinks for gpu in facts.gpus or ()} == {18}
    assert len(_pairs(facts)) == 28
    assert set(_pairs(facts).values()) == {18}
    assert all(pair.via_switch for pair in facts.nvlink_pairs or ())
    assert {gpu.model for gpu in facts.gpus or ()} == {"NVIDIA H200"}
    assert len({gpu.uuid for gpu in facts.gpus or ()}) == 8
    assert facts.findings == ()


def test_links_that_are_down_are_not_listed() -> None:
    facts = _fixture("switches_two_links_down.txt")
    assert [gpu.nvlinks for gpu in facts.gpus or ()] == [18, 18, 18, 16, 18, 18, 18, 18]
    assert _pairs(facts)[0, 3] == 16
    assert _pairs(facts)[0, 1] == 18
    found = finding_of(facts, "nvlinks-down")
    assert found.numbers == {"gpus": [3], "up": 16, "most_up": 18}
    assert found.severity is Severity.WARNING


def test_direct_links_that_both_ends_show() -> None:
    facts = _fixture("mesh_4gpu.txt")
    assert facts.nvswitches == ()
    assert _pairs(facts) == {(a, b): 2 for a in range(4) for b in range(a + 1, 4)}
    assert not any(pair.via_switch for pair in facts.nvlink_pairs or ())
    assert facts.findings == ()


def test_direct_links_that_disagree_are_not_believed() -> None:
    text = _text("mesh_4gpu.txt").replace("1B:00.0: Link 0", "1B:00.0: Link 5", 1)
    facts = read(text, "t.txt")
    assert (facts.nvswitches, facts.nvlink_pairs) == (None, None)
    assert rules(facts) == ["nvlink-far-ends-unknown"]


def test_one_gpu_does_not_tell_what_its_far_ends_are() -> None:
    facts = _fixture("one_gpu.txt")
    assert (facts.nvswitches, facts.nvlink_pairs) == (None, None)
    assert (facts.gpus or ())[0].nvlinks == 12
    found = finding_of(facts, "nvlink-far-ends-unknown")
    assert found.numbers == {"gpus": 1, "addresses": 6}
    assert found.severity is Severity.NOTE


def test_addresses_in_other_domains_stay_apart() -> None:
    text = "GPU 0: A\n Link 0: Remote Device 00000008:00:00.0: Link 32\n"
    text += "GPU 1: A\n Link 0: Remote Device 00000008:00:00.0: Link 33\n"
    assert read(text, "t.txt").nvswitches == ("0008:00:00.0",)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("\n", 1, "no GPU"),
        (" Link 0: Remote Device 00000000:07:00.0: Link 1\n", 1, "stands under no GPU"),
        ("GPU 128: A\n", 1, "too large"),
        ("GPU 0: A\n Link 256: Remote Device 00000000:07:00.0: Link 1\n", 2, "too large"),
        ("GPU 0: A\nGPU 0: A\n", 2, "a second GPU 0"),
        (
            "GPU 0: A\n" + " Link 0: Remote Device 00000000:07:00.0: Link 1\n" * 2,
            3,
            "a second Link",
        ),
        ("GPU 0: A\n Link 0: Remote De", 2, "cut off"),
    ],
)
def test_broken_listings_are_errors(text: str, line: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    (problem,) = caught.value.problems
    assert problem.place.line == line
    assert message in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: " * 500_000,
        "Link 0:" + " " * 3_000_000,
        "GPU 0: A\n" + "Link 0: Remote Device " * 200_000,
        "".join(
            f"GPU {gpu}: A\n"
            + "".join(
                f" Link {k}: Remote Device 00000000:{k:02x}:00.0: Link 1\n" for k in range(256)
            )
            for gpu in range(128)
        ),
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789.:ABCD"), looks_like, read)
