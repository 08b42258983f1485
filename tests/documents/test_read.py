"""Files: what is no readable file gives one clear error; the format goes by suffix or content."""

from __future__ import annotations

import os
import sys

import pytest

from meshwright.documents import parse_document, read_document
from meshwright.documents.limits import MAX_FILE_BYTES
from meshwright.errors import InputError


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_document(path)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: 1"),
        ("a.yml", "a: 1"),
        ("a.YAML", "a: 1"),
        ("a.json", '{"a": 1}'),
        ("a.toml", "a = 1"),
        ("a.conf", '\n {"a": 1}'),
        ("a", "a: 1"),
        ("a.yaml", "{a: 1}"),
    ],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_formats_with_and_without_byte_order_mark(tmp_path, name, text, mark):
    path = tmp_path / name
    path.write_bytes(mark + text.encode())
    document = read_document(path)
    assert document.root.to_builtins() == {"a": 1}
    assert document.file == str(path)
    entry = document.root.entries["a"]
    assert document.lines[entry.line - 1][entry.column - 1 :].lstrip('"').startswith("a")


@pytest.mark.parametrize("content", [b"", b" \n\t\r\n ", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
@pytest.mark.parametrize("name", ["a.yaml", "a.json", "a.toml"])
def test_empty_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    problem = refusal(tmp_path / name)
    assert str(problem) == f"{tmp_path / name}: the file is empty"


def test_nul_bytes(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"a: 1\nb: \x00\x01\n")
    assert str(refusal(path)).startswith(f"{path}:2:4: at byte offset 8: a NUL byte")


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes('{"ü": 1,\n"ü'.encode() + b'\xfc": 2}')
    assert str(refusal(path)).startswith(f"{path}:2:3: at byte offset 13: byte 0xfc is not UTF-8")


def test_utf16(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1", encoding="utf-16")
    assert "at byte offset" in refusal(path).message


def test_directory_and_missing_file(tmp_path):
    assert str(refusal(tmp_path)) == f"{tmp_path}: this is a directory, not a file"
    assert refusal(tmp_path / "none.yaml").message == "no such file"
    assert refusal(tmp_path / "x" / "none.yaml").message == "no such file"


def test_names_no_file_can_have(tmp_path):
    assert refusal("a\x00b.yaml").message == "no file can have this name"
    assert "cannot be read" in refusal(str(tmp_path / ("x" * 5000))).message


def test_a_file_below_a_file(tmp_path):
    (tmp_path / "a").write_text("x")
    assert "cannot be read" in refusal(tmp_path / "a" / "b.yaml").message


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a file" in refusal(tmp_path / "pipe.yaml").message


def test_size_limit(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"#" * (MAX_FILE_BYTES - 5) + b"\na: 1")
    assert read_document(path).root.to_builtins() == {"a": 1}
    path.write_bytes(b"#" * (MAX_FILE_BYTES - 4) + b"\na: 1")
    assert refusal(path).message == "the file is over 16 MiB"


@pytest.mark.parametrize("format_", ["yaml", "json", "toml"])
@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\ud800", "\uffff"])
def test_control_characters(format_, char):
    with pytest.raises(InputError) as caught:
        parse_document(f"ab\n c{char}", "f", format_)
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"f:2:3: character U+{ord(char):04X} is not allowed")
    assert char not in str(problem)


def test_an_unknown_format_is_an_error_of_the_program():
    with pytest.raises(ValueError, match="xml"):
        parse_document("a", "f", "xml")


def test_recoverable_problems_can_be_collected():
    problems = []
    document = parse_document("a: 1\na: 2\nb: !!int 3\n", "f", problems=problems)
    assert document.root.to_builtins() == {"a": 1, "b": "3"}
    assert [problem.place.line for problem in problems] == [2, 3]


def test_long_lines_are_cut_around_the_column():
    text = '{"a": [' + "1, " * 500 + "x, " + "1, " * 500 + "]}"
    with pytest.raises(InputError) as caught:
        parse_document(text, "f", "json")
    (problem,) = caught.value.problems
    assert len(problem.excerpt) <= 120
    assert "x" in problem.excerpt
    assert problem.excerpt.startswith("…")
    assert problem.excerpt.endswith("…")


def test_line_ends():
    for end in ("\n", "\r\n", "\r"):
        document = parse_document(f"a: 1{end}b:{end}  c: 2", "f")
        assert document.lines == ("a: 1", "b:", "  c: 2")
        assert document.root.entries["b"].node.at == (3, 3)
