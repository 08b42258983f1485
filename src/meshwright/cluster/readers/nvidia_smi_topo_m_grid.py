"""``nvidia-smi topo -m``, first step: find the matrix in pasted text and cut it into cells.

The text has gone through terminals, logs and web forms: tabs are lost so that cells and labels
touch, the first column's indent is gone, colour codes and log prefixes are left in. So nothing is
split by white space or by position: labels and cells are recognised by their own alphabets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from meshwright.errors import InputError, Problem
from meshwright.findings import Place

MAX_LABELS = 1024
_MAX_PROBLEMS = 20
_EXCERPT_CHARACTERS = 160

# The escape character itself is often lost in a web form, leaving "[4m".
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\([A-Z0-9]|(?:\^\[|[\ufffd\u241b])?\[[0-9;]{0,8}m")
# NV4 that touches a CPU list 0-31 reads NV40-31: no cell is followed by a hyphen or comma.
_CELL = r"X|NV[0-9]{1,2}(?![-,])|PIX|PXB|PHB|NODE|SYS|MX[0-9]{0,2}"
_CELL_AT = re.compile(rf"\s*(?P<cell>{_CELL})")
_CELL_NOT_SELF = re.compile(r"(?:NV[0-9]|PIX|PXB|PHB|NODE|SYS|MX)")
_START = r"(?:^|(?<=\s))"
_NUMBERED = r"(?:GPU|NIC)(?:0|[1-9][0-9]{0,4})"
_FIRST_LABEL = re.compile(rf"{_START}GPU(?:0|[1-9][0-9]{{0,4}})(?=\s|$|GPU|NIC|CPU|mlx)")
_HEADER_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<cpu>CPU\s+Affinity)|(?P<numa>(?:NUMA|Node)\s+Affinity)|(?P<gpu_numa>GPU\s+NUMA\s+ID)"
    rf"|(?P<label>{_NUMBERED}|mlx[0-9]_(?:bond_)?[0-9]{{1,5}}"
    r"|(?=[a-z][a-z_.-]*[0-9])[a-z][a-z0-9_.-]{0,31}(?=\s|$)))"
)
_ROW_LABEL = re.compile(rf"{_START}{_NUMBERED}(?=\s|$|{_CELL})")
_LEGEND = re.compile(r"\bLegend\b")
_REMEDY = "paste the whole output of nvidia-smi topo -m, every row to its end"


class Row(msgspec.Struct, frozen=True):
    """One row of the matrix; ``rest`` is what follows its cells, from ``rest_column`` on."""

    label: str
    cells: tuple[str, ...]
    rest: str
    line: int
    rest_column: int

    def rest_place(self, path: str) -> Place:
        """Return where the CPU and NUMA values of the row begin."""
        return Place(path, self.line, self.rest_column, self.label)


class Grid(msgspec.Struct, frozen=True):
    """The matrix: ``rows[i]`` belongs to ``labels[i]``, as do the cells of each row."""

    labels: tuple[str, ...]
    titles: tuple[str, ...]
    """Trailing columns in their order: ``cpu``, ``numa``, ``gpu_numa``."""
    rows: tuple[Row, ...]
    lines: tuple[str, ...]
    """The whole text, without colour codes."""
    header_line: int
    end_line: int
    """Line (from 1) after the matrix."""
    other_headers: tuple[int, ...]
    """Lines of further matrices, which are not read."""


class _Header(msgspec.Struct, frozen=True):
    at: int
    """Position of the line, from 0."""
    column: int
    labels: tuple[str, ...]
    titles: tuple[str, ...]


def clean_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a text without colour codes."""
    return tuple(_ANSI.sub("", line.rstrip("\r")) for line in text.split("\n"))


def has_matrix(text: str) -> bool:
    """Tell whether a ``topo -m`` matrix begins somewhere in the text."""
    return "GPU" in text and next(_headers(clean_lines(text)), None) is not None


def read_grid(text: str, path: str) -> Grid:
    """Return the first matrix of the text.

    Raises
    ------
    InputError
        There is no matrix, a row is missing, cut off, too long or repeated, a cell is unknown, or
        the diagonal is not where the labels say.
    """
    lines = clean_lines(text)
    headers = list(_headers(lines))
    if not headers:
        message = "no GPU matrix of nvidia-smi topo -m here: no header line with GPU0"
        raise InputError(Problem(Place(path, 1, 1), message, remedy=_REMEDY))
    header = headers[0]
    _check_labels(header, lines, path)
    rows, end = _Rows(lines, header, path).read()
    return Grid(
        labels=header.labels,
        titles=header.titles,
        rows=rows,
        lines=lines,
        header_line=header.at + 1,
        end_line=end + 1,
        other_headers=tuple(other.at + 1 for other in headers[1:]),
    )


def _headers(lines: tuple[str, ...]) -> Iterator[_Header]:
    for at, line in enumerate(lines):
        header = _header_at(line, at)
        if header is not None and (header.titles or _row_follows(lines, at)):
            yield header


