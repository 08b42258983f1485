"""``meshwright groups``: who is in which group."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.chain.outline import Outline
    from meshwright.placement.place import Placement


@click.command(
    "groups",
    short_help="Members of every communication group.",
    epilog="""\b
Example: every group that holds rank 5 of the 16-GPU example:
  $ meshwright groups examples/llama3-8b-16gpu.yaml --rank 5
  rank 5 on host0 GPU 5: tp 1, cp 0, dp 1, pp 0
  tp 1 (position 1) on host0: 4 5 6 7
  dp 1 (position 1) on host0 host1: 1 5 9 13""",
)
@click.argument("job", type=click.Path(path_type=str))
@json_option
@click.option("--rank", type=click.IntRange(min=0), help="Only groups that hold this rank.")
@click.option(
    "--axis", help="Only groups along this axis (tp, dp-cp, …) or of this framework name."
)
@click.option(
    "--name",
    help="What a log calls the group: a description (mesh_tp, default_pg), a number, or the line itself.",
)
@click.option("--format", "style", type=click.Choice(["text", "csv"]), default="text")
def command(
    job: str, rank: int | None, axis: str | None, name: str | None, style: str, *, as_json: bool
) -> None:
    """List the communication groups of JOB, in the framework's own order and names.

    JOB is a YAML, JSON or TOML file; without a cluster it needs layout.world_size or all degrees.
    """
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.outline import outline_job
    from meshwright.report.groups_report import (
        chosen_kinds,
        groups_csv,
        groups_json,
        groups_text,
    )

    outline = outline_job(load_job(job))
    _check_rank(outline, rank)
    if name is not None:
        if axis is not None:
            raise click.UsageError("--name and --axis both choose groups; give one")
        _look_up(outline, name, rank, style, as_json=as_json)
        return
    kinds = chosen_kinds(outline, axis)
    if style == "csv" and not as_json:
        sys.stdout.writelines(groups_csv(kinds, rank))
        finish(outline.findings)
    placement = _placement(outline) if rank is not None else None
    list_all = rank is not None or axis is not None
    listed = kinds if as_json or list_all else []
    document = groups_json(outline, listed, rank, placement)
    if as_json:
        print_json(document)
    else:
        print_text(groups_text(outline, kinds, document, list_all=list_all))
    finish(outline.findings)


def _check_rank(outline: Outline, rank: int | None) -> None:
    if rank is not None and rank >= outline.layout.world_size:
        raise click.UsageError(
            f"rank {rank}: the job has ranks 0 … {outline.layout.world_size - 1}"
        )


def _look_up(outline: Outline, name: str, rank: int | None, style: str, *, as_json: bool) -> None:
    """Answer ``--name``: the kinds that bear it, and the one group where a rank or number says which."""
    from meshwright.report.groups_lookup import kinds_of, looked_up, lookup_json, lookup_text
    from meshwright.report.groups_report import groups_csv, groups_json, groups_text

    asked, matches = looked_up(outline, name)
    rank = asked.rank if rank is None else rank
    _check_rank(outline, rank)
    kinds = kinds_of(matches)
    if style == "csv" and not as_json:
        sys.stdout.writelines(groups_csv(kinds, rank))
        finish(outline.findings)
    placement = _placement(outline) if rank is not None else None
    chosen = {(match.kind.name, match.index) for match in matches if match.index is not None}
    document = groups_json(outline, kinds, rank, placement)
    if chosen:
        document["groups"] = [
            group for group in document["groups"] if (group["name"], group["index"]) in chosen
        ]
    document["lookup"] = lookup_json(asked, matches, rank)
    if as_json:
        print_json(document)
    else:
        page = groups_text(outline, kinds, document, list_all=True)
        print_text(f"{lookup_text(document)}\n\n{page}")
    finish(outline.findings)


def _placement(outline: Outline) -> Placement | None:
    """Return where ranks sit, where the job has a cluster and a legal layout."""
    from meshwright.chain.plan import place_ranks

    if outline.fabric is None or not outline.is_legal:
        return None
    return place_ranks(outline, outline.fabric)
