"""``nvidia-smi nvlink -s``, second step: GPUs with links down, slow or in an unknown state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.readers.nvidia_smi_nvlink_s_listing import GpuLinks
from meshwright.findings import Finding, Place, Severity
from meshwright.units import plural

_SHOWN = 20


class _Peers(msgspec.Struct, frozen=True):
    """What the GPUs of one model show together."""

    numbers: frozenset[int]
    """Links that any of them lists."""
    most_up: int
    usual_rate: float | None


class _Lack(msgspec.Struct, frozen=True):
    """What a GPU lacks; GPUs that lack the same are reported together."""

    model: str | None
    up: int
    inactive: tuple[int, ...]
    unlisted: tuple[int, ...]
    no_links: str | None


def link_findings(gpus: Sequence[GpuLinks], path: str) -> list[Finding]:
    """Return one finding for each set of GPUs that lack the same links, then the odd rates."""
    by_model: dict[str | None, list[GpuLinks]] = {}
    for gpu in gpus:
        by_model.setdefault(gpu.model, []).append(gpu)
    peers = {model: _peers(members) for model, members in by_model.items()}
    return [
        *_down(gpus, peers, path),
        *_unknown_states(gpus, path),
        *_odd_rates(gpus, peers, path),
    ]


def _peers(members: Sequence[GpuLinks]) -> _Peers:
    rates = Counter(
        link.rate for gpu in members for link in gpu.links.values() if link.up and link.rate
    )
    return _Peers(
        numbers=frozenset(number for gpu in members for number in gpu.links),
        most_up=max(_num_up(gpu) for gpu in members),
        usual_rate=rates.most_common(1)[0][0] if rates else None,
    )


def _num_up(gpu: GpuLinks) -> int:
    return sum(link.up is True for link in gpu.links.values())


def _down(gpus: Sequence[GpuLinks], peers: dict[str | None, _Peers], path: str) -> list[Finding]:
    groups: dict[_Lack, list[GpuLinks]] = {}
    for gpu in gpus:
        lack = _Lack(
            model=gpu.model,
            up=_num_up(gpu),
            inactive=tuple(sorted(k for k, link in gpu.links.items() if link.up is False)),
            unlisted=tuple(sorted(peers[gpu.model].numbers - set(gpu.links))),
            no_links=gpu.no_links,
        )
        fewer = lack.up < peers[gpu.model].most_up
        if lack.inactive or lack.no_links == "inactive" or fewer:
            groups.setdefault(lack, []).append(gpu)
    return [
        _down_finding(lack, members, peers[lack.model], path) for lack, members in groups.items()
    ]


def _down_finding(lack: _Lack, members: list[GpuLinks], peers: _Peers, path: str) -> Finding:
    gpu = members[0]
    parts = []
    if lack.inactive:
        parts.append(f"inactive: {_ranges(lack.inactive)}")
    if lack.unlisted:
        parts.append(f"not listed: {_ranges(lack.unlisted)}")
    if lack.no_links == "inactive":
        parts.append("the driver calls all of them inactive")
    if lack.up < peers.most_up:
        parts.append(f"a peer has {peers.most_up} up")
    names = ", ".join(f"GPU{member.index}" for member in members[:_SHOWN])
    more = f" and {len(members) - _SHOWN} more" if len(members) > _SHOWN else ""
    total = f" of {len(peers.numbers)}" if peers.numbers else ""
    line = gpu.links[lack.inactive[0]].line if lack.inactive else gpu.line
    return Finding(
        rule="topology/nvlinks-down",
        severity=Severity.WARNING,
        place=Place(path, line, 1, f"GPU{gpu.index}"),
        message=f"{names}{more}: {lack.up}{total} NVLinks up ({'; '.join(parts)})",
        numbers={
            "gpus": [member.index for member in members],
            "up": lack.up,
            "most_up": peers.most_up,
            "inactive": [*lack.inactive],
            "unlisted": [*lack.unlisted],
        },
        remedy="look at nvidia-smi nvlink -e, at dmesg for Xid 74, and at the fabric manager or, "
        "for PCIe cards, at the bridges",
    )


def _ranges(numbers: Iterable[int]) -> str:
    """Return ``0-3, 7`` for 0, 1, 2, 3, 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _unknown_states(gpus: Sequence[GpuLinks], path: str) -> list[Finding]:
    unknown = [
        (gpu, number)
        for gpu in gpus
        for number, link in sorted(gpu.links.items())
        if link.up is None
    ]
    if not unknown:
        return []
    gpu, number = unknown[0]
    return [
        Finding(
            rule="topology/nvlink-state-unknown",
            severity=Severity.NOTE,
            place=Place(path, gpu.links[number].line, 1, f"GPU{gpu.index}"),
            message=f"{plural(len(unknown), 'link')} {'has' if len(unknown) == 1 else 'have'} neither a rate nor <inactive>, the first is Link "
            f"{number} of GPU{gpu.index}: neither counted as up nor as down",
            numbers={"count": len(unknown)},
        )
    ]


def _odd_rates(
    gpus: Sequence[GpuLinks], peers: dict[str | None, _Peers], path: str
) -> list[Finding]:
    """Find links whose raw rate is not the usual one of the GPUs of this model."""
    odd = [
        (gpu, number)
        for gpu in gpus
        for number, link in sorted(gpu.links.items())
        if link.up and link.rate != peers[gpu.model].usual_rate
    ]
    if not odd:
        return []
    gpu, number = odd[0]
    link, usual = gpu.links[number], peers[gpu.model].usual_rate
    return [
        Finding(
            rule="topology/nvlink-rate-differs",
            severity=Severity.WARNING,
            place=Place(path, link.line, 1, f"GPU{gpu.index}"),
            message=f"{plural(len(odd), 'link')} {'runs' if len(odd) == 1 else 'run'} at another rate than most, the first is Link {number} "
            f"of GPU{gpu.index}: {link.rate:g} GB/s (raw) where {usual:g} is usual",
            numbers={"count": len(odd), "links": [[g.index, k] for g, k in odd[:_SHOWN]]},
            remedy="look at nvidia-smi nvlink -e; a link that was retrained may need a reset",
        )
    ]
