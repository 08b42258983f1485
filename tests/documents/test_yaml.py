"""YAML: core schema, refusals and limits, by both PyYAML parsers."""

from __future__ import annotations

import pytest
import yaml

from meshwright.documents import parse_document
from meshwright.documents.limits import MAX_ALIASED_NODES
from meshwright.documents.source import YAML_NEWLINE, ProblemList, Source
from meshwright.documents.yaml_nodes import yaml_root
from meshwright.errors import InputError
from support import FIXTURES

LOADERS = [yaml.SafeLoader]
if yaml.__with_libyaml__:
    LOADERS.append(yaml.CSafeLoader)


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def read(request):
    def parse(text):
        problems = ProblemList()
        root = yaml_root(Source("job.yaml", text, YAML_NEWLINE), problems, request.param)
        if problems.in_order():
            raise InputError(*problems.in_order())
        return root

    return parse


def refusal(read, text):
    with pytest.raises(InputError) as caught:
        read(text)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("12:30:00", "12:30:00"),
        ("190:20:30.15", "190:20:30.15"),
        ("2024-01-02", "2024-01-02"),
        ("1_000", "1_000"),
        ("1e9", 1e9),
        ("1.5E-3", 1.5e-3),
        (".5", 0.5),
        ("5.", 5.0),
        ("-3", -3),
        ("+3", 3),
        ("0o14", 12),
        ("014", 14),
        ("0x1F", 31),
        ("0b11", "0b11"),
        ("1e", "1e"),
        (".", "."),
        ("-", None),
        ("null", None),
        ("~", None),
        ("true", True),
        ("False", False),
        ("tRue", "tRue"),
        ("'5'", "5"),
        ('"null"', "null"),
        ("4 MiB", "4 MiB"),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("=", "="),
    ],
)
def test_core_schema(read, text, value):
    if text == "-":
        text = ""
    got = read(f"key: {text}\n").to_builtins()["key"]
    assert got == value
    assert type(got) is type(value)


def test_nan_is_a_number(read):
    value = read("a: .nan").to_builtins()["a"]
    assert value != value


def test_block_scalars_and_nesting(read):
    text = "a: |\n  one\n  two\nb: >\n  three\n  four\nc:\n- - 1\n  - x\n- {d: []}\n"
    assert read(text).to_builtins() == {
        "a": "one\ntwo\n",
        "b": "three four\n",
        "c": [[1, "x"], {"d": []}],
    }


def test_integer_keys_are_kept_as_text(read):
    assert read("0: a\n1: b\n").to_builtins() == {"0": "a", "1": "b"}


@pytest.mark.parametrize("key", ["true", "1.5", "~", ".inf", "null"])
def test_keys_that_are_no_text(read, key):
    (problem,) = refusal(read, f"a: 1\n{key}: 2\n")
    assert problem.startswith(f"job.yaml:2:1: key {key!r} is no text\n  | {key}: 2\n")
    assert f'write it in quotes: "{key}"' in problem


@pytest.mark.parametrize("key", ["? [a]\n: 1\n", "? {a: 1}\n: 1\n", "[a]: 1\n"])
def test_containers_as_keys(read, key):
    (problem,) = refusal(read, f"x: 1\n{key}")
    assert problem.startswith("job.yaml:2:")
    assert "a mapping or list cannot be a key" in problem


