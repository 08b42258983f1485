"""One rank's line of slots while operations move to earlier ones, within the memory it has.

``ExplicitLine`` moves weight gradients like any operation. In ``ImpliedLine`` they take the free slots
by themselves, so that a move changes where they are.
"""

from __future__ import annotations

import numpy as np

from meshwright.schedules.greedy.v_shaped_slots import (
    BACKWARD_DOWN,
    BACKWARD_UP,
    FORWARD_UP,
    FREE,
    WEIGHT,
    held,
    marked,
)
from meshwright.schedules.orders import Ints


class ExplicitLine:
    """A line of forwards, input gradients and weight gradients.

    Parameters
    ----------
    slots[4, microbatches], weights[2 · microbatches]
        Where they are.
    """

    def __init__(self, slots: Ints, weights: Ints) -> None:
        self.marks = marked(slots, weights)
        self.held = held(self.marks)

    @property
    def most(self) -> int:
        """Most chunks held."""
        return int(self.held.max())

    def move(self, now: int, earliest: int, most: int) -> int:
        """Move what is in slot ``now`` to the first free slot that memory allows; return its slot."""
        mark = self.marks[now]
        if mark <= FORWARD_UP:  # it is held from its new slot on: none of the slots between is full
            full = np.flatnonzero(self.held[earliest:now] >= most)
            if len(full):
                earliest += int(full[-1]) + 1
        slot = self.marks.find(FREE, earliest, now)
        if slot < 0:
            return now
        self.marks[slot], self.marks[now] = mark, FREE
        if mark <= FORWARD_UP:
            self.held[slot:now] += 1
        elif mark == WEIGHT:
            self.held[slot:now] -= 1
        return slot


class ImpliedLine:
    """A line of forwards and input gradients; a free slot takes the oldest weight gradient due.

    Parameters
    ----------
    slots[4, microbatches], weights[2 · microbatches]
        Where they are.
    """

    def __init__(self, slots: Ints, weights: Ints) -> None:
        self.marks = marked(slots)
        with_weights = marked(slots, weights)
        mark = np.frombuffer(with_weights, dtype=np.uint8)
        due = np.where(mark == WEIGHT, -1, (mark == BACKWARD_DOWN) | (mark == BACKWARD_UP))
        size = len(self.marks)
        self.held: list[int] = held(with_weights)[:size].tolist()
        self.due: list[int] = np.cumsum(due)[:size].tolist()

    @property
    def most(self) -> int:
        """Most chunks held."""
        return max(self.held)

    def move(self, now: int, earliest: int, most: int) -> int:
        """Move what is in slot ``now`` to the first free slot that memory allows; return its slot."""
        marks = self.marks
        mark = marks[now]
        marks[now] = FREE
        slot = marks.find(FREE, earliest, now)
        while slot >= 0:
            marks[slot] = mark
            if self._settle(slot, now, most):
                return slot
            marks[slot] = FREE
            slot = marks.find(FREE, slot + 1, now)
        marks[now] = mark
        return now

    def _settle(self, slot: int, now: int, most: int) -> bool:
        """Note what is held and due from a changed slot on; False, and nothing noted, if too much."""
        chunks, due = (self.held[slot - 1], self.due[slot - 1]) if slot else (0, 0)
        new_held, new_due = [], []
        for at in range(slot, len(self.marks)):
            mark = self.marks[at]
            if mark == FREE:
                if due:
                    due -= 1
                    chunks -= 1
            elif mark <= FORWARD_UP:
                chunks += 1
                if chunks > most:
                    return False
            else:
                due += 1
            if at >= now and chunks == self.held[at] and due == self.due[at]:
                break  # from here on nothing has changed
            new_held.append(chunks)
            new_due.append(due)
        self.held[slot : slot + len(new_held)] = new_held
        self.due[slot : slot + len(new_due)] = new_due
        return True
