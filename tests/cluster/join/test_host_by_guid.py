"""A file of a host without a name finds its host in the fabric by the GUIDs of its adapters."""

from __future__ import annotations

from meshwright.cluster.facts import Facts, Nic
from meshwright.cluster.join.host_by_guid import hosts_by_guid
from meshwright.findings import Severity

FABRIC = Facts(
    format="ibnetdiscover",
    path="net.txt",
    nics=tuple(
        Nic(number, f"mlx5_{number % 2}", host=f"h{number // 2}", guid=f"{0xA0 + number:016x}")
        for number in range(6)
    ),
)


def node(*guids: str | None, host: str | None = None) -> Facts:
    nics = tuple(Nic(number, f"mlx5_{number}", guid=guid) for number, guid in enumerate(guids))
    return Facts(format="nccl_topo_xml", path="node.xml", host=host, nics=nics)


def test_all_guids_of_one_host() -> None:
    joins, (finding,) = hosts_by_guid(FABRIC, [node("0xa2", "0x00000000000000a3")])
    assert [(one.key, one.matched, one.only_right) for one in joins] == [("guid", 2, 0)]
    assert (finding.rule, finding.severity) == ("topology/host-by-guid", Severity.NOTE)
    assert "host h1" in finding.message


def test_an_adapter_that_the_fabric_lacks_is_a_warning() -> None:
    joins, (finding,) = hosts_by_guid(FABRIC, [node("a4", "ff")])
    assert joins[0].only_right == 1
    assert finding.severity is Severity.WARNING
    assert "mlx5_1" in finding.message


def test_adapters_of_two_hosts_are_a_conflict() -> None:
    _, (finding,) = hosts_by_guid(FABRIC, [node("a0", "a5")])
    assert finding.rule == "topology/conflict-adapter-host"
    assert finding.numbers["hosts"] == ["h0", "h2"]


def test_other_guids_or_none_are_a_join_that_cannot_be_made() -> None:
    for facts, words in ((node("ff"), "no adapter GUID"), (node(None, None), "nor GUIDs of its 2")):
        _, (finding,) = hosts_by_guid(FABRIC, [facts])
        assert finding.rule == "topology/host-not-joined"
        assert words in finding.message


def test_a_host_that_names_itself_is_joined_elsewhere() -> None:
    assert hosts_by_guid(FABRIC, [node("a0", host="h0")]) == ([], [])
    assert hosts_by_guid(None, [node("a0")]) == ([], [])
