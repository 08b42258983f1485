"""``meshwright check``: may this layout run?"""

from __future__ import annotations

import click

from meshwright.cli.output import finish, json_option, print_json, print_text


@click.command(
    "check",
    short_help="Every rule that a layout breaks, legal layouts nearby.",
    epilog="""\b
Example: a layout of 16 ranks with tp 3:
  $ meshwright check job.yaml
  error    grid/world-divides   job.yaml:3:7
    world size 16 is not divisible by tp 3 x cp 1 x pp 1 = 3 (16 = 5 x 3 + 1).
    Remedy: tp: 1, 2, 4, 8; or world_size: 15
  Nearest layouts that pass every rule: tp 4 dp 4 …

\b
meshwright rules grid/world-divides explains a rule and its source.""",
)
@click.argument("job", type=click.Path(path_type=str))
@json_option
def command(job: str, *, as_json: bool) -> None:
    """Check the layout of JOB against every rule, all at once: grid, model, batch, kernels, memory."""
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.judge import judge
    from meshwright.chain.nearest import nearest
    from meshwright.chain.outline import outline_job
    from meshwright.chain.plan import place_ranks
    from meshwright.report.check_report import check_json, check_text

    outline = outline_job(load_job(job))
    placement = None
    if outline.is_legal and outline.fabric is not None:
        placement = place_ranks(outline, outline.fabric)  # hosts and ranks that are not there
    judgement = judge(outline, placement)
    near = nearest(outline)
    if as_json:
        print_json(check_json(outline, judgement, near))
    else:
        print_text(check_text(outline, judgement, near))
    finish(outline.findings)
