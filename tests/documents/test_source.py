"""Lines of a document as excerpts: the right one, without keeping the others."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.documents.source import NEWLINE, YAML_NEWLINE, Source


@given(
    st.text(alphabet="ab\n\r\x85\u2028", max_size=30),
    st.sampled_from([NEWLINE, YAML_NEWLINE]),
    st.lists(st.integers(-1, 12), max_size=8),
)
def test_any_line_in_any_order(text: str, newline: object, asked: list[int]) -> None:
    lines = newline.split(text)
    source = Source("t.yaml", text, newline)
    for line in asked:
        wanted = lines[line - 1] if 1 <= line <= len(lines) else ""
        shown = wanted.translate(dict.fromkeys(map(ord, "\n\r\x85\u2028"), " ")).rstrip()
        assert source.excerpt((line, 1)) == (shown or None)


@pytest.mark.parametrize("line", [1, 250_000, 500_001])
def test_millions_of_short_lines_are_not_kept(line: int) -> None:
    source = Source("t.json", "a\n" * 500_000 + "b")
    tracemalloc.start()
    try:
        assert source.excerpt((line, 1)) == ("b" if line == 500_001 else "a")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100_000


def test_asking_in_order_goes_on_from_the_last_line() -> None:
    source = Source("t.json", "".join(f"{number}\n" for number in range(1, 2001)))
    seen = 0

    class Counting:
        """Counts the line ends that are looked at."""

        def finditer(self, text: str, start: int = 0):
            nonlocal seen
            for match in NEWLINE.finditer(text, start):
                seen += 1
                yield match

    source._newline = Counting()
    for line in range(1, 2001):
        assert source.excerpt((line, 1)) == str(line)
    assert seen <= 4000
