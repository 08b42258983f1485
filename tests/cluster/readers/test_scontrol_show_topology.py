"""``scontrol show topology``: hosts belong to their leaf, whatever upper levels list."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.readers.scontrol_show_topology import FORMAT, looks_like, read
from meshwright.errors import InputError
from support import FIXTURES, shared_path
from topology_samples import finding_of, rules


def _fixture(name: str) -> Facts:
    return read((FIXTURES / "topology" / FORMAT / name).read_text(), name)


def test_uneven_depth_a_leaf_named_unknown_and_a_host_under_no_leaf() -> None:
    facts = _fixture("uneven_unknown.txt")
    assert facts.tree == (
        TreeSwitch("top", ("mid", "Unknown"), ("spare1",), 1),
        TreeSwitch("mid", ("lf1", "lf2"), (), 2),
        TreeSwitch("lf1", (), ("g01", "g02", "g03"), 4),
        TreeSwitch("lf2", (), ("g04", "g05"), 5),
        TreeSwitch("Unknown", (), ("g09",), 6),
    )
    assert rules(facts) == ["switch-mixed", "leaf-unknown"]
    assert finding_of(facts, "switch-mixed").numbers == {"count": 1, "names": ["spare1"]}
    unknown = finding_of(facts, "leaf-unknown")
    assert str(unknown.place) == "uneven_unknown.txt:6:1"
    assert unknown.numbers == {"count": 1, "names": ["g09"]}


def test_leaves_right_under_root_have_no_spine() -> None:
    facts = _fixture("leaves_under_root.txt")
    assert facts.hosts == ("w-0", "w-1", "w-2", "w-3")
    assert rules(facts) == ["spine-tier-unknown"]
    assert finding_of(facts, "spine-tier-unknown").numbers["names"] == ["leaf11", "leaf12"]


def test_leaves_alone_have_no_spine() -> None:
    facts = read("SwitchName=a Level=0 Nodes=n1\nSwitchName=b Level=0 Nodes=n2\n", "t")
    assert rules(facts) == ["spine-tier-unknown"]


def test_blocks_and_their_sizes() -> None:
    facts = _fixture("blocks.txt")
    assert facts.blocks == (
        Block("rack_a", ("tray1", "tray2", "tray3"), 1),
        Block("rack_b", ("tray4", "tray5", "tray6"), 2),
        Block("empty", (), 3),
    )
    assert facts.block_sizes == (3, 6)
    assert (facts.tree, facts.switches, facts.findings) == (None, None, ())


@pytest.mark.captured
def test_captured_unknown_leaf_is_told() -> None:
    name = "soperator_unknown_switch.txt"
    facts = read((shared_path("data/topology") / FORMAT / name).read_text(), name)
    root = {switch.name: switch for switch in facts.tree or ()}["root"]
    assert root.hosts == ()
    assert rules(facts) == ["leaf-unknown"]
    names = finding_of(facts, "leaf-unknown").numbers["names"]
    assert names == ["worker-dynamic-0", "worker-payg-0"]


def test_a_topology_conf_is_not_claimed() -> None:
    assert not looks_like("SwitchName=a Nodes=n[1-2]\nBlockName=b Nodes=n1\n")


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("SwitchName=a Level=x Nodes=n\n", "t.txt:1:20", "level= is no number"),
        ("SwitchName=a Level=0 Nod", "t.txt:1:22", "cut off"),
        ("SwitchName=a Level=0 Nodes=n[1-", "t.txt:1:28", "cut off"),
        ("SwitchName=a Level=0 Nodes=", "t.txt:1:28", "cut off"),
        ("SwitchName=a Level=0 Nodes=n[1-9999999]\n", "t.txt:1:28", "300,000"),
        ("Jobs=3 Level=0\n", "t.txt:1:6", "'jobs'"),
        ("SwitchName= Level=0\n", "t.txt:1:12", "no value"),
        ("SwitchName=a Level=0 Nodes=n\nSwitchName=a Level=0 Nodes=m\n", "t.txt:2:1", "line 1"),
        ("SwitchName=a Level=1 Switches=a\n", "t.txt:1:1", "own ancestor"),
        ("AggregatedBlock=a BlockIndex=0\n", "t.txt:1:1", "no switch and no block"),
        (f"SwitchName=a Level={'9' * 50}\n", "t.txt:1:20", "no number"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t.txt")
    assert str(caught.value.problems[0].place) == place
    assert words in caught.value.problems[0].message
