"""``meshwright check``: may this layout run?"""

from __future__ import annotations

import click

from meshwright.cli.output import finish, json_option, print_json, print_text


@click.command(
    "check",
    short_help="Rules that a layout breaks, legal layouts nearby.",
    epilog="""\b
Example: a layout of 16 ranks with tp 3:
  $ meshwright check job.yaml
  error    grid/world-divides   job.yaml:3:7
    world size 16 is not divisible by tp 3 x cp 1 x pp 1 = 3 (16 = 5 x 3 + 1).
    Remedy: tp: 1, 2, 4, 8; or a world size of 15 or 18
  nearest legal layouts: tp 4 dp 4 …""",
)
@click.argument("job", type=click.Path(path_type=str))
@json_option
def command(job: str, *, as_json: bool) -> None:
    """Check the layout of JOB against every rule of the rank grid, all at once."""
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.nearest import nearest_layouts
    from meshwright.chain.outline import outline_job
    from meshwright.chain.plan import place_ranks
    from meshwright.report.check_report import check_json, check_text

    outline = outline_job(load_job(job))
    if outline.is_legal and outline.fabric is not None:
        place_ranks(outline, outline.fabric)  # hosts and ranks that are not there are found here
    nearest = nearest_layouts(outline)
    if as_json:
        print_json(check_json(outline, nearest))
    else:
        print_text(check_text(outline, nearest))
    finish(outline.findings)
