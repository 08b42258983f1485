"""Which GPU and which NIC of one source is which of another's, on one host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from meshwright.cluster.facts import Facts, Gpu, Nic
from meshwright.cluster.join.keys import guid_key, is_guid, pci_key
from meshwright.cluster.join.said import JoinMade, join_made, some, told
from meshwright.findings import Finding, Severity

_NOT_THE_DRIVER = ("cuda", "opencl")

Member = dict[int, int]
"""One device: source number to the device's position in that source."""


@dataclass(slots=True)
class Joining:
    """The devices of one host as they are gathered, and what was said on the way."""

    sources: list[Facts] = field(default_factory=list)
    apart: list[Facts] = field(default_factory=list)
    gpus: list[Member] = field(default_factory=list)
    nics: list[Member] = field(default_factory=list)
    gpu_indices: list[dict[int, int]] = field(default_factory=list)
    """By source: position to the driver's number of the GPU."""
    joins: list[JoinMade] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Return the paths of the sources joined so far."""
        return " + ".join(facts.path for facts in self.sources)

    def gpu_values(self, of: Callable[[Gpu], str | None]) -> list[dict[str, None]]:
        """Return for each GPU the values that its sources give, in order."""
        return [_values(self.sources, group, lambda f: f.gpus or (), of) for group in self.gpus]

    def nic_values(self, of: Callable[[Nic], str | None]) -> list[dict[str, None]]:
        """Return for each NIC the values that its sources give, in order."""
        return [_values(self.sources, group, lambda f: f.nics or (), of) for group in self.nics]

    def add(self, facts: Facts) -> None:
        """Join one more source, or set it apart with a finding where that cannot be done."""
        number = len(self.sources)
        gpus = facts.gpus or ()
        indices = driver_numbers(facts)
        if gpus and self.gpus:
            partner = self._gpu_partners(facts, indices)
            if partner is None:
                self.apart.append(facts)
                return
            _take(self.gpus, partner, number, len(gpus))
        else:
            self.gpus += [{number: at} for at in range(len(gpus))]
        self.gpu_indices.append(indices)
        self._add_nics(facts, number)
        self.sources.append(facts)

    def _gpu_partners(self, facts: Facts, indices: dict[int, int]) -> dict[int, int] | None:
        """Return position in the new source to GPU joined so far; ``None``: no key fits."""
        gpus = facts.gpus or ()
        sides = (self.path, facts.path)
        for key, of in (("pci", gpu_pci), ("uuid", gpu_uuid)):
            known = self.gpu_values(of)
            if any(known) and any(of(gpu) for gpu in gpus):
                partner = _by_value(known, [of(gpu) for gpu in gpus])
                # Each with GPUs of its own: two machines, whose addresses agree here and there.
                if len(partner) < min(len(gpus), len(self.gpus)):
                    self.findings.append(_no_common(sides, key, known, [of(gpu) for gpu in gpus]))
                    return None
                self._joined(sides, key, partner, len(gpus))
                return partner
        at = {
            self.gpu_indices[number][place]: position
            for position, group in enumerate(self.gpus)
            for number, place in reversed(group.items())
        }
        if len(gpus) != len(self.gpus) or set(indices.values()) != set(at):
            self.findings.append(_numbers_differ(sides, len(self.gpus), len(gpus)))
            return None
        partner = {position: at[index] for position, index in indices.items()}
        self.findings.append(self._by_number(sides, facts))
        self._joined(sides, "index", partner, len(gpus))
        return partner

    def _by_number(self, sides: tuple[str, str], facts: Facts) -> Finding:
        unnumbered = [one for one in (*self.sources, facts) if not is_numbered(one)]
        how = (
            f"{unnumbered[0].path} has no driver's numbers, so its GPUs are taken in the order of their "
            "PCI addresses, as the driver numbers them"
            if unnumbered
            else "both have the same numbers"
        )
        return told(
            "joined-by-number",
            Severity.NOTE,
            sides,
            f"the {len(self.gpus)} GPUs of {sides[0]} and {sides[1]} are joined by number, for no "
            f"PCI address and no UUID stands in both; {how}",
            "add nvidia-smi --query-gpu=index,pci.bus_id,uuid, or an NCCL topology dump of the host",
            gpus=len(self.gpus),
        )

    def _joined(
        self, sides: tuple[str, str], key: str, partner: dict[int, int], count: int
    ) -> None:
        left = [f"GPU{n}" for n in sorted(set(range(len(self.gpus))) - set(partner.values()))]
        right = [f"GPU{n}" for n in sorted(set(range(count)) - set(partner))]
        self.joins.append(join_made(sides, key, len(partner), (left, right)))
        if left or right:
            self.findings.append(
                told(
                    "conflict-gpu-count",
                    Severity.WARNING,
                    sides,
                    f"{len(self.gpus)} GPUs in {sides[0]} and {count} in {sides[1]}: "
                    f"{len(partner)} are in both by {key}; all are kept",
                    "take both files on the same machine, outside of a container",
                    in_left=len(self.gpus),
                    in_right=count,
                    matched=len(partner),
                )
            )

    def _add_nics(self, facts: Facts, number: int) -> None:
        nics = facts.nics or ()
        if not nics or not self.nics:
            self.nics += [{number: at} for at in range(len(nics))]
            return
        sides = (self.path, facts.path)
        partner, keys = self._nic_partners(nics)
        left = set(range(len(self.nics))) - set(partner.values())
        right = [nics[at].name for at in range(len(nics)) if at not in partner]
        shown = [next(iter(names), "?") for names in self.nic_values(lambda nic: nic.name)]
        if not partner:
            self.findings.append(_no_nic(sides, shown, right))
            return
        only = ([shown[at] for at in sorted(left)], right)
        self.joins.append(join_made(sides, keys, len(partner), only))
        if left or right:
            self.findings.append(_nics_alone(sides, only))
        _take(self.nics, partner, number, len(nics))

    def _nic_partners(self, nics: Sequence[Nic]) -> tuple[dict[int, int], str]:
        """Return position in the new source to NIC joined so far, and the keys that did it."""
        partner: dict[int, int] = {}
        used = []
        for key, of in _NIC_KEYS:
            taken = set(partner.values())
            known = [
                values if at not in taken else {} for at, values in enumerate(self.nic_values(of))
            ]
            wanted = [of(nic) if at not in partner else None for at, nic in enumerate(nics)]
            found = _by_value(known, wanted)
            partner |= found
            used += [key] if found else []
        return partner, "nic " + ", ".join(used)


def is_numbered(facts: Facts) -> bool:
    """Tell whether the source has the driver's numbers of its GPUs.

    A skeleton lists PCI addresses only, and CUDA numbers GPUs by their speed first.
    """
    if facts.format not in ("nccl_topo_xml", "hwloc_xml"):
        return True
    return not all(
        gpu.pci is not None and (gpu.name.endswith(gpu.pci) or gpu.name.startswith(_NOT_THE_DRIVER))
        for gpu in facts.gpus or ()
    )


def driver_numbers(facts: Facts) -> dict[int, int]:
    """Return position to GPU number; without numbers the rank of the PCI address (NVML's order)."""
    gpus = facts.gpus or ()
    if is_numbered(facts):
        return {at: gpu.index for at, gpu in enumerate(gpus)}
    order = sorted(range(len(gpus)), key=lambda at: _pci_order(gpus[at].pci))
    return {at: rank for rank, at in enumerate(order)}


def _pci_order(text: str | None) -> tuple[int, str]:
    key = pci_key(text) or ""
    return (len(key), key)


def gpu_pci(gpu: Gpu) -> str | None:
    """Return the PCI address of a GPU as a key."""
    return pci_key(gpu.pci)


def gpu_uuid(gpu: Gpu) -> str | None:
    """Return the UUID of a GPU as a key."""
    return gpu.uuid.lower() if gpu.uuid else None


def device_name(nic: Nic) -> str | None:
    """Return the device name (``mlx5_0``); a column label or a PCI address is none."""
    if nic.name == nic.label and nic.name.startswith("NIC"):
        return None
    name = nic.name.rpartition("/")[2]
    return None if pci_key(name) or is_guid(name) else name


def _pci_and_port(nic: Nic) -> str | None:
    key = pci_key(nic.pci)
    return None if key is None or nic.port is None else f"{key}/{nic.port}"


def _pci_and_name(nic: Nic) -> str | None:
    key, name = pci_key(nic.pci), device_name(nic)
    return None if key is None or name is None else f"{key}/{name}"


_NIC_KEYS: tuple[tuple[str, Callable[[Nic], str | None]], ...] = (
    # Ports of one card share its address and GUID, so the finer key comes first.
    ("pci", _pci_and_name),
    ("pci", _pci_and_port),
    ("pci", lambda nic: pci_key(nic.pci)),
    ("name", device_name),
    ("guid", lambda nic: guid_key(nic.guid)),
)


def _values(
    sources: Sequence[Facts],
    group: Member,
    items: Callable[[Facts], Sequence[Gpu] | Sequence[Nic]],
    of: Callable[..., str | None],
) -> dict[str, None]:
    found = (of(items(sources[number])[at]) for number, at in group.items())
    return dict.fromkeys(value for value in found if value is not None)


def _by_value(known: Sequence[Iterable[str]], wanted: Sequence[str | None]) -> dict[int, int]:
    """Return new position to known position where a value stands once on either side."""
    at = _once((value, place) for place, values in enumerate(known) for value in values)
    new = _once((value, place) for place, value in enumerate(wanted) if value is not None)
    return {place: at[value] for value, place in new.items() if value in at}


def _once(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    twice: set[Hashable] = set()
    for value, place in pairs:
        if found.setdefault(value, place) != place:
            twice.add(value)
    return {value: place for value, place in found.items() if value not in twice}


def _take(groups: list[Member], partner: dict[int, int], number: int, count: int) -> None:
    for at in range(count):
        if at in partner:
            groups[partner[at]][number] = at
        else:
            groups.append({number: at})


def _no_common(
    sides: tuple[str, str], key: str, known: Sequence[Iterable[str]], new: Sequence[str | None]
) -> Finding:
    left = [value for values in known for value in values]
    right = [value for value in new if value is not None]
    return told(
        "join-refused",
        Severity.WARNING,
        sides,
        f"{sides[1]} is not joined with {sides[0]}: by {key} only {len(set(left) & set(right))} of "
        f"its {len(new)} GPUs ({some(right, 2)}) are among the {len(known)} there "
        f"({some(left, 2)}); they are taken as two hosts",
        "take both files on the same machine",
        key=key,
        in_left=len(known),
        in_right=len(new),
    )


def _numbers_differ(sides: tuple[str, str], left: int, right: int) -> Finding:
    return told(
        "join-refused",
        Severity.WARNING,
        sides,
        f"{sides[1]} is not joined with {sides[0]}: {left} GPUs there and {right} here, or other "
        "numbers, and no PCI address or UUID stands in both",
        "take both files on the same machine, outside of a container",
        key="index",
        in_left=left,
        in_right=right,
    )


def _no_nic(sides: tuple[str, str], left: Sequence[str], right: Sequence[str]) -> Finding:
    return told(
        "nics-not-joined",
        Severity.WARNING,
        sides,
        f"the {len(right)} NICs of {sides[1]} ({some(right, 3)}) share no PCI address, device name "
        f"or GUID with the {len(left)} of {sides[0]} ({some(left, 3)}); those of {sides[0]} are used",
        "add a source with both PCI address and device name: an NCCL topology dump of the host",
        in_left=len(left),
        in_right=len(right),
    )


def _nics_alone(sides: tuple[str, str], only: tuple[Sequence[str], Sequence[str]]) -> Finding:
    parts = [
        f"{len(names)} only in {path} ({some(names, 4)})"
        for path, names in zip(sides, only, strict=True)
        if names
    ]
    return told(
        "nic-in-one-only",
        Severity.NOTE,
        sides,
        f"NICs that one source alone has: {'; '.join(parts)}; all are kept",
        only_left=len(only[0]),
        only_right=len(only[1]),
    )
