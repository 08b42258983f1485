"""What is asked of ``pipeline``: a schedule, its sizes, its stages and messages, from options or a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshwright.chain.pipeline_framework import FrameworkPipelines
from meshwright.chain.pipeline_room import Room
from meshwright.chain.pipeline_work import StageWork
from meshwright.findings import Finding, Place
from meshwright.origin import Origin
from meshwright.schedules.make_asked import Options
from meshwright.schedules.orders import Orders
from meshwright.timeline.program import Messages

OPTION_OF_KEY = {
    "batch.num_microbatches": "-m",
    "layout.pp": "-p",
    "layout.vp": "-v",
    "group": "--group",
    "training.schedule": "--schedule",
}


def place_of_option(key: str) -> Place:
    """Return the option that says what a key of a job file says."""
    return Place(subject=OPTION_OF_KEY.get(key, key))


@dataclass(frozen=True, slots=True)
class PipelineAsk:
    """One question.

    Parameters
    ----------
    title
        What the page is called.
    orders
        A schedule of the user's own; then ``schedule`` is its file's name.
    work
        Durations and activations of the stages.
    messages
        Time of a message between two ranks; ``messages_origin``: where it comes from.
    unit_is_time
        Whether durations are seconds; else they are multiples of a stage's mean forward.
    blocking
        Ranks wait for their sends; ``blocking_stated``: the user says so, for whatever schedule.
    reorder
        Make a greedy order for the durations given, too, and keep the faster one.
    scale
        Size of a microbatch against the one that ``work`` speaks of.
    by_options
        The question comes from the command line alone, so remedies name options.
    notes
        Findings known before anything is simulated.
    framework
        The job's, which runs some schedules and others not; ``holding``: those of which its ranks wait
        for their sends.
    micro_batch
        Sequences of a job's microbatch, of which there is no part; ``room``: how its memory is counted.
    """

    title: str
    schedule: str
    pp: int
    microbatches: int
    chunks: int | None
    work: StageWork
    messages: Messages
    group: int | None = None
    convention: str = "megatron"
    blocking: bool = False
    blocking_stated: bool = True
    reorder: bool = False
    scale: float = 1.0
    orders: Orders | None = None
    messages_origin: Origin = Origin.ASSUMED
    unit_is_time: bool = True
    by_options: bool = True
    place: Callable[[str], Place] = field(default=place_of_option)
    notes: Sequence[Finding] = ()
    framework: FrameworkPipelines | None = None
    holding: tuple[str, ...] = ()
    micro_batch: int | None = None
    room: Room | None = None

    @property
    def options(self) -> Options:
        """What the schedule is made from beside its name and sizes."""
        return {"chunks": self.chunks, "group": self.group, "convention": self.convention}
