"""One fault, one finding: what a reader has reported of a device is not to be said again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshwright.findings import Finding

_SAID_BY = {
    "topology/nic-rate-low": ("topology/port-rate-differs",),
    "topology/pcie-link-slow": ("topology/pcie-link-narrow", "topology/pcie-link-slow"),
}
"""A rule of comparison with peers, and the readers' rules that speak of the same fault."""
_DUPLICATE = "topology/duplicate-guid"


def without_told(found: Iterable[Finding], told: Sequence[Finding]) -> list[Finding]:
    """Return the findings that say something new beside those ``told`` by readers.

    A rule that a reader has reported is not reported again, nor a fault of devices of which all
    stand in a reader's finding of the same fault. Cables find their ends by GUID: of an adapter
    whose GUID another one has too, no cable can be said to be on the wrong leaf, or absent.
    """
    rules = {finding.rule for finding in told}
    twice = {name for one in told if one.rule == _DUPLICATE for name in _names(one, "names")}
    return [
        one
        for one in found
        if one.rule not in rules and not _is_told(one, told) and not _is_of_twins(one, twice)
    ]


def _is_told(finding: Finding, told: Sequence[Finding]) -> bool:
    same = _SAID_BY.get(finding.rule, ())
    named = {name for one in told if one.rule in same for name in _devices(one)}
    own = _names(finding, "devices") or _names(finding, "nic")
    low_end = _names(finding, "link")[:1]
    return any(names and named.issuperset(names) for names in (own, low_end))


def _devices(finding: Finding) -> list[str]:
    """Return the devices that a reader names; ports of one card stand together (``a/b``)."""
    listed = _names(finding, "links") + _names(finding, "ports")
    return [name.removeprefix("switch ") for names in listed for name in names.split("/")]


def _is_of_twins(finding: Finding, twice: set[str]) -> bool:
    """Tell whether a finding on host cables rests on adapters (``host adapter``) of one GUID."""
    if not twice or finding.rule not in ("topology/rail-miscabled", "topology/plane-missing"):
        return False
    adapters = _names(finding, "adapters")
    hosts = _names(finding, "hosts")
    if len(hosts) != len(adapters):
        hosts = _names(finding, "host") * len(adapters)
    suspect = [f"{host} {name}" in twice for host, name in zip(hosts, adapters, strict=True)]
    # Of a swap between two hosts one end is enough to make it unsure.
    return any(suspect) if len(set(hosts)) > 1 else bool(suspect) and all(suspect)


def _names(finding: Finding, key: str) -> list[str]:
    value = finding.numbers.get(key)
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, list) else []
