"""A problem as it is printed: nothing in it that a terminal would obey."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError, Problem
from meshwright.findings import Place

PLACE = Place("t.conf", 2, 1)


def test_what_a_file_holds_is_shown_as_blanks() -> None:
    excerpt = "\x1b[31mSwitchName=\x07a\x9b2J\u202eb\r\ud800"
    problem = Problem(PLACE, "no host \x1b]0;x\x07", excerpt=excerpt, remedy="keep \x1b[1m one")
    shown = str(InputError(problem))
    assert shown == ("t.conf:2:1: no host  ]0;x \n  |  [31mSwitchName= a 2J b  \n  keep  [1m one")
    # What programs read is as it was.
    assert problem.excerpt == excerpt


def test_lines_of_a_message_stay() -> None:
    problem = Problem(PLACE, "one\ntwo", remedy="three\nfour")
    assert str(problem) == "t.conf:2:1: one\ntwo\n  three\nfour"


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_control_comes_through(message: str, excerpt: str) -> None:
    shown = str(Problem(PLACE, message, excerpt=excerpt))
    assert not [one for one in shown if one != "\n" and (ord(one) < 32 or 127 <= ord(one) < 160)]
    assert shown.count("\n") == message.count("\n") + bool(excerpt)
