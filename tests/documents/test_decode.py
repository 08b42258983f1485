"""Nodes to structs: every type, every mistake, all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from meshwright.documents import (
    AsWritten,
    Check,
    Convert,
    Maximum,
    Minimum,
    Node,
    ScalarNode,
    decode,
    parse_document,
    read_document,
)
from meshwright.documents.scalar_types import is_plain, scalar
from meshwright.errors import InputError
from meshwright.units import parse_bytes, parse_rate
from support import FIXTURES


class Launcher(StrEnum):
    TORCHRUN = "torchrun"
    SRUN = "srun"


class Layout(msgspec.Struct, frozen=True):
    tp: Annotated[int, Minimum(1), Maximum(64)] = 1
    pp: int = 1
    sharding: Literal["none", "zero1", "zero2"] = "none"
    order: str | None = None
    sequence_parallel: bool = False


class Traffic(msgspec.Struct, frozen=True, rename={"size_bytes": "bytes"}):
    axis: str
    size_bytes: Annotated[int, Convert(parse_bytes, "a size such as 64 MiB")]


class Job(msgspec.Struct, frozen=True):
    layout: Layout = Layout()
    traffic: tuple[Traffic, ...] = ()
    launcher: Launcher | None = None


ALIASES = {"pipeline": "pp", "tensor_parallel": "tp"}


def value_of(text, hint):
    return decode(parse_document(text, "f"), hint).required()


def refusals(text, hint, **options):
    decoded = decode(parse_document(text, "f"), hint, **options)
    assert decoded.value is None
    assert decoded.problems
    return [str(problem) for problem in decoded.problems]


def refusal(text, hint, **options):
    (problem,) = refusals(text, hint, **options)
    return problem


def test_all_of_five_mistakes_at_once():
    path = FIXTURES / "documents/five_mistakes.yaml"
    decoded = decode(read_document(path), Job, aliases=ALIASES)
    assert decoded.value is None
    got = [(p.place.line, p.place.column, p.place.subject, p.message) for p in decoded.problems]
    assert got == [
        (3, 7, "layout.tp", "expected an integer, not text 'four'"),
        (4, 3, "layout.pipline", "unknown key 'pipline'; did you mean 'pp'?"),
        (
            5,
            13,
            "layout.sharding",
            "expected one of none, zero1, zero2, not text 'zero4'; did you mean 'zero2'?",
        ),
        (
            8,
            23,
            "traffic[1].bytes",
            "'3 parsecs' is no size: write bytes, or a unit as in 64 MiB or 4.5 GB",
        ),
        (9, 5, "traffic[2].axis", "missing key 'axis'"),
    ]
    lines = path.read_text().splitlines()
    assert all(p.excerpt == lines[p.place.line - 1] for p in decoded.problems)
    with pytest.raises(InputError) as caught:
        decoded.required()
    assert caught.value.problems == decoded.problems


def test_the_form_of_a_problem():
    text = "\n" * 5 + "layout:\n  pipline: 4\n"
    decoded = decode(parse_document(text, "job.yaml"), Job, aliases=ALIASES)
    assert str(decoded.problems[0]) == (
        "job.yaml:7:3: unknown key 'pipline'; did you mean 'pp'?\n  |   pipline: 4"
    )


def test_problems_of_reading_and_decoding_come_together():
    problems = []
    document = parse_document("layout: {tp: 1, tp: 2}\nlayuot: 3\n", "f", problems=problems)
    problems += decode(document, Job).problems
    assert [problem.message.split(";")[0] for problem in problems] == [
        "key 'tp' stands twice, first at line 1, column 10",
        "unknown key 'layuot'",
    ]


def test_a_whole_job():
    text = "layout: {tp: 4, order: tp-dp}\ntraffic: [{axis: dp, bytes: 4 KiB}]\nlauncher: srun\n"
    assert value_of(text, Job) == Job(
        Layout(tp=4, order="tp-dp"), (Traffic("dp", 4096),), Launcher.SRUN
    )
    assert value_of("{}", Job) == Job()


@pytest.mark.parametrize(
    ("text", "hint", "value"),
    [
        ("3", int, 3),
        ("3", float, 3.0),
        ("1e9", float, 1e9),
        ("abc", str, "abc"),
        ("true", bool, True),
        ("null", None, None),
        ("null", int | None, None),
        ("3", int | None, 3),
        ("3", float | int, 3),
        ("3.5", float | int, 3.5),
        ("b", Literal["a", "b"], "b"),
        ("2", Literal[1, 2], 2),
        ("srun", Launcher, Launcher.SRUN),
        ("auto", int | Literal["auto"], "auto"),
        ("4", int | Literal["auto"], 4),
        ("[1, 2]", list[int], [1, 2]),
        ("[1, 2]", tuple[int, ...], (1, 2)),
        ("[1, a]", tuple[int, str], (1, "a")),
        ("[1, 2]", Sequence[int], [1, 2]),
        ("[[1], []]", list[list[int]], [[1], []]),
        ("[1, a]", list, [1, "a"]),
        ("{a: 1}", dict[str, int], {"a": 1}),
        ("{1: 2}", dict[str, int], {"1": 2}),
        ("{a: [1]}", Mapping[str, list[int]], {"a": [1]}),
        ("{a: {b: [null]}}", dict[str, Any], {"a": {"b": [None]}}),
        ("{a: 1}", dict, {"a": 1}),
        ("{a: 1}", Any, {"a": 1}),
        ("n[1-2]", str | list[str], "n[1-2]"),
        ("[n1]", str | list[str], ["n1"]),
        ("{tp: 2}", str | Layout, Layout(tp=2)),
        ("{tp: 2}", Layout | Traffic, Layout(tp=2)),
        ("{axis: a, bytes: 1}", Layout | Traffic, Traffic("a", 1)),
        ("{x: 1}", Layout | dict[str, int], {"x": 1}),
        ("400 Gbit/s", Annotated[float, Convert(parse_rate)], 5e10),
        ("1e6", Annotated[int, Convert(parse_bytes)], 1_000_000),
        ("null", Annotated[int | None, Convert(parse_bytes)], None),
        ("null", Annotated[int, Convert(parse_bytes)] | None, None),
        (
            "a,b",
            Annotated[tuple[str, ...], Convert(lambda text: tuple(text.split(",")))],
            ("a", "b"),
        ),
        ("[a, b]", Annotated[tuple[str, ...], Convert(str.split)], ("a", "b")),
        ("0.10", Annotated[str, AsWritten()], "0.10"),
        ("[0x1F, true, x]", list[Annotated[str, AsWritten()]], ["0x1F", "true", "x"]),
        ("5", Annotated[int, Minimum(5), Maximum(5)], 5),
        ("null", Annotated[int | None, Minimum(5)], None),
    ],
)
def test_values(text, hint, value):
    # A document cannot be null alone, so each value stands under a key.
    node = parse_document(f"key: {text}", "f").root.entries["key"].node
    decoded = decode(node, hint)
    assert decoded.problems == ()
    assert decoded.value == value
    assert type(decoded.value) is type(value)


def _even(value):
    if value % 2:
        raise ValueError(f"{value} is odd")


@pytest.mark.parametrize(
    ("text", "hint", "message"),
    [
        ("true", int, "f:1:1: expected an integer, not true"),
        ("true", float, "f:1:1: expected a number, not true"),
        ("1.5", int, "f:1:1: expected an integer, not the number 1.5"),
        (".nan", float, "f:1:1: expected a finite number, not .nan"),
        ("-.inf", float, "f:1:1: expected a finite number, not -.inf"),
        ("1e999", float, "f:1:1: expected a finite number, not 1e999"),
        ("9223372036854775808", int, "f:1:1: this integer does not fit 64 bits"),
        ("-9223372036854775809", float, "f:1:1: this integer does not fit 64 bits"),
        ("99999999999999999999", int | str, "f:1:1: this integer does not fit 64 bits"),
        ("9" * 5000, Annotated[int, Convert(parse_bytes)], "f:1:1: this integer does not fit"),
        ("9" * 30, Any, "f:1:1: this integer does not fit 64 bits"),
        ("5", str, "f:1:1: expected text, not the integer 5"),
        ("yes", bool, "f:1:1: expected true or false, not text 'yes'"),
        ("1", bool, "f:1:1: expected true or false, not the integer 1"),
        ("~", int, "f:1:1: expected an integer, not null"),
        ("[1]", int, "f:1:1: expected an integer, not a list"),
        ("{a: 1}", str | None, "f:1:1: expected text or null, not a mapping"),
        ("abc", list[int], "f:1:1: expected a list, not text 'abc'"),
        ("5", Layout, "f:1:1: expected a mapping, not the integer 5"),
        ("[1]", dict[str, int], "f:1:1: expected a mapping, not a list"),
        ("[1]", tuple[int, int], "f:1:1: expected a list of 2 values, not of 1"),
        ("2", Literal["1", "2"], "f:1:1: expected one of 1, 2, not the integer 2"),
        ("true", Literal[1, 2], "f:1:1: expected one of 1, 2, not true"),
        ("torchrn", Launcher, "f:1:1: expected one of torchrun, srun, not text 'torchrn'; did you"),
        ("SRUN", Launcher | None, "f:1:1: expected one of torchrun, srun, not text 'SRUN'; did"),
        ("atuo", int | Literal["auto"], "f:1:1: expected auto, not text 'atuo'; did you mean"),
        ("1.5", int | bool, "f:1:1: expected an integer or true or false, not the number 1.5"),
        ("true", Annotated[int, Convert(parse_bytes)], "f:1:1: expected an integer, not true"),
        ("50", Annotated[float, Convert(parse_rate)], "f:1:1: 50 is a rate without a unit"),
        ("[]", Annotated[int, Convert(parse_bytes)], "f:1:1: expected an integer, not a list"),
        ("0", Annotated[int, Minimum(1)], "f:1:1: 0 is too small: the least allowed is 1"),
        ("9", Annotated[int, Maximum(8)], "f:1:1: 9 is too large: the greatest allowed is 8"),
        ("3", Annotated[int, Check(_even)], "f:1:1: 3 is odd"),
        ("[]", Annotated[list[int], Check(lambda x: _even(1))], "f:1:1: 1 is odd"),
        ("0", Annotated[int, Minimum(1)] | None, "f:1:1: 0 is too small"),
    ],
)
def test_refused_values(text, hint, message):
    assert refusal(text, hint).startswith(message)


@pytest.mark.parametrize(
    ("text", "hint", "remedy"),
    [
        ("1e6", int, "write 1000000"),
        ("'8'", int, "write 8, without quotes"),
        ("1_000", int, "write 1000, without quotes"),
        ("yes", bool, "write true"),
        ("off", bool, "write false"),
        ("0.10", str, 'write it in quotes: "0.10"'),
        ("5", str | None, 'write it in quotes: "5"'),
        ("~", int, "write a value, or remove the key"),
        ("2", Literal["1", "2"], 'write it in quotes: "2"'),
        ("99999999999999999999", float, "write it as text in quotes, or as a number: 9e19"),
    ],
)
def test_remedies(text, hint, remedy):
    assert refusal(text, hint).endswith(f"\n  {remedy}")


def test_unknown_keys():
    assert "did you mean 'sharding'?" in refusal("shardin: x", Layout)
    assert "did you mean 'tp'?" in refusal("tensor-parallel: 4", Layout, aliases=ALIASES)
    assert "did you mean 'tp'?" in refusal("Tensor_Paralel: 4", Layout, aliases=ALIASES)
    assert "did you mean" not in refusal("tensor_parallel: 4", Layout)
    message = refusal("completely: 4", Layout)
    assert "keys allowed here: tp, pp, sharding, order, sequence_parallel" in message
    assert "did you mean" not in refusal("x" * 100 + ": 4", Layout)


def test_missing_keys_stand_at_the_mapping():
    decoded = decode(parse_document("traffic:\n  - axis: dp\n", "f"), Job)
    assert str(decoded.problems[0]) == (
        "f:2:5: missing key 'bytes'\n  |   - axis: dp\n  write bytes: a size such as 64 MiB"
    )


def test_renamed_fields_go_by_their_written_name():
    missing, unknown = refusals("{axis: a, size_bytes: 1}", Traffic)
    assert "missing key 'bytes'" in missing
    assert "unknown key 'size_bytes'" in unknown


def test_nodes_are_kept_for_others():
    class Sections(msgspec.Struct, frozen=True):
        layout: Node
        batch: Node | None = None

    sections = value_of("layout:\n  tp: x\nbatch: null\n", Sections)
    assert sections.batch is None
    decoded = decode(sections.layout, Layout, path="layout")
    assert str(decoded.problems[0]).startswith("f:2:7: expected an integer")
    assert decoded.problems[0].place.subject == "layout.tp"


def test_a_struct_may_refuse_itself():
    class Pair(msgspec.Struct, frozen=True):
        a: int
        b: int

        def __post_init__(self):
            if self.a > self.b:
                raise ValueError("a is above b")

    assert refusal("[{a: 1, b: 2}, {a: 3, b: 2}]", list[Pair]).startswith("f:1:16: a is above b")


def test_struct_of_nested_generics_reports_each_item():
    messages = refusals("[1, a, 2.5, {}, []]", list[int])
    assert [message.split(":")[2] for message in messages] == ["5", "8", "13", "17"]


def test_problems_are_bounded():
    messages = refusals("".join(f"unknown_{i}: 1\n" for i in range(30_000)), Layout)
    assert len(messages) == 201
    assert messages[-1] == "f: 29,800 further problems are not listed"


def test_long_values_are_cut_in_messages():
    assert len(refusal("x" * 1_000_000, int)) < 400
    assert len(refusal("x" * 1_000_000, Annotated[int, Convert(parse_bytes)])) < 600


def test_unknown_types_are_errors_of_the_program():
    with pytest.raises(TypeError):
        value_of("[1]", set[int])
    with pytest.raises(TypeError):
        value_of("{a: 1}", dict[int, int])
    with pytest.raises(TypeError):
        value_of("1", complex)


def test_json_and_toml_decode_alike():
    expected = Job(Layout(tp=2), (Traffic("dp", 8),))
    json_text = '{"layout": {"tp": 2}, "traffic": [{"axis": "dp", "bytes": 8}]}'
    toml_text = 'layout.tp = 2\n[[traffic]]\naxis = "dp"\nbytes = 8\n'
    assert decode(parse_document(json_text, "f", "json"), Job).required() == expected
    assert decode(parse_document(toml_text, "f", "toml"), Job).required() == expected


HINTS = [
    str,
    int,
    bool,
    float,
    None,
    int | None,
    str | int,
    int | float,
    bool | str | None,
    Literal["a", "b"],
    Literal["a"] | int,
    Annotated[int, Minimum(3)],
    Annotated[int, Minimum(3)] | None,
    Annotated[str, AsWritten()],
    Annotated[str, Convert(len)],
    Annotated[int, Convert(int)] | str,
]
WRITTEN = ['"a"', '"7"', "7", "1", "-1", "7.5", "1e3", "true", "null", "9" * 30]


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_a_value_taken_at_once_is_the_one_that_all_checks_give(hint: object, written: str) -> None:
    node = parse_document(written, "t.json", "json").root
    assert isinstance(node, ScalarNode)
    if is_plain(node.value, hint):
        given = scalar(node, hint)
        assert (given, type(given)) == (node.value, type(node.value))
        assert decode(node, hint).required() == given


def test_plain_values_are_taken_at_once() -> None:
    for value, hint in (("a", str), (7, int), (True, bool), (None, int | None), ("a", str | int)):
        assert is_plain(value, hint)
    for value, hint in ((True, int), (7, float), (1 << 70, int), ("a", Node | str), (1, Any)):
        assert not is_plain(value, hint)
