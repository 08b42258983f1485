"""The memory table of docs/accuracy.md: current, and as good as it says."""

from __future__ import annotations

import sys

import pytest

from support import ROOT, shared_path

pytestmark = pytest.mark.captured
RUNS = "data/measured_runs/dev.csv"


@pytest.fixture(name="accuracy")
def _accuracy(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("accuracy_memory", None)
    import accuracy_memory

    return accuracy_memory


def test_medians_and_largest_errors(accuracy):
    rows = accuracy.rows(shared_path(RUNS))
    assert {source: middle <= 0.08 for source, middle in accuracy.medians(rows).items()} == {
        "simumax-b200": True,
        "torchtitan-bench": True,
    }
    unexplained = [
        row.name
        for row in rows
        if abs(row.log_error) > accuracy.EXPLAIN_ABOVE and row.name not in accuracy.EXPLAINED
    ]
    assert unexplained == []
    assert len(rows) + len(accuracy.FITTED) == 40
    assert len(accuracy.FITTED) <= 5


def test_the_fitted_constant_is_what_its_rows_say(accuracy):
    import csv
    import re
    import statistics

    from meshwright.memory.constants import default_constants

    with shared_path(RUNS).open() as file:
        rows = {row["row_id"]: row for row in csv.DictReader(file)}
    shares = []
    for name in accuracy.FITTED:
        found = re.search(r"reserved ([\d.]+)", rows[name]["memory_kind"])
        assert found is not None
        shares.append(float(found[1]) / float(rows[name]["memory_gib_per_gpu"]) - 1)
    fitted = default_constants()["fragmentation_share"]
    assert statistics.mean(shares) == pytest.approx(fitted, abs=0.005)


def test_the_table_is_current(accuracy):
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert accuracy.written(page, accuracy.table(accuracy.rows(shared_path(RUNS)))) == page
