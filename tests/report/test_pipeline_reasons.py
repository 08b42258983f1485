"""What changed a step and why, in words that are right for each kind of pipeline."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_run import pipeline_page
from meshwright.chain.pipeline_work import given_work
from meshwright.report.pipeline_reasons import reasons_of
from meshwright.timeline.program import Messages


def told(factors=(), send_s=0.0, *, schedule="1f1b", chunks=1, blocking=False, link=None, count=12):
    """Return step → (reason, its numbers, change) of four ranks."""
    work = given_work((1.0, 1.0, 1.0), 4, 4 * chunks, factors)
    messages = Messages(Messages.uniform(4, send_s).send_s, link)
    ask = PipelineAsk("test", schedule, 4, count, chunks, work, messages, blocking=blocking)
    page = pipeline_page(ask)
    assert page.run is not None
    return {
        step.name: (reason.text, reason.numbers, step.change_s)
        for step, reason in zip(page.steps, reasons_of(page.run, page.steps), strict=True)
    }


def test_a_slow_last_stage():
    text, numbers, change_s = told((1, 1, 1, 1.5))["given stages"]
    assert text.startswith(
        "stage 3 takes 1.33 × the mean, and every microbatch waits for the slowest"
    )
    assert "11 × (4.50 s - 3.38 s) = 12.4 s" in text
    assert change_s == pytest.approx(11 * 1.125)
    assert numbers == {"slowest_stages": [3], "over_mean": pytest.approx(4 / 3)}


def test_a_fast_last_stage_makes_all_others_slow():
    text, numbers, change_s = told((1, 1, 1, 0.5))["given stages"]
    assert text.startswith("stages 0, 1, 2 take 1.14 × the mean, stage 3 0.57 ×")
    assert numbers["slowest_stages"] == [0, 1, 2]
    assert change_s > 0


@pytest.mark.parametrize(
    ("factors", "slow"), [((1.5, 1, 1, 1), 0), ((1, 1.5, 1, 1), 1), ((1, 1, 1.5, 1), 2)]
)
def test_a_slow_stage_elsewhere(factors, slow):
    text, numbers, change_s = told(factors)["given stages"]
    assert text.startswith(f"stage {slow} takes 1.33 × the mean")
    assert numbers["slowest_stages"] == [slow]
    # the arithmetic stands there where it is what the simulation gives, and only there
    assert ("11 ×" in text) == (change_s == pytest.approx(11 * 1.125))


def test_ranks_of_several_stages_add_them_up():
    text, numbers, _ = told((1, 2) * 4, schedule="interleaved", chunks=2)["given stages"]
    assert text == "ranks 1, 3 take 1.33 × the mean, rank 0 0.67 ×, and the others wait"
    assert numbers["slowest_ranks"] == [1, 3]
    even, _, _ = told((1, 2, 1, 2, 2, 1, 2, 1), schedule="interleaved", chunks=2)["given stages"]
    assert even.startswith("each rank has as much to do")


def test_messages_at_the_ends_only():
    text, numbers, change_s = told((1, 1, 1, 1.5), 0.1)["messages"]
    assert text.startswith("as long as 6 messages of 0.100 s")
    assert "at the beginning and the end of the step" in text
    assert change_s == pytest.approx(6 * 0.1)
    assert numbers == {
        "messages": pytest.approx(6),
        "crossings": 6,
        "mean_s": pytest.approx(0.1),
    }


def test_messages_in_the_steady_state():
    text, numbers, _ = told((), 0.1)["messages"]
    assert "in the steady state too" in text
    assert numbers["messages"] > numbers["crossings"] == 6


def test_two_ranks_with_a_v_send_less():
    assert told((), 0.1, schedule="zb-v", chunks=2)["messages"][1]["crossings"] == 12
    assert told((), 0.1, schedule="interleaved", chunks=2)["messages"][1]["crossings"] == 14


def test_links_and_waiting():
    one = np.zeros((4, 4), dtype=np.int64)
    shared = told((), 0.5, link=one)
    assert shared["shared links"][0].startswith("messages that are on one link at the same time")
    assert shared["shared links"][2] > 0
    waits = told((), 0.5, blocking=True)
    assert waits["blocking sends"][0].startswith("a rank goes on only when what it sends is there")
    assert waits["blocking sends"][2] > 0
    free = told((), 0.0, blocking=True)
    assert free["blocking sends"][0].endswith("costs nothing here")
    assert "messages" not in free


def test_nothing_differs():
    assert list(told()) == ["equal stages"]


def test_one_microbatch_waits_for_nothing_but_its_way():
    text, _, change_s = told((1, 1, 1, 1.5), count=1)["given stages"]
    assert change_s == pytest.approx(0)
    assert text.endswith("which fits into time that is idle anyway")
