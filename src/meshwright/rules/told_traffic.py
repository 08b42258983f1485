"""Notes on traffic: what is given by hand, what has no size, what loads no link."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from meshwright.findings import Finding, Severity
from meshwright.job.sections import TrafficItem
from meshwright.rules.note import PlaceOf, note
from meshwright.traffic.collective import Collective
from meshwright.units import format_bytes


def given_notes(
    items: Sequence[TrafficItem],
    degrees: Mapping[str, int],
    modelled: Sequence[Collective],
    place: PlaceOf,
) -> list[Finding]:
    """Say where traffic given by hand loads nothing, and where it replaces what is modelled."""
    findings = []
    known = {one.axis for one in modelled if one.is_known}
    for index, item in enumerate(items):
        key = f"traffic[{index}].axis"
        if degrees[item.axis] < 2:
            message = (
                f"{item.axis} has one rank a group: nothing is sent, the given bytes load nothing."
            )
            findings.append(
                Finding(
                    "traffic/axis-of-one",
                    Severity.WARNING,
                    place(key),
                    message,
                    {"axis": item.axis},
                    "leave it out, or give it for an axis of more ranks",
                )
            )
        elif item.axis in known:
            message = f"traffic given for {item.axis} replaces all that is modelled on it."
            findings.append(note("traffic/given-replaces", place(key), message, axis=item.axis))
    return findings


def traffic_notes(
    collectives: Sequence[Collective], axes: Collection[str], place: PlaceOf
) -> list[Finding]:
    """Say which collectives load nothing in this report: of unknown size, or over groups not listed."""
    return [*_unsized(collectives, place), *_ungrouped(collectives, axes, place)]


def _unsized(collectives: Sequence[Collective], place: PlaceOf) -> list[Finding]:
    unknown = [one for one in collectives if not one.is_known and one.phase != "input"]
    if not unknown:
        return []
    axes = list(dict.fromkeys(one.axis for one in unknown))
    rows: dict[tuple[str, str | None], dict[str, None]] = {}
    for one in unknown:
        rows.setdefault((one.axis, one.reason), {})[one.what] = None
    listed = "; ".join(
        f"{axis}: {', '.join(what)}" + (f" ({reason})" if reason else "")
        for (axis, reason), what in rows.items()
    )
    # What is given by hand replaces an axis, so it is no remedy where a part is modelled.
    empty = [
        axis for axis in axes if not any(one.is_known for one in collectives if one.axis == axis)
    ]
    op = next((one.op for one in unknown if one.axis in empty), None)
    return [
        note(
            "traffic/not-modelled",
            place("layout"),
            f"runs, but its bytes are not known (null, not zero; no load is shown for it): {listed}.",
            f"give it by hand: traffic: [{{axis: {empty[0]}, op: {op}, bytes: 1 GB, count: 1}}]"
            if empty
            else None,
            axes=axes,
        )
    ]


def _ungrouped(
    collectives: Sequence[Collective], axes: Collection[str], place: PlaceOf
) -> list[Finding]:
    """Say what has a size and no groups: fewer ranks than an axis, or pairs of opposed pipelines."""
    known = [one for one in collectives if one.is_known and not one.is_minor]
    lost = [one for one in known if one.axis not in axes]
    if not lost:
        return []
    total = {one.axis: 0.0 for one in lost}
    for one in lost:
        if one.bytes_by_stage is not None and one.count_by_stage is not None:
            total[one.axis] += float((one.bytes_by_stage * one.count_by_stage).max())
    listed = "; ".join(
        f"{axis}: {', '.join(dict.fromkeys(one.what for one in lost if one.axis == axis))}, "
        f"{format_bytes(size)} a step (S)"
        for axis, size in total.items()
    )
    return [
        note(
            "traffic/groups-not-listed",
            place("layout"),
            f"runs, and its size is known, but over groups that are not listed, so it loads no link: {listed}.",
            axes=list(total),
            bytes=total,
        )
    ]
