"""Notes on what a pipeline's simulation took for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.findings import Finding, Place
from meshwright.rules.note import note
from meshwright.units import format_flops

_MOST_PAIRS = 4
_TIMES = "--forward 0.01 --backward 0.01 --weight 0.01"


def stage_times_note(
    share: float, peak: tuple[str, float, float], inside: Mapping[str, int], place: Place
) -> Finding:
    """Say that stages take their FLOPs over a share of the GPU's peak.

    Parameters
    ----------
    peak
        The GPU's name, its dense FLOP/s for matrix products with weights, and for attention's core and
        the output layer.
    inside
        Degree of each axis that communicates inside a stage.
    """
    gpu, peak_flops_per_s, wide_flops_per_s = peak
    also = ""
    if wide_flops_per_s != peak_flops_per_s:
        also = (
            f"; attention's core and the output layer at bf16's {format_flops(wide_flops_per_s)}/s"
        )
    axes = ", ".join(f"{axis} {degree}" for axis, degree in inside.items())
    between = f"communication inside a stage ({axes}) is" if axes else "no other overhead is"
    ask = "; meshwright map bounds it" if axes else ""
    return note(
        "assumed/stage-times",
        place,
        f"stages take their FLOPs over {share:.4g} of the dense peak of {gpu} "
        f"({format_flops(peak_flops_per_s)}/s{also}): nothing measured says so. "
        f"{between[0].upper()}{between[1:]} {'not ' if axes else ''}in it{ask}. "
        "The shares of the step hardly depend on the peak, its seconds do.",
        f"--efficiency 0.4, or times you measured: {_TIMES}",
        efficiency=share,
        peak_flops_per_s=peak_flops_per_s,
        inside=[f"{axis} {degree}" for axis, degree in inside.items()],
    )


def equal_stages_note(missing: str, place: Place) -> Finding:
    """Say that all stages take the same time, since what they compute is not known."""
    return note(
        "assumed/equal-stages",
        place,
        f"no {missing} is given, so all stages take the same: forward, input gradient and weight gradient "
        "one each. Times are multiples of that; messages take none.",
        f"give it, or times you measured: {_TIMES}",
        missing=missing,
    )


def free_messages_note(place: Place) -> Finding:
    """Say that messages between stages take no time."""
    return note(
        "assumed/free-messages",
        place,
        "messages between stages take no time here: without a cluster, or without the size of a "
        "microbatch, nothing says how long they are under way.",
        "--send 0.0003, or cluster: dgx-h100 x 4",
    )


def lost_messages_note(pairs: Sequence[tuple[int, int]], place: Place) -> Finding:
    """Say that messages between some stages have no time, or not all of it."""
    shown = ", ".join(f"{a} to {b}" for a, b in pairs[:_MOST_PAIRS])
    more = f" and {len(pairs) - _MOST_PAIRS} more" if len(pairs) > _MOST_PAIRS else ""
    return note(
        "assumed/lost-messages",
        place,
        f"no path of known rates joins the GPUs of pipeline ranks {shown}{more}, so these messages take too "
        "little time here; see meshwright map.",
        "--send 0.0003",
        pairs=[list(pair) for pair in pairs],
    )


def no_rate_note(gpu: str | None, precision: str, place: Place) -> Finding:
    """Say that times are multiples of one forward; ``gpu``: the one named, whose peak is not known."""
    why = "no GPU is named"
    if gpu is not None:
        why = f"the dense peak of {gpu} in {precision} is not known here"
    return note(
        "assumed/no-gpu-rate",
        place,
        f"{why}, so times are multiples of a stage's mean forward, by FLOPs; messages take none.",
        f"cluster: dgx-h100 x 4, or times you measured: {_TIMES}",
    )


def left_out_durations_note(times: Mapping[str, float], place: Place) -> Finding:
    """Say which durations are 1 s since they were left out beside others; ``times``: all three."""
    listed = ", ".join(f"{name} {value:g} s" for name, value in times.items())
    return note(
        "assumed/left-out-durations",
        place,
        f"a duration that is left out is 1 s, whatever the others are; here: {listed}.",
        f"all three: {_TIMES}",
        **{f"{name.replace(' ', '_')}_s": value for name, value in times.items()},
    )


def foreign_schedule_note(
    schedule: str, framework: str, runs: Sequence[str], place: Place
) -> Finding:
    """Say that the job's framework does not run the schedule; ``runs``: those it does."""
    if not runs:
        text = (
            "MaxText runs no order of forwards and backwards: its pipeline is a scan of m · repeats + p - 1 "
            "iterations (two a hop with pipeline_delay_activation_forwarding), whose backward follows when "
            "all of it is done, and in which idle stages compute on padding. That is not modelled: "
            f"{schedule} is simulated. Nearest are gpipe and, with repeats, looped-bfs: the same idle share "
            "(p-1)/(v·m+p-1), and everything kept until the backward."
        )
        remedy = "schedule: gpipe, or looped-bfs with vp: 2"
    else:
        text = f"{framework} runs {', '.join(runs)}; {schedule} is simulated all the same."
        remedy = f"schedule: {runs[-1]}"
    return note(
        "pipeline/schedule-of-framework",
        place,
        text,
        remedy,
        schedule=schedule,
        framework=framework,
        runs=list(runs),
    )


def other_batch_note(asked: int, given: int, place: Place) -> Finding:
    """Say that -m asks for another batch than the job's."""
    return note(
        "pipeline/other-batch",
        place,
        f"-m {asked} instead of the job's {given} microbatches of the same size: a step does "
        f"{asked / given:.4g} × the job's batch.",
        "--compare changes the microbatches of the same batch",
        microbatches=asked,
        given=given,
    )
