"""Slurm ``topology.conf``: captured samples, each trap of the grammar, bad input."""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.readers import slurm_topology_conf
from meshwright.errors import InputError
from meshwright.findings import Severity
from support import FIXTURES, shared_path

_FIXTURES = FIXTURES / "topology" / "slurm_topology_conf"


def _read(text: str) -> Facts:
    return slurm_topology_conf.read(text, "t.conf")


def _fixture(name: str) -> Facts:
    return slurm_topology_conf.read((_FIXTURES / name).read_text(encoding="utf-8"), name)


def _refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        _read(text)
    return str(caught.value)


def _samples() -> dict[str, dict[str, str]]:
    manifest = shared_path("data/topology/MANIFEST.csv")
    with manifest.open(encoding="utf-8", newline="") as handle:
        return {row["file"]: row for row in csv.DictReader(handle)}


@pytest.mark.captured
def test_samples_give_the_figures_of_the_manifest() -> None:
    rows = [row for row in _samples().values() if row["format"] == "slurm_topology_conf"]
    assert len(rows) == 6
    for row in rows:
        path = shared_path("data/topology") / row["file"]
        facts = slurm_topology_conf.read(path.read_text(encoding="utf-8"), path.name)
        assert facts.hosts is not None
        assert len(facts.hosts) == int(row["n_hosts"])
        switches = None if facts.switches is None else len(facts.switches)
        assert switches == (int(row["n_switches"]) if row["n_switches"] else None)
        tree, blocks = facts.tree or (), facts.blocks or ()
        children = {child for switch in tree for child in switch.switches}
        found = {
            "roots": len({switch.name for switch in tree} - children),
            "leaves": sum(bool(switch.hosts) for switch in tree),
            "blocks": len(blocks),
        }
        for key, value in json.loads(row["x_info"]).items():
            assert found[key] == value, (row["file"], key)
        assert (facts.gpus, facts.nics, facts.cables) == (None, None, None)


@pytest.mark.captured
def test_samples_in_detail() -> None:
    folder = shared_path("data/topology/slurm_topology_conf")
    facts = {
        path.name: slurm_topology_conf.read(path.read_text(encoding="utf-8"), path.name)
        for path in folder.iterdir()
    }
    assert facts["block_8x4.conf"].block_sizes == (4, 8, 16, 32, 64)
    assert facts["block_8x4.conf"].tree is None
    topograph = facts["topograph_tree_96.conf"]
    assert topograph.tree is not None
    assert topograph.tree[7].name == "switch.1.1"
    assert topograph.tree[7].comment == "leaf-1-1"
    assert topograph.blocks is None
    assert topograph.findings == ()
    (finding,) = facts["tree_no_common_root.conf"].findings
    assert finding.rule == "topology/no-common-root"
    assert finding.numbers["hosts_by_root"] == {"grp10": 200, "grp11": 200}


@pytest.mark.captured
def test_claims_its_own_samples_only() -> None:
    folder = shared_path("data/topology")
    for name, row in _samples().items():
        text = (folder / name).read_text(encoding="utf-8", errors="replace")
        expected = row["format"] == "slurm_topology_conf"
        assert slurm_topology_conf.looks_like(text) is expected, name


def test_tree_with_every_trap_of_the_grammar() -> None:
    facts = _fixture("tree_with_traps.conf")
    assert facts.tree == (
        TreeSwitch("core", ("agg.1", "agg.2"), (), 4, "Core-Hall-B"),
        TreeSwitch("agg.1", ("tor01", "tor02"), (), 7, "Row 1"),
        TreeSwitch("agg.2", ("tor3", "tor10", "tor11"), (), 8),
        TreeSwitch("tor01", (), ("cn001", "cn002", "cn003", "cn010"), 10),
        TreeSwitch("tor02", (), ("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"), 11),
        TreeSwitch("tor3", (), ("gpu.lab9", "gpu.lab10", "gpu.lab11"), 13),
        TreeSwitch("tor10", (), ("cn010", "fat1"), 14),
    )
    assert facts.hosts is not None
    assert len(facts.hosts) == 14
    assert facts.hosts[:5] == ("cn001", "cn002", "cn003", "cn010", "r1n08")
    assert [switch.name for switch in facts.switches or ()] == [
        *("core", "agg.1", "agg.2", "tor01", "tor02", "tor3", "tor10", "tor11")
    ]
    assert [(f.rule, f.severity, f.place.line) for f in facts.findings] == [
        ("topology/switch-undefined", Severity.WARNING, 8),
        ("topology/host-twice", Severity.WARNING, 14),
    ]
    assert facts.findings[0].numbers == {"switch": "agg.2", "count": 1, "undefined": ["tor11"]}
    assert facts.findings[1].numbers == {"count": 1, "hosts": ["cn010"]}
    assert "tor01 (line 10) and tor10 (line 14)" in facts.findings[1].message


def test_no_common_root_names_roots_and_hosts() -> None:
    facts = _fixture("two_trees.conf")
    (finding,) = facts.findings
    assert finding.rule == "topology/no-common-root"
    assert finding.numbers == {"roots": 2, "hosts_by_root": {"east": 3, "west": 5}}
    assert "east (3 hosts: ea[1-2],eb7); west (5 hosts: w[1-5])" in finding.message
    assert len(facts.tree or ()) == 4  # no root was invented


