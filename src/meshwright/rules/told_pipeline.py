"""Notes on what a pipeline's simulation took for granted."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.findings import Finding, Place
from meshwright.rules.note import note
from meshwright.units import format_flops

_MOST_PAIRS = 4
_TIMES = "--forward 0.01 --backward 0.01 --weight 0.01"


def stage_times_note(share: float, gpu: str, peak_flops_per_s: float, place: Place) -> Finding:
    """Say that stages take their FLOPs over a share of the GPU's peak."""
    return note(
        "assumed/stage-times",
        place,
        f"stages take their FLOPs over {share:.4g} of the dense peak of {gpu} "
        f"({format_flops(peak_flops_per_s)}/s): nothing measured says so, and communication inside a "
        "stage is not in it. The shares of the step hardly depend on it, its seconds do.",
        f"--efficiency 0.4, or times you measured: {_TIMES}",
        efficiency=share,
        peak_flops_per_s=peak_flops_per_s,
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


def no_rate_note(place: Place) -> Finding:
    """Say that times are multiples of one forward."""
    return note(
        "assumed/no-gpu-rate",
        place,
        "no GPU with a known peak is named, so times are multiples of a stage's mean forward, by FLOPs; "
        "messages take none.",
        f"cluster: dgx-h100 x 4, or times you measured: {_TIMES}",
    )
