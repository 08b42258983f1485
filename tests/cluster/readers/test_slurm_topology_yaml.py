"""Slurm ``topology.yaml``: which topology is taken, and what is refused."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.readers.slurm_topology_yaml import FORMAT, read
from meshwright.errors import InputError
from support import FIXTURES
from topology_samples import finding_of, rules

_TREE = "- topology: t\n  tree:\n    switches:\n"


def _fixture(name: str) -> Facts:
    return read((FIXTURES / "topology" / FORMAT / name).read_text(), name)


def test_the_default_tree_wins_and_all_hosts_are_named() -> None:
    facts = _fixture("trees_and_blocks.yaml")
    assert facts.hosts == ("a1", "a2", "a3", "n01", "n02", "n03", "1101")
    assert facts.tree == (
        TreeSwitch("core", ("l01", "l02", "l03"), (), 15),
        TreeSwitch("l01", (), ("n01", "n02", "n03"), 16),
        TreeSwitch("l02", ("l09",), ("1101",), 18),
    )
    assert [switch.id for switch in facts.switches or ()] == ["core", "l01", "l02", "l03", "l09"]
    assert facts.blocks == (Block("r1", ("n01", "n02", "n03"), 26), Block("filler", (), 28))
    assert facts.block_sizes == (3, 6)
    assert facts.counts == {"topologies": 5, "blocks": 2, "rings": 1, "toruses": 0}
    assert rules(facts) == [
        *("switch-undefined", "switch-undefined", "switch-mixed"),
        *("ring-ignored", "topology-ignored"),
    ]
    ignored = finding_of(facts, "topology-ignored")
    assert ignored.numbers == {"count": 1, "names": ["old-hall"]}
    assert (ignored.place.line, ignored.place.column) == (2, 3)


def test_what_a_file_does_not_name_is_unknown() -> None:
    facts = read("- topology: t\n  flat: true\n", "t.yaml")
    assert (facts.hosts, facts.switches, facts.tree, facts.blocks) == ((), None, None, None)


def test_leaves_without_a_spine_are_one_finding() -> None:
    facts = read(_TREE + "      - {switch: a, nodes: n1}\n      - {switch: b, nodes: n2}\n", "t")
    assert rules(facts) == ["spine-tier-unknown"]
    assert finding_of(facts, "spine-tier-unknown").numbers["names"] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("- tree: {}\n", "t.yaml:1:3", "topology is missing"),
        ("- topology: t\n", "t.yaml:1:3", "names 0 plugins"),
        ("- topology: t\n  flat: true\n  ring: {}\n", "t.yaml:1:3", "names 2 plugins"),
        ("- topology: t\n  tree: 4\n", "t.yaml:2:9", "expected keys"),
        (_TREE + "      - nodes: a\n", "t.yaml:4:9", "switch is missing"),
        (_TREE + "      - switch: a\n        nodes: n[2-1]\n", "t.yaml:5:16", "backwards"),
        (_TREE + "      - switch: a\n        nodes: n[1-3000000]\n", "t.yaml:5:16", "300,000"),
        (_TREE + "      - switch: a\n      - switch: a\n", "t.yaml:5:9", "line 4"),
        (_TREE + "      - {switch: a, children: a}\n", "t.yaml:4:9", "own ancestor"),
        ("- topology: t\n  block: {block_sizes: [-1]}\n", "t.yaml:2:25", "from 0 to"),
        (f"- topology: t\n  block: {{block_sizes: [{'9' * 90}]}}\n", "t.yaml:2:25", "from 0 to"),
        ("- topology: t\n  ring: {rings: 3}\n", "t.yaml:2:17", "expected a list"),
        ("- topology: [t]\n  flat: true\n", "t.yaml:1:13", "expected a text"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.yaml")
    assert str(caught.value.problems[0].place) == place
    assert words in caught.value.problems[0].message
