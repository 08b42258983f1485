"""Properties: round trips, no other exception, places at the right text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.documents import ScalarNode, decode, dump_yaml, parse_document, read_document
from meshwright.documents.decoded import walk
from meshwright.errors import InputError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["no", "1e9", "0x1", "<<", "-", "? a", "12:30", "a: b", "014", "null"])
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
FORMATS = st.sampled_from(["yaml", "json", "toml"])
# Text made of what the grammars treat specially reaches more than random characters do.
PIECES = st.lists(
    st.sampled_from(
        ["a", "b", "1", "-", "- ", ": ", "? ", "\n", "  ", "\t", "[", "]", "{", "}", ",", '"', "'",
         "\\", "&a ", "*a", "!x ", "|", ">", "#", "%TAG", "%YAML 1.1", "---", "...", "<<", "=", ".",
         '"""', "'''", "[[", "]]", "1e9", "0x", "\u00fc", "\U0001f600", "\u2028", "\x85", "\r",
         "\\u12", "\\ud800", "true", "null", "1979-05-27", "07:32:00", "\x00", "\ufeff", "@", "`"]
    ),
    max_size=60,
).map("".join)  # fmt: skip


@given(TREES)
@settings(max_examples=300, deadline=None)
def test_dump_and_decode_is_the_identity(value):
    decoded = decode(parse_document(dump_yaml({"root": value}), "f"), dict[str, Any])
    assert decoded.problems == ()
    assert decoded.value == {"root": value}
    # 1 == True == 1.0, so the types are compared too.
    assert repr(decoded.value) == repr({"root": value})


@given(st.text() | PIECES, FORMATS)
@settings(max_examples=1500, deadline=None)
def test_any_text_gives_a_document_or_an_input_error(text, format_):
    try:
        document = parse_document(text, "f", format_)
        problems = decode(document, dict[str, int]).problems
        document.root.to_builtins()
    except InputError as error:
        problems = error.problems
        assert problems
    for problem in problems:
        assert str(problem).startswith("f")
        assert len(problem.excerpt or "") <= 120
        assert problem.place.line is None or problem.place.line >= 1


@given(st.binary(max_size=200), st.sampled_from([".yaml", ".json", ".toml", ""]))
@settings(max_examples=100, deadline=None)
def test_any_bytes_in_a_file(tmp_path_factory, content, suffix):
    path = tmp_path_factory.mktemp("any") / f"file{suffix}"
    path.write_bytes(content)
    try:
        read_document(path)
        problems = ()
    except InputError as error:
        problems = error.problems
    assert all(problem.place.file == str(path) for problem in problems)


WORDS = st.text("abcxyzü😀_", min_size=1, max_size=8)
PLAIN_TREES = st.recursive(
    st.integers(-1000, 1000) | WORDS.map(lambda word: "w" + word) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}" = {_toml(inner)}' for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",\n # remark\n ".join(map(_toml, value)) + "]"
    return "0" if value is None else json.dumps(value, ensure_ascii=False)


@given(PLAIN_TREES, FORMATS, st.sampled_from([None, 2]))
@settings(max_examples=300, deadline=None)
def test_places_point_at_the_text(value, format_, indent):
    value = {"root": value}
    text = {
        "yaml": lambda: dump_yaml(value),
        "json": lambda: json.dumps(value, indent=indent, ensure_ascii=False),
        "toml": lambda: f"root = {_toml(value['root'])}\n",
    }[format_]()
    document = parse_document(text, "f", format_)
    decoded = decode(document, dict[str, Any])
    for path, node in walk(document.root):
        place = decoded.place(path)
        assert (place.line, place.column) == node.at
        rest = document.lines[node.line - 1][node.column - 1 :]
        if isinstance(node, ScalarNode):
            assert rest.lstrip("\"'").startswith(_written(node.value))
        elif format_ == "json" or (format_ == "toml" and path):
            assert rest[0] in "[{"


@pytest.mark.parametrize("format_", ["yaml", "json", "toml"])
def test_large_documents_take_seconds(format_):
    piece = {"yaml": "- [a, 1]\n", "json": '["a", 1],\n', "toml": 'k{} = ["a", 1]\n'}[format_]
    text = "".join(piece.replace("{}", str(index)) for index in range(20_000))
    if format_ == "json":
        text = f"[{text}0]"
    parse_document(text, "f", format_)
