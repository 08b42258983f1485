"""``meshwright pipeline``: a schedule's order, its idle shares and their causes, activations, a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.chain.pipeline_run import PipelinePage


@click.command(
    "pipeline",
    short_help="Schedule, idle shares and their causes, activations, timeline.",
    epilog="""\b
Example: four stages and twelve microbatches, (p-1)/(m+p-1) = 3/15:
  $ meshwright pipeline -p 4 -m 12
  … A step takes 45.0 s, of which 20.0 % is idle, as the formula says.

\b
An uneven last stage and messages that take time, with a trace for Perfetto:
  $ meshwright pipeline -p 4 -m 12 --stage-times 1,1,1,1.5 --send 0.1 \\
      --trace step.json.gz

\b
What a job's pipeline costs, and what other schedules would:
  $ meshwright pipeline job.yaml --compare""",
)
@click.argument("job", type=click.Path(path_type=str), required=False)
@json_option
@click.option("-p", "--ranks", type=click.IntRange(1, 4096), help="Pipeline ranks.")
@click.option(
    "-m",
    "--microbatches",
    type=click.IntRange(1, 1 << 20),
    help="Microbatches of a step (dualpipe, chimera: of both directions).",
)
@click.option("-v", "--chunks", type=click.IntRange(1, 64), help="Stages a rank holds.")
@click.option(
    "--schedule", help="1f1b, interleaved, zb-h1, dualpipe … (meshwright rules pipeline/)."
)
@click.option("--schedule-file", type=click.Path(path_type=str), help="A schedule as torch's CSV.")
@click.option(
    "--convention", type=click.Choice(["megatron", "torch"]), help="Whose order and rules."
)
@click.option(
    "--group", type=click.IntRange(1, 1 << 20), help="Microbatches of a group (interleaved)."
)
@click.option("--forward", type=float, help="Seconds of one stage's forward (1).")
@click.option("--backward", type=float, help="Of its input gradient (1).")
@click.option("--weight", type=float, help="Of its weight gradient (1).")
@click.option("--stage-times", help="A factor a rank or stage on all three: 1,1,1,1.5.")
@click.option("--send", type=float, help="Seconds of one message (0, or by the job's routes).")
@click.option("--ranks-per-link", type=click.IntRange(1, 4096), help="Ranks that share one NIC.")
@click.option(
    "--efficiency", type=float, help="Share of the GPU's peak that a job's stages reach (0.5)."
)
@click.option("--blocking/--asynchronous", default=None, help="Ranks wait for their sends, or not.")
@click.option(
    "--reorder", is_flag=True, help="Try greedy orders made for these times, too; keep the faster."
)
@click.option("--compare", is_flag=True, help="The same work with other m, schedules and splits.")
@click.option("--orders", is_flag=True, help="Every rank's operations.")
@click.option(
    "--trace", type=click.Path(path_type=str), help="Write a trace for Perfetto: .json or .json.gz."
)
@click.option("--svg", type=click.Path(path_type=str), help="Write a picture.")
@click.option("--csv", type=click.Path(path_type=str), help="Write torch's CSV of the schedule.")
def command(job: str | None, *, as_json: bool, **options: Any) -> None:
    """Simulate the pipeline of JOB, or of -p ranks and -m microbatches.

    Idle shares by formula and by simulation, each rank's idle time by cause, activations in
    flight, what uneven stages and messages add, and the schedule drawn as text.
    """
    from meshwright.chain.pipeline_compare import alternatives
    from meshwright.cli.pipeline_files import check_files, write_files
    from meshwright.cli.pipeline_question import page_of
    from meshwright.report.pipeline_json import pipeline_json
    from meshwright.report.pipeline_text import pipeline_text

    check_files(options)
    page: PipelinePage = page_of(job, options)
    others = []
    if page.run is not None and page.ask is not None:
        others = alternatives(page.ask, page.run) if options["compare"] else []
        write_files(page.run, options)
    if as_json:
        print_json(pipeline_json(page, others, with_orders=options["orders"]))
    else:
        print_text(pipeline_text(page, others, with_orders=options["orders"]))
    finish(page.findings)
