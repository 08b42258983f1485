"""What the readers of schedulers, labels and clouds have in common: samples, claims, bad input."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import (
    aws_instance_topology,
    gcp_physical_host,
    k8s_node_labels,
    netq_nmx,
    oci_topology,
    scontrol_show_topology,
    slurm_topology_yaml,
    topograph_model,
)
from meshwright.errors import InputError
from support import FIXTURES
from topology_samples import mutated, rows_of

MODULES = (
    aws_instance_topology,
    gcp_physical_host,
    k8s_node_labels,
    netq_nmx,
    oci_topology,
    scontrol_show_topology,
    slurm_topology_yaml,
    topograph_model,
)
by_format = pytest.mark.parametrize("reader", MODULES, ids=lambda module: module.FORMAT)


def _fixtures(reader: ModuleType) -> list[Path]:
    return sorted((FIXTURES / "topology" / reader.FORMAT).iterdir())


def _length(values: tuple[object, ...] | None) -> str:
    return "" if values is None else str(len(values))


def _read(reader: ModuleType, text: str) -> Facts | InputError:
    """Return the facts of a text, or its refusal; nothing else may come of it."""
    reader.looks_like(text)
    try:
        facts: Facts = reader.read(text, "t.txt")
    except InputError as error:
        return error
    _check(facts)
    return facts


def _check(facts: Facts) -> None:
    """What must hold of any facts: places and tree name the hosts and switches that are listed."""
    hosts = set(facts.hosts or ())
    assert [place.host for place in facts.places or ()] in ([], list(facts.hosts or ()))
    switches = {switch.id for switch in facts.switches or ()}
    for switch in facts.tree or ():
        assert {switch.name, *switch.switches} <= switches
        assert set(switch.hosts) <= hosts
    assert all(finding.rule.count("/") == 1 for finding in facts.findings)


@pytest.mark.captured
@pytest.mark.parametrize(
    ("reader", "samples"), list(zip(MODULES, (1, 1, 2, 2, 0, 2, 1, 3), strict=True))
)
def test_captured_samples_give_the_manifest(reader: ModuleType, samples: int) -> None:
    rows = rows_of(reader.FORMAT)
    assert len(rows) == samples
    for row in rows:
        facts: Facts = reader.read(Path(row["path"]).read_text(), row["file"])
        _check(facts)
        got = {
            "n_gpus": _length(facts.gpus),
            "n_nics": _length(facts.nics),
            "n_other_devices": _length(facts.other_devices),
            "n_hosts": _length(facts.hosts),
            "n_switches": _length(facts.switches),
            "n_nvswitches": _length(facts.nvswitches),
            "n_links": _length(facts.cables),
            "n_nvlink_pairs": _length(facts.nvlink_pairs),
            "n_numa": _length(facts.numa_ids),
        }
        assert got == {key: row[key] for key in got}, row["file"]
        further = json.loads(row["x_info"])
        layers = further.pop("layers", None)
        if layers:
            chains = [place.tiers[::-1] for place in facts.places or ()]
            assert [len(set(layer)) for layer in zip(*chains, strict=True)] == layers
        assert {key: facts.counts[key] for key in further} == further, row["file"]


@by_format
def test_fixtures_give_facts_that_fit_together(reader: ModuleType) -> None:
    for path in _fixtures(reader):
        facts = reader.read(path.read_text(), path.name)
        assert facts.format == reader.FORMAT
        assert facts.hosts
        _check(facts)


_DEEP = "[" * 100_000
_BAD = {
    "empty": "",
    "blank": " \n\t\n",
    "binary": "\x7fELF\x02\x00\x01" * 50,
    "replaced": "\ufffd\ufffd\x01PK",
    "scalar": "just words",
    "null": "null",
    "number": "9" * 400,
    "deep list": _DEEP,
    "deep map": '{"a":' * 10_000,
    "one long line": "x" * 5_000_000,
    "long key": '{"' + "k" * 5_000_000 + '": 1',
    "empty list": "[]",
    "empty map": "{}",
    "list of scalars": "[1, 2]",
    "tag": "!!python/object:os.system {a: b}",
    "two values": "{} {}",
}


@by_format
@pytest.mark.parametrize("name", _BAD)
def test_what_is_none_of_it_is_refused_with_a_place(reader: ModuleType, name: str) -> None:
    with pytest.raises(InputError) as caught:
        reader.read(_BAD[name], "t.txt")
    place = caught.value.problems[0].place
    assert place.file == "t.txt"
    assert (place.line or 0) > 0
    assert (place.column or 0) > 0
    reader.looks_like(_BAD[name])


@by_format
def test_a_text_cut_off_anywhere_is_facts_or_refused(reader: ModuleType) -> None:
    refused = 0
    for path in _fixtures(reader):
        text = path.read_text().rstrip()
        for end in range(0, len(text), max(1, len(text) // 80)):
            found = _read(reader, text[:end])
            if isinstance(found, InputError):
                assert found.problems[0].place.line
                refused += 1
        if path.suffix == ".json":
            with pytest.raises(InputError):
                reader.read(text[:-1], "t.txt")
    assert refused > 0


@by_format
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_changed_fixtures_give_facts_or_a_refusal(reader: ModuleType, data: st.DataObject) -> None:
    texts = [path.read_text() for path in _fixtures(reader)]
    text = mutated(data.draw(st.sampled_from(texts)), data, '0123456789"[]{}:,- ')
    found = _read(reader, text)
    if isinstance(found, InputError):
        assert all(problem.place.file == "t.txt" for problem in found.problems)


@by_format
@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_is_refused_or_read(reader: ModuleType, text: str) -> None:
    found = _read(reader, text)
    assert isinstance(found, Facts) or found.problems
