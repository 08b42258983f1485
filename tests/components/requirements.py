"""Whether the real components that a test starts are there."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest


def need(missing: Sequence[str], packages: str) -> None:
    """Skip the test where programs are missing; fail it where the run requires them."""
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)} (Debian: {packages})"
    if os.environ.get("MESHWRIGHT_REQUIRE_COMPONENTS"):
        pytest.fail(reason)
    pytest.skip(reason)