def _header_at(line: str, at: int) -> _Header | None:
    """Return the header that a line is: labels only, then perhaps column titles."""
    first = _FIRST_LABEL.search(line)
    if first is None:
        return None
    labels: list[str] = []
    titles: list[str] = []
    position = first.start()
    end = len(line.rstrip())
    while position < end:
        token = _HEADER_TOKEN.match(line, position)
        if token is None or (token["label"] and titles):
            if not titles:
                return None
            break
        if token["label"]:
            labels.append(token["label"])
        elif token.lastgroup not in titles:
            titles.append(str(token.lastgroup))
        position = token.end()
    return _Header(at, first.start() + 1, tuple(labels), tuple(titles))


def _row_follows(lines: tuple[str, ...], at: int) -> bool:
    """Tell a header without titles from that of another tool's matrix by the cells below it."""
    for line in lines[at + 1 : at + 5]:
        row = _ROW_LABEL.search(line)
        if row is not None:
            return _CELL_NOT_SELF.search(line, row.end()) is not None
    return False


def _check_labels(header: _Header, lines: tuple[str, ...], path: str) -> None:
    message = None
    if len(header.labels) > MAX_LABELS:
        message = f"the header names more than {MAX_LABELS} devices"
    elif len(set(header.labels)) < len(header.labels):
        message = "the header names a device twice"
    if message is not None:
        place = Place(path, header.at + 1, header.column)
        excerpt = lines[header.at].strip()[:_EXCERPT_CHARACTERS]
        raise InputError(Problem(place, message, remedy=_REMEDY, excerpt=excerpt))


class _Rows:
    """Reads the rows under one header and gathers what is wrong with them."""

    def __init__(self, lines: tuple[str, ...], header: _Header, path: str) -> None:
        self._lines = lines
        self._header = header
        self._path = path
        self._column_of = {label: at for at, label in enumerate(header.labels)}
        self._rows: dict[str, Row] = {}
        self._problems: list[Problem] = []
        names = "|".join(re.escape(label) for label in sorted(header.labels, key=len, reverse=True))
        self._label = re.compile(rf"{_START}(?:{names}|{_NUMBERED})(?=\s|$|{_CELL})")

    def read(self) -> tuple[tuple[Row, ...], int]:
        """Return the rows in the header's order, and the position of the line after them."""
        at = last = self._header.at
        for at in range(self._header.at + 1, len(self._lines)):
            line = self._lines[at]
            if _LEGEND.search(line) or self._complete(line) or _header_at(line, at) is not None:
                break
            if match := self._label.search(line):
                self._read_row(at, match)
                last = at
            if len(self._problems) >= _MAX_PROBLEMS:
                break
        missing = [label for label in self._header.labels if label not in self._rows]
        if missing and not self._problems:
            found, promised = len(self._rows), len(self._header.labels)
            self._problem(
                last,
                0,
                f"the matrix is cut off: {found} rows where the header promises {promised}; "
                f"no row for {', '.join(missing[:8])}{' ...' if len(missing) > 8 else ''}",
            )
        if self._problems:
            raise InputError(*self._problems)
        return tuple(self._rows[label] for label in self._header.labels), at

    def _complete(self, line: str) -> bool:
        return not line.strip() and len(self._rows) == len(self._header.labels)

    def _problem(self, at: int, column: int, message: str) -> None:
        self._problems.append(
            Problem(
                Place(self._path, at + 1, column + 1),
                message,
                remedy=_REMEDY,
                excerpt=self._lines[at].strip()[:_EXCERPT_CHARACTERS],
            )
        )

    def _read_row(self, at: int, match: re.Match[str]) -> None:
        line, label = self._lines[at], match[0]
        cells: list[str] = []
        position = match.end()
        while len(cells) < len(self._header.labels):
            cell = _CELL_AT.match(line, position)
            if cell is None:
                break
            cells.append(cell["cell"])
            position = cell.end()
        if self._row_is_sound(at, match, cells, position):
            self._rows[label] = Row(label, tuple(cells), line[position:], at + 1, position + 1)

    def _row_is_sound(self, at: int, match: re.Match[str], cells: list[str], position: int) -> bool:
        """Report the first thing wrong with a row, if any."""
        line, label, promised = self._lines[at], match[0], len(self._header.labels)
        rest = line[position:].split()
        column = len(line) - len(line[position:].lstrip())
        own = self._column_of.get(label)
        stray = [self._header.labels[k] for k, cell in enumerate(cells) if cell == "X" and k != own]
        if own is None:
            self._problem(at, match.start(), f"row {label} has no column of its own in the header")
        elif label in self._rows:
            self._problem(at, match.start(), f"a second row {label}")
        elif len(cells) < promised and rest and not re.match(r"[0-9]|N/A", rest[0]):
            message = (
                f"unknown cell {rest[0][:20]!r} in row {label} at {self._header.labels[len(cells)]}"
            )
            self._problem(at, column, message)
        elif len(cells) < promised:
            message = f"row {label} has {len(cells)} cells where the header promises {promised}"
            self._problem(at, column, message)
        elif _CELL_AT.match(line, position):
            message = f"row {label} has more cells than the {promised} that the header promises"
            self._problem(at, column, message)
        elif stray or cells[own] != "X":
            message = (
                f"row {label} has X under {stray[0] if stray else 'no label'}, not under itself"
            )
            self._problem(at, match.start(), message)
        else:
            return True
        return False
