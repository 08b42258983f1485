"""Ask an original framework: a script of this folder, run by the Python that has the originals."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

_HERE = Path(__file__).resolve().parent
_LIMIT_S = 230


def ask(script: str, cases: list[Any], **environment: str) -> list[Any]:
    """Return the script's answer to each case; skips where ``MESHWRIGHT_ORACLES_PYTHON`` is not set."""
    python = os.environ.get("MESHWRIGHT_ORACLES_PYTHON")
    if not python:
        pytest.skip("MESHWRIGHT_ORACLES_PYTHON is not set (make oracles makes the environment)")
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answers.json"
        ran = subprocess.run(
            [python, str(_HERE / script), str(answer)],
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
            env=os.environ | environment,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        answers: list[Any] = json.loads(answer.read_text())
    assert len(answers) == len(cases)
    return answers
