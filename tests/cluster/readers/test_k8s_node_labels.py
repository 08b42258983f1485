"""Kubernetes node labels: every generation of names, NVLink domain keys, what is no place."""

from __future__ import annotations

import json

import pytest

from meshwright.cluster.facts import Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers.k8s_node_labels import FORMAT, looks_like, read
from meshwright.errors import InputError
from support import FIXTURES, shared_path
from topology_samples import finding_of, rules

_A = "aaaaaaaa-0000-4000-8000-00000000000a.0"
_B = "bbbbbbbb-0000-4000-8000-00000000000b.0"


def _fixture(name: str) -> Facts:
    return read((FIXTURES / "topology" / FORMAT / name).read_text(), name)


def _node(name: str, labels: dict[str, str]) -> dict[str, object]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}}


def _read(*labels: dict[str, str]) -> Facts:
    nodes = [_node(f"n{number}", one) for number, one in enumerate(labels)]
    return read(json.dumps({"kind": "List", "items": nodes}), "t.json")


def test_labels_of_four_clouds() -> None:
    facts = _fixture("clouds.yaml")
    assert facts.places == (
        HostPlace("eks-1", ("nn-near", "nn-low", "nn-mid", "nn-top")),
        HostPlace("gke-1", ("blk/sub", "blk")),
        HostPlace("oke-1", ("isl/net/loc", "isl/net", "isl")),
        HostPlace("neb-1", ("leaf07", "spine02")),
    )
    assert [switch.id for switch in facts.switches or ()] == [
        *("nn-top", "nn-mid", "nn-low", "nn-near", "spine02", "leaf07")
    ]
    assert facts.tree is not None
    assert facts.tree[3] == TreeSwitch("nn-near", (), ("eks-1",), 3)
    assert facts.tree[5].line == 29
    assert rules(facts) == ["tiers-uneven", "no-common-root"]


def test_the_levels_of_a_kueue_topology_give_the_order() -> None:
    facts = _fixture("kueue_levels.yaml")
    assert facts.places == (
        HostPlace("a", ("h1/r1/k1", "h1/r1", "h1")),
        HostPlace("b", ("h1/r2/k1", "h1/r2", "h1")),
        HostPlace("c", ()),
    )
    assert (facts.switches, facts.tree) == (None, None)
    assert {key: facts.counts[key] for key in ("racks", "rows", "halls")} == {
        "racks": 2,
        "rows": 2,
        "halls": 1,
    }
    assert finding_of(facts, "leaf-unknown").numbers == {"count": 1, "names": ["c"]}


def test_the_key_of_an_nvlink_domain_is_uuid_and_clique() -> None:
    facts = _fixture("cliques.json")
    assert facts.hosts == ("t1", "t2", "t3", "t4", "t5", "t6", "t7")
    assert facts.places == (
        HostPlace("t1", ("x/s1", "x"), _A),
        HostPlace("t2", ("x/s1", "x"), _A),
        HostPlace("t3", ("y/s1", "y"), _B),
        HostPlace("t4", ("s2",)),
        HostPlace("t5", ()),
        HostPlace("t6", ()),
        HostPlace("t7", ("z/y/s9", "z/y", "z"), "rack7"),
    )
    assert facts.counts == {"control_plane_nodes": 1, "accelerator_domains": 3, "sub_domains": 0}
    found = {finding.rule.removeprefix("topology/"): finding.numbers for finding in facts.findings}
    assert {rule: numbers["names"] for rule, numbers in found.items() if "names" in numbers} == {
        "clique-without-uuid": ["t5"],
        "domain-labels-mixed": ["t7"],
        "name-not-unique": ["s1"],
        "leaf-unknown": ["t6"],
        "host-without-place": ["t5"],
        "spine-tier-unknown": ["t4"],
        "tiers-uneven": ["t1", "t2", "t3"],
    }
    assert found["no-common-root"]["hosts_by_root"] == {"x": 2, "y": 1, "z": 1}
    assert str(finding_of(facts, "list-incomplete").place) == "cliques.json:14:51"


@pytest.mark.captured
def test_case_a_clique_id_alone_is_not_unique() -> None:
    case = json.loads(shared_path("cases/clique-id-not-unique.json").read_text())
    text = case["artefacts"][0]["text"]
    assert looks_like(text)
    members: dict[str | None, list[str]] = {}
    for place in read(text, "labels.txt").places or ():
        members.setdefault(place.nvlink_domain, []).append(place.host)
    assert list(members.values()) == case["expected"]["checks"]["domains"]


@pytest.mark.captured
def test_case_a_leaf_alone_loses_the_spine() -> None:
    labels = json.loads(shared_path("cases/leaf-only-topology.json").read_text())["inputs"][
        "labels"
    ]
    full = {f"topology.nebius.com/{tier}": name for tier, name in labels.items()}
    both = _read(full)
    assert both.places == (HostPlace("n0", ("leaf07", "spine02")),)
    assert both.findings == ()
    leaf = {key: name for key, name in full.items() if key.endswith("tier-1")}
    assert rules(_read(leaf)) == ["spine-tier-unknown"]


def test_one_node_with_its_leaf_only() -> None:
    facts = _fixture("single_node.json")
    assert facts.places == (HostPlace("solo", ("lf",), "d"),)
    assert facts.counts["sub_domains"] == 1
    (finding,) = facts.findings
    assert finding.rule == "topology/spine-tier-unknown"
    assert "paths above the leaf are unknown" in finding.message


