"""What the tests of ``meshwright pipeline`` share: the command run in this process, jobs, tables read."""

from __future__ import annotations

import json
import re

from click.testing import CliRunner

from cli.running import Ran
from meshwright.cli.main import cli
from meshwright.errors import MeshwrightError

SCHEDULES = (
    "gpipe", "1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min",
    "interleaved-zb", "dualpipe", "dualpipev", "chimera",
)  # fmt: skip
SEVERAL = ("interleaved", "looped-bfs", "interleaved-zb")
"""Schedules that need ``-v``."""

JOB = {
    "model": "llama3-70b",
    "cluster": "dgx-h100 x 4",
    "layout": {"tp": 8, "pp": 4, "framework": "megatron", "sequence_parallel": True},
    "batch": {"num_microbatches": 16, "micro_batch": 1, "seq_len": 8192},
    "training": {"precision": "bf16", "recompute": "selective", "schedule": "1f1b"},
}


def ask(*arguments):
    """Run ``meshwright pipeline``; anything but a message of ours fails the test."""
    ran = CliRunner().invoke(cli, ["pipeline", *map(str, arguments)])
    error = ran.exception
    if isinstance(error, MeshwrightError):
        return Ran(2, ran.stdout, f"error: {error}")
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


def answer(*arguments, status=0):
    """Return the JSON document of a run that ends with a status."""
    ran = ask(*arguments, "--json")
    assert ran.status == status, ran.err or ran.out
    assert "NaN" not in ran.out
    assert "Infinity" not in ran.out
    return ran.document


def job_file(tmp_path, **sections):
    """Write ``JOB`` with other sections (``None``: left out; a mapping: its keys put into the job's)."""
    job = dict(JOB)
    for name, section in sections.items():
        if section is None:
            job.pop(name, None)
        elif isinstance(section, dict) and isinstance(job.get(name), dict):
            job[name] = {k: v for k, v in {**job[name], **section}.items() if v is not None}
        else:
            job[name] = section
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    return path


def sizes(schedule, chunks=2):
    """Return the options that a schedule cannot do without."""
    return ["--schedule", schedule, *(["-v", chunks] if schedule in SEVERAL else [])]


def cells(page, begins):
    """Return the cells of the table whose header begins so, a list a row."""
    lines = page.split("\n")
    at = next(index for index, line in enumerate(lines) if line.startswith(begins))
    found = []
    for line in lines[at:]:
        if not line.strip() or (found and len(re.split(r" {2,}", line.strip())) < 3):
            break
        found.append(re.split(r" {2,}", line.strip()))
    return found