def test_duplicate_keys_name_both_places(read):
    (problem,) = refusal(read, "a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert problem.startswith("job.yaml:4:3: key 'b' stands twice, first at line 2, column 3\n")
    assert "  |   b: 3" in problem


def test_quoted_and_plain_keys_are_the_same_key(read):
    assert "stands twice" in refusal(read, "1: a\n'1': b\n")[0]


@pytest.mark.parametrize(
    "tagged",
    ["!!python/object:os.system {}", "!foo 1", "!!str 1", "! x", "!!set {a}", "!!binary aGk="],
)
def test_tags_are_refused(read, tagged):
    (problem,) = refusal(read, f"a: {tagged}\n")
    assert problem.startswith("job.yaml:1:4: tag '!")


def test_tag_directives_are_refused_fast(read):
    (problem,) = refusal(read, "a: 1\n...\n" + "%TAG ! tag:x,2000:\n" * 100_000 + "---\nb")
    assert problem.startswith("job.yaml:3:1: %TAG is not allowed")


def test_merge_keys_are_refused(read):
    (problem,) = refusal(read, "a: &a {x: 1}\nb:\n  <<: *a\n  y: 2\n")
    assert problem.startswith("job.yaml:3:3: merge keys (<<) are not allowed")
    assert read("'<<': 1").to_builtins() == {"<<": 1}


def test_aliases_stand_for_their_anchor(read):
    root = read("a: &x [1, {b: 2}]\nc: *x\nd: &y z\ne: [*y, *y]\n")
    assert root.to_builtins() == {"a": [1, {"b": 2}], "c": [1, {"b": 2}], "d": "z", "e": ["z", "z"]}
    assert root.entries["c"].node.at == (2, 4)
    assert root.entries["e"].node.items[1].at == (4, 9)


def test_billion_laughs(read):
    text = (FIXTURES / "documents/billion_laughs.yaml").read_text()
    (problem,) = refusal(read, text)
    assert f"aliases stand for more than {MAX_ALIASED_NODES:,} values" in problem


def test_alias_expansion_just_inside_the_limit(read):
    copies = MAX_ALIASED_NODES // 1000 - 1
    text = f"a: &a [{'x,' * 999}]\nb: [{'*a,' * copies}]\n"
    assert len(read(text).to_builtins()["b"]) == copies


def test_recursive_aliases(read):
    (problem,) = refusal(read, "a: &a\n  b: [1, *a]\n")
    assert problem.startswith("job.yaml:2:10: alias *a stands inside what it stands for")


def test_undefined_alias(read):
    (problem,) = refusal(read, "a: *b\n")
    assert problem.startswith("job.yaml:1:4: alias *b has no anchor above it")


def test_an_alias_as_key(read):
    assert "an alias cannot be a key" in refusal(read, "a: &x b\n*x : 1\n")[0]


def test_depth_reached_through_aliases(read):
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 300)]
    (problem,) = refusal(read, "\n".join(lines))
    assert "nests deeper than 64 levels" in problem


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300 + "]" * 300,
        "{a: " * 300 + "}" * 300,
        "- " * 300 + "x",
        "".join(" " * i + "a:\n" for i in range(300)),
        "? " * 300,
        "[" * 100_000,
    ],
)
def test_deep_nesting(read, text):
    (problem,) = refusal(read, text)
    assert "nested deeper than 64 levels" in problem


def test_64_levels_are_allowed(read):
    value = read("[" * 64 + "1" + "]" * 64).to_builtins()
    for _ in range(64):
        (value,) = value
    assert value == 1
    assert refusal(read, "[" * 65 + "1" + "]" * 65)[0].startswith("job.yaml:1:65: nested deeper")


def test_several_documents(read):
    (problem,) = refusal(read, "a: 1\n---\nb: 2\n")
    assert problem.startswith("job.yaml:2:1: a second document starts here\n  | ---")
    assert read("---\na: 1\n...\n").to_builtins() == {"a": 1}


@pytest.mark.parametrize("text", ["# only a remark\n", "---\n", "--- # x\n...\n"])
def test_documents_without_a_value(read, text):
    assert "the document holds no value" in refusal(read, text)[0]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\n\tb: 2\n", "job.yaml:2:1", "indent with spaces, not tabs"),
        ("a: b: c\n", "job.yaml:1:5", "mapping values are not allowed"),
        ("a: [1, 2\nb: 3\n", "job.yaml:", "from line 1, column 4"),
        ("a: 'open\n", "job.yaml:2:1", "not valid YAML"),
        ("a: @x\n", "job.yaml:1:4", "not valid YAML"),
        ("a: 1\n b: 2\n", "job.yaml:2:3", "not valid YAML"),
        ('a: "\\q"\n', "job.yaml:1:", "not valid YAML"),
        ('a: "\\ud800"\n', "job.yaml:1:", ""),
        ('a: "\\U99999999"\n', "job.yaml:1:", "not valid YAML"),
    ],
)
def test_syntax_errors_have_places(read, text, place, words):
    (problem,) = refusal(read, text)
    assert problem.startswith(place)
    assert words in problem


def test_recoverable_problems_come_together_and_in_order():
    text = "a: !x 1\na: 2\n<<: {}\n1.5: x\n"
    with pytest.raises(InputError) as caught:
        parse_document(text, "j.yaml")
    assert [problem.place.line for problem in caught.value.problems] == [1, 2, 3, 4]


def test_a_fatal_problem_does_not_hide_the_others():
    with pytest.raises(InputError) as caught:
        parse_document("a: 1\na: 2\nb: [\n", "j.yaml")
    messages = [problem.message for problem in caught.value.problems]
    assert "stands twice" in messages[0]
    assert "not valid YAML" in messages[1]


def test_the_list_of_problems_is_bounded():
    with pytest.raises(InputError) as caught:
        parse_document("a: 1\n" * 5001, "j.yaml")
    assert len(caught.value.problems) == 201
    assert caught.value.problems[-1].message == "4,800 further problems are not listed"


def test_huge_integers_cost_nothing():
    with pytest.raises(InputError, match="does not fit 64 bits"):
        parse_document("a: " + "9" * 1_000_000, "j.yaml").root.to_builtins()
