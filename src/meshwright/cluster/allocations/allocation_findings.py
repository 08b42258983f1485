"""What a job should know of its allocation before it starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.cluster.allocations.allocation import Allocation, Segments
from meshwright.cluster.hostlist import compress_hostlist
from meshwright.cluster.readers.document_values import shown
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import plural, verb

_LISTED = 100
_MAX_LIST = 2000
"""Characters of a hostlist that a remedy holds."""


def allocation_findings(allocation: Allocation) -> list[Finding]:
    """Return findings on hosts, segments and order."""
    return [*_unknown(allocation), *_segments(allocation), *_order(allocation)]


def _unknown(allocation: Allocation) -> Iterator[Finding]:
    unknown = allocation.unknown
    if not unknown:
        return
    message = (
        f"{len(unknown)} of {len(allocation.hosts)} allocated hosts {verb(len(unknown))} in no leaf and no "
        f"block of the sources ({shown(unknown)}); ring edges and segments leave them out"
    )
    numbers: dict[str, Number] = {"count": len(unknown), "hosts": [*unknown[:_LISTED]]}
    remedy = (
        "give the topology of the cluster that the job runs on, or compare the spelling of names"
    )
    yield Finding("allocation/hosts-unknown", Severity.WARNING, Place(), message, numbers, remedy)


def _segments(allocation: Allocation) -> Iterator[Finding]:
    segments, blocks = allocation.segments, allocation.blocks
    if segments is None or blocks is None:
        return
    place = Place(file=blocks.path)
    numbers = _segment_numbers(segments)
    if not segments.segments_ok:
        message = _broken(allocation, segments)
        remedy = _remedy_of_segments(allocation, segments)
        yield Finding(
            "allocation/segments-broken", Severity.WARNING, place, message, numbers, remedy
        )
    elif segments.groups_crossing:
        order = _in_blocks(allocation)
        yield Finding(
            "allocation/segment-order",
            Severity.WARNING,
            place,
            f"every block holds whole segments of {segments.segment}, but in name order "
            f"{_groups(segments)}",
            numbers,
            _remedy(order, "BlockAsNodeRank"),
        )


def _broken(allocation: Allocation, segments: Segments) -> str:
    hosts, size = len(allocation.hosts), segments.segment
    if not segments.divides:
        return f"{hosts} hosts are no whole number of segments of {size}"
    actual = "+".join(map(str, segments.actual.values()))
    if segments.expected is None:
        wanted = f"the blocks named cannot hold {plural(hosts // size, 'segment')}"
    else:
        wanted = f"expected {'+'.join(map(str, segments.expected.values()))}"
    crossing = f"; in rank order {_groups(segments)}" if segments.groups_crossing else ""
    lost = len(allocation.hosts) - sum(segments.actual.values())
    outside = f" and {lost} in no known block" if lost else ""
    return (
        f"{hosts} hosts in segments of {size}: {actual}{outside} hosts by block "
        f"({shown([*segments.actual])}) where {wanted}{crossing}"
    )


def _remedy_of_segments(allocation: Allocation, segments: Segments) -> str:
    if not segments.divides:
        size = segments.segment
        fewer = len(allocation.hosts) // size * size
        numbers = [str(number) for number in (fewer, fewer + size) if number]
        return f"ask for {' or '.join(numbers)} hosts, or for another segment"
    return (
        f"release it and ask again with --segment={segments.segment}; if it stays so, compare "
        "scontrol show topology with the topology file, then restart slurmctld (SchedMD/slurm "
        "issue 225)"
    )


def _groups(segments: Segments) -> str:
    """Return ``groups 1, 2 (of 12 hosts, counted from 0) cross a block``."""
    count = len(segments.groups_crossing)
    which = shown([str(group) for group in segments.groups_crossing], 10)
    return (
        f"group{'' if count == 1 else 's'} {which} (of {segments.segment} hosts, counted from 0) "
        f"cross{'es' if count == 1 else ''} a block"
    )


def _segment_numbers(segments: Segments) -> dict[str, Number]:
    return {
        "segment": segments.segment,
        "expected": segments.expected,
        "actual": segments.actual,
        "groups_crossing": [*segments.groups_crossing[:_LISTED]],
    }


def _order(allocation: Allocation) -> Iterator[Finding]:
    crossings, order = allocation.crossings, allocation.switch_order
    if crossings is None or order is None or crossings["name"] <= crossings["switch"]:
        return
    groups = allocation.leaves or allocation.blocks
    what = "leaf" if allocation.by == "leaf" else "block"
    given = ""
    if crossings["given"] not in (crossings["name"], crossings["switch"]):
        given = f", in the order given {crossings['given']}"
    parameter = "SwitchAsNodeRank" if what == "leaf" else "BlockAsNodeRank"
    yield Finding(
        "allocation/order-crosses-switches",
        Severity.WARNING,
        Place(file=groups.path if groups else None),
        f"Slurm numbers these {len(order)} hosts by name: {crossings['name']} edges of a ring leave a "
        f"{what}; {what} by {what} it would be {crossings['switch']}{given}",
        {
            "ring_crossings_name_order": crossings["name"],
            "ring_crossings_switch_order": crossings["switch"],
            "given_order_crossings": crossings["given"],
            "hosts": len(order),
        },
        _remedy(order, parameter),
    )


def _in_blocks(allocation: Allocation) -> Sequence[str]:
    """Return the hosts block by block, whatever the leaves say."""
    blocks = [*allocation.blocks.members] if allocation.blocks else []
    rank = {name: number for number, name in enumerate(blocks, 1)}
    return sorted(
        allocation.name_order, key=lambda host: rank.get(allocation.block_of.get(host, ""), 0)
    )


def _remedy(order: Sequence[str], parameter: str) -> str:
    """Return the commands that give ranks this order, and the setting for all jobs."""
    listed = compress_hostlist(order)
    make = f"scontrol show hostnames '{listed}' > hosts.txt"
    if len(listed) > _MAX_LIST:
        make = "add --json, and jq -r '.allocation.switch_order[]' > hosts.txt"
    return (
        f"{make}; SLURM_HOSTFILE=hosts.txt srun --distribution=arbitrary … (the file has one line a "
        "task: with several tasks a host, repeat each line so many times). For all jobs, the "
        f"administrator sets TopologyParam={parameter}"
    )
