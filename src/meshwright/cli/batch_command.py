"""``meshwright batch``: the whole chain of batch figures."""

from __future__ import annotations

import click

from meshwright.cli.output import finish, json_option, print_json, print_text


@click.command(
    "batch",
    short_help="Batch figures from any that suffice; idle share of the pipeline.",
    epilog="""\b
Example: dp 8, a global batch of 256 and a micro-batch of 2:
  $ meshwright batch job.yaml
  num_microbatches  16  modelled
  Pipeline 1f1b, pp 8, vp 1, 16 microbatches a pass: 30.4 % idle …""",
)
@click.argument("job", type=click.Path(path_type=str))
@json_option
def command(job: str, *, as_json: bool) -> None:
    """Derive every batch figure of JOB from those given, forward or backward; say what contradicts."""
    from meshwright.chain.batch_of_job import batch_page
    from meshwright.chain.jobfile import load_job
    from meshwright.report.batch_report import batch_json, batch_text

    page = batch_page(load_job(job))
    if as_json:
        print_json(batch_json(page))
    else:
        print_text(batch_text(page))
    finish(page.findings)
