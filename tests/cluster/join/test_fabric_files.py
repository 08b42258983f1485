"""Listings of one fabric: every cable once, conflicts with both files, tables by GUID."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.join.views import fabric, nic_guid, of_rule, rules, switch_guid
from meshwright.cluster.facts import Cable, Facts, ForwardingTable, Nic
from meshwright.cluster.join.fabric_files import merge_fabric
from meshwright.cluster.readers import read_topology
from meshwright.cluster.switches.switch_levels import derive_levels
from meshwright.findings import Severity
from meshwright.units import gbit_per_s
from support import shared_path


def _content(facts: Facts) -> tuple[object, ...]:
    """Return what a fabric lists, in no order; ends of a cable in no order either."""
    cables = {
        (
            frozenset(((one.a, one.a_port), (one.b, one.b_port))),
            one.rate_bytes_per_s,
        )
        for one in facts.cables
    }
    nics = {(nic.guid, nic.host, nic.name) for nic in facts.nics}
    return frozenset(cables), frozenset(nics), frozenset(facts.switches), frozenset(facts.hosts)


def _conflicts(found: tuple[object, ...]) -> list[str]:
    return [rule for rule in rules(found) if rule.startswith("conflict-")]


def test_one_listing_comes_back_as_it_is() -> None:
    facts = fabric()
    again = msgspec.structs.replace(facts, path="again.txt")
    assert merge_fabric([facts]).facts is facts
    merge = merge_fabric([facts, again])
    assert _content(merge.facts) == _content(facts)
    assert merge.findings == ()


def test_two_tools_list_one_fabric() -> None:
    merge = merge_fabric([fabric(), fabric(path="ports.txt", form="ibnetdiscover_ports")])
    assert _content(merge.facts) == _content(fabric())
    assert len(merge.facts.cables) == len(fabric().cables)
    assert _conflicts(merge.findings) == []
    (join,) = merge.joins
    assert (join.key, join.matched, join.only_left, join.only_right) == ("guid", 5, 0, 0)


def test_two_planes_make_one_fabric() -> None:
    one, other = fabric(), fabric(path="plane1.txt", plane=1)
    merge = merge_fabric([one, other])
    assert len(merge.facts.switches) == 10
    assert len(merge.facts.cables) == 24
    assert merge.facts.hosts == one.hosts
    assert rules(merge.findings) == ["fabric-parts"]
    levels = derive_levels(merge.facts)
    assert len(set(levels.unit_of_leaf.values())) == 2


def test_parts_overlap_at_the_spine() -> None:
    parts = [fabric(range(2), "a.txt"), fabric(range(2, 4), "b.txt")]
    merge = merge_fabric(parts)
    assert _content(merge.facts) == _content(fabric())
    found = of_rule(merge.findings, "switch-in-one-only")
    assert (found.numbers["only_left"], found.numbers["only_right"]) == (2, 2)


def test_a_port_guid_is_its_adapter_where_the_switch_port_is_the_same() -> None:
    """A ports report names the port (node GUID + 1); the cable's other end settles it."""
    listing = fabric()
    other = {
        nic_guid(h, r): f"{int(nic_guid(h, r), 16) + 1:016x}" for h in range(4) for r in (0, 1)
    }
    ports = msgspec.structs.replace(
        fabric(path="ports.txt", form="ibnetdiscover_ports"),
        nics=tuple(msgspec.structs.replace(nic, guid=other[nic.guid]) for nic in listing.nics),
        cables=tuple(
            msgspec.structs.replace(one, b=other.get(one.b, one.b)) for one in listing.cables
        ),
    )
    merge = merge_fabric([listing, ports])
    assert _content(merge.facts) == _content(listing)
    assert _conflicts(merge.findings) == []


def _changed(**fields: object) -> Facts:
    return msgspec.structs.replace(fabric(path="new.txt", form="iblinkinfo"), **fields)


def _cables(old: Cable, new: Cable) -> tuple[Cable, ...]:
    return tuple(new if one == old else one for one in fabric().cables)


