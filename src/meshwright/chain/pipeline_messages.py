"""Messages between a job's pipeline ranks: by the routes of their GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.chain.outlined import Outline
from meshwright.chain.plan import place_ranks, workload_of
from meshwright.costs.stage_sends import neighbours, stage_sends
from meshwright.findings import Finding
from meshwright.origin import Origin
from meshwright.rules.told_pipeline import free_messages_note, lost_messages_note
from meshwright.schedules.orders import Orders
from meshwright.timeline.program import Messages
from meshwright.traffic.pipeline import message_bytes


@dataclass(frozen=True, slots=True)
class JobMessages:
    """Times of messages, where they come from, and what was taken for granted."""

    messages: Messages
    origin: Origin
    notes: tuple[Finding, ...] = ()


def job_messages(outline: Outline, orders: Orders | None, *, is_time: bool) -> JobMessages:
    """Return messages by the routes of the pipeline's ranks; free ones where nothing says their time.

    Parameters
    ----------
    orders
        A schedule of the user's own, whose stages may sit on any ranks.
    is_time
        Whether the stages' durations are seconds, beside which messages' can stand.
    """
    layout, place = outline.layout, outline.job.place
    if layout.pp < 2:
        return JobMessages(Messages.uniform(layout.pp), Origin.ASSUMED)
    work, fabric = workload_of(outline), outline.fabric
    size = None if work is None else message_bytes(work)
    kinds = [kind for kind in outline.kinds if kind.axis == "pp" and kind.degree == layout.pp]
    if fabric is None or size is None or not kinds or not is_time:
        # where times are multiples of something, the note on that says what messages take
        notes = (free_messages_note(place("cluster")),) if is_time else ()
        return JobMessages(Messages.uniform(layout.pp), Origin.ASSUMED, notes)
    slots = place_ranks(outline, fabric).slot_by_rank
    pairs = neighbours(layout.pp, () if orders is None else orders.rank_of_stage)
    sends = stage_sends(kinds[0].members(), slots, fabric, size, pairs)
    notes = (lost_messages_note(sends.lost, place("cluster")),) if sends.lost else ()
    return JobMessages(Messages(sends.send_s, sends.link), Origin.MODELLED, notes)
