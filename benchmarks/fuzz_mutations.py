"""Mutations of topology files, for ``fuzz_topology.py`` and the short run among the tests.

Bytes, lines and columns are dropped, doubled and swapped, numbers exchanged, files cut and spliced,
encodings broken. ``mutation(seed, number, …)`` is the same on every machine.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from meshwright.cluster.readers import readers

MAX_BYTES = 1 << 20
"""A mutated file is cut to this size."""
_WORD = re.compile(rb"[^\s,]+")
_NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?")
_ABSURD = (
    b"0", b"-1", b"00", b"1e999", b"nan", b"65536", b"4294967296", b"18446744073709551616", b"9" * 40,
    b"9" * 5000, b"0x7f", b"1.5", b"", "²".encode(), "٣".encode(), b"1_0",
)  # fmt: skip
_PIECES = (
    b"\x00", b"\xff\xfe", b"\xe9", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[4m", b"\x1b[", b"\r", b"\x0c",
    b"\xe2\x80\xa8", b"\xc2\x85", b"\xc2\xa0", b'"', b"'", b"<", b">", b"&", b"{", b"}", b"[", b"]", b"(",
    b"]]>", b"<!--", b"<![CDATA[", b"&lt;", b"&#0;", b"&x;", b"*a", b"&a ", b"!!str ", b"<<: ", b"---\n",
    b"- ", b": ", b"? ", b"|\n", b"%TAG\n", b"\\u0000", b"\\ud800", b"\\", b"#", b"=", b",", b"-", b"..",
    b"[1-999999999]", b"[0-9999999]", b"n[1-3]", b"null", b"true", b"~", b"\t", b"  ",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seed:
    """A file to start from, with the format it is read as."""

    format: str
    path: Path
    content: bytes


def seeds_of(folders: Sequence[Path]) -> list[Seed]:
    """Return every file below the folders that a reader recognises, in the order of their names."""
    seeds = []
    known = list(readers())
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        text = content.decode("utf-8-sig", "replace")
        name = next((reader.format for reader in known if reader.looks_like(text)), None)
        if name is not None:
            seeds.append(Seed(name, path, content))
    return seeds


class Mutator:
    """Makes mutation number n of a run."""

    def __init__(self, seeds: Sequence[Seed], seed: int) -> None:
        self.seeds = seeds
        self.seed = seed
        self._of_format: dict[str, list[Seed]] = {}
        for one in seeds:
            self._of_format.setdefault(one.format, []).append(one)

    def make(self, number: int) -> tuple[str, bytes]:
        """Return the format of the file that was mutated, and what became of it."""
        # All formats alike, however many samples each has.
        rng = random.Random(f"{self.seed}:{number}")
        names = sorted(self._of_format)
        name = names[number % len(names)]
        content = rng.choice(self._of_format[name]).content
        if rng.random() < 0.12:
            other = rng.choice([one for one in self.seeds if one.format != name] or [self.seeds[0]])
            content = _spliced(rng, content, other.content)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
            content = rng.choices(_MUTATIONS, _WEIGHTS)[0](rng, content)[:MAX_BYTES]
        return name, content


def _spliced(rng: random.Random, one: bytes, other: bytes) -> bytes:
    """Join two files: one after the other, halves, or lines of one within the other."""
    at = rng.randrange(len(one) + 1)
    cut = rng.randrange(len(other) + 1)
    match rng.randrange(5):
        case 0:
            return one + b"\n" + other
        case 1:
            return other + one
        case 2:
            return one[:at] + other[cut:]
        case 3:
            return one[:at] + other + one[at:]
    lines = one.split(b"\n")
    lines[rng.randrange(len(lines)) : 0] = rng.sample(
        more := other.split(b"\n"), min(len(more), rng.randrange(1, 9))
    )
    return b"\n".join(lines)


def _times(part: list[bytes], count: int) -> list[bytes]:
    """Return a part so many times, or as often as it fits into the largest file."""
    return part * min(count, MAX_BYTES // (len(part[0]) + 1))


def _replaced(content: bytes, old: bytes, new: bytes) -> bytes:
    """Replace every occurrence, or as many as fit into the largest file."""
    return content.replace(old, new, MAX_BYTES // (len(new) + 1))


def _byte(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    width = rng.choice((1, 1, 1, 2, 4, 16, 200))
    match rng.randrange(4):
        case 0 if at < len(content):
            return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
        case 1:
            return content[:at] + content[at + width :]
        case 2:
            return content[:at] + content[at : at + width] + content[at:]
    return content[:at] + rng.randbytes(rng.choice((1, 2, 8))) + content[at:]


def _piece(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.choice(_PIECES) + content[at + rng.choice((0, 0, 1)) :]


def _line(rng: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    width = rng.choice((1, 1, 1, 2, 5))
    match rng.randrange(5):
        case 0:
            del lines[at : at + width]
        case 1:
            lines[other:other] = lines[at : at + width]
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[other]
        case 4:
            lines[at:at] = _times([lines[at]], rng.choice((2, 50, 3000)))
    return b"\n".join(lines)


def _column(rng: random.Random, content: bytes) -> bytes:
    """Change columns (split at tabs, commas or blanks) of one line, or the same of all lines."""
    lines = content.split(b"\n")
    separator = rng.choice((b"\t", b",", b" ", None))
    at, other, what = rng.randrange(12), rng.randrange(12), rng.randrange(4)
    if rng.random() < 0.7:
        some = [rng.randrange(len(lines))]
        wide = len(lines[some[0]].split(separator))
        at, other = rng.randrange(max(wide, 1)), rng.randrange(max(wide, 1))
    else:
        some = list(range(len(lines)))
    for number in some:
        words = lines[number].split(separator)
        if max(at, other) >= len(words):
            continue
        if what == 0:
            del words[at]
        elif what == 1:
            words.insert(other, words[at])
        elif what == 2:
            words[at], words[other] = words[other], words[at]
        else:
            words[at] = words[other]
        lines[number] = (b"\t" if separator is None else separator).join(words)
    return b"\n".join(lines)


def _word(rng: random.Random, content: bytes) -> bytes:
    """Put one word of the file in the place of another, or many times in its own."""
    words = list(_WORD.finditer(content))
    if not words:
        return content
    one, other = rng.choice(words), rng.choice(words)
    if rng.random() < 0.2:
        glue = rng.choice((b"", b" ", b",", b"\t"))
        new = glue.join(_times([one[0]], rng.choice((2, 40, 2000))))
    else:
        new = other[0]
    if rng.random() < 0.15:
        return _replaced(content, one[0], new)
    return content[: one.start()] + new + content[one.end() :]


def _number(rng: random.Random, content: bytes) -> bytes:
    numbers = list(_NUMBER.finditer(content))
    if not numbers:
        return content
    one = rng.choice(numbers)
    new = rng.choice(_ABSURD)
    if rng.random() < 0.15:
        return _replaced(content, one[0], new)
    return content[: one.start()] + new + content[one.end() :]


def _cut(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[at:] if rng.random() < 0.25 else content[:at]


def _encoding(rng: random.Random, content: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    match rng.randrange(9):
        case 0:
            return b"\xef\xbb\xbf" * rng.choice((1, 2)) + content
        case 1:
            return text.encode("utf-16")
        case 2:
            return text.encode("utf-16-le")
        case 3:
            return content.replace(b"\r", b"").replace(b"\n", b"\r")
        case 4:
            return content.replace(b"\n", b"\r\n")
        case 5:
            return content.replace(b"e", b"\xe9")
        case 6:
            return content.replace(b" ", b"\xc2\xa0")
        case 7:
            return content.replace(b"\n", rng.choice((b"\xe2\x80\xa8", b"\x0b", b"\xc2\x85", b" ")))
    return content.replace(b"\t", b" ").replace(b"  ", b" ")


def _long(rng: random.Random, content: bytes) -> bytes:
    """Insert a long run: blanks, digits, brackets, quotes, open elements."""
    at = rng.randrange(len(content) + 1)
    unit = rng.choice(b' |\t|0|9|[|(|"|{|<a>|- |a,|\n|n[1-2]|\\|<!--|*a '.split(b"|"))
    size = rng.choice((70, 3000, 100_000))
    return content[:at] + unit * (size // len(unit)) + content[at:]


_MUTATIONS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _byte, _piece, _line, _column, _word, _number, _cut, _encoding, _long,
)  # fmt: skip
_WEIGHTS = (16, 12, 18, 16, 12, 12, 6, 4, 4)
