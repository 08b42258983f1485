"""Reads a schedule in torch's CSV form from a file that nobody has checked.

Form: ``schedules/torch_form/csv_write.py``. Cells may be empty (a rank that waits), may have blanks around them
and may be quoted. Every problem is told with its line (the rank, from 1) and its column (the cell,
from 1). What the operations mean together is checked by ``schedules/validity.py``.
"""

from __future__ import annotations

import re
import stat
from array import array
from pathlib import Path
from typing import Final

import numpy as np

from meshwright.documents.limits import MAX_EXCERPT
from meshwright.documents.source import ProblemList, shown
from meshwright.errors import InputError, Problem
from meshwright.findings import Place
from meshwright.schedules.torch_form.actions import NO_MICROBATCH, WORDS, Act, Actions
from meshwright.schedules.torch_form.csv_write import TOGETHER

MAX_CSV_BYTES: Final = 64 << 20
"""Largest file that is read."""
MAX_CELLS: Final = 4_000_000
MAX_RANKS: Final = 4096
"""As ``meshwright pipeline -p``: what is kept of messages grows with the square of it."""
MAX_STAGE: Final = 65_535
MAX_MICROBATCH: Final = 1_048_575
_MAX_MISSING: Final = 1 << 20
"""Operations that a file may lack before it is called hopeless, beside four times those it has."""

_ACTS: Final = {word: act for act, word in zip(Act, WORDS, strict=True)}
_WHOLE: Final = (Act.UNSHARD, Act.RESHARD, Act.REDUCE_GRAD)
_LONGEST_FIRST: Final = "|".join(sorted(WORDS, key=len, reverse=True))
_ACTION: Final = re.compile(rf"([0-9]{{1,12}})({_LONGEST_FIRST})([0-9]{{0,12}})")
_PAIR: Final = re.compile(rf"\(([^;()]*);([^;()]*)\)\s*{TOGETHER}")
_CELL: Final = re.compile(r'[^,"]*(?:"[^"]*"[^,"]*)*')
_FORM: Final = (
    "write stage, operation and microbatch, as 2F0; operations: "
    f"{', '.join(WORDS)}; a pair as (0F1;7B0){TOGETHER}"
)


def read_torch_csv(file: str | Path) -> Actions:
    """Read a schedule file. Raises ``InputError`` with every place where it cannot be read."""
    try:
        # a pipe or device might never end; only what is a file is opened
        if not stat.S_ISREG(Path(file).stat().st_mode):
            raise InputError(Problem(Place(str(file)), "it cannot be read: this is no file"))
        with Path(file).open("rb") as stream:
            data = stream.read(MAX_CSV_BYTES + 1)
    except OSError as error:
        raise InputError(
            Problem(Place(str(file)), f"cannot be read: {error.strerror or error}")
        ) from None
    if len(data) > MAX_CSV_BYTES:
        raise InputError(Problem(Place(str(file)), f"the file is over {MAX_CSV_BYTES >> 20} MiB"))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            Problem(Place(str(file), line), "this is no UTF-8 text, so no schedule in CSV form")
        ) from None
    return parse_torch_csv(text, str(file))


def parse_torch_csv(text: str, file: str) -> Actions:
    """Read a schedule from text; ``file`` names it in messages. Raises ``InputError``."""
    text = text.removeprefix("\ufeff")
    _check_size(text, file)
    rows = _Rows(file)
    lines = text.rstrip().split("\n") if text.strip() else []
    first = [0]
    for number, line in enumerate(lines, start=1):
        rows.read_line(number, line.rstrip("\r"))
        first.append(len(rows.act))
    if problems := rows.problems.in_order():
        raise InputError(*problems)
    actions = Actions(
        schedule=file,
        first=np.array(first, dtype=np.int64),
        act=np.array(rows.act, dtype=np.int64),
        stage=np.array(rows.stage, dtype=np.int64),
        microbatch=np.array(rows.microbatch, dtype=np.int64),
        overlapped=np.array(rows.overlapped, dtype=bool),
    )
    _check_extent(actions, file)
    return actions


