"""Trees of labels and clouds, and what sources say of the same hosts."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import capture, fabric, labels, nic_guid, of_rule, rules, topo_m, tree
from meshwright.cluster.facts import Block, Facts, TreeSwitch
from meshwright.cluster.join.all_sources import Joined, join_sources
from meshwright.cluster.join.groupings import splits
from meshwright.cluster.join.places_tree import UNKNOWN_TIER, network_tree, tree_of
from meshwright.cluster.join.tree_heights import heights, hosts_below
from meshwright.cluster.readers import read_topology
from meshwright.findings import Severity
from meshwright.report.joined_report import joined_json, joined_text
from support import FIXTURES, shared_path

TWO_UNITS = {"leaf-0": ("n0", "n1"), "leaf-1": ("n2", "n3")}


def _placed(tiers: dict[str, tuple[str, ...]], domain: str | None = None) -> Facts:
    return labels({host: (above, domain) for host, above in tiers.items()})


# A tree of places ---------------------------------------------------------------------------------


def test_places_become_a_tree() -> None:
    facts, findings = network_tree(
        [_placed({"a": ("l0", "s0", "c"), "b": ("l1", "s0", "c"), "d": ("l2", "s1", "c")})]
    )
    by_name = {switch.name: switch for switch in facts.tree}
    assert by_name["l0"].hosts == ("a",)
    assert by_name["s0"].switches == ("l0", "l1")
    assert by_name["c"].switches == ("s0", "s1")
    assert findings == []


def test_leaves_without_spine_are_put_under_one_and_it_is_said() -> None:
    facts, findings = network_tree([_placed({"a": ("l0",), "b": ("l1",)})])
    assert facts.tree[-1] == TreeSwitch(UNKNOWN_TIER, ("l0", "l1"))
    found = of_rule(findings, "leaf-only")
    assert found.severity is Severity.NOTE
    assert found.numbers == {"leaves": 2, "hosts": 2}


def test_leaves_without_spine_go_under_the_only_root() -> None:
    facts, findings = network_tree([_placed({"a": ("l0", "s0"), "b": ("l1",)})])
    by_name = {switch.name: switch for switch in facts.tree}
    assert by_name["s0"].switches == ("l0", "l1")
    assert rules(findings) == ["leaf-only"]
    apart, findings = network_tree([_placed({"a": ("l0", "s0"), "b": ("l1", "s1"), "d": ("l2",)})])
    assert UNKNOWN_TIER not in {switch.name for switch in apart.tree}
    assert of_rule(findings, "leaf-only").severity is Severity.WARNING


@pytest.mark.parametrize("name", ["unknown", "UNKNOWN", "none", "N/A"])
def test_a_leaf_named_unknown_is_none(name: str) -> None:
    source = tree({"leaf-0": ("n0", "n1"), name: ("n2", "n3")})
    facts, findings = network_tree([source])
    assert {host for switch in facts.tree for host in switch.hosts} == {"n0", "n1"}
    assert all(name not in switch.switches for switch in facts.tree)
    assert facts.hosts == ("n0", "n1", "n2", "n3")
    found = of_rule(findings, "host-without-leaf")
    assert found.numbers == {"count": 2, "hosts": ["n2", "n3"]}


def test_pages_of_one_format_are_one_tree() -> None:
    pages = [
        tree({"leaf-0": ("n0", "n1")}, "page1.conf"),
        tree({"leaf-1": ("n2",)}, "page2.conf"),
    ]
    facts, findings = network_tree(pages)
    by_name = {switch.name: switch for switch in facts.tree}
    assert by_name["top"].switches == ("leaf-0", "leaf-1")
    assert facts.hosts == ("n0", "n1", "n2")
    assert findings == []
    moved = tree({"leaf-1": ("n1", "n2")}, "page2.conf")
    found = of_rule(network_tree([pages[0], moved])[1], "conflict-leaf")
    assert found.numbers["values"] == [["n1", "leaf-0", "leaf-1"]]
    assert (found.numbers["left"], found.numbers["right"]) == ("page1.conf", "page2.conf")


def test_a_tree_as_it_is_stays_so() -> None:
    source = tree(TWO_UNITS)
    assert network_tree([source])[0] is source
    assert network_tree([topo_m()]) == (None, [])


@pytest.mark.captured
def test_a_captured_operator_s_unknown_leaf() -> None:
    path = shared_path("data/topology/scontrol_show_topology/soperator_unknown_switch.txt")
    facts, findings = network_tree([read_topology(path)])
    assert "unknown" not in {switch.name for switch in facts.tree}
    assert of_rule(findings, "host-without-leaf").numbers["count"] == 2


@pytest.mark.captured
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gcp_physical_host/two_vms.json", {0: 2, 1: 1, 2: 1}),
        ("k8s_node_labels/kueue_tas_kind.yaml", {0: 4, 1: 2}),
        ("aws_instance_topology/cli_example.json", {0: 3, 1: 3, 2: 2}),
    ],
)
def test_captured_places_as_trees(name: str, shape: dict[int, int]) -> None:
    switches = tree_of(read_topology(shared_path(f"data/topology/{name}")))
    number = {switch.name: at for at, switch in enumerate(switches)}
    edges = [(number[low], number[one.name]) for one in switches for low in one.switches]
    found = heights(len(switches), edges)
    assert {height: found.count(height) for height in set(found)} == shape


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=30), st.randoms(use_true_random=False))
def test_heights_and_hosts_of_any_tree(parents: list[int], seed: object) -> None:
    """Node i + 1 hangs under an earlier node; checked against walking up from every node."""
    edges = [(at + 1, parent % (at + 1)) for at, parent in enumerate(parents)]
    count = len(parents) + 1
    own = {index: index % 3 for index in range(count)}
    seed.shuffle(edges)  # type: ignore[attr-defined]
    parent = dict(edges)
    height, below = [0] * count, [own[index] for index in range(count)]
    for index in range(count):
        steps, up = 0, index
        while up in parent:
            up, steps = parent[up], steps + 1
            height[up] = max(height[up], steps)
            below[up] += own[index]
    assert heights(count, edges) == height
    assert hosts_below(count, edges, own) == below


def test_a_circle_ends() -> None:
    assert heights(3, [(0, 1), (1, 2), (2, 1)])[0] == 0
    assert len(hosts_below(2, [(0, 1), (1, 0)], {0: 1, 1: 1})) == 2


# The same hosts in several sources ----------------------------------------------------------------


def test_hosts_in_one_source_only_are_counted_with_both_names() -> None:
    joined = join_sources([fabric(), tree({"leaf-0": ("n0", "n1"), "leaf-1": ("n2", "n7")})])
    found = of_rule(joined.findings, "host-in-one-only")
    assert found.severity is Severity.WARNING
    assert (found.numbers["left"], found.numbers["right"]) == ("ib.txt", "topology.conf")
    assert (found.numbers["only_left"], found.numbers["only_right"]) == (1, 1)
    assert "n7" in found.message
    assert "n3" in found.message


def test_storage_hosts_that_only_the_fabric_has_are_a_note() -> None:
    joined = join_sources([fabric(), tree({"leaf-0": ("n0", "n1")})])
    assert of_rule(joined.findings, "host-in-one-only").severity is Severity.NOTE


def test_names_of_two_kinds_are_not_joined() -> None:
    joined = join_sources([fabric(), tree({"leaf-0": ("ip-10-0-0-1",)})])
    assert rules(joined.findings) == ["join-refused"]


def test_short_names_join_across_sources() -> None:
    joined = join_sources([fabric(), tree({"leaf-0": ("N0.example", "n1.example", "n2", "n3")})])
    join = next(one for one in joined.joins if one.key == "host")
    assert (join.matched, join.only_left, join.only_right) == (4, 0, 0)


def test_a_leaf_of_the_tree_that_the_cables_put_into_two_units() -> None:
    joined = join_sources(
        [fabric(range(8)), tree({"leaf-0": ("n0", "n1", "n2"), "leaf-1": ("n3",)})]
    )
    found = of_rule(joined.findings, "conflict-leaf")
    assert found.severity is Severity.WARNING
    assert found.numbers["count"] == 1
    assert found.numbers["hosts"] == 1
    assert (
        "leaf-0 (3 hosts) is in 2 units of the cables: unit 0 with 2, unit 1 with 1"
        in found.message
    )


def test_rails_are_no_disagreement() -> None:
    """Every host has two leaves; a tree with one leaf a unit says the same."""
    joined = join_sources([fabric(), tree(TWO_UNITS)])
    assert joined.findings == ()


def test_a_finer_tree_is_a_note() -> None:
    leaves = {f"leaf-{i}": (f"n{i}",) for i in range(4)}
    joined = join_sources([fabric(), tree(leaves)])
    assert rules(joined.findings) == ["leaf-finer"]


UUID = "3fbf-98"


def test_domains_are_compared_by_who_is_together() -> None:
    of_labels = labels({f"n{i}": (("l",), f"{UUID}.{i // 2}") for i in range(4)})
    same = labels({f"n{i}": ((), f"nvl-{i // 2}") for i in range(4)}, "nmx.json", "netq_nmx")
    assert not [r for r in rules(join_sources([of_labels, same]).findings) if "domain" in r]
    other = labels({f"n{i}": ((), f"nvl-{i % 2}") for i in range(4)}, "nmx.json", "netq_nmx")
    found = of_rule(join_sources([of_labels, other]).findings, "conflict-nvlink-domain")
    assert (found.numbers["left"], found.numbers["right"]) == ("labels.json", "nmx.json")
    assert found.numbers["wide"] == 2


def test_blocks_that_span_domains_are_a_warning_and_finer_ones_a_note() -> None:
    of_labels = labels({f"n{i}": (("l",), f"{UUID}.{i // 2}") for i in range(4)})

    def blocks(*members: tuple[str, ...]) -> Facts:
        made = tuple(Block(f"b{at}", hosts) for at, hosts in enumerate(members))
        hosts = tuple(host for one in members for host in one)
        return Facts(format="slurm_topology_conf", path="blocks.conf", hosts=hosts, blocks=made)

    wide = join_sources([of_labels, blocks(("n0", "n1", "n2", "n3"))])
    assert of_rule(wide.findings, "conflict-nvlink-domain").numbers["wide"] == 1
    fine = join_sources([of_labels, blocks(("n0",), ("n1",), ("n2", "n3"))])
    assert of_rule(fine.findings, "blocks-in-domain").severity is Severity.NOTE


def test_unknown_is_no_domain() -> None:
    nothing = labels(
        {f"n{i}": (("l",), domain) for i, domain in enumerate(("unknown", ".7", "0-0.7"))}
    )
    known = labels({f"n{i}": ((), f"nvl-{i}") for i in range(3)}, "nmx.json", "netq_nmx")
    joined = join_sources([nothing, known])
    assert [one.path for one in joined.said if one.domain] == ["nmx.json"]
    assert not [one for one in joined.joins if one.key == "nvlink domain"]


def test_an_ambiguous_short_name_is_said() -> None:
    source = tree({"leaf-0": ("n0.a", "n0.b")})
    joined = join_sources([source, labels({"n0.a": (("l",), None), "n0.b": (("l",), None)})])
    assert of_rule(joined.findings, "host-name-ambiguous").numbers["names"] == ["n0"]
    join = next(one for one in joined.joins if one.key == "host")
    assert join.matched == 2


def test_a_capture_names_adapters_by_their_guid() -> None:
    bare = fabric()
    bare = msgspec.structs.replace(
        bare,
        hosts=("n1", "n2", "n3"),
        nics=tuple(
            msgspec.structs.replace(nic, host=None, name=str(nic.guid)) if nic.host == "n0" else nic
            for nic in bare.nics
        ),
    )
    own = capture("n0", num_nics=2)
    own = msgspec.structs.replace(
        own,
        nics=tuple(
            msgspec.structs.replace(nic, guid=nic_guid(0, rail))
            for rail, nic in enumerate(own.nics)
        ),
    )
    joined = join_sources([bare, own])
    assert {nic.host for nic in joined.fabric.nics} == {"n0", "n1", "n2", "n3"}
    assert set(joined.fabric.hosts) == {"n0", "n1", "n2", "n3"}
    assert of_rule(joined.findings, "host-by-guid").numbers["adapters"] == 2
    wrong = msgspec.structs.replace(own, host="n9", path="n9.json")
    found = of_rule(join_sources([fabric(), wrong]).findings, "conflict-adapter-host")
    assert found.numbers["values"][0][1:] == ["n0", "n9"]


def test_captures_of_some_hosts_do_not_call_the_others_missing() -> None:
    joined = join_sources([fabric(), capture("n0")])
    assert "host-in-one-only" not in rules(joined.findings)
    strange = join_sources([fabric(), capture("n0"), capture("x9")])
    assert "x9" in of_rule(strange.findings, "host-in-one-only").message


# All together -------------------------------------------------------------------------------------


def _all() -> list[Facts]:
    return [
        topo_m(),
        fabric(),
        fabric(path="plane1.txt", plane=1),
        tree(TWO_UNITS),
        labels({f"n{i}": ((f"leaf-{i // 2}", "top"), f"{UUID}.{i // 2}") for i in range(4)}),
    ]


def test_all_kinds_together() -> None:
    joined = join_sources(_all())
    assert len(joined.hosts) == 1
    assert len(joined.fabric.switches) == 10
    assert joined.tree.path == "topology.conf"
    assert [one.kind for one in joined.said] == ["fabric", "tree", "tree"]
    assert rules(joined.findings) == ["fabric-parts", "host-not-joined"]
    assert {one.key for one in joined.joins} == {"guid", "host"}


@settings(deadline=None)
@given(st.randoms(use_true_random=False), st.sets(st.integers(0, 4), min_size=1))
def test_the_order_of_sources_changes_nothing(seed: object, chosen: set[int]) -> None:
    sources = [_all()[at] for at in chosen]
    turned = [*sources, *sources]
    seed.shuffle(turned)  # type: ignore[attr-defined]
    assert join_sources(turned) == join_sources(sources)


def test_the_report_of_a_join() -> None:
    joined = join_sources(_all())
    document = joined_json(joined)
    assert document["conflicts"] == []
    assert [one["switches_by_tier"] for one in document["tiers"]] == [[8, 2], [2, 1]]
    assert document["hosts"][2] == {
        "source": "labels.json",
        "kind": "tree",
        "hosts": 4,
        "leaves": 2,
        "nvlink_domains": 2,
        "blocks": None,
    }
    text = joined_text(joined)
    assert "joined on" in text
    assert "8-2" in text
    assert "plane1.txt" in text


def _joined(names: list[str]) -> Joined:
    return join_sources([read_topology(FIXTURES / "topology" / name) for name in names])


def test_our_own_fixtures_together() -> None:
    joined = _joined(["k8s_node_labels/cliques.json", "nvidia_smi_topo_m/tabs_4gpu_2nic.txt"])
    assert len(joined.hosts) == 1
    assert joined.places[0].format == "k8s_node_labels"
    assert joined_json(joined)["node_types"][0]["name"].endswith("tabs_4gpu_2nic.txt")


def test_groupings_that_agree_in_names_or_not() -> None:
    assert splits({"a": "x", "b": "x"}, {"a": "1", "b": "1", "c": "2"}) == []
    (split,) = splits({"a": "x", "b": "x", "d": "y"}, {"a": "1", "b": "2"})
    assert split.parts == (("1", 1), ("2", 1))


@pytest.mark.captured
def test_captured_tree_blocks_and_model_of_one_cluster() -> None:
    files = [
        "slurm_topology_conf/topograph_tree_96.conf",
        "slurm_topology_conf/topograph_block_96.conf",
        "topograph_model/large_6spine.yaml",
    ]
    joined = join_sources([read_topology(shared_path(f"data/topology/{name}")) for name in files])
    assert joined.findings == ()
    assert [(one.key, one.matched) for one in joined.joins] == [
        ("host", 96),
        ("host", 96),
        ("nvlink domain", 96),
    ]
