"""What several test modules share: where the captured and golden files are."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = Path(__file__).resolve().parent / "fixtures"
_SHARED = ROOT.parent / "shared"


def shared_path(relative: str) -> Path:
    """Return a file of ``../shared``, or skip the test with the reason that it is absent."""
    path = _SHARED / relative
    if not path.exists():
        pytest.skip(f"captured file ../shared/{relative} is absent")
    return path
