"""Tiers that one source names and another leaves out."""

from __future__ import annotations

from meshwright.cluster.allocations.completeness import clique_findings, tier_findings
from meshwright.cluster.facts import Facts, HostPlace
from meshwright.cluster.readers.scontrol_show_node import SlurmPlace


def facts(path: str, *places: HostPlace) -> Facts:
    return Facts(format="made", path=path, places=places)


FULL = facts(
    "labels", HostPlace("a.cluster", ("lf1", "sp1", "core")), HostPlace("b", ("lf2", "sp1"))
)


def test_a_leaf_alone() -> None:
    poor = facts("slurm", SlurmPlace("A", ("lf1",), None, "gpu:fabric1:lf1"))
    (finding,) = tier_findings([FULL, poor])
    assert finding.rule == "topology/leaf-only"
    assert finding.numbers == {
        "missing": "sp1",
        "missing_tier": "tier-2",
        "expected_text": "gpu:fabric1:core:sp1:lf1",
        "count": 1,
        "hosts": ["A"],
        "missing_names": ["sp1"],
    }
    assert finding.place.file == "slurm"


def test_hosts_of_other_names_under_the_same_leaf() -> None:
    poor = facts("slurm", SlurmPlace("worker-3", ("lf2",), None, "default:root:lf2"))
    (finding,) = tier_findings([poor, FULL])
    assert finding.numbers["expected_text"] == "default:root:sp1:lf2"


def test_a_higher_tier_that_is_missing() -> None:
    poor = facts("other", HostPlace("a", ("lf1", "sp1")))
    (finding,) = tier_findings([poor, FULL])
    assert finding.rule == "topology/tier-missing"
    assert finding.numbers["missing_tier"] == "tier-3"
    assert finding.remedy == "give all tiers, as in labels"


def test_nothing_is_missing() -> None:
    same = facts(
        "slurm", SlurmPlace("a", ("lf1", "sp1", "core", "root"), None, "d:root:core:sp1:lf1")
    )
    assert tier_findings([FULL, same]) == []
    assert tier_findings([FULL]) == []
    assert tier_findings([FULL, Facts(format="x", path="x")]) == []


def test_another_leaf_of_the_same_host_is_no_gap() -> None:
    assert tier_findings([FULL, facts("slurm", HostPlace("a", ("lf9",)))]) == []
    assert tier_findings([FULL, facts("slurm", HostPlace("a", ()))]) == []


def _domain(host: str, domain: str) -> HostPlace:
    return HostPlace(host, (), domain)


ONE, TWO = ("11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002")


def test_a_clique_of_two_clusters_is_noted_across_sources() -> None:
    sources = [
        facts("a", _domain("h0", f"{ONE}.5"), _domain("h1", f"{ONE}.5")),
        facts("b", _domain("h2", f"{TWO}.5")),
    ]
    (finding,) = clique_findings(sources)
    assert finding.numbers == {"clique": "5", "clusters": [ONE, TWO]}


def test_cliques_of_one_cluster_or_named_domains_are_no_matter() -> None:
    named = [_domain("h2", "rack.5"), _domain("h3", "hall.5")]
    assert clique_findings([facts("a", _domain("h0", f"{ONE}.5"), *named)]) == []
    assert clique_findings([facts("a", _domain("h0", f"{ONE}.5"), _domain("h1", f"{TWO}.6"))]) == []
