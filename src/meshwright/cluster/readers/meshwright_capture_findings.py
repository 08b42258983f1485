"""What a capture shows to be wrong: links below their full speed or width, ports, lost sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meshwright.capture.document import Capture, PciDevice
from meshwright.cluster.readers.meshwright_capture_nics import Nics, Port
from meshwright.cluster.readers.meshwright_capture_tree import PciTree, Seated, gt_per_s
from meshwright.documents import Decoded
from meshwright.findings import Finding, Number, Place, Severity
from meshwright.units import format_rate, verb

_SHOWN = 8
_LISTED = 100
_FITS = 0.75
"""A PCIe link that carries less of its adapter's rate than this is too small.

NCCL's figures are net of overhead: 48 GB/s of a gen 5 x16 link for a port of 50."""


def missing_sources(captured: Decoded[Capture], capture: Capture) -> Iterator[Finding]:
    """Yield a note for each source that gave nothing."""
    for at, one in enumerate(capture.missing[:_SHOWN]):
        yield Finding(
            "topology/source-missing",
            Severity.NOTE,
            captured.place(f"missing[{at}]"),
            f"the capture has no {one.what[:80]}: {one.why[:300]}",
            {},
            one.remedy,
        )


def pcie_findings(
    captured: Decoded[Capture], tree: PciTree, gpus: Sequence[Seated], nics: Sequence[Seated]
) -> Iterator[Finding]:
    """Yield PCIe links of GPUs, NICs and the switches above them that run below their best.

    The best of a link is what both its ends can do. A GPU without work slows its link down: its
    speed gives a note, its width a warning.
    """
    place = captured.place("pci")
    names: dict[str, list[str]] = {}
    for one in (*gpus, *nics):
        if one.pci in tree.devices:
            names.setdefault(str(one.pci), []).append(one.name)
    gpu_links = {str(one.pci) for one in gpus}
    seats = [] if tree.hides_links else [tree.seats[pci] for pci in names if pci in tree.seats]
    switches = {port: [f"switch {port}"] for seat in seats for port in tree.upstream_ports(seat)}
    narrow: dict[tuple[int, int], list[str]] = {}
    slow: dict[tuple[bool, str, str], list[str]] = {}
    for pci, named in {**names, **switches}.items():
        device, port = tree.devices[pci], tree.port_above(pci)
        lanes = _least(device.max_width, port.max_width if port else None)
        if device.width is not None and lanes is not None and device.width < lanes:
            narrow.setdefault((device.width, lanes), []).append("/".join(named))
        best = _slower(device, port)
        now = gt_per_s(device.speed)
        if now is not None and best is not None and now < best:
            key = (pci in gpu_links, f"{now:g}", f"{best:g}")
            slow.setdefault(key, []).append("/".join(named))
    for (width, lanes), links in narrow.items():
        yield _narrow(place, links, width, lanes)
    for (is_gpu, now_text, best_text), links in slow.items():
        yield _slow(place, links, (now_text, best_text), is_gpu=is_gpu)


def _least(one: int | None, other: int | None) -> int | None:
    known = [lanes for lanes in (one, other) if lanes is not None]
    return min(known, default=None)


def _slower(device: PciDevice, port: PciDevice | None) -> float | None:
    """Return the GT/s of the end of a link that can do less."""
    speeds = (gt_per_s(one.max_speed) for one in (device, port) if one is not None)
    return min((speed for speed in speeds if speed is not None), default=None)


def _narrow(place: Place, links: list[str], width: int, lanes: int) -> Finding:
    return Finding(
        "topology/pcie-link-narrow",
        Severity.WARNING,
        place,
        f"PCIe link of {_some(links)} runs on {width} of {lanes} lanes",
        {"count": len(links), "links": [*links[:_LISTED]], "lanes": width, "max_lanes": lanes},
        "reseat the card or its cable; look for AER errors in dmesg",
    )


