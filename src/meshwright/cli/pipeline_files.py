"""Files that ``meshwright pipeline`` writes: a trace, a picture, a schedule for torch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from meshwright.errors import UsageError
from meshwright.report.new_file import check_new_file, new_file

if TYPE_CHECKING:
    from meshwright.chain.pipeline_run import PipelineRun

_OUTPUTS = ("trace", "svg", "csv")
_OPERATION_BYTES = 1024
"""Of an operation in a trace with its message and counters, at most."""


def check_files(options: dict[str, Any]) -> None:
    """Refuse a name that cannot be written, before anything is computed. Raises ``UsageError``."""
    paths = [options[name] for name in _OUTPUTS if options[name] is not None]
    for path in paths:
        check_new_file(path)
    if len({os.path.abspath(path) for path in paths}) < len(paths):  # noqa: PTH100 - none exists yet
        raise UsageError("two outputs have the same name")
    trace = options["trace"]
    if trace is not None and not trace.endswith((".json", ".json.gz")):
        raise UsageError(f"{trace}: --trace writes .json or .json.gz")


def _check_trace(run: PipelineRun) -> None:
    """Refuse a trace that ``meshwright timeline`` would not read back. Raises ``UsageError``."""
    from meshwright.timeline.trace.text import MAX_TEXT_BYTES

    count, most = len(run.orders.kind), MAX_TEXT_BYTES // _OPERATION_BYTES
    if count > most:
        raise UsageError(
            f"--trace: {count:,} operations are over the {most:,} that a trace can hold to be read back; "
            "take fewer microbatches: the steady state looks the same"
        )


def write_files(run: PipelineRun, options: dict[str, Any]) -> None:
    """Write what was asked for. Raises ``UsageError`` where a file cannot be written."""
    if options["trace"] is not None:
        _check_trace(run)
    if options["csv"] is not None:
        from meshwright.schedules.torch_form.csv_write import torch_csv

        text = torch_csv(run.orders)  # refused before the file is made
        with new_file(options["csv"]) as file:
            file.write(text.encode())
    if options["trace"] is not None:
        from meshwright.timeline.trace.write import write_trace

        compressed = options["trace"].endswith(".gz")
        with new_file(options["trace"]) as file:
            write_trace(file, run.timeline, run.curves(), compressed=compressed)
    if options["svg"] is not None:
        from meshwright.report.timeline_svg import Look, timeline_svg

        text = timeline_svg(run.timeline, Look(messages=True, curve=run.curves()[-1]))
        with new_file(options["svg"]) as file:
            file.write(text.encode())
