"""NVLink domains from ``nvidia-smi -q``: blocks, lines picked out, csv; one host and several."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers.host_lines import split_hosts
from meshwright.cluster.readers.nvidia_smi_q_fabric import FORMAT, looks_like, read
from meshwright.errors import InputError
from meshwright.findings import Place
from support import FIXTURES
from topology_samples import (
    facts_or_input_error,
    finding_of,
    mutated,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.iterdir())


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def _domains(facts: Facts) -> dict[str, str | None]:
    return {place.host: place.nvlink_domain for place in facts.places or ()}


def test_whole_output_of_one_host() -> None:
    facts = _fixture("q_full.txt")
    assert facts.host is None
    assert _domains(facts) == {"q_full": "cccccccc-0000-4000-8000-00000000000c.7"}
    assert [(gpu.index, gpu.pci, gpu.model) for gpu in facts.gpus or ()] == [
        (0, "0008:01:00.0", "NVIDIA GB200"),
        (1, "0009:01:00.0", "NVIDIA GB200"),
    ]
    assert (facts.gpus or ())[1].uuid == "GPU-aaaa0000-1111-2222-3333-444455550001"
    assert rules(facts) == ["assumed/host-from-file-name", "fabric-unhealthy"]
    assert finding_of(facts, "fabric-unhealthy").numbers["gpus"] == [["q_full", 0]]


def test_lines_picked_out_of_several_hosts_with_their_order_mixed() -> None:
    facts = _fixture("grep_pdsh.txt")
    a, b = ("aaaaaaaa-0000-4000-8000-00000000000a", "bbbbbbbb-0000-4000-8000-00000000000b")
    assert _domains(facts) == {
        "t01": f"{a}.32766",
        "t02": f"{a}.32766",
        "t03": f"{b}.32766",
        "t04": None,
    }
    assert len([gpu for gpu in facts.gpus or () if gpu.host == "t01"]) == 2
    assert facts.counts == {"nvlink_domains": 2}
    assert facts.findings == ()


def test_hosts_under_headings_and_gpus_that_are_not_registered() -> None:
    facts = _fixture("clush_blocks.txt")
    d = "dddddddd-0000-4000-8000-00000000000d.4"
    assert _domains(facts) == {"t01": d, "t02": d, "t03": None, "t04": None}
    found = finding_of(facts, "fabric-not-registered")
    assert found.numbers == {"count": 2, "gpus": [["t03", 0], ["t04", 0]]}
    assert "t03 GPU0, t04 GPU0: state In Progress" in found.message


def test_table_of_a_query() -> None:
    facts = _fixture("table.csv")
    assert _domains(facts) == {"h5": None, "h6": "eeeeeeee-0000-4000-8000-00000000000e.12"}
    assert rules(facts) == ["fabric-differs-in-host"]
    assert [(gpu.host, gpu.index, gpu.pci) for gpu in facts.gpus or ()] == [
        ("h5", 0, "0008:01:00.0"),
        ("h5", 1, "0009:01:00.0"),
        ("h6", 0, "0008:01:00.0"),
    ]


@pytest.mark.parametrize("name", ["N/A", "[N/A]", "[Not Supported]"])
def test_a_driver_that_knows_no_fabric_gives_no_domain(name: str) -> None:
    text = _text("no_fabric.txt").replace("N/A", name)
    facts = read(text, "t.txt")
    assert _domains(facts) == {"t": None}
    assert rules(facts) == ["assumed/host-from-file-name"]


def test_a_command_line_is_no_table() -> None:
    command = "nvidia-smi --query-gpu=index,fabric.clusterUuid,fabric.cliqueId --format=csv\n"
    assert not looks_like(command)
    assert looks_like(command + "index, memory.total [MiB], fabric.cliqueId\n0, 1, 2\n")


def test_uuid_of_zeros_is_no_domain() -> None:
    text = "index, fabric.clusterUuid, fabric.cliqueId\n"
    text += "0, 00000000-0000-0000-0000-000000000000, 0\n"
    assert _domains(read(text, "t.csv")) == {"t": None}


def test_split_hosts() -> None:
    lines = ["x", "h1: a", "---", "n[1-2] (2)", "---", "b", "h1: c: d", "---", "not: a head", "---"]
    parts = {part.hosts: [line.text for line in part.lines] for part in split_hosts(lines)}
    assert parts == {
        (): ["x"],
        ("h1",): ["a", "c: d"],
        ("n1", "n2"): ["b", "---", "---"],
        ("not",): ["a head"],
    }


def test_headings_stand_for_so_many_hosts_together() -> None:
    lines = [line for at in range(3) for line in ("---", f"n{at}x[1-40000]", "---", "b")]
    with pytest.raises(InputError, match=r"the heading 'n2x\[1-40000\]' stands for more") as caught:
        split_hosts(lines, "t.txt")
    assert caught.value.problems[0].place == Place("t.txt", 10, 1)


@pytest.mark.parametrize("text", ["", "CliqueId\n", "index, fabric.cliqueId\n", "Fabric\n"])
def test_text_without_a_gpu_is_an_error(text: str) -> None:
    if "Fabric" in text:
        assert _domains(read(text, "t.txt")) == {"t": None}
        return
    with pytest.raises(InputError, match="Fabric block"):
        read(text, "t.txt")


@pytest.mark.parametrize(
    "text",
    [
        "CliqueId" + " " * 3_000_000 + ": 1\n",
        "a, " * 500_000 + "fabric.cliqueId\n",
        ("h: " * 400_000) + "CliqueId : 1\n",
        "---\nn[1-99999999]\n---\nCliqueId : 1\n",
        "---\nn[1-90000]\n---\n" + "Fabric\n    State : x\n" * 2000,
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789-:, abcdef"), looks_like, read)
