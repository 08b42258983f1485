"""A merge in progress: what every step of it needs, and where it keeps what it found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Facts
from meshwright.cluster.hostlist import Hostlists
from meshwright.cluster.sections import HostList
from meshwright.cluster.sizes import MAX_GPUS
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity

PlaceOf = Callable[[str], Place]
MAX_NAMED = 2 * MAX_GPUS
"""Host names of one merge, hostlists of all keys together: each host twice."""


@dataclass(slots=True)
class Merge:
    """One merge in progress: where relative paths start, where keys stand, what was found."""

    folder: Path
    place: PlaceOf
    findings: list[Finding] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)
    hostlists: Hostlists = field(default_factory=lambda: Hostlists(MAX_NAMED))
    captured: list[str] = field(default_factory=list)
    """Hosts that the node's files name."""
    _read: dict[str, Facts] = field(default_factory=dict)

    def read(self, source: str, key: str) -> Facts:
        """Read a topology file named in the cluster file, once; findings are kept."""
        from meshwright.cluster.readers import read_topology  # noqa: PLC0415 - presets need no reader

        if source in self._read:
            return self._read[source]
        path = self.folder / source
        if not self.has(source):
            raise InputError(Problem(self.place(key), f"no such file: {source}"))
        facts = read_topology(path)
        self.findings += facts.findings
        if not facts.cables:  # those of cables follow when the fabric is whole
            self.findings += degradations(facts)
        self.facts.append(facts)
        self._read[source] = facts
        return facts

    def read_all(self, sources: HostList, key: str) -> list[Facts]:
        """Read one file or each of a list; an empty list and a file named twice are refused."""
        names = [sources] if isinstance(sources, str) else list(sources)
        if not names or "" in names:
            raise self.fail(
                key, "names no file", f"{key.rpartition('.')[2]}: a file, or a list of them"
            )
        real = Counter(os.path.realpath(self.folder / name) for name in names)
        twice = [name for name in names if real[os.path.realpath(self.folder / name)] > 1]
        if twice:
            same = " and ".join(dict.fromkeys(twice))
            raise self.fail(key, f"names one file twice: {same}")
        return [self.read(name, key) for name in names]

    def has(self, source: str) -> bool:
        """Tell whether a name is that of a file; one no file can have is none."""
        return os.path.exists(self.folder / source)  # noqa: PTH110 - never raises

    def fail(self, key: str, message: str, remedy: str | None = None) -> InputError:
        """Return the error for a key of the cluster file."""
        return InputError(Problem(self.place(key), message, remedy=remedy))

    def hosts(self, value: HostList, key: str) -> list[str]:
        """Expand hostlist text or a list of such; duplicates are refused."""
        texts = [value] if isinstance(value, str) else list(value)
        try:
            names = self.hostlists.expand(*texts)
        except ValueError as error:
            raise self.fail(key, str(error)) from None
        twice = sorted(name for name, count in Counter(names).items() if count > 1)[:5]
        if twice:
            raise self.fail(key, f"hosts named twice: {', '.join(twice)}")
        return names

    def note(
        self, rule: str, key: str, message: str, remedy: str | None = None, **numbers: object
    ) -> None:
        """Keep a note."""
        self.findings.append(
            Finding(rule, Severity.NOTE, self.place(key), message, numbers, remedy)  # type: ignore[arg-type]
        )
