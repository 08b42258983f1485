"""What many hosts' files say alike, said once: ``5 hosts (node7, node8, node9 …): …``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from meshwright.cluster.facts import Facts
from meshwright.cluster.join.said import some
from meshwright.cluster.natural_order import natural_key
from meshwright.findings import Finding, Number

_LISTED = 100
_SHOWN = 3


def folded(findings: Iterable[Finding], sources: Iterable[Facts]) -> list[Finding]:
    """Return findings, those that differ in their host's file alone as one, where the first stood.

    ``sources``: those whose findings these may be; a source that names no host is left alone. The
    numbers gain ``hosts`` (the first hundred names) and ``host_count``.
    """
    host_of = {facts.path: facts.host for facts in sources if facts.host}
    groups: dict[object, list[Finding]] = {}
    seen: Counter[object] = Counter()
    for at, finding in enumerate(findings):
        file = finding.place.file or ""
        if file not in host_of or "hosts" in finding.numbers:
            groups[at] = [finding]
            continue
        words = (finding.rule, finding.severity, finding.message, finding.remedy)
        seen[words, file] += 1  # what a file says twice stays two findings
        groups.setdefault((words, seen[words, file]), []).append(finding)
    return [_one(group, host_of) for group in groups.values()]


def _one(group: Sequence[Finding], host_of: dict[str, str]) -> Finding:
    first = min(group, key=lambda finding: natural_key(host_of.get(finding.place.file or "", "")))
    hosts = sorted({host_of.get(one.place.file or "", "") for one in group}, key=natural_key)
    if len(hosts) < 2:
        return group[0]
    numbers: dict[str, Number] = {
        key: value
        for key, value in first.numbers.items()
        if all(one.numbers.get(key) == value for one in group)
    }
    numbers |= {"hosts": [*hosts[:_LISTED]], "host_count": len(hosts)}
    message = f"{len(hosts)} hosts ({some(hosts, _SHOWN)}): {first.message}"
    return msgspec.structs.replace(first, message=message, numbers=numbers)
