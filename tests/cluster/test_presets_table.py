"""docs/presets.md is what its script makes."""

from __future__ import annotations

import importlib.util

from support import ROOT


def test_the_tables_are_true() -> None:
    spec = importlib.util.spec_from_file_location("presets", ROOT / "benchmarks" / "presets.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    _, mark, shown = (ROOT / "docs" / "presets.md").read_text().partition(script.MARK)
    assert mark
    assert shown.strip() == script.tables().strip()
