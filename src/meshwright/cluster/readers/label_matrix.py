"""Square matrices that tools print: a row of device labels, then one row a device.

Used where labels and cells are parted by blanks (``nvidia-smi topo -p2p``, ``rocm-smi``,
``amd-smi``); ``nvidia-smi topo -m``, whose cells may touch, has a reader of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity
from meshwright.units import plural, verb

MAX_LABELS = 1024
_MAX_PROBLEMS = 20
_MAX_LINE_CHARACTERS = 1 << 17
_MAX_PREFIX_WORDS = 8
_EXCERPT_CHARACTERS = 160
_SHOWN = 20
_WORD = re.compile(r"\S+")


class Form(msgspec.Struct, frozen=True):
    """What one kind of matrix is made of."""

    label: re.Pattern[str]
    cell: re.Pattern[str]
    own: frozenset[str]
    """Cells of a device with itself; empty: not checked."""
    command: str
    """What to run to have the whole output, for remedies."""
    own_only_there: bool = True
    """Whether an ``own`` cell elsewhere means that the row is shifted."""
    exact: bool = True
    """False: rows must be there, but their cells may be anything (text of an error)."""


class Matrix(msgspec.Struct, frozen=True):
    """``cells[i][j]`` is what the row of ``labels[i]`` says of ``labels[j]``."""

    labels: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    lines: tuple[int, ...]
    """Line of each row, from 1."""
    header_line: int
    end_line: int
    """Last line of the matrix, from 1."""


def header_labels(line: str, form: Form) -> tuple[str, ...] | None:
    """Return the labels of a header line (labels only, after a short log prefix), else ``None``."""
    if len(line) > _MAX_LINE_CHARACTERS:
        return None
    words = line.split()
    first = next(
        (at for at, word in enumerate(words[:_MAX_PREFIX_WORDS]) if form.label.fullmatch(word)),
        None,
    )
    if first is None or not all(form.label.fullmatch(word) for word in words[first:]):
        return None
    return tuple(words[first:])


def read_matrix(lines: Sequence[str], span: range, path: str, form: Form) -> Matrix:
    """Return the matrix whose header is the first header line within ``span``.

    Parameters
    ----------
    lines
        The whole text.
    span
        Positions of the lines (from 0) that may belong to the matrix.

    Raises
    ------
    InputError
        There is no header, a row is missing, cut off, too long or repeated, a cell is unknown, or
        the diagonal is not where the labels say.
    """
    for at in span:
        labels = header_labels(lines[at], form)
        if labels is not None:
            return _Rows(lines, labels, path, form).read(at, range(at + 1, span.stop))
    title = max(span.start - 1, 0)
    message = "no line of GPU labels follows: the matrix is cut off"
    excerpt = lines[title].strip()[:_EXCERPT_CHARACTERS]
    raise InputError(
        Problem(Place(path, title + 1, 1), message, remedy=_remedy(form), excerpt=excerpt)
    )


def cells_of(tables: Mapping[str, Matrix], kind: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the cells of a table, ``None`` where the text has none of this kind."""
    return tables[kind].cells if kind in tables else None


def check_same_labels(others: Mapping[str, Matrix], matrix: Matrix, path: str) -> None:
    """Raise ``InputError`` when a matrix names other devices than the first of ``others``."""
    first = next(iter(others.values()), matrix)
    if matrix.labels != first.labels:
        message = (
            f"names other devices, or in another order, than the table in line {first.header_line}"
        )
        place = Place(path, matrix.header_line, 1)
        raise InputError(
            Problem(place, message, remedy="give each machine's output as a file of its own")
        )


def more_matrices(path: str, lines: Sequence[int]) -> list[Finding]:
    """Note further matrices of one kind, at ``lines`` (from 1): only the first is read."""
    if not lines:
        return []
    return [
        Finding(
            rule="topology/more-matrices",
            severity=Severity.NOTE,
            place=Place(path, lines[0], 1),
            message=f"{plural(len(lines), 'further matrix', 'further matrices')} in this file "
            f"{verb(len(lines))} not read: of each kind only "
            "the first is",
            numbers={"lines": [*lines[:_SHOWN]]},
            remedy="give each machine's output as a file of its own",
        )
    ]


def _remedy(form: Form) -> str:
    return f"paste the whole output of {form.command}, every row to its end"


