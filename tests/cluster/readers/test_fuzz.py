"""Hostile and broken topology files: read, or refused with a message, in bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import meshwright.cluster.readers as topology_readers
from cli.running import run
from meshwright.cluster.readers import FORMATS, read_topology, safe_xml
from meshwright.errors import InputError
from support import FIXTURES, ROOT

MIB = 1 << 20
_MUTATIONS = 540
_PARTS = 4
_SEED = 20
_DEEP = 100_000


@pytest.mark.parametrize("part", range(_PARTS))
def test_mutated_files_are_read_or_refused(tmp_path, monkeypatch, part):
    """A short run of benchmarks/fuzz_topology.py, always the same mutations."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from fuzz_mutations import Mutator, seeds_of
    from fuzz_topology import judge

    mutator = Mutator(seeds_of([FIXTURES / "topology"]), _SEED)
    assert {one.format for one in mutator.seeds} == set(FORMATS)
    path = tmp_path / "mutated"
    ends = []
    for number in range(part, _MUTATIONS, _PARTS):
        path.write_bytes(mutator.make(number)[1])
        outcome = judge(path)
        assert not outcome.failed, f"mutation {number}: {outcome.end}\n{outcome.detail}"
        ends.append(outcome.end)
    assert set(ends) == {"read", "refused"}


def _doubling_aliases() -> str:
    rows = [
        f"{one}: &{one} [{', '.join(['*' + before] * 10)}]" for before, one in pairwise("abcdefghi")
    ]
    return "\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *rows, "NetworkNodes: *i", ""])


def _doubling_entities(root: str) -> str:
    rows = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE {root} [<!ENTITY e0 "ha">{rows}]>\n<{root}><cpu numaid="&e9;"/></{root}>'


_XML_ROOTS = {"system": "<cpu numaid='0'/>", "graphs": "<graph id='0'/>", "topology": "<object/>"}
_XML = [
    (name.format(root), text.format(root=root, inner=inner))
    for root, inner in _XML_ROOTS.items()
    for name, text in (
        ("{} internal", '<!DOCTYPE {root} [<!ENTITY a "b">]><{root} version="1">&a;{inner}</{root}>'),
        ("{} file", '<!DOCTYPE {root} [<!ENTITY a SYSTEM "file:///etc/hostname">]><{root}>&a;{inner}</{root}>'),
        ("{} parameter", '<!DOCTYPE {root} [<!ENTITY % p SYSTEM "http://[::1]/x.dtd"> %p;]><{root}>{inner}</{root}>'),
        ("{} undeclared", '<{root} version="1">{inner}&a;</{root}>'),
    )
]  # fmt: skip
_HOSTILE = {
    **dict(_XML),
    "entities that double": _doubling_entities("system"),
    "aliases that double": _doubling_aliases(),
    "doctype": '<!DOCTYPE system SYSTEM "x.dtd">\n<system version="1"><cpu numaid="0"/></system>',
    "deep nccl": "<system version='1'>" + "<cpu>" * _DEEP,
    "deep closed nccl": "<system version='1'>" + "<pci>" * _DEEP + "</pci>" * _DEEP + "</system>",
    "deep graph": "<graphs>" + "<graph>" * _DEEP,
    "deep hwloc": "<topology>" + "<object>" * _DEEP + "</object>" * _DEEP + "</topology>",
    "deep json list": '{"NetworkNodes": ' + "[" * _DEEP + "]" * _DEEP + "}",
    "deep json object": '{"NetworkNodes": ' + '{"a": ' * _DEEP,
    "deep yaml list": "NetworkNodes: " + "[" * _DEEP + "]" * _DEEP,
    "deep yaml dashes": "NetworkNodes:\n" + "- " * _DEEP,
    "deep yaml indent": "NetworkNodes:\n" + "".join(f"{' ' * n}a:\n" for n in range(300)),
    "long attribute": f"<system version='1'><cpu numaid='{'0' * MIB}'/></system>",
    "many attributes": "<system><cpu " + "".join(f"a{n}='0' " for n in range(70)) + "/></system>",
}  # fmt: skip


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_documents_are_refused_in_bounded_memory(tmp_path, name):
    path = tmp_path / "hostile"
    path.write_text(_HOSTILE[name])
    read_topology(FIXTURES / "topology/nccl_topo_xml/dgx_like.xml")  # imports are not counted
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as error:
            read_topology(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert error.value.problems[0].message
    assert most < 256 * MIB


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("entities that double", "DOCTYPE"),
        ("aliases that double", "aliases stand for more than"),
        ("deep hwloc", "nested deeper than 64"),
        ("deep json list", "nested deeper than 64"),
        ("deep yaml dashes", "nested deeper than 64"),
    ],
)
def test_the_program_refuses_with_one_message(tmp_path, name, words):
    path = tmp_path / "hostile"
    path.write_text(_HOSTILE[name])
    ran = run("topo", path, "--json")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {path}:")
    assert words in ran.err


