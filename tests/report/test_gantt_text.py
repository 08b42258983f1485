"""The text picture of a timeline: whole pages for small cases, widths, dense cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.report.gantt_text import gantt_text, tick_step
from meshwright.schedules.loops import one_forward_one_backward
from meshwright.timeline.program import StageTimes, program_of
from meshwright.timeline.record import timeline_of
from meshwright.timeline.simulate import simulate
from timeline.trace_samples import SCHEDULES, timeline_named


def one_f_one_b(pp, microbatches, scale_s=1.0):
    orders = one_forward_one_backward(pp, microbatches)
    program = program_of(orders, StageTimes.equal(pp, scale_s, scale_s, scale_s))
    return timeline_of(program, simulate(program))


def rows_of(text):
    """Return what stands between the edges of each row."""
    lines = [line for line in text.splitlines() if line.startswith("rank ")]
    return [line[line.index("│") + 1 : line.rindex("│")] for line in lines]


def test_the_textbook_case():
    assert gantt_text(timeline_named("1f1b")) == (
        """\
rank 0 │abcd······AAeBBfCCgDDhEEiFFjGGkHHlII·JJ·KK·LL│
rank 1 │·abc····AAdBBeCCfDDgEEhFFiGGjHHkIIlJJ·KK·LL··│
rank 2 │··ab··AAcBBdCCeDDfEEgFFhGGiHHjIIkJJlKK·LL····│
rank 3 │···aAAbBBcCCdDDeEEfFFgGGhHHiIIjJJkKKlLL······│
        '         '         '         '         '    '
        0         10        20        30          45 s
a column is 1.00 s; a: forward of microbatch 0, A: its backward; b, c …:
microbatches 1, 2 …; ·: idle."""
    )


def test_weight_gradients_of_their_own():
    text = gantt_text(timeline_named("zb-h1"))
    assert rows_of(text)[0].startswith("abcd···A+eB+fC+g")
    assert "A: its input gradient, +: a weight gradient" in " ".join(text.split())


def test_ascii_only():
    for schedule in SCHEDULES:
        for width in (40, 80):
            assert gantt_text(timeline_named(schedule), width, ascii_only=True).isascii()


def test_a_pair_that_runs_together_shares_its_time():
    text = gantt_text(timeline_named("dualpipe"), 90)
    assert "run together share their time" in " ".join(text.split())
    # rank 0 runs F of microbatch 3 with B of the other direction's 1 (7 = h in all)
    assert "dddHHH" in rows_of(text)[0]


@given(
    schedule=st.sampled_from(sorted(SCHEDULES)),
    seed=st.integers(0, 1000),
    width=st.integers(24, 150),
)
def test_every_line_keeps_the_width(schedule, seed, width):
    timeline = timeline_named(schedule, send_s=0.1, seed=seed)
    text = gantt_text(timeline, width)
    rows = rows_of(text)
    assert len(rows) == 4
    assert len({len(row) for row in rows}) == 1
    marks = [line for line in text.splitlines() if line.startswith(("rank", "   "))]
    assert max(map(len, marks)) <= width


def test_letters_show_the_busy_share():
    timeline = timeline_named("gpipe")
    for row in rows_of(gantt_text(timeline, 200)):
        busy = sum(one != "·" for one in row) / len(row)
        assert busy == pytest.approx(36 / 45)


def test_operations_that_fall_between_columns_are_counted():
    timeline = timeline_named("zb-v")  # 75 units of time in 71 columns
    text = gantt_text(timeline)
    letters = "".join(rows_of(text)).replace("·", "")
    hidden = len(timeline.kind) - len(letters)
    assert hidden > 0
    assert f"{hidden} short operations fell between the columns" in " ".join(text.split())


def test_letters_begin_again():
    text = gantt_text(one_f_one_b(2, 40), 200)
    assert "zZZ" in rows_of(text)[1]
    assert "ZZaAAb" in rows_of(text)[1]
    assert "letters begin again" in " ".join(text.split())


def test_many_operations_are_shares():
    text = gantt_text(one_f_one_b(8, 400))
    rows = rows_of(text)
    assert all(set(row) <= set("FfBbXx·") for row in rows)
    assert rows[0][0] in "Ff"
    assert rows[0][-1] in "Bb"
    assert rows[4][30] == "X"
    assert rows[7][-1] in "·bx"
    assert "6,400 operations in all" in text


def test_shares_of_weight_gradients():
    text = gantt_text(timeline_named("zb-h1"), 24)
    assert "W: weight gradients" in " ".join(text.split())
    assert set("".join(rows_of(text))) <= set("FfBbWwXx·")


def test_of_many_ranks_the_first_and_last_are_shown():
    text = gantt_text(one_f_one_b(40, 4), rows=6)
    assert [line.split()[1] for line in text.splitlines() if line.startswith("rank")] == [
        "0",
        "1",
        "2",
        "37",
        "38",
        "39",
    ]
    assert "34 ranks not shown" in text


def test_short_times_have_their_unit():
    text = gantt_text(one_f_one_b(2, 2, scale_s=2e-4))
    assert "1.8 ms" in text
    assert "a column is" in text


def test_a_timeline_of_nothing():
    assert "rank 1" in gantt_text(one_f_one_b(2, 0))


@given(whole=st.floats(1e-9, 1e9), most=st.integers(1, 12))
def test_ticks_are_round_and_few(whole, most):
    step = tick_step(whole, most)
    assert whole / step <= most * (1 + 1e-9)
    mantissa = float(f"{step:e}".split("e")[0])
    assert mantissa in (1.0, 2.0, 5.0)
