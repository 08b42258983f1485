"""Plain values to YAML and back."""

from __future__ import annotations

import pytest

from meshwright.documents import dump_yaml, parse_document


@pytest.mark.parametrize(
    "text",
    ["no", "1e9", "0o14", "014", "12:30:00", "~", "", "null", ".inf", "=", "<<", "a: b", "# x",
     "- a", " pad ", "two\nlines\n", "\ttab", "ü", "\x07", "\x85", "\u2028", "\ufeff", "'", '"',
     "%TAG", "---"],
)  # fmt: skip
def test_text_stays_text(text):
    assert parse_document(dump_yaml({"a": text, "b": [text]}), "f").root.to_builtins() == {
        "a": text,
        "b": [text],
    }


def test_form():
    value = {"node": {"from": "a.txt", "gpus": (1, 2)}, "rate": 1e20, "on": True, "x": None}
    assert dump_yaml(value) == (
        "node:\n  from: a.txt\n  gpus:\n  - 1\n  - 2\nrate: 1.0e+20\n'on': true\nx: null\n"
    )
    assert dump_yaml("a") == "a\n"


def test_shared_values_are_written_out():
    shared = [1]
    assert dump_yaml({"a": shared, "b": shared}) == "a:\n- 1\nb:\n- 1\n"


def test_refusals():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="deeper"):
        dump_yaml(loop)
    with pytest.raises(TypeError):
        dump_yaml({1: 2})
    with pytest.raises(TypeError):
        dump_yaml({"a": object()})