def _slow(place: Place, links: list[str], speeds: tuple[str, str], *, is_gpu: bool) -> Finding:
    now, best = speeds
    numbers: dict[str, Number] = {
        "count": len(links),
        "links": [*links[:_LISTED]],
        "gt_per_s": now,
        "max_gt_per_s": best,
    }
    if is_gpu:
        message = (
            f"PCIe link of {_some(links)} ran at {now} GT/s of {best} when captured, as GPUs do "
            "without work; full speed is taken"
        )
        return Finding("topology/gpu-link-idle", Severity.NOTE, place, message, numbers)
    return Finding(
        "topology/pcie-link-slow",
        Severity.WARNING,
        place,
        f"PCIe link of {_some(links)} runs at {now} GT/s of {best}",
        numbers,
        "reseat the card or its cable; look at the slot's speed in the firmware's set-up",
    )


def port_findings(captured: Decoded[Capture], tree: PciTree, nics: Nics) -> Iterator[Finding]:
    """Yield RDMA ports that are not active, slower than their siblings, or above their PCIe link."""
    idle = [one for one in nics.ports if one.port is not None and not one.is_active]
    if idle:
        states = (f"{one.name} ({_state(one)})" for one in idle[:_SHOWN])
        yield Finding(
            "topology/port-not-active",
            Severity.WARNING,
            captured.place(idle[0].path),
            f"{len(idle)} of {len(nics.ports)} RDMA ports {verb(len(idle))} not active: {', '.join(states)}"
            + (", …" if len(idle) > _SHOWN else ""),
            {"count": len(idle), "ports": [one.name for one in idle[:_SHOWN]]},
            "look at the cable and the switch port; Polling is a missing far end, Initializing a "
            "missing subnet manager",
        )
    yield from _slow_ports(captured, nics)
    yield from _above_pcie(captured, tree, nics)


def _state(one: Port) -> str:
    words = (one.port.state, one.port.physical_state) if one.port else ()
    return ", ".join(word.split(":")[-1].strip()[:40] for word in words if word) or "state unknown"


def _slow_ports(captured: Decoded[Capture], nics: Nics) -> Iterator[Finding]:
    """Compare active ports of equal boards."""
    siblings: dict[tuple[str | None, str | None, str | None], list[tuple[Port, float]]] = {}
    for one in nics.ports:
        rate = one.rate_bytes_per_s
        if rate is not None and one.port is not None:
            key = (one.device.board, one.device.type, one.port.link_layer)
            siblings.setdefault(key, []).append((one, rate))
    for ports in siblings.values():
        best = max(rate for _, rate in ports)
        slow = [(one, rate) for one, rate in ports if rate < best]
        if slow:
            names = [f"{one.name} ({format_rate(rate)})" for one, rate in slow]
            yield Finding(
                "topology/port-rate-differs",
                Severity.WARNING,
                captured.place(slow[0][0].path),
                f"{_some(names)}: slower than equal adapters of this host ({format_rate(best)})",
                {
                    "count": len(slow),
                    "best_bytes_per_s": best,
                    "ports": [one.name for one, _ in slow[:_LISTED]],
                },
                "look at the cable and the speed set on the switch port",
            )


def _above_pcie(captured: Decoded[Capture], tree: PciTree, nics: Nics) -> Iterator[Finding]:
    """Compare the ports of one PCI function with its link."""
    of_link: dict[str, float] = {}
    names: dict[str, list[str]] = {}
    for one in nics.ports:
        if one.device.pci in tree.devices and one.rate_bytes_per_s:
            pci = str(one.device.pci)
            of_link[pci] = of_link.get(pci, 0.0) + one.rate_bytes_per_s
            names.setdefault(pci, []).append(one.name)
    for pci, rate in of_link.items():
        carried = tree.rate(pci)
        if carried is not None and carried < _FITS * rate:
            yield Finding(
                "topology/pcie-below-port",
                Severity.WARNING,
                captured.place("pci"),
                f"PCIe link of {'/'.join(names[pci])} carries {format_rate(carried)}, its ports "
                f"{format_rate(rate)} a direction",
                {"pcie_bytes_per_s": carried, "port_bytes_per_s": rate},
                "put the adapter into a slot of its own speed and width",
            )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
