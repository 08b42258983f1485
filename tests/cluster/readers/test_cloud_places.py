"""AWS, Google and Oracle: the order of tiers, gaps, pages that go on, and what is refused."""

from __future__ import annotations

import pytest

from meshwright.cluster.facts import Facts, HostPlace, TreeSwitch
from meshwright.cluster.readers import aws_instance_topology, gcp_physical_host, oci_topology
from meshwright.errors import InputError
from support import FIXTURES, shared_path
from topology_samples import finding_of, rules

_READ = {
    "aws_instance_topology": aws_instance_topology.read,
    "gcp_physical_host": gcp_physical_host.read,
    "oci_topology": oci_topology.read,
}


def _fixture(name: str) -> Facts:
    path = FIXTURES / "topology" / name
    return _READ[path.parent.name](path.read_text(), path.name)


def test_aws_nodes_are_switches_nearest_last() -> None:
    facts = _fixture("aws_instance_topology/traps.json")
    assert facts.places == (
        HostPlace("i-a", ("nn-4", "nn-3", "nn-2", "nn-1")),
        HostPlace("i-b", ("nn-5", "nn-3", "nn-2", "nn-1")),
        HostPlace("i-c", ("nn-9", "nn-8", "nn-7")),
        HostPlace("i-d", ()),
    )
    assert facts.tree is not None
    assert len(facts.tree) == len(facts.switches or ()) == 8
    assert facts.tree[2] == TreeSwitch("nn-3", ("nn-4", "nn-5"), (), 2)
    assert facts.counts == {"complete": 1}
    assert rules(facts) == ["host-twice", "host-without-place", "tiers-uneven", "no-common-root"]
    assert finding_of(facts, "host-twice").numbers == {"count": 1, "names": ["i-b"]}


@pytest.mark.captured
def test_aws_captured_list_goes_on() -> None:
    path = shared_path("data/topology/aws_instance_topology/cli_example.json")
    facts = aws_instance_topology.read(path.read_text(), path.name)
    assert rules(facts) == ["list-incomplete", "no-common-root"]
    assert str(finding_of(facts, "list-incomplete").place) == "cli_example.json:49:18"
    first, second, third, fourth = facts.places or ()
    assert first.tiers == second.tiers
    assert first.tiers[-1:] == fourth.tiers[-1:]
    assert not {*first.tiers} & {*third.tiers}


def test_google_nulls_two_spellings_and_the_older_form() -> None:
    facts = _fixture("gcp_physical_host/nulls_and_older.json")
    assert facts.places == (
        HostPlace("v1", ("c/b1/s1", "c/b1", "c")),
        HostPlace("v2", ("c/b2/s1", "c/b2", "c")),
        HostPlace("v3", ()),
        HostPlace("v4", ()),
        HostPlace("v5", ("b9/s9", "b9")),
        HostPlace("v6", ()),
    )
    assert (facts.switches, facts.tree) == (None, None)
    assert facts.counts == {"clusters": 1, "blocks": 3, "sub_blocks": 3, "vms": 6}
    assert rules(facts) == [
        *("list-incomplete", "leaf-unknown", "host-without-place"),
        *("tiers-uneven", "no-common-root"),
    ]


def test_oracle_compute_hosts() -> None:
    facts = _fixture("oci_topology/compute_hosts.json")
    assert facts.places == (
        HostPlace("gpu-a", ("lb1", "nb1", "is1"), "fab1"),
        HostPlace("ocid1.host.2", ("lb1", "nb1", "is1"), "fab1"),
        HostPlace("gpu-c", ("lb2", "nb1")),
    )
    assert facts.counts == {
        "local_blocks": 2,
        "network_blocks": 1,
        "hpc_islands": 1,
        "accelerator_domains": 1,
    }
    assert rules(facts)[:2] == ["list-incomplete", "tiers-uneven"]


def test_oracle_metadata_of_one_host_and_of_several() -> None:
    one = _fixture("oci_topology/metadata_host.json")
    assert one.places == (HostPlace("ocid1.host", ("l1", "n1", "i1")),)
    several = _fixture("oci_topology/metadata_lines.yaml")
    assert several.places == (
        HostPlace("n1", ("l1", "n1", "i1"), "f1"),
        HostPlace("n2", ("l2", "n1", "i1")),
    )


@pytest.mark.parametrize(
    ("reader", "text", "place", "words"),
    [
        ("aws", '{"Instances": []}', "t:1:1", "no instance"),
        ("aws", '{"Instances": {}}', "t:1:15", "expected a list"),
        ("aws", '{"Instances": [{"NetworkNodes": []}]}', "t:1:16", "InstanceId is missing"),
        ("aws", '{"Instances": [{"InstanceId": "i", "NetworkNodes": "nn"}]}', "t:1:52", "a list"),
        ("aws", '{"Instances": [{"InstanceId": "i", "NetworkNodes": [{}]}]}', "t:1:53", "a text"),
        (
            "aws",
            f'{{"Instances": [{{"InstanceId": "i", "NetworkNodes": [{"1," * 20}1]}}]}}',
            "t:1:16",
            "more than 16 tiers",
        ),
        ("gcp", '{"items": []}', "t:1:1", "no instance"),
        ("gcp", '[{"resourceStatus": {}}]', "t:1:2", "name is missing"),
        ("gcp", '[{"name": "v", "resourceStatus": 3}]', "t:1:34", "expected keys"),
        ("gcp", '[{"name": "v", "name": "w"}]', "t:1:16", "stands twice"),
        ("oci", '{"data": []}', "t:1:1", "places no host"),
        ("oci", '[{"localBlockId": "l"}]', "t:1:2", "no name and no id"),
        ("oci", '{"n1": "l1"}', "t:1:8", "expected keys"),
    ],
)
def test_refused(reader: str, text: str, place: str, words: str) -> None:
    (read,) = (read for name, read in _READ.items() if name.startswith(reader))
    with pytest.raises(InputError) as caught:
        read(text, "t")
    assert str(caught.value.problems[0].place) == place
    assert words in caught.value.problems[0].message