FIRST = fabric().cables[4]
"""Leaf 0, port 1, to host n0."""
CONFLICTS = {
    "far-end": lambda: _changed(
        cables=_cables(FIRST, msgspec.structs.replace(FIRST, b=nic_guid(3, 0))),
    ),
    "cable-rate": lambda: _changed(
        cables=_cables(FIRST, msgspec.structs.replace(FIRST, rate_bytes_per_s=gbit_per_s(200))),
    ),
    "node-name": lambda: _changed(
        switches=(
            msgspec.structs.replace(fabric().switches[0], name="renamed"),
            *fabric().switches[1:],
        )
    ),
    "adapter-host": lambda: _changed(
        nics=(msgspec.structs.replace(fabric().nics[0], host="other"), *fabric().nics[1:])
    ),
    "lid": lambda: _changed(
        nics=(msgspec.structs.replace(fabric().nics[0], lid=7), *fabric().nics[1:])
    ),
}


@pytest.mark.parametrize("rule", CONFLICTS)
def test_conflicts_name_both_files(rule: str) -> None:
    listing = fabric()
    if rule == "lid":
        nics = (msgspec.structs.replace(listing.nics[0], lid=6), *listing.nics[1:])
        listing = msgspec.structs.replace(listing, nics=nics)
    merge = merge_fabric([CONFLICTS[rule](), listing])
    found = of_rule(merge.findings, f"conflict-{rule}")
    assert found.severity is Severity.WARNING
    assert (found.numbers["left"], found.numbers["right"]) == ("ib.txt", "new.txt")
    assert found.numbers["count"] == 1
    # What the first in order of formats says stands.
    assert {frozenset((one.a, one.b)) for one in listing.cables} <= {
        frozenset((one.a, one.b)) for one in merge.facts.cables
    }
    assert merge.facts.nics[0].host == "n0"


def test_raw_and_net_rates_of_one_lane_are_one_rate() -> None:
    raw = msgspec.structs.replace(FIRST, rate_bytes_per_s=gbit_per_s(425))
    assert _conflicts(merge_fabric([fabric(), _changed(cables=_cables(FIRST, raw))]).findings) == []


def test_names_and_hosts_are_filled_from_the_other_listing() -> None:
    bare = fabric()
    bare = msgspec.structs.replace(
        bare,
        hosts=(),
        nics=tuple(
            msgspec.structs.replace(nic, host=None, name=str(nic.guid)) for nic in bare.nics
        ),
        switches=tuple(msgspec.structs.replace(one, name=one.id) for one in bare.switches),
    )
    merge = merge_fabric([bare, fabric(path="named.txt", form="iblinkinfo")])
    assert _content(merge.facts) == _content(fabric())
    assert _conflicts(merge.findings) == []


def test_host_names_that_differ_in_their_domain_are_one() -> None:
    long = msgspec.structs.replace(
        fabric(path="plane1.txt", plane=1),
        hosts=tuple(f"N{i}.example" for i in range(4)),
        nics=tuple(
            msgspec.structs.replace(nic, host=f"{str(nic.host).upper()}.example")
            for nic in fabric(plane=1).nics
        ),
    )
    merge = merge_fabric([fabric(), long])
    assert merge.facts.hosts == ("n0", "n1", "n2", "n3")
    assert {nic.host for nic in merge.facts.nics} == {"n0", "n1", "n2", "n3"}


def test_nodes_that_go_by_lid_are_not_joined() -> None:
    lids = msgspec.structs.replace(
        fabric(path="grep.txt", form="iblinkinfo"),
        nics=tuple(Nic(i, f"mlx5_{i}", host=f"n{i}", guid=f"lid-{i}") for i in range(4)),
        cables=(),
    )
    merge = merge_fabric([lids, fabric()])
    assert [facts.path for facts in merge.apart] == ["grep.txt"]
    assert rules(merge.findings) == ["join-refused"]
    assert merge.facts == fabric()


def test_parallel_cables_without_port_numbers_are_counted() -> None:
    bare = msgspec.structs.replace(
        fabric(),
        nics=(),
        cables=tuple(Cable(switch_guid(0), switch_guid(9)) for _ in range(4)),
    )
    more = msgspec.structs.replace(bare, path="b.txt", cables=(*bare.cables, bare.cables[0]))
    assert len(merge_fabric([bare, more]).facts.cables) == 5


