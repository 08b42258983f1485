"""TOML: values of tomllib, places of the scan."""

from __future__ import annotations

import tomllib

import pytest

from meshwright.documents import decode, parse_document
from meshwright.errors import InputError
from support import FIXTURES

EVERYTHING = """\
# a remark
title = "x # no remark"
'quoted key' = 'C:\\path'
"esc\\u0041ped" = 1
long = \"\"\"
two "" lines \\" and = [brackets
end\"\"\"\"
raw = '''it's
[not] = "a" table'''
numbers = [ 1_000, 0x1F, 0o14, 0b11, 1e9, -0.5, # remark ]
  +3,
]
a.b.c = true
a.b.d = {x = 1, y.z = [ {}, {w = 'q'} ]}

[table]
key = "v"
[table.inner . deep]
key = 2
[[list]]
n = 1
[list.sub]
m = 1
[[list]]
n = 2
[[list.rows]]
r = 1
[[list.rows]]
r = 2
"""


def read(text):
    return parse_document(text, "job.toml", "toml")


def refusal(text):
    with pytest.raises(InputError) as caught:
        read(text).root.to_builtins()
    return str(caught.value)


@pytest.mark.parametrize("text", [EVERYTHING, EVERYTHING.replace("\n", "\r\n")])
def test_values_as_tomllib_reads_them(text):
    assert read(text).root.to_builtins() == tomllib.loads(text)


@pytest.mark.parametrize(
    ("path", "start"),
    [
        ("title", '"x #'),
        ("quoted key", "'C:"),
        ("escAped", "1"),
        ("long", '"""'),
        ("raw", "'''it's"),
        ("numbers", "[ 1_000"),
        ("numbers[4]", "1e9,"),
        ("numbers[6]", "+3,"),
        ("a.b.c", "true"),
        ("a.b", "b.c = true"),
        ("a.b.d", "{x"),
        ("a.b.d.y.z[1].w", "'q'"),
        ("table", "[table]"),
        ("table.key", '"v"'),
        ("table.inner.deep.key", "2"),
        ("list[0].n", "1"),
        ("list[0].sub.m", "1"),
        ("list[1]", "[[list]]"),
        ("list[1].n", "2"),
        ("list[1].rows[1].r", "2"),
    ],
)
def test_places(path, start):
    document = read(EVERYTHING)
    decoded = decode(document, dict)
    place = decoded.place(path)
    assert decoded.given(path)
    assert document.lines[place.line - 1][place.column - 1 :].startswith(start)


def test_keys_have_places():
    document = read(EVERYTHING)
    inner = document.root.entries["a"].node.entries["b"].node.entries["d"]
    assert document.lines[inner.line - 1][inner.column - 1 :].startswith("d = {x")


def test_text_as_written():
    root = read((FIXTURES / "documents/places.toml").read_text(encoding="utf-8")).root
    assert root.entries["traffic"].node.items[0].entries["bytes"].node.text == "1e9"


@pytest.mark.parametrize(
    "when", ["1979-05-27", "07:32:00", "1979-05-27 07:32:00Z", "2024-01-01T00:00:00"]
)
def test_dates_and_times_are_refused_with_place(when):
    message = refusal(f"a = 1\nb = [2, {when}]\n")
    assert message.startswith("job.toml:2:9: dates and times are not allowed")
    assert f'write it in quotes: "{when}"' in message


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("a = 1\na = 2\n", "job.toml:2:1: key 'a' stands twice, first at line 1, column 1"),
        ("[a]\n[a]\n", "job.toml:2:2: key 'a' stands twice, first at line 1, column 2"),
        ("x = {a = 1, a = 2}\n", "job.toml:1:13: key 'a' stands twice, first at line 1, column 6"),
        ("a = b\nc = 1\nc = 2\n", "job.toml:1:5: not valid TOML: Invalid value"),
        ('a = "open\nb = 1\n', "job.toml:1:"),
        ("a = [1, 2\n", "job.toml:2:1: not valid TOML"),
        ("a\n", "job.toml:1:2: not valid TOML"),
        ("a = 01\n", "job.toml:1:6: not valid TOML"),
        ("[a\n", "job.toml:1:3: not valid TOML"),
        ("# nothing\n", "job.toml:1:1: the document holds no value"),
        ("a = 99999999999999999999\n", "job.toml:1:5: this integer does not fit 64 bits"),
        ("a = " + "9" * 5000, "job.toml:1:"),
    ],
)
def test_refusals_have_places(text, start):
    assert refusal(text).startswith(start)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 300 + "]" * 300,
        "a = " + "{a=" * 300 + "1" + "}" * 300,
        ".".join("a" * 300) + " = 1",
        "[" + ".".join("a" * 300) + "]",
        ".".join("a" * 200_000) + " = 1",
        "a = " + "[" * 500_000,
        "".join(f"[{'.'.join('a' * i)}]\n" for i in range(1, 100)),
    ],
)
def test_deep_nesting(text):
    assert "nested deeper than 64 levels" in refusal(text)


def test_63_levels_in_a_table_are_allowed():
    assert read("a = " + "[" * 63 + "1" + "]" * 63).root is not None
    assert "nested deeper" in refusal("a = " + "[" * 64 + "1" + "]" * 64)
