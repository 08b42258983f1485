"""Measured sizes given to ``meshwright memory``: live sizes, peaks by microbatches, communicators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from meshwright.errors import UsageError
from meshwright.findings import Finding, Place, Severity
from meshwright.memory.communicators import Communicator
from meshwright.memory.measured import LiveMemory, halve_micro_batch, kept_words, peak_trend
from meshwright.report.memory_report import MemoryPage
from meshwright.schedules.names import schedule_name
from meshwright.units import format_binary_bytes, format_bytes, parse_bytes

_MOST_VALUES = 1000
_SHOWN = 60
"""Characters of an option that are repeated in an error."""


def pairs_of(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of ``NAME=VALUE`` texts, each name once. Raises ``UsageError``."""
    if len(given) > _MOST_VALUES:
        raise UsageError(f"{option}: at most {_MOST_VALUES} values")
    seen: set[str] = set()
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {text[:_SHOWN]!r}: write NAME=VALUE")
        name = name.strip()
        if name in seen:
            raise UsageError(f"{option} {name[:_SHOWN]!r} is given twice")
        seen.add(name)
        yield name, value.strip()


def size_of(option: str, text: str) -> float:
    """Return a size in bytes. Raises ``UsageError``."""
    try:
        size = float(parse_bytes(text))
    except ValueError as error:
        raise UsageError(f"{option}: {str(error)[:300]}") from None
    if size <= 0:
        raise UsageError(f"{option} {text[:_SHOWN]}: a size above 0 is needed")
    return size


def measured_page(options: dict[str, Any]) -> MemoryPage:
    """Return the page of measured sizes without a job. Raises ``UsageError``."""
    if options["live"] is None and not options["peaks"]:
        raise UsageError("give a job file, or measured sizes: --live with --part, or --peak")
    measured, findings = measured_beside(options, ())
    capacity = options["capacity"]
    size = None if capacity is None else size_of("--capacity", capacity)
    return MemoryPage("measured", None, findings, measured=measured, capacity_bytes=size)


def measured_beside(
    options: dict[str, Any], held: Sequence[Communicator]
) -> tuple[dict[str, Any], list[Finding]]:
    """Return what the measured sizes say, and its findings. Raises ``UsageError``."""
    measured: dict[str, Any] = {}
    findings: list[Finding] = []
    for part, found in (_live(options), _peaks(options), _first_collective(options, held)):
        measured |= part
        findings += found
    return measured, findings


_Said = tuple[dict[str, Any], list[Finding]]


def _live_given(options: dict[str, Any]) -> LiveMemory:
    """Return the live size with its parts. Raises ``UsageError``."""
    parts = {name: size_of("--part", text) for name, text in pairs_of("--part", options["parts"])}
    if not parts or options["capacity"] is None or options["micro_batch"] is None:
        raise UsageError("--live needs --part, --capacity and --micro-batch")
    whole = size_of("--live", options["live"])
    if sum(parts.values()) > whole:
        raise UsageError(
            f"--part: the parts are {format_binary_bytes(sum(parts.values()))}, more than the "
            f"{format_binary_bytes(whole)} of --live"
        )
    capacity = size_of("--capacity", options["capacity"])
    return LiveMemory(whole, parts, capacity, options["micro_batch"])


def _live(options: dict[str, Any]) -> _Said:
    if options["live"] is None:
        return {}, []
    live = _live_given(options)
    measured: dict[str, Any] = {
        "live_bytes": live.live,
        "rest_bytes": live.rest,
        "dominant": live.dominant,
    }
    halved = halve_micro_batch(live)
    if halved is None or live.dominant != "activations":
        return measured, []
    measured |= {
        "micro_batch_after": halved.micro_batch,
        "activations_after_bytes": halved.activations,
        "live_after_bytes": halved.live,
        "margin_bytes": halved.margin,
    }
    share = 100 * live.parts[live.dominant] / live.live
    message = (
        f"{live.dominant} are {format_bytes(live.parts[live.dominant])} of "
        f"{format_bytes(live.live)} live ({share:.0f} %), {format_bytes(live.rest)} is in no part. "
        f"With micro_batch {halved.micro_batch} instead of {live.micro_batch} they are "
        f"{format_bytes(halved.activations)} if they scale with it; then "
        f"{format_binary_bytes(halved.live)} are live, {format_binary_bytes(halved.margin)} below the "
        f"capacity of {format_binary_bytes(live.capacity)}."
    )
    numbers = {key: value for key, value in measured.items() if key != "dominant"}
    remedy = f"micro_batch: {halved.micro_batch}, with twice the microbatches"
    place = Place(subject="--live")
    return measured, [
        Finding("memory/measured-parts", Severity.NOTE, place, message, numbers, remedy)
    ]


