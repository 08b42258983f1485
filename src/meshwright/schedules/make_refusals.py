"""Why a schedule cannot be made for some sizes: the rules of the frameworks, by rule id.

Sources: NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py
(``forward_backward_pipelining_with_interleaving``); pytorch torch/distributed/pipelining/schedules.py
(constructors of the classes); deepseek-ai/DualPipe dualpipe/dualpipe.py (``step``); Chimera
arXiv 2107.06925 section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Unpack

from meshwright.schedules.make_asked import Asked, Options, asked, torch_group, torch_rounds
from meshwright.schedules.names import MANY_CHUNKS, TWO_CHUNKS

_MEGATRON = "Megatron-Core 0.10 on; before, m % pp had to be 0"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that forbids a schedule: its id, why, with which numbers, what to do.

    Parameters
    ----------
    about
        What is wrong: ``chunks``, ``pp``, ``microbatches`` or ``group``.
    values
        Right values of it nearby; of ``microbatches`` with ``at_least`` also every larger one that
        no other rule forbids.
    """

    rule: str
    message: str
    numbers: Mapping[str, int | str]
    remedy: str
    about: str
    values: tuple[int, ...] = ()
    at_least: bool = False


def refusals(
    schedule: str, pp: int, microbatches: int, **options: Unpack[Options]
) -> list[Refusal]:
    """Return every rule that forbids the schedule; empty where it can be made.

    Parameters
    ----------
    microbatches
        Of both directions together for dualpipe and chimera.
    options
        See ``Options``.

    Raises
    ------
    UsageError
        See ``make_asked.asked``.
    """
    return refusals_of(asked(schedule, pp, microbatches, options))


def refusals_of(ask: Asked) -> list[Refusal]:
    """Return every rule that forbids what is asked for."""
    checks = (_chunks, _megatron_groups, _torch_groups, _fills, _dualpipe, _chimera)
    return [refusal for check in checks for refusal in check(ask)]


def _chunks(ask: Asked) -> Iterator[Refusal]:
    name, chunks, remedy = ask.schedule, ask.chunks, None
    if name in TWO_CHUNKS and chunks != 2:
        why, remedy = "holds two stages a rank", "vp: 2"
    elif name in MANY_CHUNKS and chunks < 2:
        why, remedy = "holds two stages a rank or more", "vp: 2, or schedule: 1f1b"
    elif name not in (*TWO_CHUNKS, *MANY_CHUNKS) and chunks > 1:
        why, remedy = "holds one stage a rank", "leave vp out"
    if remedy is None:
        return
    of = name
    if name == "1f1b":  # of several chunks it is interleaved, but for torch's class of that name
        of, remedy = "torch's 1f1b (Schedule1F1B)", "schedule: interleaved, or leave vp out"
    yield Refusal(
        "pipeline/schedule-chunks",
        f"{of} {why}, not {chunks}.",
        {"schedule": name, "vp": chunks},
        remedy,
        "chunks",
        (2,) if name in (*TWO_CHUNKS, *MANY_CHUNKS) else (1,),
    )


def _megatron_groups(ask: Asked) -> Iterator[Refusal]:
    """Megatron-Core from 0.10 on; before, m % pp had to be 0, which is the same where g is pp."""
    if ask.schedule != "interleaved" or ask.convention != "megatron" or ask.pp == 1:
        return
    pp, count, group = ask.pp, ask.microbatches, ask.group
    rest = count % group
    numbers = {"microbatches": count, "pp": pp, "group": group, "remainder": rest}
    rule = "pipeline/interleaved-microbatches"
    if not pp <= group <= count:
        why = (
            f"interleaved: groups of {group} microbatches; a group is pp {pp} to all {count} microbatches"
            if ask.group_given
            else f"interleaved: {count} microbatches do not fill one group of pp {pp}"
        )
        why += f": {_MEGATRON}."
        if count < pp:
            yield _counted(rule, why, numbers, (group if group > pp else pp,))
        else:
            yield Refusal(rule, why, numbers, f"group: {pp}", "group", (pp,))
    elif 0 < rest < pp:
        yield _counted(
            rule,
            f"interleaved: {count} microbatches in groups of {group} leave {rest}, fewer than pp {pp}: {_MEGATRON}.",
            numbers,
            _around(count, group),
        )


