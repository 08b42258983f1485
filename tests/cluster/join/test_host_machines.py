"""Files of one host name on two machines, and GUIDs that two hosts share."""

from __future__ import annotations

import random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import capture, fabric, nvlink_s, of_rule, rules
from meshwright.cluster.facts import Facts
from meshwright.cluster.join.all_sources import join_sources
from meshwright.cluster.join.host_groups import join_hosts
from meshwright.cluster.join.host_machines import by_machine
from meshwright.findings import Severity


def _machine(name: str, path: str, seed: str) -> Facts:
    """Return a capture with the name of one host and the ids of another."""
    facts = capture(seed)
    gpus = tuple(msgspec.structs.replace(gpu, uuid=f"GPU-{seed}-{gpu.index}") for gpu in facts.gpus)
    return msgspec.structs.replace(facts, host=name, hosts=(name,), path=path, gpus=gpus)


def test_two_machines_of_one_name_are_not_merged() -> None:
    first, second = _machine("node20", "a.json", "m1"), _machine("node20", "b.json", "m2")
    joined = join_hosts([second, first])
    found = of_rule(joined.findings, "host-name-twice")
    assert found.severity is Severity.WARNING
    assert "two machines are called node20" in found.message
    assert found.numbers["machines"] == [["a.json"], ["b.json"]]
    assert found.remedy
    assert [one.sources for one in joined.types] == [("a.json",)]
    assert [facts.path for facts in joined.apart] == ["b.json"]
    assert [gpu.uuid for gpu in joined.types[0].facts.gpus] == [f"GPU-m1-{i}" for i in range(4)]
    assert not [rule for rule in rules(joined.findings) if rule.startswith("conflict")]


def test_a_replaced_part_is_the_same_machine() -> None:
    """All GPUs are new and the adapters are not: that is one machine, and a conflict."""
    old, new = _machine("n1", "old.json", "m1"), _machine("n1", "new.json", "m2")
    new = msgspec.structs.replace(new, nics=old.nics)
    joined = join_hosts([old, new])
    assert rules(joined.findings) == ["conflict-gpu-uuid"]
    assert joined.findings[0].remedy
    assert joined.apart == ()


def test_files_without_common_ids_are_of_one_machine() -> None:
    """A capture without UUIDs and a listing without GUIDs: nothing says that they are two."""
    links = msgspec.structs.replace(nvlink_s(path="links.txt"), host="n1")
    assert by_machine([capture("n1"), links]) == [[capture("n1"), links]]
    assert "host-name-twice" not in rules(join_hosts([capture("n1"), links]).findings)


def test_the_second_machine_names_no_adapters() -> None:
    listing = fabric()
    guids = {nic.guid: nic for nic in listing.nics}
    first = _machine("n0", "a.json", "m1")
    second = _machine("n0", "b.json", "m2")
    second = msgspec.structs.replace(
        second,
        nics=tuple(
            msgspec.structs.replace(nic, guid=guid)
            for nic, guid in zip(second.nics, list(guids)[4:6], strict=False)
        ),
    )
    joined = join_sources([listing, first, second])
    assert "conflict-adapter-host" not in rules(joined.findings)
    assert "host-name-twice" in rules(joined.findings)


def test_guids_of_two_hosts_are_duplicates() -> None:
    one, other = capture("n16"), capture("n17")
    other = msgspec.structs.replace(
        other,
        nics=tuple(
            msgspec.structs.replace(nic, guid=mine.guid)
            for nic, mine in zip(other.nics, one.nics, strict=True)
        ),
    )
    found = of_rule(join_hosts([one, other]).findings, "duplicate-guid")
    assert found.severity is Severity.WARNING
    assert found.numbers["hosts"] == ["n16", "n17"]
    assert found.numbers["count"] == 4
    for text in ("n16", "n17", str(one.nics[0].guid), "n16.json", "n17.json", "3 more GUIDs"):
        assert text in found.message


def test_a_cloned_image_is_one_finding_whatever_the_number_of_hosts() -> None:
    nics = capture("n000").nics
    joined = join_hosts([capture(f"n{i:03d}", nics=nics) for i in range(40)])
    found = of_rule(joined.findings, "duplicate-guid")
    assert len(found.numbers["hosts"]) == 40
    assert "38 more hosts" in found.message


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_files_are_divided_by_machine_in_any_order(owners: list[int], seed: random.Random) -> None:
    files = [_machine("n1", f"{at}.json", f"m{owner}") for at, owner in enumerate(owners)]
    machines = by_machine(files)
    assert sorted(sorted(one.path for one in files) for files in machines) == sorted(
        sorted(f"{at}.json" for at, one in enumerate(owners) if one == owner)
        for owner in set(owners)
    )
    turned = list(files)
    seed.shuffle(turned)
    assert {frozenset(one.path for one in files) for files in by_machine(turned)} == {
        frozenset(one.path for one in files) for files in machines
    }