def test_lines_of_show_labels() -> None:
    facts = _fixture("show_labels.txt")
    assert facts.places == (
        HostPlace("gpu1", ("b1/r1", "b1")),
        HostPlace("gpu2", ("b2/r1", "b2")),
        HostPlace("gpu3", ()),
    )
    assert facts.counts["control_plane_nodes"] == 1
    assert rules(facts) == ["host-without-place", "no-common-root"]


@pytest.mark.captured
def test_captured_generations_say_the_same() -> None:
    name = "topograph_three_label_generations.yaml"
    facts = read((shared_path("data/topology") / FORMAT / name).read_text(), name)
    assert {(place.tiers, place.nvlink_domain) for place in facts.places or ()} == {
        (("s1", "s2", "s3"), "nvl1")
    }
    assert facts.findings == ()


@pytest.mark.captured
def test_captured_racks_are_named_under_their_block() -> None:
    name = "kueue_tas_kind.yaml"
    facts = read((shared_path("data/topology") / FORMAT / name).read_text(), name)
    assert facts.places is not None
    assert facts.places[0] == HostPlace("kind-worker", ("b1/r1", "b1"))
    assert facts.places[7] == HostPlace("kind-worker8", ("b2/r2", "b2"))
    assert rules(facts) == ["no-common-root"]


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("", None),
        ("unknown", None),
        ("0", None),
        ("unknown.0", None),
        ("00000000-0000-0000-0000-000000000000.0", None),
        ("1a.32766", "1a.32766"),
        ("1A.", None),
    ],
)
def test_what_a_clique_label_says(value: str, domain: str | None) -> None:
    (place,) = _read({"nvidia.com/gpu.clique": value}).places or ()
    assert place.nvlink_domain == domain


def test_one_switch_at_two_levels_makes_no_cycle() -> None:
    tiers = ("fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1")
    facts = _read(dict(zip(tiers, "ab", strict=True)), dict(zip(tiers, "ba", strict=True)))
    assert [place.tiers for place in facts.places or ()] == [("b/a", "b"), ("a/b", "a")]
    assert set(finding_of(facts, "name-not-unique").numbers["names"]) == {"a", "b"}  # type: ignore[arg-type]


def test_labels_without_a_known_order_place_nobody() -> None:
    facts = _read({"cloud.provider.com/topology-hall": "h"})
    assert facts.places == (HostPlace("n0", ()),)
    assert rules(facts) == ["label-order-unknown", "host-without-place"]


def test_a_gap_ends_what_is_known() -> None:
    prefix = "fabric.topograph.run/tier-"
    facts = _read({f"{prefix}0": "lf", f"{prefix}1": "unknown", f"{prefix}2": "core"})
    assert facts.places == (HostPlace("n0", ("lf",)),)
    assert rules(facts) == ["spine-tier-unknown"]


def test_a_control_plane_node_with_a_place_is_a_host() -> None:
    role = {"node-role.kubernetes.io/control-plane": ""}
    facts = _read(role, role | {"network.topology.nvidia.com/block": "b"})
    assert facts.hosts == ("n1",)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("kind: Node\nmetadata: {}\n", "t:1:1", "metadata.name is missing"),
        ("kind: Pod\n", "t:1:1", "names no node"),
        ("kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: [b]\n", "t:4:1", "name"),
        ("kind: Node\nmetadata: {name: a}\n---\n  - [\n", "t:5:1", "not valid YAML"),
        ("kind: Node\nmetadata: {name: a, labels: [b]}\n", "t:2:29", "expected keys"),
        ("kind: Node\nmetadata: {name: a, labels: {b: [c]}}\n", "t:2:33", "expected a text"),
        ("kind: List\nitems: 3\n", "t:2:8", "expected a list"),
        ("kind: List\nitems: [3]\n", "t:2:9", "expected keys"),
        ("a nvidia.com/gpu.clique=u.0\nb\n", "t:2:1", "no label"),
        (
            '{"kind": "NodeList", "items": [{"metadata": {"name": "a"}}, ',
            "t:1:61",
            "end of the file",
        ),
    ],
)
def test_refused(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "t")
    assert str(caught.value.problems[0].place) == place
    assert words in caught.value.problems[0].message


def test_a_list_too_large_says_how_to_make_it_smaller() -> None:
    node = _node("n", {}) | {"status": dict.fromkeys(map(str, range(300)), 1)}
    text = json.dumps({"kind": "List", "items": [node] * 3500})
    with pytest.raises(InputError) as caught:
        read(text, "t.json")
    assert "--show-labels" in (caught.value.problems[0].remedy or "")


def test_bare_tier_labels_are_tiers_from_1() -> None:
    facts = _read({"tier-1": "leaf07", "tier-2": "spine02"})
    assert facts.places is not None
    assert facts.places[0].tiers == ("leaf07", "spine02")


def test_a_vendors_tiers_win_over_bare_ones() -> None:
    facts = _read({"tier-1": "gold", "fabric.topograph.run/tier-0": "leaf07"})
    assert facts.places is not None
    assert facts.places[0].tiers == ("leaf07",)


def test_a_clique_wins_over_a_named_domain() -> None:
    uuid = "11111111-0000-4000-8000-000000000001"
    labels = {"nvidia.com/gpu.clique": f"{uuid}.7", "accelerator.topograph.run/domain": "rack7"}
    facts = _read(labels)
    assert facts.places is not None
    assert facts.places[0].nvlink_domain == f"{uuid}.7"