def _torch_groups(ask: Asked) -> Iterator[Refusal]:
    name, pp, count = ask.schedule, ask.pp, ask.microbatches
    if name != "interleaved-zb" and (name != "interleaved" or ask.convention != "torch"):
        return
    rule = "pipeline/interleaved-microbatches"
    rounds, group = torch_rounds(pp, count), torch_group(pp, count)
    if rest := count % rounds:
        above = min(count - rest + rounds, pp * (rounds + 1))  # there a round more begins
        yield _counted(
            rule,
            f"{name}: torch makes rounds = max(1, m // pp) = {rounds} of {count} microbatches over pp {pp} and "
            f"wants m % rounds == 0; {count} % {rounds} = {rest}.",
            {"microbatches": count, "pp": pp, "rounds": rounds, "remainder": rest},
            (count - rest, above),
        )
    elif ask.group_given and ask.group != group:
        yield Refusal(
            rule,
            f"{name}: torch makes {rounds} rounds of {group} of {count} microbatches over pp {pp}, and takes "
            f"no other group than {group}.",
            {"microbatches": count, "pp": pp, "rounds": rounds, "group": ask.group},
            f"group: {group}",
            "group",
            (group,),
        )


def _fills(ask: Asked) -> Iterator[Refusal]:
    name = ask.schedule
    if name != "dualpipev" and (name != "1f1b" or ask.convention != "torch"):
        return
    least = ask.pp if name == "1f1b" else 2 * ask.pp
    if ask.microbatches < least:
        of = "torch's 1f1b" if name == "1f1b" else name
        yield _counted(
            "pipeline/microbatches-fill-stages",
            f"{of} over pp {ask.pp}: {ask.microbatches} microbatches, fewer than its {least} stages.",
            {"microbatches": ask.microbatches, "pp": ask.pp, "least": least},
            (least,),
            at_least=True,
        )


def _dualpipe(ask: Asked) -> Iterator[Refusal]:
    if ask.schedule != "dualpipe":
        return
    rule, pp, count = "pipeline/dualpipe-even", ask.pp, ask.microbatches
    if pp % 2:
        yield _odd_ranks(rule, "DualPipe", pp)
    if count % 2 or count < 2 * pp:
        yield _counted(
            rule,
            f"DualPipe over pp {pp} with {count} microbatches: their number is even and at least "
            f"2 · pp = {2 * pp}.",
            {"microbatches": count, "pp": pp, "least": 2 * pp},
            (max(count + count % 2, 2 * pp),),
        )


def _chimera(ask: Asked) -> Iterator[Refusal]:
    if ask.schedule != "chimera":
        return
    rule, count = "pipeline/chimera-even", ask.microbatches
    if ask.pp % 2:
        yield _odd_ranks(rule, "Chimera", ask.pp)
    if count % 2:
        yield _counted(
            rule,
            f"Chimera over pp {ask.pp} with {count} microbatches: each of the two directions takes half of "
            "them.",
            {"microbatches": count, "pp": ask.pp},
            (count + 1,),
        )


def _odd_ranks(rule: str, name: str, pp: int) -> Refusal:
    near = (pp - 1, pp + 1) if pp > 1 else (2,)
    why = f"{name} over pp {pp}: two pipelines run against each other, so pp is even."
    return Refusal(rule, why, {"pp": pp}, f"pp: {_listed(near)}", "pp", near)


def _counted(
    rule: str,
    message: str,
    numbers: Mapping[str, int | str],
    counts: tuple[int, ...],
    *,
    at_least: bool = False,
) -> Refusal:
    """Return a refusal of a number of microbatches, with those that would do."""
    remedy = f"num_microbatches: {_listed(counts)}"
    return Refusal(rule, message, numbers, remedy, "microbatches", counts, at_least)


def _listed(values: tuple[int, ...]) -> str:
    return " or ".join(map(str, values))


def _around(number: int, factor: int) -> tuple[int, ...]:
    """Return the multiples of ``factor`` around a number, never 0."""
    below = number // factor * factor
    return (below, below + factor) if below else (factor,)
