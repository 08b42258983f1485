"""Captured topology samples: what MANIFEST.csv says a right parse gives, and files of other formats."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, nearest_nics
from meshwright.cluster.readers import readers
from meshwright.errors import InputError
from meshwright.findings import Finding
from support import FIXTURES, shared_path

_COUNTED: dict[str, Callable[[Facts], object]] = {
    "n_gpus": lambda facts: facts.gpus,
    "n_nics": lambda facts: facts.nics,
    "n_other_devices": lambda facts: facts.other_devices,
    "n_hosts": lambda facts: facts.hosts,
    "n_switches": lambda facts: facts.switches,
    "n_nvswitches": lambda facts: facts.nvswitches,
    "n_links": lambda facts: facts.cables,
    "n_nvlink_pairs": lambda facts: facts.nvlink_pairs,
    "n_numa": lambda facts: facts.numa_ids,
}


def rows_of(format_name: str) -> list[dict[str, str]]:
    """Return the manifest's rows of a format; each file's path is under ``path``."""
    base = shared_path("data/topology")
    with (base / "MANIFEST.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["format"] == format_name]
    return [row | {"path": str(base / row["file"])} for row in rows]


def check_counts(facts: Facts, row: dict[str, str]) -> None:
    """Compare every count and the NUMA ids of one sample; an empty cell must be ``None``."""
    counted = {key: of(facts) for key, of in _COUNTED.items()}
    got = {key: "" if value is None else str(len(value)) for key, value in counted.items()}
    assert got == {key: row[key] for key in _COUNTED}, row["file"]
    ids = json.loads(row["numa_ids"]) if row["numa_ids"] else None
    assert (None if facts.numa_ids is None else list(facts.numa_ids)) == ids, row["file"]
    assert (nearest_nics(facts) is None) == (row["nearest_nic"] == ""), row["file"]
    assert row["x_info"] == "", "no further counts are expected of this format"


def captured_files() -> list[Path]:
    """Return every captured topology file, of all formats."""
    return [path for path in shared_path("data/topology").glob("*/*") if path.is_file()]


def fixture_files() -> Iterator[Path]:
    """Yield every fixture of this repository; the folder of a topology fixture is its format."""
    yield from (path for path in sorted(FIXTURES.rglob("*")) if path.is_file())


def claimed_by_others(text: str, format_name: str) -> list[str]:
    """Return the formats of other registered readers that claim a text."""
    return [
        reader.format
        for reader in readers()
        if reader.format != format_name and reader.looks_like(text)
    ]


def rules(facts: Facts) -> list[str]:
    """Return the rules of the findings, without their common prefix."""
    return [finding.rule.removeprefix("topology/") for finding in facts.findings]


def finding_of(facts: Facts, rule: str) -> Finding:
    """Return the only finding of a rule."""
    (found,) = [one for one in facts.findings if one.rule == f"topology/{rule}"]
    return found


def mutated(text: str, data: st.DataObject, digits: str) -> str:
    """Return a text with one to three random edits; ``digits`` are characters to exchange."""
    lines = text.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        other = data.draw(st.integers(0, len(lines) - 1))
        start = data.draw(st.integers(0, max(len(lines[at]), 1)))
        width = data.draw(st.integers(0, 12))
        match data.draw(st.sampled_from(["drop", "copy", "swap", "cut", "text", "digit", "end"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "copy":
                lines.insert(other, lines[at])
            case "swap":
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][:start] + lines[at][start + width :]
            case "text":
                lines[at] = lines[at][:start] + data.draw(st.text(max_size=8)) + lines[at][start:]
            case "digit":
                old, new = data.draw(st.tuples(*[st.sampled_from(digits)] * 2))
                lines = [line.replace(old, new) for line in lines]
            case "end":
                lines = [*lines[:at], lines[at][:start]]
    return "\n".join(lines)


def facts_or_input_error(
    text: str, looks_like: Callable[[str], bool], read: Callable[[str, str], Facts]
) -> Facts | None:
    """Read a text that may be anything: ``None`` stands for an ``InputError``."""
    looks_like(text)
    with suppress(InputError):
        facts = read(text, "t.txt")
        size = len(facts.gpus or ())
        for table in (facts.gpu_gpu_class, facts.peer_access):
            assert table is None or [len(row) for row in table] == [size] * size
        for pair in facts.nvlink_pairs or ():
            assert pair.a < pair.b
            assert pair.count > 0
        return facts
    return None
