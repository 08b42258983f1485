"""Every text is claimed by the reader of its own format, and by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.cluster.readers import FORMATS
from meshwright.cluster.readers import readers as all_readers
from topology_samples import captured_files, fixture_files

HOLDING = {"meshwright_capture"}
"""Formats that hold texts of others: tried first, so that theirs is the claim that counts."""


def claims(text: str) -> list[str]:
    """Return the formats whose reader takes the text for its own, in the order they are asked."""
    return [one.format for one in all_readers() if one.looks_like(text)]


def check(path: Path) -> None:
    """Check the claims on a file; the folder of a topology file is its format."""
    found = claims(path.read_text(errors="replace"))
    wanted = [path.parent.name] if path.parent.name in FORMATS else []
    if wanted and wanted[0] in HOLDING:
        found = found[:1]
    assert found == wanted, path


def test_those_that_hold_other_texts_are_asked_first() -> None:
    assert set(FORMATS[: len(HOLDING)]) == HOLDING


def test_every_fixture_of_this_repository() -> None:
    seen = set()
    for path in fixture_files():
        check(path)
        seen.add(path.parent.name)
    assert set(FORMATS) <= seen, "a format without a fixture"


@pytest.mark.captured
def test_every_captured_file() -> None:
    files = captured_files()
    for path in files:
        if path.parent.name in FORMATS:
            check(path)
    assert len({path.parent.name for path in files} & set(FORMATS)) == 20