class _Rows:
    """Reads the rows under one header and gathers what is wrong with them."""

    def __init__(
        self, lines: Sequence[str], labels: tuple[str, ...], path: str, form: Form
    ) -> None:
        self._lines = lines
        self._labels = labels
        self._path = path
        self._form = form
        self._column_of = {label: at for at, label in enumerate(labels)}
        self._rows: dict[str, tuple[tuple[str, ...], int]] = {}
        self._problems: list[Problem] = []

    def read(self, header_at: int, span: range) -> Matrix:
        """Return the matrix; ``span`` holds the lines that may be its rows."""
        last = header_at
        if len(self._labels) > MAX_LABELS:
            self._problem(header_at, 0, f"the header names more than {MAX_LABELS} devices")
        elif len(self._column_of) < len(self._labels):
            self._problem(header_at, 0, "the header names a device twice")
        else:
            last = self._read_rows(header_at, span)
        missing = [label for label in self._labels if label not in self._rows]
        if missing and not self._problems:
            found, promised = len(self._rows), len(self._labels)
            self._problem(
                last,
                0,
                f"the matrix is cut off: {found} rows where the header promises {promised}; "
                f"no row for {', '.join(missing[:8])}{' ...' if len(missing) > 8 else ''}",
            )
        if self._problems:
            raise InputError(*self._problems)
        rows = [self._rows[label] for label in self._labels]
        return Matrix(
            labels=self._labels,
            cells=tuple(cells for cells, _ in rows),
            lines=tuple(at + 1 for _, at in rows),
            header_line=header_at + 1,
            end_line=last + 1,
        )

    def _read_rows(self, header_at: int, span: range) -> int:
        """Read rows until all are there; return the position of the last one."""
        last = header_at
        for at in span:
            line = self._lines[at]
            complete = len(self._rows) == len(self._labels)
            if complete or header_labels(line, self._form) is not None:
                break
            if self._read_row(at, line):
                last = at
            if len(self._problems) >= _MAX_PROBLEMS:
                break
        return last

    def _problem(self, at: int, column: int, message: str) -> None:
        self._problems.append(
            Problem(
                Place(self._path, at + 1, column + 1),
                message,
                remedy=_remedy(self._form),
                excerpt=self._lines[at].strip()[:_EXCERPT_CHARACTERS],
            )
        )

    def _read_row(self, at: int, line: str) -> bool:
        """Take a line in if it is a row; return whether it is one."""
        if len(line) > _MAX_LINE_CHARACTERS:
            self._problem(at, 0, f"a line of {len(line)} characters where a row should be")
            return True
        words = list(_WORD.finditer(line))
        first = next(
            (
                k
                for k, w in enumerate(words[:_MAX_PREFIX_WORDS])
                if self._form.label.fullmatch(w[0])
            ),
            None,
        )
        if first is None:
            return False
        if self._row_is_sound(at, words[first], words[first + 1 :]):
            cells = tuple(word[0] for word in words[first + 1 :])
            self._rows[words[first][0]] = cells, at
        return True

    def _row_is_sound(self, at: int, name: re.Match[str], cells: Sequence[re.Match[str]]) -> bool:
        """Report the first thing wrong with a row, if any."""
        label, promised = name[0], len(self._labels)
        own = self._column_of.get(label)
        if own is None:
            self._problem(at, name.start(), f"row {label} has no column of its own in the header")
            return False
        if label in self._rows:
            self._problem(at, name.start(), f"a second row {label}")
            return False
        if not self._form.exact:
            return True
        for column, cell in enumerate(cells[:promised]):
            if fault := self._cell_fault(cell[0], label, column, own):
                self._problem(at, cell.start(), fault)
                return False
        if len(cells) != promised:
            message = f"row {label} has {len(cells)} cells where the header promises {promised}"
            self._problem(at, name.start(), message)
            return False
        return True

    def _cell_fault(self, cell: str, label: str, column: int, own: int) -> str | None:
        form = self._form
        if not form.cell.fullmatch(cell):
            return f"unknown cell {cell[:20]!r} in row {label} at {self._labels[column]}"
        if form.own and column == own and cell not in form.own:
            return f"row {label} has {cell} under itself: the row is shifted or cut"
        if form.own_only_there and column != own and cell in form.own:
            return f"row {label} has {cell} under {self._labels[column]}, not under itself"
        return None
