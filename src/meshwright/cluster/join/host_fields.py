"""The fields of each GPU and NIC from several sources: which one counts, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from meshwright.cluster.facts import Facts, Gpu, Nic, NvlinkPair
from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.join.host_devices import Joining, Member, device_name, driver_numbers
from meshwright.cluster.join.keys import guid_key, pci_key
from meshwright.cluster.join.said import Difference, conflict
from meshwright.findings import Finding
from meshwright.units import format_rate

_NVLINKS_FIRST = ("nvidia_smi_nvlink_s", "nvidia_smi_nvlink_r")
_MOST_NVLINKS = 18
"""Links of a GPU: no generation up to Blackwell has more, so more to all others means a switch."""
_SAME_RATE = 0.01
"""Rates nearer than this share are one rate, written in two ways."""

Device = TypeVar("Device", Gpu, Nic)
Said = list[tuple[int, Any]]
"""Source number and value, in the order of precedence; without sources that say nothing."""


def merged_gpus(joining: Joining) -> tuple[tuple[Gpu, ...], list[Finding]]:
    """Return the GPUs of a host in the order of their numbers, and conflicts."""
    fields = _Fields(joining, joining.gpus, lambda facts: facts.gpus or ())
    numbers = _numbers(joining)
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    joining.gpus[:] = [joining.gpus[at] for at in order]
    fields.names = [f"GPU{numbers[at]}" for at in order]
    pci = fields.take("pci address", "pci", lambda gpu: pci_key(gpu.pci))
    model = fields.take("the model", "gpu-model", lambda gpu: gpu.model, _same_model)
    numa = fields.take("the NUMA node", "numa", lambda gpu: gpu.numa or None, _same_numa)
    sm = fields.take("compute capability", "compute-capability", lambda g: g.compute_capability)
    uuid = fields.take("the UUID", "gpu-uuid", lambda gpu: gpu.uuid, _same_text)
    up = fields.take(
        "the number of NVLinks up", "nvlinks", lambda gpu: gpu.nvlinks, first=_NVLINKS_FIRST
    )
    down = fields.take(
        "the number of NVLinks down",
        "nvlinks-down",
        lambda gpu: gpu.nvlinks_down,
        first=_NVLINKS_FIRST,
    )
    gpus = tuple(
        Gpu(
            index=numbers[old],
            name=f"GPU{numbers[old]}",
            pci=pci[at],
            model=model[at],
            numa=numa[at] or (),
            compute_capability=sm[at],
            nvlinks=up[at],
            nvlinks_down=down[at],
            uuid=uuid[at],
        )
        for at, old in enumerate(order)
    )
    return gpus, fields.findings


def _numbers(joining: Joining) -> list[int]:
    """Return each GPU's number: that of the first source which numbers its GPUs, else a free one."""
    numbered = [driver_numbers(facts) for facts in joining.sources]
    result: list[int] = []
    used: set[int] = set()
    for group in joining.gpus:
        wanted = next((numbered[number][at] for number, at in group.items()), 0)
        while wanted in used:
            wanted = max(used) + 1
        used.add(wanted)
        result.append(wanted)
    return result


def merged_nics(joining: Joining) -> tuple[tuple[Nic, ...], list[Finding]]:
    """Return the NICs of a host, numbered in the order of the first source, and conflicts."""
    fields = _Fields(joining, joining.nics, lambda facts: facts.nics or ())
    fields.names = [next(iter(names), "?") for names in joining.nic_values(lambda nic: nic.name)]
    name = fields.take("the device name", "nic-name", device_name)
    label = fields.take("the label", "nic-label", lambda nic: nic.label)
    pci = fields.take("the PCI address", "nic-pci", lambda nic: pci_key(nic.pci))
    guid = fields.take("the GUID", "nic-guid", lambda nic: guid_key(nic.guid))
    port = fields.take("the port", "nic-port", lambda nic: nic.port)
    rate = fields.take("the rate", "nic-rate", lambda nic: nic.rate_bytes_per_s, _same_rate)
    lid = fields.take("the LID", "nic-lid", lambda nic: nic.lid)
    nics = tuple(
        Nic(
            index=at,
            name=name[at] or fields.names[at],
            label=label[at],
            pci=pci[at],
            guid=guid[at],
            port=port[at],
            rate_bytes_per_s=rate[at],
            lid=lid[at],
        )
        for at in range(len(joining.nics))
    )
    return nics, fields.findings


