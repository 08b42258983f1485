"""Counts the tests on captured files, golden values, real components and originals; CI skips none."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# No test asserts seconds, and `.ci/run` tries the same examples each time.
settings.register_profile(
    "meshwright",
    settings.default,
    deadline=None,
    derandomize=bool(os.environ.get("MESHWRIGHT_REQUIRE_COMPONENTS") or os.environ.get("CI")),
    database=None,
)
settings.load_profile("meshwright")

_SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
_MARKERS = ("captured", "golden", "components", "oracles")
_HANG_S = 240
"""A test that runs longer hangs: no test here takes a tenth of it, on however busy a machine."""


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Fail a test that hangs, with the place where it does. Seconds are asserted nowhere else."""

    def stop(signum: int, frame: object) -> None:
        raise TimeoutError(f"the test ran over {_HANG_S} s: it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _counts(config: pytest.Config) -> dict[str, dict[str, int]]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    counts = {marker: {"ran": 0, "skipped": 0} for marker in _MARKERS}
    if reporter is None:
        return counts
    for outcome, key in (("passed", "ran"), ("failed", "ran"), ("skipped", "skipped")):
        for report in reporter.stats.get(outcome, []):
            for marker in _MARKERS:
                if marker in getattr(report, "keywords", {}):
                    counts[marker][key] += 1
    return counts


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Say how many tests read files of ../shared, started real components or ran the originals."""
    for marker, count in _counts(config).items():
        terminalreporter.write_line(f"{marker}: {count['ran']} ran, {count['skipped']} skipped")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail when a test was skipped that ``.ci/run`` requires: files are there, components installed."""
    required = set()
    if os.environ.get("MESHWRIGHT_REQUIRE_SHARED") and _SHARED.exists():
        required |= {"captured", "golden"}
    if os.environ.get("MESHWRIGHT_REQUIRE_COMPONENTS"):
        required.add("components")
    if os.environ.get("MESHWRIGHT_REQUIRE_ORACLES"):
        required.add("oracles")
    counts = _counts(session.config)
    if any(counts[marker]["skipped"] for marker in required):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
