"""``meshwright timeline`` as a user starts it."""

from __future__ import annotations

import gzip
from xml.etree import ElementTree as ET

import pytest

from cli.running import run
from timeline.trace_samples import timeline_named, uneven, written

pytestmark = pytest.mark.process


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(written(uneven())))
    return path


def test_the_document(trace):
    ran = run("timeline", trace, "--json")
    assert (ran.status, ran.err) == (0, "")
    document = ran.document
    assert document["schema"] == "meshwright/timeline/1"
    assert document["files"][0]["schedule"] == "1f1b"
    assert [one["rank"] for one in document["ranks"]] == [0, 1, 2, 3]
    assert document["ranks"][0]["compute_s"] == pytest.approx(36.0)
    keys = {"rank", "span_s", "compute_s", "exposed_s", "overlapped_s", "idle_s", "by_group"}
    assert keys <= set(document["ranks"][0])


def test_the_page(trace):
    ran = run("timeline", trace)
    assert ran.status == 0
    assert "1f1b, 4 ranks, 12 microbatches" in " ".join(ran.out.split())
    assert "rank 0 │abcd" in ran.out
    narrow = run("timeline", trace, "--width", 40, "--ascii")
    assert max(len(line) for line in narrow.out.splitlines() if line.startswith("rank 0 |")) <= 40


def test_several_files(trace, tmp_path):
    (tmp_path / "other.json").write_bytes(written(timeline_named("zb-h1")))
    document = run("timeline", trace, tmp_path / "other.json", "--json").document
    assert [one["schedule"] for one in document["files"]] == ["1f1b", "zb-h1"]
    assert [one["file"] for one in document["ranks"]] == [0] * 4 + [1] * 4


def test_a_picture(trace, tmp_path):
    target = tmp_path / "out.svg"
    assert run("timeline", trace, "--svg", target).status == 0
    ET.parse(target)
    again = run("timeline", trace, "--svg", target)
    assert again.status == 2
    assert "exists; give a new name" in again.err
    assert run("timeline", trace, trace, "--svg", tmp_path / "b.svg").status == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"hello", "'h' begins no trace event file"),
        (b"{}", "the key traceEvents is missing"),
        (b'{"traceEvents": [}', "this is no JSON value"),
        (b'{"traceEvents": [{"ph": "X", "ts": 1}]}', "not one of meshwright"),
        (b"[" * 100_000, "nested too deep"),
        (b"\x1f\x8b\x08\x00\x00", "cannot be read"),
        (b"\xff\xfe\x00", "no UTF-8 text"),
        (gzip.compress(b"[" + b"[],\n" * 100_000), "not one of meshwright"),
    ],
)
def test_what_cannot_be_read_is_said_once(tmp_path, content, message):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    ran = run("timeline", path, "--json")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {path}")
    assert message in ran.err


def test_a_missing_file_and_all_others_are_named(trace, tmp_path):
    (tmp_path / "bad.json").write_text("[3]")
    ran = run("timeline", trace, tmp_path / "none.json", tmp_path / "bad.json")
    assert ran.status == 2
    assert "none.json: no such file" in ran.err
    assert "bad.json" in ran.err
    assert run("timeline").status == 2


def test_help_has_an_example():
    ran = run("timeline", "--help")
    assert ran.status == 0
    assert "meshwright timeline trace.json.gz" in ran.out