class _Fields:
    """Takes one field of all devices after the other."""

    def __init__(
        self,
        joining: Joining,
        groups: list[Member],
        items: Callable[[Facts], Sequence[Any]],
    ) -> None:
        self._joining = joining
        self._groups = groups
        self._items = items
        self.names: list[str] = []
        self.findings: list[Finding] = []

    def take(
        self,
        subject: str,
        rule: str,
        of: Callable[[Any], Any],
        same: Callable[[Any, Any], bool] = lambda one, other: bool(one == other),
        first: Sequence[str] = (),
    ) -> list[Any]:
        """Return the value that counts for each device; keep a conflict a pair of sources."""
        result: list[Any] = []
        found: dict[tuple[int, int], list[Difference]] = {}
        for at, group in enumerate(self._groups):
            said = self._said(group, of, first)
            result.append(said[0][1] if said else None)
            for number, value in said[1:]:
                if not same(said[0][1], value):
                    pair = (said[0][0], number)
                    shown = Difference(self.names[at], _shown(said[0][1]), _shown(value))
                    found.setdefault(pair, []).append(shown)
        for (left, right), differences in found.items():
            sides = (self._joining.sources[left].path, self._joining.sources[right].path)
            self.findings.append(
                conflict(rule, subject, sides, differences, f"{sides[0]} is taken")
            )
        return result

    def _said(self, group: Member, of: Callable[[Any], Any], first: Sequence[str]) -> Said:
        sources = self._joining.sources
        order = sorted(group, key=lambda number: sources[number].format not in first)
        said = [(number, of(self._items(sources[number])[group[number]])) for number in order]
        return [(number, value) for number, value in said if value is not None]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return format_rate(value)
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)[:80]


def _same_text(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _same_rate(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_RATE * max(one, other)


def _same_numa(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Tell whether two NUMA affinities agree: a range (``0-1``) does with each of its nodes."""
    return bool(set(one) & set(other))


def _same_model(one: str, other: str) -> bool:
    """Compare known models by name, else by a word with a digit that both have (``H100``)."""
    known = [_model_name(one), _model_name(other)]
    if None not in known:
        return known[0] == known[1]
    words = [
        {word for word in _words(text) if any(map(str.isdigit, word))} for text in (one, other)
    ]
    return bool(words[0] & words[1]) or _words(one) == _words(other)


def _model_name(text: str) -> str | None:
    try:
        return find_gpu(text).name
    except KeyError:
        return None


def _words(text: str) -> set[str]:
    plain = "".join(letter if letter.isalnum() else " " for letter in text.lower())
    return set(plain.split()) - {"nvidia", "amd", "instinct", "tesla"}


def links_agree(
    joining: Joining, gpus: Sequence[Gpu], pairs: Sequence[NvlinkPair]
) -> tuple[tuple[NvlinkPair, ...], list[Finding]]:
    """Compare pairs' counts with the links that are up one by one; return the pairs that count.

    Behind a switch a pair has as many links as the poorer of its GPUs, so listed links count;
    in a mesh the list does not say which pair has lost one, so the pairs stay.
    """
    listed = _first(joining, lambda facts: any(gpu.nvlinks is not None for gpu in facts.gpus or ()))
    paired = _first(joining, lambda facts: facts.nvlink_pairs is not None)
    if listed is None or paired is None or not pairs:
        return tuple(pairs), []
    up = {gpu.index: gpu.nvlinks for gpu in gpus if gpu.nvlinks is not None}
    differences = []
    switched = _is_switched(pairs, len(gpus))
    counts_of: dict[int, list[int]] = {}
    for pair in pairs:
        for index in (pair.a, pair.b):
            counts_of.setdefault(index, []).append(pair.count)
    for index, links in up.items():
        counts = counts_of.get(index, [])
        fits = {sum(counts)} if not switched else {max(counts, default=0), sum(counts)}
        if counts and links not in fits:
            told = max(counts) if switched else sum(counts)
            differences.append(Difference(f"GPU{index}", str(links), str(told)))
    if not differences:
        return tuple(pairs), []
    taken = f"{listed.path} is taken" if switched else f"{paired.path} is taken for the pairs"
    sides = (listed.path, paired.path)
    finding = conflict("nvlink-count", "the number of NVLinks", sides, differences, taken)
    return (_by_links(pairs, up) if switched else tuple(pairs)), [finding]


def _first(joining: Joining, fits: Callable[[Facts], bool]) -> Facts | None:
    order = sorted(joining.sources, key=lambda facts: facts.format not in _NVLINKS_FIRST)
    return next((facts for facts in order if fits(facts)), None)


def _is_switched(pairs: Sequence[NvlinkPair], num_gpus: int) -> bool:
    """Tell whether all GPUs are joined with more links than a GPU has: a switch shares them."""
    if any(pair.via_switch for pair in pairs):
        return True
    complete = len(pairs) == num_gpus * (num_gpus - 1) // 2
    return complete and min(pair.count for pair in pairs) * (num_gpus - 1) > _MOST_NVLINKS


def _by_links(pairs: Sequence[NvlinkPair], up: dict[int, int]) -> tuple[NvlinkPair, ...]:
    kept = []
    for pair in pairs:
        count = min(up.get(pair.a, pair.count), up.get(pair.b, pair.count))
        if count > 0:
            kept.append(
                NvlinkPair(
                    pair.a, pair.b, count, via_switch=pair.via_switch, both_ways=pair.both_ways
                )
            )
    return tuple(kept)
