"""``meshwright map``: the main job."""

from __future__ import annotations

import click

from meshwright.cli.output import finish, json_option, print_json, print_text


@click.command(
    "map",
    short_help="Groups to hardware paths, load on every link.",
    epilog="""\b
Example: Llama-3-8B with TP 4 x DP 4 on two DGX H100 (examples/ of the repository):
  $ meshwright map examples/llama3-8b-16gpu.yaml
  TP 4 x 4 inside one host on NVLink, 261.7 GB a rank and step, bound 0.582 s
  DP 4 x 4 over 2 hosts, 4.52 GB each way on all 16 NICs, bound 0.0904 s""",
)
@click.argument("job", type=click.Path(path_type=str))
@json_option
@click.option(
    "--links",
    "links_file",
    type=click.Path(path_type=str),
    help="Write every link with its load to FILE.npz or FILE.ndjson (a new file).",
)
def command(job: str, links_file: str | None, *, as_json: bool) -> None:
    """Route every communication group of JOB over the cluster's links.

    JOB is a YAML, JSON or TOML file with the job and its cluster. Prints findings, the groups by
    class, the paths they use and the busiest links, with a bound for each axis. Simulated: it does
    not validate your environment.
    """
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.outline import outline_job
    from meshwright.chain.plan import plan_job
    from meshwright.report.links_file import check_links_file, write_links

    if links_file is not None:
        check_links_file(links_file)
    outline = outline_job(load_job(job))
    plan = plan_job(outline)
    if links_file is not None:
        write_links(plan, links_file)
    if as_json:
        from meshwright.report.map_json import map_json

        print_json(map_json(plan))
    else:
        from meshwright.report.map_text import map_text

        print_text(map_text(plan))
    finish(outline.findings)