def _check_size(text: str, file: str) -> None:
    """Refuse what would take much memory before any of it is taken."""
    for sign, most, what in (("\n", MAX_RANKS, "lines (ranks)"), (",", MAX_CELLS, "cells")):
        if (count := text.count(sign)) > most:
            raise InputError(Problem(Place(file), f"{count:,} {what} are over {most:,}"))


def _check_extent(actions: Actions, file: str) -> None:
    """Refuse a file that lacks nearly all operations of the stages and microbatches it names."""
    computed = actions.act <= Act.WEIGHT
    count = int(np.count_nonzero(computed))
    if not count:
        raise InputError(Problem(Place(file), "no rank computes anything", remedy=_FORM))
    stages = int(actions.stage[computed].max()) + 1
    microbatches = int(actions.microbatch[computed].max()) + 1
    if stages * microbatches > 4 * count + _MAX_MISSING:
        raise InputError(
            Problem(
                Place(file),
                f"{stages:,} stages and {microbatches:,} microbatches make at least "
                f"{2 * stages * microbatches:,} operations; the file has {count:,}",
            )
        )


class _Rows:
    """Collects the actions of all lines, and the problems."""

    __slots__ = ("act", "file", "microbatch", "overlapped", "problems", "stage")

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems = ProblemList()
        self.act, self.stage, self.microbatch = array("q"), array("q"), array("q")
        self.overlapped = array("b")

    def read_line(self, number: int, line: str) -> None:
        """Read one rank."""
        place, column = 0, 0
        while place <= len(line):
            column += 1
            match = _CELL.match(line, place)
            assert match is not None
            end = match.end()
            if end < len(line) and line[end] == '"':
                self._bad((number, column), line[place:], 'a quote (") is not closed', "close it")
                return
            self._read_cell((number, column), match[0])
            place = end + 1

    def _read_cell(self, at: tuple[int, int], cell: str) -> None:
        text = cell.strip()
        if text.startswith('"') and text.endswith('"') and len(text) > 1:
            text = text[1:-1].strip()
        if not text:
            return
        if match := _ACTION.fullmatch(text):
            self._add(at, match, together=False)
        elif pair := _PAIR.fullmatch(text):
            self._read_pair(at, text, pair)
        else:
            self._bad(at, text, f"{shown(text)} is no action of a schedule", _FORM)

    def _read_pair(self, at: tuple[int, int], text: str, pair: re.Match[str]) -> None:
        parts = [_ACTION.fullmatch(part.strip()) for part in pair.groups()]
        words = {part[2] for part in parts if part is not None}
        if None in parts or "F" not in words or not words & {"B", "I"}:
            self._bad(at, text, f"{shown(text)} is not a forward and a backward", _FORM)
            return
        for index, part in enumerate(parts):
            assert part is not None
            self._add(at, part, together=index == 0)

    def _add(self, at: tuple[int, int], match: re.Match[str], *, together: bool) -> None:
        act, stage = _ACTS[match[2]], int(match[1])
        microbatch = int(match[3]) if match[3] else NO_MICROBATCH
        if stage > MAX_STAGE:
            self._bad(at, match[0], f"stage {stage} is over {MAX_STAGE:,}", "number stages from 0")
        elif microbatch > MAX_MICROBATCH:
            why = f"microbatch {microbatch} is over {MAX_MICROBATCH:,}"
            self._bad(at, match[0], why, "number microbatches from 0")
        elif act not in _WHOLE and microbatch < 0:
            remedy = f"{match[0]}0 for the first microbatch"
            self._bad(at, match[0], f"{match[0]} names no microbatch", remedy)
        else:
            self.act.append(act)
            self.stage.append(stage)
            self.microbatch.append(NO_MICROBATCH if act in _WHOLE else microbatch)
            self.overlapped.append(together)

    def _bad(self, at: tuple[int, int], cell: str, message: str, remedy: str) -> None:
        if not self.problems.full():
            place = Place(self.file, *at)
            excerpt = cell[:MAX_EXCERPT]
            self.problems.add(Problem(place, message, remedy=remedy, excerpt=excerpt))
