"""Adapters of a listing and of captures: hosts by GUID, and GUIDs that differ."""

from __future__ import annotations

import msgspec

from cluster.join.views import capture, fabric, nic_guid, of_rule, rules
from meshwright.cluster.facts import Facts
from meshwright.cluster.join.adapter_hosts import still_unplaced
from meshwright.cluster.join.all_sources import join_sources
from meshwright.findings import Finding, Place, Severity


def _own(host: int, guids: list[str] | None = None) -> Facts:
    """Return the capture of a host of ``fabric()`` with the GUIDs its adapters have there."""
    facts = capture(f"n{host}", num_nics=2)
    wanted = guids or [nic_guid(host, rail) for rail in range(2)]
    nics = tuple(
        msgspec.structs.replace(nic, guid=guid)
        for nic, guid in zip(facts.nics, wanted, strict=True)
    )
    return msgspec.structs.replace(facts, nics=nics)


def _nameless(hosts: set[str], **fields: object) -> Facts:
    """Return the listing without the names of some hosts, and the warning of its reader."""
    listing = fabric()
    nics = tuple(
        msgspec.structs.replace(nic, host=None, name=str(nic.guid)) if nic.host in hosts else nic
        for nic in listing.nics
    )
    warning = Finding(
        "topology/nic-without-host", Severity.WARNING, Place("ib.txt", 7), "4 adapters name no host"
    )
    other = Finding("topology/cable-listed-once", Severity.NOTE, Place("ib.txt"), "one cable")
    kept = tuple(host for host in listing.hosts if host not in hosts)
    return msgspec.structs.replace(
        listing, nics=nics, hosts=kept, findings=(warning, other), **fields
    )


def test_adapters_that_captures_name_are_no_longer_called_lost() -> None:
    listing = _nameless({"n0", "n1"})
    joined = join_sources([listing, _own(0), _own(1)])
    assert [one.rule for one in still_unplaced(listing, joined.fabric)] == [
        "topology/cable-listed-once"
    ]
    assert of_rule(joined.findings, "host-by-guid").numbers["left"] == 0


def test_adapters_that_no_capture_names_are_counted() -> None:
    listing = _nameless({"n0", "n1"})
    joined = join_sources([listing, _own(0)])
    found = still_unplaced(listing, joined.fabric)[-1]
    assert found.numbers == {
        "count": 2,
        "guids": [nic_guid(1, 0), nic_guid(1, 1)],
        "listed": 4,
    }
    assert "2 of 4 adapters" in found.message
    assert of_rule(joined.findings, "host-by-guid").numbers["left"] == 2


def test_without_captures_a_listing_says_what_it_said() -> None:
    listing = _nameless({"n0"})
    assert still_unplaced(listing, listing) == list(listing.findings)
    assert still_unplaced(listing, None) == list(listing.findings)


def test_a_device_with_another_guid_is_a_conflict_with_both() -> None:
    joined = join_sources([fabric(), _own(1, [nic_guid(1, 0), "a088c203deadbeef"])])
    found = of_rule(joined.findings, "conflict-adapter-guid")
    assert found.numbers["values"] == [["n1 mlx5_1", nic_guid(1, 1), "a088c203deadbeef"]]
    assert found.remedy
    assert "n1.json" in found.message


def test_exchanged_adapters_of_a_host_are_a_conflict() -> None:
    joined = join_sources([fabric(), _own(1, [nic_guid(1, 1), nic_guid(1, 0)])])
    assert of_rule(joined.findings, "conflict-adapter-guid").numbers["count"] == 2


def test_an_exchanged_host_name_is_said_once() -> None:
    """Two hosts with each other's node descriptions: a wrong host, no wrong GUIDs."""
    one = _own(0, [nic_guid(1, 0), nic_guid(1, 1)])
    other = _own(1, [nic_guid(0, 0), nic_guid(0, 1)])
    found = rules(join_sources([fabric(), one, other]).findings)
    assert found.count("conflict-adapter-host") == 2
    assert "conflict-adapter-guid" not in found


def test_the_guid_of_a_port_is_near_that_of_its_adapter() -> None:
    """``iblinkinfo`` lists ports, a capture the node: a difference of one says nothing."""
    ports = [f"{int(nic_guid(1, rail), 16) + 1:016x}" for rail in range(2)]
    listing = fabric(form="iblinkinfo")
    assert "conflict-adapter-guid" not in rules(join_sources([listing, _own(1, ports)]).findings)
    assert "conflict-adapter-guid" in rules(join_sources([fabric(), _own(1, ports)]).findings)
