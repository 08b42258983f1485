"""topograph's model YAML: leaves named in blocks only, NVLink domains, hosts without a switch."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers.topograph_model import FORMAT, read
from meshwright.errors import InputError
from support import FIXTURES, shared_path
from topology_samples import rules


def _fixture(name: str) -> Facts:
    return read((FIXTURES / "topology" / FORMAT / name).read_text(), name)


def test_tree_places_and_domains() -> None:
    facts = _fixture("traps.yaml")
    assert facts.tree is not None
    assert facts.tree[1] == TreeSwitch("row-1", ("tor-1", "tor-2"), (), 6)
    assert facts.tree[3] == TreeSwitch("tor-1", (), ("2001", "2002", "2003"), 11)
    assert facts.places is not None
    assert facts.places[0] == HostPlace("2001", ("tor-1", "row-1", "hall"), "pod-a")
    assert facts.places[3] == HostPlace("2011", ("tor-2", "row-1", "hall"), "pod-a")
    assert facts.places[5] == HostPlace("x08", ("tor-3", "row-2", "hall"), None)
    assert facts.places[-1] == HostPlace("lone", (), "3e30")
    assert facts.counts == {"accelerator_domains": 2, "sub_domains": 2, "leaves": 3}
    assert rules(facts) == ["switch-undefined", "host-without-place"]


@pytest.mark.captured
def test_captured_rack_is_one_domain_under_one_leaf() -> None:
    name = "nvl72_4racks.yaml"
    facts = read((shared_path("data/topology") / FORMAT / name).read_text(), name)
    assert facts.places is not None
    assert facts.places[18] == HostPlace("node1201", ("leaf-1-2", "spine-1", "core"), "nvl-1-2")
    assert facts.findings == ()


def test_leaves_without_a_spine_are_one_finding() -> None:
    facts = read("blocks:\n- {switch: a, nodes: [n1]}\n- {switch: b, nodes: [n2]}\n", "t")
    assert rules(facts) == ["spine-tier-unknown"]


def test_a_host_in_two_blocks_keeps_its_first_place() -> None:
    text = "blocks:\n- {switch: a, nodes: [n1]}\n- {switch: b, nodes: [n1, n2]}\n"
    facts = read("switches: {r: {switches: [a, b]}}\n" + text, "t")
    assert facts.hosts == ("n1", "n2")
    assert facts.places is not None
    assert facts.places[0].tiers == ("a", "r")
    assert {finding.place.line for finding in facts.findings} == {4}
    assert set(rules(facts)) == {"host-twice"}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("switches: {a: {switches: [a]}}\nblocks: []\n", "t.yaml:1:15", "own ancestor"),
        ("switches: []\nblocks: []\n", "t.yaml:1:11", "expected keys"),
        ("blocks: {a: b}\n", "t.yaml:1:9", "expected a list"),
        ("blocks:\n- switch: a\n  nodes: [[n1]]\n", "t.yaml:3:11", "expected a text"),
        ("blocks:\n- switch: a\n  nodes: [n[1]\n", "t.yaml:3:12", "not valid YAML"),
        ("blocks:\n- switch: a\n  nodes: ['n[1-']\n", "t.yaml:3:11", "not closed"),
        ("blocks:\n- switch: a\n  labels: 3\n", "t.yaml:3:11", "expected keys"),
        ("blocks: []\nswitches: {}\n", "t.yaml:1:1", "no switch and no host"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.yaml")
    assert str(caught.value.problems[0].place) == place
    assert words in caught.value.problems[0].message


def test_a_tree_deeper_than_any_network_is_refused() -> None:
    lines = [f"  s{level}: {{switches: [s{level + 1}]}}" for level in range(90)]
    with pytest.raises(InputError, match="levels deep"):
        read("\n".join(["switches:", *lines, "blocks:", "- {switch: s90, nodes: [n]}"]), "t")
