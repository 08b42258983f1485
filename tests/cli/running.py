"""Run the program as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ran:
    """What a run printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output."""
        document: dict[str, Any] = json.loads(self.out)
        return document


def run(*arguments: str | Path, cwd: Path | None = None) -> Ran:
    """Run ``meshwright`` with arguments; a traceback fails the test."""
    process = subprocess.run(
        [sys.executable, "-m", "meshwright", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in process.stderr, process.stderr
    return Ran(process.returncode, process.stdout, process.stderr)


def rules_of(document: dict[str, Any]) -> list[str]:
    """Return the rule ids of a document's findings."""
    return [finding["rule"] for finding in document["findings"]]


def finding_of(document: dict[str, Any], rule: str) -> dict[str, Any]:
    """Return the first finding of a rule."""
    return next(finding for finding in document["findings"] if finding["rule"] == rule)


def axis_of(document: dict[str, Any], axis: str) -> dict[str, Any]:
    """Return one axis of a map."""
    return next(one for one in document["axes"] if one["axis"] == axis)


def groups_of(document: dict[str, Any], axis: str, name: str | None = None) -> list[list[int]]:
    """Return the members of all groups along an axis."""
    return [
        g["ranks"] for g in document["groups"] if g["axis"] == axis and name in (None, g["name"])
    ]
