"""Findings that many hosts' files give alike are said once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import capture, topo_m
from meshwright.cluster.join.same_findings import folded
from meshwright.findings import Finding, Place, Severity


def _said(path: str, text: str = "no lstopo", line: int = 1, **numbers: int) -> Finding:
    return Finding("topology/source-missing", Severity.NOTE, Place(path, line), text, numbers, "x")


HOSTS = ("n10", "n2", "n1")
SOURCES = [capture(name) for name in HOSTS]


def test_equal_findings_are_one_with_the_hosts_in_order() -> None:
    found = folded(
        [_said(f"{name}.json", count=3, bus=at) for at, name in enumerate(HOSTS)], SOURCES
    )
    (one,) = found
    assert one.message == "3 hosts (n1, n2, n10): no lstopo"
    assert one.numbers == {"count": 3, "hosts": ["n1", "n2", "n10"], "host_count": 3}
    assert one.place.file == "n1.json"
    assert (one.rule, one.severity, one.remedy) == ("topology/source-missing", Severity.NOTE, "x")


def test_what_differs_or_names_no_host_stays() -> None:
    kept = [_said("n1.json", "a"), _said("n2.json", "b"), _said("topo.txt"), _said("topo2.txt")]
    assert folded(kept, [*SOURCES, topo_m()]) == kept


def test_what_one_file_says_twice_stays_two() -> None:
    found = folded([_said("n1.json", line=1), _said("n1.json", line=9)], SOURCES)
    assert [one.place.line for one in found] == [1, 9]
    both = folded([_said(f"{name}.json", line=at) for name in HOSTS for at in (1, 9)], SOURCES)
    assert [one.numbers["host_count"] for one in both] == [3, 3]


def test_a_finding_on_several_hosts_is_left_as_it_is() -> None:
    several = [
        Finding("topology/x", Severity.WARNING, Place(f"{name}.json"), "m", {"hosts": [name]})
        for name in HOSTS
    ]
    assert folded(several, SOURCES) == several


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(HOSTS), st.sampled_from("abc")), max_size=20))
def test_nothing_is_lost(said: list[tuple[str, str]]) -> None:
    found = folded([_said(f"{host}.json", text) for host, text in said], SOURCES)
    total = sum(int(str(one.numbers.get("host_count", 1))) for one in found)
    assert total == len(said)
    assert len(found) <= len(said)
    assert folded(found, SOURCES) == found
