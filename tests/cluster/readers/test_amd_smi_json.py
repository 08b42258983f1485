"""The ``amd-smi topology --json`` reader: both shapes, partial output, anything else as data."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, NvlinkPair
from meshwright.cluster.readers.amd_smi_json import FORMAT, looks_like, read
from meshwright.cluster.readers.amd_smi_topology import read as read_tables
from meshwright.errors import InputError
from support import FIXTURES
from topology_samples import (
    facts_or_input_error,
    mutated,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.glob("*.json"))


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def test_a_ring_by_weight_and_bandwidth() -> None:
    facts = _fixture("ring_of_four.json")
    assert [(gpu.index, gpu.pci) for gpu in facts.gpus or ()] == [
        (0, "0000:11:00.0"),
        (1, "0000:2f:00.0"),
        (2, "0000:46:00.0"),
        (3, "0000:5d:00.0"),
    ]
    assert facts.nvlink_pairs == tuple(
        NvlinkPair(a, b, 2, via_switch=False) for a, b in ((0, 1), (0, 3), (1, 2), (2, 3))
    )
    assert facts.gpu_gpu_class is not None
    assert facts.gpu_gpu_class[0] == ("X", "NV2", "unknown", "NV2")
    assert rules(facts) == ["xgmi-indirect"]
    assert facts.findings[0].numbers["count"] == 2


def test_json_says_what_the_tables_say() -> None:
    """The tables of the same machine, written from the JSON, give the same facts."""
    entries = json.loads(_text("ring_of_four.json"))
    addresses = [entry["bdf"] for entry in entries]
    tables = ""
    for title, key in (
        ("ACCESS", "link_status"),
        ("WEIGHT", "weight"),
        ("LINK TYPE", "link_type"),
        ("NUMA BW", "bandwidth"),
    ):
        tables += f"{title} TABLE:\n             {' '.join(addresses)}\n"
        for entry in entries:
            tables += f"{entry['bdf']} {' '.join(str(link[key]) for link in entry['links'])}\n"
        tables += "\n"
    by_table, by_json = read_tables(tables, "t.txt"), _fixture("ring_of_four.json")
    for field in ("gpus", "nvlink_pairs", "gpu_gpu_class", "peer_access"):
        assert getattr(by_table, field) == getattr(by_json, field), field


def test_keys_that_were_not_asked_for() -> None:
    facts = _fixture("access_and_type_only.json")
    assert facts.peer_access == (("X", "NS"), ("NS", "X"))
    assert facts.nvlink_pairs == ()
    assert rules(facts) == ["peer-access-off"]


def test_the_shape_before_rocm_6_2_and_a_wrapped_list() -> None:
    facts = _fixture("before_6_2.json")
    assert [(gpu.name, gpu.pci) for gpu in facts.gpus or ()] == [("GPU0", None), ("GPU1", None)]
    assert facts.gpu_gpu_class == (("X", "PHB"), ("PHB", "X"))
    wrapped = json.dumps({"gpu_data": json.loads(_text("ring_of_four.json"))})
    assert read(wrapped, "t.json").nvlink_pairs == _fixture("ring_of_four.json").nvlink_pairs


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "no GPU"),
        ([{"gpu": 0}], "no links"),
        ([{"gpu": 0}, {"gpu": 0}], "a second GPU 0"),
        ([{"gpu": 0, "links": [{"gpu": 4, "weight": 15}]}], "GPU 4, which is not listed"),
        ([{"gpu": -1}], "gpu: expected an integer"),
        ([{"gpu": 0, "weight": {"x": 1}}], "'x' is no gpu_<number>"),
        ([{"gpu": 0, "links": [{"gpu": 0, "weight": [1]}]}], "weight: expected"),
        (7, "the list of GPUs: expected a list"),
    ],
)
def test_broken_lists_are_errors(entries: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(json.dumps(entries), "t.json")
    assert message in str(caught.value)
    assert caught.value.problems[0].place.line == 1


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, '0123456789:{}[],"'), looks_like, read)
