"""The table of docs/formats.md is what its script makes, and every cell of it is met."""

from __future__ import annotations

import importlib.util

import pytest

from support import ROOT, shared_path


@pytest.mark.captured
def test_every_manifest_cell_is_met_and_the_table_is_true():
    spec = importlib.util.spec_from_file_location("formats", ROOT / "benchmarks" / "formats.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.table(shared_path("data/topology/MANIFEST.csv").parent)
    _, _, shown = (ROOT / "docs" / "formats.md").read_text().partition(script.MARK)
    assert made == shown.strip()
    last = made.splitlines()[-1]
    assert last == "| all | 79 | 79 | 317 of 317 |"
