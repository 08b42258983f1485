"""Places of decoded values, in every format."""

from __future__ import annotations

import pytest

from meshwright.documents import decode, parse_document, read_document
from meshwright.findings import Place
from support import FIXTURES

TEXT = "layout:\n  tp: 4\n  empty:\ntraffic:\n  - {axis: dp}\n  - axis: pp\na.b: {c: 1}\n"


@pytest.fixture
def decoded():
    return decode(parse_document(TEXT, "f"), dict)


@pytest.mark.parametrize(
    ("path", "line", "column", "given"),
    [
        ("layout.tp", 2, 7, True),
        ("layout", 2, 3, True),
        ("layout.empty", 3, 9, True),
        ("layout.pp", 2, 3, False),
        ("layout.tp.deeper", 2, 7, False),
        ("traffic[0].axis", 5, 12, True),
        ("traffic[1]", 6, 5, True),
        ("traffic[1].bytes", 6, 5, False),
        ("traffic[2]", 5, 3, False),
        ("traffic.axis", 5, 3, False),
        ("a.b.c", 7, 10, True),
        ("nothing", 1, 1, False),
        ("", 1, 1, True),
    ],
)
def test_place_and_given(decoded, path, line, column, given):
    assert decoded.place(path) == Place("f", line, column, path or None)
    assert decoded.given(path) is given


def test_the_table_of_places_agrees(decoded):
    assert set(decoded.places) == {
        "",
        "layout",
        "layout.tp",
        "layout.empty",
        "traffic",
        "traffic[0]",
        "traffic[0].axis",
        "traffic[1]",
        "traffic[1].axis",
        "a.b",
        "a.b.c",
    }
    for path, place in decoded.places.items():
        assert decoded.place(path) == place


def test_a_section_with_its_path():
    document = parse_document(TEXT, "f")
    section = decode(document.root.entries["layout"].node, dict, path="layout")
    assert section.place("layout.tp") == Place("f", 2, 7, "layout.tp")
    assert section.given("layout.tp")
    assert not section.given("layout.pp")
    assert not section.given("traffic")
    assert section.place("traffic").line == 2
    assert "layout.tp" in section.places


@pytest.mark.parametrize("suffix", ["yaml", "json", "toml"])
def test_places_point_at_the_value_in_every_format(suffix):
    document = read_document(FIXTURES / f"documents/places.{suffix}")
    decoded = decode(document, dict)
    assert decoded.value == {
        "name": "über-job",
        "layout": {"tp": 4, "order": "tp-dp"},
        "hosts": ["n01", "n02", {"ünit": 7}],
        "traffic": [{"axis": "dp", "bytes": 1e9}, {"axis": "pp"}],
    }
    starts = {
        "name": "über-job",
        "layout.tp": "4",
        "layout.order": "tp-dp",
        "hosts": "[",
        "hosts[1]": "n02",
        "hosts[2].ünit": "7",
        "traffic[0].axis": "dp",
        "traffic[0].bytes": "1e9",
        "traffic[1].axis": "pp",
    }
    for path, start in starts.items():
        place = decoded.place(path)
        text = document.lines[place.line - 1][place.column - 1 :]
        assert text.lstrip("\"'").startswith(start), path