def _one_line(path: Path, start: str, unit: str, count: int = 200 * MIB) -> None:
    block = (unit * (MIB // len(unit) + 1)).encode()
    with path.open("wb") as file:
        file.write(start.encode())
        for _ in range(count // len(block) + 1):
            file.write(block)


_LINES = {
    "words": ("", "GPU0 GPU1 "),
    "blanks": ("", " "),
    "matrix": ("\tGPU0\tGPU1\nGPU0\t X ", "NV18\t"),
    "fabric": ('switchguid=0x1\nSwitch 1 "S-1" # "', "x"),
    "hosts": ("SwitchName=s Nodes=", "n[1-5],"),
    "labels": ("node-1 Ready fabric.topograph.run/tier-0=", "a,"),
    "yaml": ("nodes: [", "a, "),
    "json": ('{"Instances": [', '{"NetworkNodes": ["a"]},'),
    "xml": ("<topology>", "<object/>"),
    "old line ends": ("", "SwitchName=s Nodes=n1\r"),
}


@pytest.mark.parametrize("name", _LINES)
def test_200_mb_of_one_line_are_refused_before_they_are_in_memory(tmp_path, name):
    path = tmp_path / "line"
    start, unit = _LINES[name]
    _one_line(path, start, unit)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=f":{start.count(chr(10)) + 1}:1: a line of more than"):
            read_topology(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        path.unlink()
    assert most < 16 * MIB


@pytest.mark.process
def test_the_program_refuses_200_mb_of_one_line(tmp_path):
    path = tmp_path / "line"
    _one_line(path, "", "GPU0 ")
    ran = run("topo", path)
    path.unlink()
    assert (ran.status, ran.out) == (2, "")
    assert "a line of more than 2 MiB" in ran.err


def _first_long_line(content: bytes, most: int) -> int | None:
    lengths: Iterable[int] = map(len, content.split(b"\n"))
    return next((number for number, length in enumerate(lengths, 1) if length > most), None)


@given(
    st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\0", b"\n"))).map(b"\n".join),
    st.sampled_from([b"a", b"{", b" <"]),
)
def test_lines_are_measured_across_pieces(rest, first):
    content = first + rest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topology_readers, "_CHUNK_BYTES", 7)
        patch.setattr(topology_readers, "MAX_LINE_BYTES", 17)
        patch.setattr(topology_readers, "MAX_DOCUMENT_LINE_BYTES", 29)
        long = _first_long_line(content, 17 if first == b"a" else 29)
        if long is None:
            assert topology_readers._check_lines(BytesIO(content), "f") == len(content)
            return
        with pytest.raises(InputError, match=f"f:{long}:1: a line of more than"):
            topology_readers._check_lines(BytesIO(content), "f")


@pytest.mark.parametrize("at", [0, 1, 6, 7, 8, 30])
def test_a_nul_byte_is_named_with_its_place(tmp_path, monkeypatch, at):
    monkeypatch.setattr(topology_readers, "_CHUNK_BYTES", 7)
    content = (b"ab\n" * 20)[:at] + b"\0" + b"cd\n" * 5
    path = tmp_path / "binary"
    path.write_bytes(content)
    line = content[:at].count(b"\n") + 1
    with pytest.raises(InputError, match=rf":{line}:1: is a binary file \(NUL at byte {at}\)"):
        read_topology(path)


def test_only_listings_of_fabrics_may_be_very_large(monkeypatch):
    monkeypatch.setattr(topology_readers, "MAX_SMALL_CHARACTERS", 50)
    facts = read_topology(FIXTURES / "topology/ibnetdiscover/small.txt")
    assert facts.format == "ibnetdiscover"
    with pytest.raises(InputError, match="no listing of a fabric") as error:
        read_topology(FIXTURES / "topology/nvidia_smi_topo_m/cube_mesh_4gpu.txt")
    assert "ibnetdiscover" in str(error.value.problems[0].remedy)


def test_a_name_that_no_file_can_have():
    with pytest.raises(InputError, match="no file can have this name"):
        read_topology("a\0b")


def test_elements_and_text_of_xml_are_bounded(monkeypatch):
    monkeypatch.setattr(safe_xml, "MAX_ELEMENTS", 20)
    monkeypatch.setattr(safe_xml, "MAX_TEXT_CHARACTERS", 300)
    monkeypatch.setattr(safe_xml, "_CHUNK_CHARACTERS", 7)
    assert len(safe_xml.parse_xml(f"<t>\n{'<o/>' * 19}</t>", "t.xml").children) == 19
    with pytest.raises(InputError, match=r"t\.xml:2:77: more than 20 elements"):
        safe_xml.parse_xml(f"<t>\n{'<o/>' * 20}</t>", "t.xml")
    whole = f"<t>{'12é4 ' * 30}<o>{'1&amp;3 ' * 30}</o></t>"
    root = safe_xml.parse_xml(whole, "t.xml")
    assert (root.text, root.children[0].text) == ("12é4 " * 30, "1&3 " * 30)
    with pytest.raises(InputError, match="more than 300 characters of text"):
        safe_xml.parse_xml(whole.replace("<o>", "<o>" + "x" * 100), "t.xml")


def test_a_weight_of_5000_digits_is_unknown(tmp_path):
    """It once ended in a ValueError."""
    text = (FIXTURES / "topology/amd_smi_json/ring_of_four.json").read_text()
    path = tmp_path / "weights"
    path.write_text(text.replace('"weight": 15', f'"weight": {"9" * 5000}', 1))
    assert path.stat().st_size > 5000
    facts = read_topology(path)
    assert facts.format == "amd_smi_json"
    assert facts.gpu_gpu_class is not None
