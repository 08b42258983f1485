"""The ``scontrol show node`` reader: places by tier, GPUs, states, several topologies."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.facts import Facts, TreeSwitch
from meshwright.cluster.readers.scontrol_show_node import FORMAT, SlurmPlace, looks_like, read
from meshwright.errors import InputError
from support import FIXTURES
from topology_samples import (
    facts_or_input_error,
    finding_of,
    mutated,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.iterdir())


def _text(name: str) -> str:
    return (_HERE / name).read_text()


def _fixture(name: str) -> Facts:
    return read(_text(name), name)


def test_a_dynamic_tree() -> None:
    facts = _fixture("dynamic_tree.txt")
    assert facts.places == (
        SlurmPlace("w-0", ("lf1", "sp1", "root"), None, "default:root:sp1:lf1"),
        SlurmPlace("w-1", ("lf2", "sp1", "root"), None, "default:root:sp1:lf2"),
        SlurmPlace("w-2", (), None, "default:root:unknown"),
    )
    assert facts.tree == (
        TreeSwitch("root", ("sp1",), (), 1),
        TreeSwitch("sp1", ("lf1", "lf2"), (), 1),
        TreeSwitch("lf1", (), ("w-0",), 1),
        TreeSwitch("lf2", (), ("w-1",), 12),
    )
    assert facts.counts == {"gpus_in_gres": 23}
    assert finding_of(facts, "nodes-not-usable").numbers["names"] == ["w-1"]
    assert finding_of(facts, "gres-fewer-gpus").numbers["names"] == ["w-1"]
    assert finding_of(facts, "host-without-place").numbers["names"] == ["w-2"]


def test_a_root_above_leaves_alone_is_no_tier() -> None:
    facts = _fixture("leaf_only.txt")
    assert [place.tiers for place in facts.places or ()] == [("lf3",), ("lf4",)]
    assert facts.counts == {"gpus_in_gres": 16}
    assert rules(facts) == ["spine-tier-unknown"]


def test_several_topologies_give_the_deepest_and_no_torus() -> None:
    facts = _fixture("several_topologies.txt")
    assert [place.tiers for place in facts.places or ()] == [("sw7", "pod1"), ("rack1",)]
    assert "leaf-or-block" in rules(facts)
    assert facts.tree == (TreeSwitch("pod1", ("sw7",), (), 1), TreeSwitch("sw7", (), ("u1",), 1))


def test_nodes_without_a_topology() -> None:
    facts = _fixture("plain.txt")
    assert (facts.hosts, facts.tree, facts.switches) == (("c1",), None, None)
    assert facts.counts == {"gpus_in_gres": 0}


def test_a_lone_topology_is_called_after_its_file() -> None:
    facts = read("Topology=default:root:sp9:lf9\n", "n7.txt")
    assert facts.places == (SlurmPlace("n7", ("lf9", "sp9", "root"), None, "default:root:sp9:lf9"),)
    assert facts.findings[0].rule == "assumed/host-from-file-name"


def test_a_hostlist_as_name() -> None:
    text = "scontrol update NodeName=d[1-2] Topology=t:r:s1\n"
    assert looks_like(text)
    assert read(text, "t.txt").hosts == ("d1", "d2")
    with pytest.raises(InputError, match="backwards"):
        read("NodeName=d[2-1] Topology=t:r:s1\n", "t.txt")


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", 8),
        ("gpu:h100:8(S:0-1)", 8),
        ("gpu:a:2,gpu:b:3(S:0)", 5),
        ("shard:4,gpu:1", 1),
        ("craynetwork:4", 0),
    ],
)
def test_gres(gres: str, gpus: int) -> None:
    facts = read(f"NodeName=a Arch=x86_64 Gres={gres} State=IDLE\n", "t.txt")
    assert facts.counts == {"gpus_in_gres": gpus}


@pytest.mark.parametrize("text", ["", "NodeHostName=a\n", "\x00\xff" * 100])
def test_no_node(text: str) -> None:
    assert not looks_like(text)
    with pytest.raises(InputError, match="names no node"):
        read(text, "t.txt")


@pytest.mark.parametrize(
    "text",
    [
        "NodeName=" * 400_000,
        "NodeName=a Topology=" + "x:" * 1_000_000,
        "NodeName=a Topology=" + "t:a:b," * 300_000,
        "NodeName=a Gres=" + "gpu:" * 500_000,
        "NodeName=a[1-9999999] Topology=t:r:a\n",
        " " * 2_000_000 + "NodeName=a Arch=x\n",
    ],
)
def test_hostile_text_ends(text: str) -> None:
    facts_or_input_error(text, looks_like, read)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(_NAMES), st.data())
def test_mutated_text_gives_facts_or_an_input_error(name: str, data: st.DataObject) -> None:
    facts_or_input_error(mutated(_text(name), data, "0123456789:,=[]- "), looks_like, read)