def _peaks(options: dict[str, Any]) -> _Said:
    if not options["peaks"]:
        return {}, []
    schedule = schedule_name(options["schedule"], 1)
    if schedule is None:
        raise UsageError(f"--schedule {options['schedule']!r} is not known")
    rows: list[tuple[int, float | None]] = []
    for name, text in pairs_of("--peak", options["peaks"]):
        if not name.isdecimal() or not 0 < int(name) < 1 << 20:
            raise UsageError(f"--peak {name!r}: M is a number of microbatches")
        if any(int(name) == count for count, _ in rows):
            raise UsageError(f"--peak: {int(name)} microbatches are given twice")
        rows.append((int(name), None if text.upper() == "OOM" else size_of("--peak", text)))
    if len(rows) < 2:
        raise UsageError("--peak: give at least two, with different numbers of microbatches")
    trend = peak_trend(rows, schedule)
    measured: dict[str, Any] = {
        "schedule": schedule,
        "expected_trend": trend.expected,
        "observed_trend": trend.observed,
        "slope_bytes_per_microbatch": trend.slope,
        "cause_class": trend.causes[0].cause_class if trend.causes else None,
        "causes": [{"cause_class": one.cause_class, "reason": one.reason} for one in trend.causes],
    }
    if not trend.causes:
        return measured, []
    slope = "" if trend.slope is None else f" by {format_binary_bytes(trend.slope)} a microbatch"
    message = (
        f"{kept_words(schedule)}, so the peak should not rise. It rises{slope}. "
        f"Likeliest: {trend.causes[0].reason}."
    )
    numbers = {"slope_bytes_per_microbatch": trend.slope}
    return measured, [
        Finding(
            "memory/peak-rises-with-microbatches",
            Severity.WARNING,
            Place(subject="--peak"),
            message,
            numbers,
            "; ".join(one.reason for one in trend.causes[1:]),
        )
    ]


def _first_collective(options: dict[str, Any], held: Sequence[Communicator]) -> _Said:
    if not options["first_collective"]:
        return {}, []
    before, after = (size_of("--first-collective", text) for text in options["first_collective"])
    if after < before:
        raise UsageError(
            f"--first-collective: the device shows less after ({format_binary_bytes(after)}) than before "
            f"({format_binary_bytes(before)})"
        )
    point = [one for one in held if one.use == "point-to-point"]
    modelled = max((one.bytes for one in point), default=None)
    extra = after - before
    measured: dict[str, Any] = {"extra_bytes": extra, "modelled_p2p_buffers_bytes": modelled}
    if modelled is None:
        return measured, []
    largest = max(point, key=lambda one: one.bytes)
    share = "" if extra <= 0 else f", {100 * modelled / extra:.0f} % of the measured extra"
    message = (
        f"the first all-to-all took {format_bytes(extra)} a GPU. NCCL allocates point-to-point buffers "
        "a channel and peer outside the framework's allocator, when a group is first used: "
        f"{largest.channels} channels × {largest.peers_inside} peers × "
        f"({format_binary_bytes(largest.receive_buffer_bytes)} at the receiver + "
        f"{format_binary_bytes(largest.send_buffer_bytes)} at the sender) = "
        f"{format_binary_bytes(modelled)}{share}. torch does not show them, and lazily created groups "
        "fail late."
    )
    return measured, [
        Finding(
            "memory/communicators-outside-allocator",
            Severity.NOTE,
            Place(subject="--first-collective"),
            message,
            {"extra_bytes": extra, "modelled_bytes": modelled},
            "fewer channels (NCCL_MAX_P2P_NCHANNELS) or smaller buffers (NCCL_BUFFSIZE)",
        )
    ]
