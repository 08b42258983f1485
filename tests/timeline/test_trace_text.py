"""The text of a trace: read piece by piece, bounded, with places."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.timeline.trace import text as trace_text
from meshwright.timeline.trace.items import trace_items
from meshwright.timeline.trace.text import TraceText, open_trace


class Slow(io.RawIOBase):
    """Gives a few bytes at a time, whatever is asked for."""

    def __init__(self, content: bytes, size: int) -> None:
        self._stream, self._size = io.BytesIO(content), size

    def read(self, size: int = -1) -> bytes:
        return self._stream.read(self._size)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    events=st.lists(st.dictionaries(st.text(), VALUES, max_size=4), max_size=12),
    more=st.dictionaries(st.text().filter(lambda key: key != "traceEvents"), VALUES, max_size=3),
    indent=st.sampled_from([None, 0, 2]),
    escapes=st.booleans(),
    strict=st.booleans(),
    size=st.integers(1, 40),
)
def test_any_layout_in_any_pieces_gives_the_same_items(events, more, indent, escapes, strict, size):
    document = {**more, "traceEvents": events}
    text = json.dumps(document, indent=indent, ensure_ascii=escapes)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        return
    items = list(trace_items(TraceText("x", Slow(content, size), strict=strict)))
    assert [item.value for item in items if item.position >= 0] == events
    assert {item.key: item.value for item in items if item.position < 0} == more


def lines(events):
    return b"[\n" + b",\n".join(json.dumps(one).encode() for one in events) + b"\n]\n"


@pytest.mark.parametrize("piece", [10, 64, 1000, 1 << 20])
def test_places_in_files_of_lines(monkeypatch, piece):
    monkeypatch.setattr(trace_text, "_PIECE_BYTES", piece)
    text = TraceText("x", io.BytesIO(lines([{"a": number, "b": "ü"} for number in range(300)])))
    for item in trace_items(text):
        place = text.place_of_value(item.number)
        assert (place.line, place.column) == (item.position + 2, 1)
        assert item.value["a"] == item.position


@pytest.mark.parametrize("piece", [10, 64, 1000])
def test_places_in_one_line(monkeypatch, piece):
    monkeypatch.setattr(trace_text, "_PIECE_BYTES", piece)
    content = json.dumps([{"a": number} for number in range(100)])
    text = TraceText("x", io.BytesIO(content.encode()))
    for item in trace_items(text):
        place = text.place_of_value(item.number)
        assert place.line == 1
        assert content[place.column - 1 :].startswith(json.dumps(item.value))


def refused(content, message, **options):
    with pytest.raises(InputError) as error:
        list(trace_items(TraceText("x", io.BytesIO(content), **options)))
    assert message in str(error.value)
    return error.value.problems[0].place


def test_faults_have_places():
    place = refused(b'{"traceEvents": [\n{"a": 1},\n{"a": }\n]}', "this is no JSON value")
    assert (place.line, place.column) == (3, 7)
    place = refused(b'[{"a": 1}\n {"b": 2}]', "'{' where ',' or ']' is expected after event 0")
    assert (place.line, place.column) == (2, 2)
    assert refused(b'{"traceEvents": [] "x": 1}', "expected after a value").column == 20
    assert refused(b"{5: 1}", "beginning of a key").column == 2
    assert refused(b'{"a" 1}', "where ':' is expected").column == 6


def test_what_would_eat_memory_or_time_is_refused(monkeypatch):
    refused(b"[" * 1_000_000, "nested too deep")
    refused(b'[{"a":' + b"9" * 10_000 + b"}]", "no JSON value")
    refused(b'{"' + b"a" * 3_000_000 + b'": 1}', "a value of over 2 MiB")
    refused(b'[{"a": "' + b"x" * 3_000_000, "a value of over 2 MiB")
    refused(b"[" + b" " * 5000, "over 1 KiB unpacked", limit_bytes=1024)
    many = ",".join(f'"{number}": 1' for number in range(2000))
    refused(f"{{{many}}}".encode(), "over 1,000 keys")


def test_a_key_that_stands_twice_among_very_many_is_found_in_time():
    pairs = ",".join(f'"{number}":0' for number in range(150_000))
    refused(f'[{{{pairs},"7":1}}]'.encode(), "'7' stands twice", strict=True)


def test_bytes_that_are_no_text():
    refused(b'[{"a": "\xff"}]', "near byte 8: no UTF-8 text")
    refused(b"\x0a\x8f\x01\x08\x02", "no UTF-8 text")


def test_files(tmp_path):
    path = tmp_path / "t.gz"
    bomb = gzip.compress(b"[" + b" " * 40_000_000)
    path.write_bytes(bomb)
    with (
        pytest.raises(InputError, match="over 1 MiB unpacked"),
        open_trace(str(path), limit_bytes=1 << 20) as text,
    ):
        list(trace_items(text))
    path.write_bytes(gzip.compress(b"[1, 2, 3]")[:-9])
    with pytest.raises(InputError, match="cannot be read"), open_trace(str(path)) as text:
        list(trace_items(text))
    path.write_bytes(b"\x1f\x8b\x08\x00rubbish that is no stream")
    with pytest.raises(InputError, match="cannot be read"), open_trace(str(path)) as text:
        list(trace_items(text))
    for name, message in (
        (str(tmp_path / "none"), "no such file"),
        (str(tmp_path), "a directory"),
        ("/dev/zero", "a pipe or device"),
        ("a\0b", "no file can have this name"),
        ("x" * 5000, "cannot be read"),
    ):
        with pytest.raises(InputError, match=message), open_trace(name):
            pass
