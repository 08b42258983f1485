"""JSON: strict, with places and duplicate keys."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.documents import parse_document
from meshwright.errors import InputError


def value_of(text):
    return parse_document(text, "a.json", "json").root.to_builtins()


def refusal(text):
    with pytest.raises(InputError) as caught:
        value_of(text)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        " [1, -2.5e3, 0, -0, true, false, null] ",
        '{"a": {"b": ["\\u00fc\\n\\"", "\\ud83d\\ude00"]},\r\n\t"": ""}',
        '"text"',
        "12",
    ],
)
def test_values_as_the_standard_library_reads_them(text):
    assert value_of(text) == json.loads(text)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    ),
    st.sampled_from([None, 2]),
)
def test_any_json_value(value, indent):
    assert value_of(json.dumps(value, indent=indent)) == value


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ('{"a": 1,\n "b": 2,}', "a.json:2:9: not valid JSON: expected a key in double quotes"),
        ("[1,\n2,\n]", "a.json:3:1: not valid JSON: expected a value, not ']'"),
        ("[1 2]", "a.json:1:4: not valid JSON: expected ',' or ']', not '2'"),
        ('{"a" 1}', "a.json:1:6: not valid JSON: expected ':' after the key"),
        ("{a: 1}", "a.json:1:2: not valid JSON: expected a key in double quotes, not 'a'"),
        ("[01]", "a.json:1:2: not valid JSON"),
        ("[1.]", "a.json:1:2: not valid JSON"),
        ("[NaN]", "a.json:1:2: not valid JSON: expected a value, not 'NaN'"),
        ("[Infinity]", "a.json:1:2: not valid JSON"),
        ("[truely]", "a.json:1:2: not valid JSON"),
        ("['a']", "a.json:1:2: not valid JSON"),
        ('["a\n"]', "a.json:1:2: not valid JSON: this text is not closed on its line"),
        ('["\\x"]', "a.json:1:2: not valid JSON: this text has a backslash"),
        ('["\\ud800"]', "a.json:1:2: half a surrogate pair"),
        ("[1] [2]", "a.json:1:5: not valid JSON: expected the end of the document"),
        ("[1, // no\n2]", "a.json:1:5: not valid JSON"),
        ('{"a": [1, 2', "a.json:1:12: not valid JSON: expected ',' or ']', not the end"),
    ],
)
def test_syntax_errors_have_places(text, start):
    assert refusal(text).startswith(start)


def test_trailing_comma_has_a_remedy():
    assert refusal("[1,]").endswith("remove the comma before it")
    assert "remove the comma" not in refusal('{"a": }')


def test_duplicate_keys_name_both_places():
    message = refusal('{"a": 1,\n  "b": {"c": 1, "c": 2},\n  "a": 2}')
    assert "a.json:2:17: key 'c' stands twice, first at line 2, column 9" in message
    assert "a.json:3:3: key 'a' stands twice, first at line 1, column 2" in message


@pytest.mark.parametrize("text", ["[" * 300 + "]" * 300, '{"a":' * 300, "[" * 1_000_000])
def test_deep_nesting(text):
    assert "nested deeper than 64 levels" in refusal(text)


def test_64_levels_are_allowed():
    assert value_of("[" * 64 + "]" * 64) is not None
    assert refusal("[" * 65 + "]" * 65).startswith("a.json:1:65: nested deeper")


def test_integers_outside_64_bits():
    assert value_of("[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]
    assert "does not fit 64 bits" in refusal("[9223372036854775808]")
    assert "does not fit 64 bits" in refusal("[" + "9" * 100_000 + "]")
