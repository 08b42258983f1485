"""``meshwright timeline``: where did the time of every rank go?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.report.timeline_report import TimelineFile


@click.command(
    "timeline",
    short_help="Where the time of every rank went, from a trace file.",
    epilog="""\b
Example: write the trace of a modelled pipeline, then read it:
  $ meshwright pipeline -p 4 -m 12 --trace trace.json.gz
  $ meshwright timeline trace.json.gz
  trace.json.gz: 1f1b, 4 ranks, 12 microbatches, 96 operations (modelled). ...
The same file opens in https://ui.perfetto.dev and in chrome://tracing.""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=str))
@json_option
@click.option(
    "--width",
    type=click.IntRange(24, 1000),
    help="Characters of a line of the picture (80).",
)
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only.")
@click.option("--svg", metavar="FILE.svg", help="Also draw the trace into a new file.")
def command(
    files: tuple[str, ...],
    *,
    as_json: bool,
    width: int | None,
    ascii_only: bool,
    svg: str | None,
) -> None:
    """Say for every rank of trace FILEs: compute, communication that shows, idle; and draw it.

    FILE is a trace event file (JSON, or through gzip) that meshwright wrote. Times of a modelled
    trace are modelled, not measured.
    """
    from meshwright.report.text import WIDTH
    from meshwright.report.timeline_report import TimelinePage, timeline_json, timeline_text

    _check_svg(svg, files)
    page = TimelinePage(_read(files), width=width or WIDTH, ascii_only=ascii_only)
    if svg is not None:
        _write_svg(svg, page.files[0])
    if as_json:
        print_json(timeline_json(page))
    else:
        print_text(timeline_text(page))
    finish(page.findings)


def _check_svg(svg: str | None, files: tuple[str, ...]) -> None:
    """Refuse a picture that cannot be written before anything is read."""
    from meshwright.errors import UsageError
    from meshwright.report.new_file import check_new_file

    if svg is None:
        return
    if len(files) > 1:
        raise UsageError("--svg draws one trace: give one FILE")
    check_new_file(svg)


def _write_svg(path: str, file: TimelineFile) -> None:
    from meshwright.report.new_file import new_file
    from meshwright.report.timeline_svg import Look, timeline_svg

    text = timeline_svg(file.timeline, Look(messages=True))
    with new_file(path) as picture:
        picture.write(text.encode())


def _read(files: tuple[str, ...]) -> list[TimelineFile]:
    """Read all files; the problems of all that cannot be read are raised together."""
    from meshwright.errors import InputError, Problem
    from meshwright.report.timeline_report import TimelineFile
    from meshwright.timeline.trace.read import read_trace

    found: list[TimelineFile] = []
    problems: list[Problem] = []
    for path in files:
        try:
            found.append(TimelineFile.of(path, read_trace(path)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return found
