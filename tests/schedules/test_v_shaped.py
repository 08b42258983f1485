"""Slots of V-Half and V-Min: hand examples of what moves where."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.schedules.greedy.v_shaped_lines import ExplicitLine, ImpliedLine
from meshwright.schedules.greedy.v_shaped_pattern import PERIOD, v_half, v_min
from meshwright.schedules.greedy.v_shaped_slots import FREE, held, marked, weight_slots
from meshwright.schedules.greedy.v_shaped_squeeze import squeezed

# One microbatch a rank: F down in slot 0, F up in 3, I down in 5, I up in 6.
ONE = np.array([[0], [3], [5], [6]])
# Two microbatches: the rank's memory is 2 chunks while W 0 is not done.
TWO = np.array([[0, 6], [1, 7], [2, 8], [3, 9]])


def test_marks_and_chunks_held():
    marks = marked(ONE, np.array([8, 9]))
    assert list(marks) == [0, FREE, FREE, 1, FREE, 2, 3, FREE, 4, 4]
    assert held(marks).tolist() == [1, 1, 1, 2, 2, 2, 2, 2, 1, 0]


def test_weight_gradients_take_the_next_free_slots():
    together = weight_slots(TWO, apart=False)
    assert [row.tolist() for row in together] == [[4, 5, 10, 11]]
    down, up = weight_slots(TWO, apart=True)
    assert (down.tolist(), up.tolist()) == ([4, 10], [5, 11])


def test_an_operation_moves_to_the_first_free_slot():
    line = ExplicitLine(ONE, np.array([8, 9]))
    assert line.most == 2
    assert line.move(5, 4, most=2) == 4  # an input gradient takes no memory
    assert line.move(8, 7, most=2) == 7
    assert line.held.tolist() == [1, 1, 1, 2, 2, 2, 2, 1, 1, 0]
    assert line.move(9, 9, most=2) == 9  # no free slot before it


def test_a_forward_waits_for_memory():
    line = ExplicitLine(TWO, np.array([4, 10, 11, 12]))
    # Slot 5 is free, and one chunk is held there (W in slot 4 gave one back).
    assert line.move(6, 0, most=2) == 5
    full = ExplicitLine(TWO, np.array([10, 11, 12, 13]))
    assert full.most == 4
    assert full.move(6, 0, most=2) == 6
    assert full.move(6, 0, most=4) == 4


@pytest.mark.parametrize(
    ("most", "slot", "chunks", "due"),
    [
        # Nowhere: the slot it leaves stays its own.
        (1, 6, [1, 2, 2, 2, 1, 0, 1, 2, 2, 2], [0, 0, 1, 2, 1, 0, 0, 0, 1, 2]),
        # Slot 4 would hold three chunks; in slot 5 the second weight gradient gives way to slot 6.
        (2, 5, [1, 2, 2, 2, 1, 2, 1, 2, 2, 2], [0, 0, 1, 2, 1, 1, 0, 0, 1, 2]),
        (3, 4, [1, 2, 2, 2, 3, 2, 1, 2, 2, 2], [0, 0, 1, 2, 2, 1, 0, 0, 1, 2]),
    ],
)
def test_weight_gradients_give_way_to_what_moves(most, slot, chunks, due):
    line = ImpliedLine(TWO, weight_slots(TWO, apart=False)[0])
    assert line.most == 2
    assert line.move(6, 4, most) == slot
    assert (line.held, line.due) == (chunks, due)
    assert [at for at in (4, 5, 6) if line.marks[at] == 0] == [slot]


def test_one_rank_has_nothing_to_squeeze():
    slots = np.array([[0, 1, 2, 3]])[:, :, np.newaxis] + PERIOD * np.arange(3)
    assert squeezed(slots, weights_too=True).tolist() == slots.tolist()


@pytest.mark.parametrize("make", [v_half, v_min])
def test_a_repeated_pattern_repeats(make):
    """In the middle every microbatch is done like the one before: one more adds one more period."""
    few, many = make(4, 24), make(4, 25)
    for rank in range(4):
        part = few.kind[few.of_rank(rank)], many.kind[many.of_rank(rank)]
        same = 6 * 12
        assert np.array_equal(part[0][:same], part[1][:same])
        assert np.array_equal(part[0][-same:], part[1][-same:])
