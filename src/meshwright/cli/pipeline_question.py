"""What the options of ``meshwright pipeline`` ask."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from meshwright.chain.pipeline_ask import PipelineAsk
from meshwright.chain.pipeline_run import PipelinePage, pipeline_page
from meshwright.chain.pipeline_work import given_work
from meshwright.documents.source import shown
from meshwright.errors import UsageError
from meshwright.findings import Place
from meshwright.origin import Origin
from meshwright.rules.told_pipeline import left_out_durations_note
from meshwright.schedules.make import BY_COSTS, MAX_OPERATIONS
from meshwright.schedules.make_asked import Asked, Options, asked
from meshwright.schedules.torch_form.actions import computations
from meshwright.schedules.torch_form.csv_read import read_torch_csv
from meshwright.timeline.program import Messages
from meshwright.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.chain.pipeline_work import GivenWork
    from meshwright.findings import Finding
    from meshwright.schedules.orders import Orders

_DURATIONS = ("forward", "backward", "weight")
GROUPED = ("interleaved", "interleaved-zb")
"""Schedules whose microbatches pass a chunk in groups."""
_NOT_WITH_A_JOB = {
    "ranks": "-p is for questions without a job: change layout.pp in the file",
    "ranks_per_link": "--ranks-per-link is for questions without a job: its cluster says what is shared",
}
_MOST_FACTORS = 1 << 16
_LEAST_SHARE = 1e-6
_LEAST, _MOST = 1e-12, 1e9
"""Durations in seconds, and factors: smaller ones are lost in the sums."""


def page_of(job: str | None, options: dict[str, Any]) -> PipelinePage:
    """Return the answer. Raises ``UsageError`` or ``InputError``."""
    for name in (*_DURATIONS, "send"):
        _check_duration(name, options[name])
    share = options["efficiency"]
    if share is not None and not _LEAST_SHARE <= share <= 1:  # click lets a nan through
        raise UsageError(f"--efficiency {share:g}: a share from {_LEAST_SHARE:g} to 1")
    orders = None
    if options["schedule_file"] is not None:
        orders = _orders_of_file(options)
    if job is None:
        return pipeline_page(_ask_of_options(options, orders))
    return _page_of_job(job, options, orders)


def _check_duration(name: str, value: float | None) -> None:
    if value is not None and not _is_sound(value):
        raise UsageError(f"--{name} {value:g}: seconds, 0 or from {_LEAST:g} to {_MOST:g}")


def _is_sound(value: float) -> bool:
    return value == 0 or _LEAST <= value <= _MOST  # false for what is not a number, too


def _orders_of_file(options: dict[str, Any]) -> Orders:
    clash = [name for name in ("schedule", "chunks", "group", "reorder") if options[name]]
    if clash:
        raise UsageError(f"--schedule-file says the order itself: leave --{clash[0]} out")
    orders = computations(read_torch_csv(options["schedule_file"]))
    for name, found in (("ranks", orders.ranks), ("microbatches", orders.microbatches)):
        if options[name] is not None and options[name] != found:
            one = {"ranks": "rank", "microbatches": "microbatch"}[name]
            raise UsageError(
                f"{options['schedule_file']} has {plural(found, one, name)}, --{name} says {options[name]}"
            )
    return orders


def _ask_of_options(options: dict[str, Any], orders: Orders | None) -> PipelineAsk:
    _check_without_job(options, orders)
    convention = options["convention"] or "megatron"
    group = options["group"]
    if orders is not None:
        schedule, pp, count = orders.schedule, orders.ranks, orders.microbatches
        chunks, stages = orders.chunks, orders.chain_length
    else:
        pp, count = options["ranks"], options["microbatches"]
        given: Options = {"chunks": options["chunks"], "convention": convention, "group": group}
        made = asked(options["schedule"] or "1f1b", pp, count, given)
        _check_made(made, options)
        schedule, chunks, stages = made.schedule, made.chunks, pp * made.chunks
    send_s = options["send"]
    return PipelineAsk(
        title="pipeline",
        schedule=schedule,
        pp=pp,
        microbatches=count,
        chunks=chunks,
        work=_work(options, pp, stages),
        messages=_on_links(Messages.uniform(pp, send_s or 0.0), options),
        group=group,
        convention=convention,
        blocking=bool(options["blocking"]),
        reorder=options["reorder"],
        orders=orders,
        messages_origin=Origin.ASSUMED if send_s is None else Origin.STATED,
        notes=tuple(_left_out(options)),
    )


def _left_out(options: dict[str, Any]) -> Iterator[Finding]:
    """Yield a note where some durations are given and others left out, which are 1 s then."""
    names = {"forward": "forward", "backward": "input gradient", "weight": "weight gradient"}
    missing = [name for name in names if options[name] is None]
    if missing and len(missing) < len(names):
        times = {
            words: 1.0 if options[name] is None else float(options[name])
            for name, words in names.items()
        }
        yield left_out_durations_note(times, Place(subject=f"--{missing[0]}"))


def _check_without_job(options: dict[str, Any], orders: Orders | None) -> None:
    if orders is None and (options["ranks"] is None or options["microbatches"] is None):
        raise UsageError("give a job file, or -p and -m: meshwright pipeline -p 4 -m 12")
    if options["efficiency"] is not None:
        raise UsageError("--efficiency is for a job: without one the times are given")


def _check_made(made: Asked, options: dict[str, Any]) -> None:
    """Refuse what is too large before any memory is taken, and options that would change nothing."""
    if made.operations > MAX_OPERATIONS:
        raise UsageError(
            f"{made.schedule} over {made.pp:,} ranks with {made.microbatches:,} microbatches has up to "
            f"{made.operations:,} operations; at most {MAX_OPERATIONS:,} are simulated"
        )
    if options["group"] is not None and made.schedule not in GROUPED:
        raise UsageError(f"--group is for {' and '.join(GROUPED)}: {made.schedule} has no groups")
    if options["reorder"] and made.schedule not in BY_COSTS and not options["compare"]:
        raise UsageError(
            f"--reorder is for {', '.join(BY_COSTS)}: {made.schedule} has one order for all times"
        )


def _work(options: dict[str, Any], pp: int, stages: int) -> GivenWork:
    stated = any(options[name] is not None for name in (*_DURATIONS, "stage_times"))
    forward, backward, weight = (
        1.0 if options[name] is None else float(options[name]) for name in _DURATIONS
    )
    _check_work(forward + backward + weight)
    factors = factors_of(options["stage_times"])
    work = given_work((forward, backward, weight), pp, stages, factors)
    return work if stated else dataclasses.replace(work, origin=Origin.ASSUMED)


def _check_work(whole_s: float) -> None:
    if whole_s <= 0:
        raise UsageError("--forward, --backward and --weight are all 0: nothing takes any time")


def factors_of(text: str | None) -> tuple[float, ...]:
    """Return the factors of ``--stage-times``. Raises ``UsageError``."""
    if text is None:
        return ()
    parts = text.split(",", _MOST_FACTORS)
    if len(parts) > _MOST_FACTORS:
        raise UsageError(f"--stage-times: at most {_MOST_FACTORS:,} factors")
    try:
        found = tuple(float(part) for part in parts)
    except ValueError:
        raise UsageError(f"--stage-times {shown(text)}: write factors, as 1,1,1,1.5") from None
    if not all(map(_is_sound, found)) or not any(found):
        raise UsageError(
            f"--stage-times: factors are 0 or from {_LEAST:g} to {_MOST:g}, and not all of them 0"
        )
    return found


def _on_links(messages: Messages, options: dict[str, Any]) -> Messages:
    """Let messages that leave the ranks of one NIC share it."""
    import numpy as np

    each = options["ranks_per_link"]
    if each is None:
        return messages
    ranks = len(messages.send_s)
    nic = np.arange(ranks) // each
    link = np.where(nic[:, None] == nic[None, :], -1, nic[:, None])
    return Messages(messages.send_s, link)


def _page_of_job(path: str, options: dict[str, Any], orders: Orders | None) -> PipelinePage:
    for name, why in _NOT_WITH_A_JOB.items():
        if options[name] is not None:
            raise UsageError(why)
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.pipeline_of_job import Changes, ask_of_job, forbidden_page

    job = load_job(path)
    changes = Changes(
        schedule=options["schedule"],
        microbatches=options["microbatches"],
        chunks=options["chunks"],
        group=options["group"],
        convention=options["convention"],
        durations_s=_durations(options),
        factors=factors_of(options["stage_times"]),
        send_s=options["send"],
        efficiency=options["efficiency"],
        blocking=options["blocking"],
        reorder=options["reorder"],
        orders=orders,
    )
    ask, outline = ask_of_job(job, changes)
    if ask is None:
        return forbidden_page(outline)
    if ask.orders is None:
        _check_made(asked(ask.schedule, ask.pp, ask.microbatches, ask.options), options)
    return pipeline_page(ask)


def _durations(options: dict[str, Any]) -> tuple[float, float, float] | None:
    """Return what the options say instead of a job's durations: all three, or none."""
    given = [options[name] for name in _DURATIONS]
    stated = [one for one in given if one is not None]
    if not stated and options["stage_times"] is None:
        return None
    if len(stated) < len(given):
        raise UsageError(
            "with a job give --forward, --backward and --weight together, and --stage-times only with them"
        )
    if options["efficiency"] is not None:
        raise UsageError("--efficiency says how long FLOPs take: leave it out with --forward")
    _check_work(sum(stated))
    return given[0], given[1], given[2]
