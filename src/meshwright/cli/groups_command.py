"""``meshwright groups``: who is in which group."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.chain.outlined import Outline
    from meshwright.groups.kinds import GroupKind
    from meshwright.placement.place import Placement


@click.command(
    "groups",
    short_help="Members of every communication group.",
    epilog="""\b
Example: the tensor-parallel group of rank 5 in the 16-GPU example
(without --axis every group that holds the rank, 17 here):
  $ meshwright groups examples/llama3-8b-16gpu.yaml --rank 5 --axis tp
  rank 5 on host0 GPU 5: tp 1, cp 0, dp 1, pp 0, etp 1, ep 0, edp 1
  tp 1 (group rank 1) on host0: 4 5 6 7""",
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
    from meshwright.chain.kinds_of_job import add_training_kinds
    from meshwright.chain.outline import outline_job
    from meshwright.report.groups_report import chosen_kinds, groups_csv

    outline = outline_job(load_job(job))
    add_training_kinds(outline)
    _say_unused(outline)
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
    _print(outline, kinds, rank, list_all=rank is not None or axis is not None, as_json=as_json)
    finish(outline.findings)


def _print(
    outline: Outline,
    kinds: Sequence[GroupKind],
    rank: int | None,
    said: _Said | None = None,
    *,
    list_all: bool,
    as_json: bool,
) -> None:
    """Print the groups of some kinds, in JSON piece by piece: there may be millions."""
    from meshwright.report.groups_lookup import lookup_text
    from meshwright.report.groups_report import (
        check_size,
        first_groups,
        groups_json,
        groups_text,
        groups_with,
        listed_groups,
    )

    chosen = said.chosen if said is not None else None
    place = None if rank is None else _placement(outline)
    if rank is None:
        parts = listed_groups(kinds, chosen)
    else:
        parts = groups_with(outline, kinds, (rank, place), chosen)
    more = {"lookup": said.lookup} if said is not None else {}
    if as_json:
        if rank is None and chosen is None:
            check_size(outline, kinds)
        print_json(groups_json(outline, kinds, rank, place) | more, ("groups", parts))
        return
    groups = first_groups(parts) if list_all else []
    document = groups_json(outline, kinds if list_all else [], rank, place, groups) | more
    page = groups_text(outline, kinds, document, list_all=list_all)
    print_text(page if said is None else f"{lookup_text(document)}\n\n{page}")


@dataclass(frozen=True, slots=True)
class _Said:
    """What ``--name`` was found to mean: the ``lookup`` key, and the single groups meant."""

    lookup: dict[str, Any]
    chosen: frozenset[tuple[str, int]] | None


def _say_unused(outline: Outline) -> None:
    """Add the note on GPUs that the job leaves idle, as ``map`` and ``check`` do."""
    from meshwright.rules.told import unused_notes

    if outline.is_legal and outline.job.file.groups is None:
        outline.findings += unused_notes(outline.layout, outline.num_gpus, outline.job.place)


def _check_rank(outline: Outline, rank: int | None) -> None:
    if rank is not None and rank >= outline.layout.world_size:
        raise click.UsageError(
            f"rank {rank}: the job has ranks 0 … {outline.layout.world_size - 1}"
        )


def _look_up(outline: Outline, name: str, rank: int | None, style: str, *, as_json: bool) -> None:
    """Answer ``--name``: the kinds that bear it, and the one group where a rank or number says which."""
    from meshwright.report.groups_lookup import kinds_of, looked_up, lookup_json
    from meshwright.report.groups_report import groups_csv

    asked, matches = looked_up(outline, name)
    rank = asked.rank if rank is None else rank
    _check_rank(outline, rank)
    kinds = kinds_of(matches)
    if style == "csv" and not as_json:
        sys.stdout.writelines(groups_csv(kinds, rank))
        finish(outline.findings)
    single = {(match.kind.name, match.index) for match in matches if match.index is not None}
    said = _Said(lookup_json(asked, matches, rank), frozenset(single) if single else None)
    _print(outline, kinds, rank, said, list_all=True, as_json=as_json)
    finish(outline.findings)


def _placement(outline: Outline) -> Placement | None:
    """Return where ranks sit, where the job has a cluster and a legal layout."""
    from meshwright.chain.plan import place_ranks

    if outline.fabric is None or not outline.is_legal:
        return None
    return place_ranks(outline, outline.fabric)