def test_blocks_with_fillers_and_sizes_in_two_lines() -> None:
    facts = _fixture("blocks.conf")
    assert facts.blocks == (
        Block("blk1", ("tray01", "tray02", "tray03", "tray04"), 2, "hall-1/nvl-07"),
        Block("blk2", ("tray05", "tray06", "tray07"), 3),
        Block("filler", (), 4),
        Block("hole", (), 5),
    )
    assert facts.block_sizes == (4, 8, 16)
    assert facts.tree is None
    assert facts.switches is None
    assert facts.hosts is not None
    assert len(facts.hosts) == 7
    assert facts.findings == ()


def test_rings_give_hosts_only() -> None:
    facts = _fixture("rings.conf")
    assert facts.hosts == ("t0", "t1", "t2", "t3", "t4", "t5")
    assert (facts.tree, facts.blocks, facts.switches) == (None, None, None)
    assert [finding.rule for finding in facts.findings] == ["topology/ring-ignored"]


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("SwitchName=a\n", "topology/switch-empty", 1),
        ("SwitchName=a Switches=b Nodes=n\nSwitchName=b Nodes=m", "topology/switch-mixed", 1),
        (
            "SwitchName=r Switches=a,b\nSwitchName=a Switches=c\nSwitchName=b Switches=c,d\n",
            "topology/switch-two-parents",
            3,
        ),
        ("SwitchName=a \\\n Colour=red Nodes=n\n", "topology/key-unknown", 2),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n[1-2]\n", "topology/host-twice", 2),
        ("SwitchName=a Nodes=n1,n1\n", "topology/host-twice", 1),
    ],
)
def test_odd_but_readable(text: str, rule: str, line: int) -> None:
    finding = _read(text).findings[-1]
    assert (finding.rule, finding.place.line) == (rule, line)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "t.conf:1:1", "empty or cut off"),
        ("# only a comment\n", "t.conf:1:1", "empty or cut off"),
        ("BlockSizes=4\n", "t.conf:1:1", "no switch and no block"),
        ("\nSwitchName=a\x00b\n", "t.conf:2:13", "binary"),
        ("\x7fELF\x02\x01", "t.conf:1:1", "binary"),
        ("SwitchName=a Nodes=n1\nSwitchName=b No", "t.conf:2:14", "cut off"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[2-", "t.conf:2:20", "cut off"),
        ("SwitchName=a Nodes=", "t.conf:1:20", "cut off"),
        ("BlockName=a Nodes=", "t.conf:1:19", "cut off"),
        ("SwitchName=a Nodes=n1 \\", "t.conf:1:23", "continued"),
        ("SwitchName=a Nodes=\n", "t.conf:1:20", "no value"),
        ("SwitchName= Nodes=n\n", "t.conf:1:12", "no value"),
        ("SwitchName=a \\\n  Nodes=n[3-1]\n", "t.conf:2:9", "backwards"),
        ("SwitchName=a Nodes=n1 n2\n", "t.conf:1:23", "'n2'"),
        ("Include other.conf\n", "t.conf:1:1", "'Include'"),
        ("Nodes=n SwitchName=a\n", "t.conf:1:7", "'nodes'"),
        ("SwitchName=a Nodes=n nodes=m\n", "t.conf:1:22", "twice"),
        ("BlockName=a\nBlockSizes=4,x\n", "t.conf:2:12", "'x'"),
        ("SwitchName=a Nodes=n\nSwitchName=a Nodes=m\n", "t.conf:2:12", "line 1"),
        ("BlockName=a Nodes=n\nblockname=a\n", "t.conf:2:11", "line 1"),
        ("SwitchName=a Switches=a\n", "t.conf:1:1", "a > a"),
        (
            "SwitchName=r Switches=a\nSwitchName=a Switches=b\nSwitchName=b Switches=a\n",
            "t.conf:2:1",
            "own ancestor: a > b > a",
        ),
        ("SwitchName=a Nodes=n[1-200000]\nSwitchName=b Nodes=m[1-100001]\n", "2:20", "300,000"),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    message = _refusal(text)
    assert place in message
    assert words in message


def test_a_long_chain_is_no_problem() -> None:
    count = 20_000
    lines = [f"SwitchName=s{i} Switches=s{i + 1}" for i in range(count)]
    facts = _read("\n".join([*lines, f"SwitchName=s{count} Nodes=n"]))
    assert facts.hosts == ("n",)


_TEXTS = [path.read_text(encoding="utf-8") for path in sorted(_FIXTURES.glob("*.conf"))]


@given(st.data())
def test_any_change_gives_facts_or_an_input_error(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(_TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 12)))
        insert = data.draw(
            st.sampled_from(["", "[", "]", ",", "=", "\\\n", "#", '"', "1-", "\n", "é"])
        )
        text = text[:start] + insert + text[end:]
    with contextlib.suppress(InputError):
        assert _read(text).hosts is not None


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    with contextlib.suppress(InputError):
        _read(text)


def test_fixtures_are_claimed() -> None:
    for path in Path(_FIXTURES).glob("*.conf"):
        assert slurm_topology_conf.looks_like(path.read_text(encoding="utf-8"))
    assert not slurm_topology_conf.looks_like("SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n1\n")
    assert not slurm_topology_conf.looks_like("BlockName=b BlockIndex=0 Nodes=n1 BlockSize=4\n")
    assert not slurm_topology_conf.looks_like("# SwitchName=a\n")