def _table(number: int, ports: bytes = b"\xff\x01\x02") -> ForwardingTable:
    return ForwardingTable(switch_guid(number), f"sw{number}", ports)


def _tables(*tables: ForwardingTable, path: str = "lfts.txt") -> Facts:
    return Facts(format="opensm_lfts", path=path, tables=tables)


def test_tables_attach_to_their_switches() -> None:
    merge = merge_fabric([_tables(*(_table(i) for i in (0, 1, 2, 3, 9))), fabric()])
    assert {one.guid for one in merge.facts.tables} == {switch_guid(i) for i in (0, 1, 2, 3, 9)}
    assert merge.facts.cables == fabric().cables
    assert rules(merge.findings) == []
    (join,) = merge.joins
    assert (join.key, join.matched) == ("guid", 5)


def test_tables_and_switches_without_each_other_are_said() -> None:
    merge = merge_fabric([_tables(_table(0), _table(55)), fabric()])
    strange = of_rule(merge.findings, "table-without-switch")
    assert strange.numbers["count"] == 1
    assert "sw55" in strange.message
    assert of_rule(merge.findings, "switch-without-table").numbers["count"] == 4


def test_two_tables_of_one_switch_that_differ() -> None:
    merge = merge_fabric(
        [
            fabric(),
            _tables(*(_table(i) for i in (0, 1, 2, 3, 9))),
            _tables(_table(0, b"\xff\x01\x05"), path="later.txt"),
        ]
    )
    found = of_rule(merge.findings, "conflict-table")
    assert {found.numbers["left"], found.numbers["right"]} == {"lfts.txt", "later.txt"}
    assert len(merge.facts.tables) == 5


def test_lids_of_two_subnets_are_said_where_tables_are_given() -> None:
    twice = msgspec.structs.replace(
        fabric(), nics=tuple(msgspec.structs.replace(nic, lid=4) for nic in fabric().nics)
    )
    merge = merge_fabric([twice, _tables(*(_table(i) for i in (0, 1, 2, 3, 9)))])
    assert "LID 4" in of_rule(merge.findings, "lid-twice").message


# Properties ---------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_parts_of_any_cut_give_back_the_whole(hosts: list[int], cuts: int, seed: object) -> None:
    """Each part lists some of the hosts; together they list the fabric, in any order of files."""
    whole = fabric(range(8))
    kept = {f"n{host}" for host in hosts}
    parts = []
    for cut in range(cuts):
        own = {f"n{host}" for at, host in enumerate(hosts) if at % cuts == cut}
        nics = tuple(nic for nic in whole.nics if nic.host in own)
        ends = {nic.guid for nic in nics} | {one.id for one in whole.switches}
        parts.append(
            msgspec.structs.replace(
                whole,
                path=f"part{cut}.txt",
                nics=nics,
                hosts=tuple(sorted(own)),
                cables=tuple(one for one in whole.cables if one.a in ends and one.b in ends),
            )
        )
    merge = merge_fabric(parts)
    nics = tuple(nic for nic in whole.nics if nic.host in kept)
    ends = {nic.guid for nic in nics} | {one.id for one in whole.switches}
    wanted = msgspec.structs.replace(
        whole,
        nics=nics,
        hosts=tuple(sorted(kept)),
        cables=tuple(one for one in whole.cables if one.a in ends and one.b in ends),
    )
    assert _content(merge.facts) == _content(wanted)
    assert len(merge.facts.cables) == len(wanted.cables)
    assert _conflicts(merge.findings) == []
    seed.shuffle(parts)  # type: ignore[attr-defined]
    assert merge_fabric(parts) == merge


@pytest.mark.captured
def test_a_captured_fabric_with_itself_under_another_name() -> None:
    facts = read_topology(shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt"))
    # Another order of its cables: no copy, and yet the same fabric.
    other = msgspec.structs.replace(facts, path="other.txt", cables=facts.cables[::-1])
    merge = merge_fabric([facts, other])
    assert _content(merge.facts) == _content(facts)
    assert len(merge.facts.cables) == len(facts.cables)
    assert merge.findings == ()
