"""Files of several hosts: by host name, equal hosts as one type, odd ones named."""

from __future__ import annotations

import msgspec

from cluster.join.views import capture, nvlink_s, of_rule, pairs, rules, topo_m
from meshwright.cluster.facts import Gpu
from meshwright.cluster.join.host_groups import join_hosts
from meshwright.findings import Severity


def test_equal_hosts_are_one_type_and_odd_ones_are_named() -> None:
    odd = capture("n9", nvlink_pairs=pairs(4, 17))
    joined = join_hosts([*(capture(f"n{i}") for i in range(3)), odd])
    assert [one.hosts for one in joined.types] == [("n0", "n1", "n2"), ("n9",)]
    assert joined.types[0].sources == ("n0.json", "n1.json", "n2.json")
    found = of_rule(joined.findings, "hosts-differ")
    assert found.severity is Severity.WARNING
    assert found.numbers["hosts"] == ["n9"]
    assert "links a pair 17 against 18" in found.message


def test_files_of_one_host_are_joined_by_its_name() -> None:
    links = msgspec.structs.replace(nvlink_s(path="n1-links.txt"), host="N1.cluster.example")
    joined = join_hosts([capture("n0"), capture("n1", num_gpus=4), links])
    # A UUID is no difference of type: both hosts are of one, and all three files are theirs.
    (one,) = joined.types
    assert one.hosts == ("n0", "n1")
    assert one.sources == ("n0.json", "n1.json", "n1-links.txt")
    assert [(join.left, join.right) for join in joined.joins] == [("n1.json", "n1-links.txt")]
    fewer = msgspec.structs.replace(nvlink_s(up=17, path="n1-links.txt"), host="N1.cluster.example")
    joined = join_hosts([capture("n0"), capture("n1"), fewer])
    assert [one.hosts for one in joined.types] == [("n0",), ("n1",)]
    assert "conflict-nvlinks" in rules(joined.findings)


def test_a_nameless_file_goes_to_the_only_type_there_is() -> None:
    joined = join_hosts([capture("n0"), capture("n1"), topo_m()])
    assert [one.hosts for one in joined.types] == [("n0", "n1")]
    assert joined.types[0].facts.nics[0].label == "NIC0"
    assert "topo.txt" in joined.types[0].sources


def test_a_nameless_file_among_two_types_stands_alone() -> None:
    odd = capture("n9", num_gpus=2)
    joined = join_hosts([capture("n0"), odd, topo_m()])
    assert len(joined.types) == 3
    found = of_rule(joined.findings, "join-refused")
    assert "which one it describes is unknown" in found.message


def test_two_matrices_that_differ_are_two_hosts() -> None:
    joined = join_hosts([topo_m(8, path="a.txt"), topo_m(4, path="b.txt"), nvlink_s(8)])
    assert [one.name for one in joined.types] == ["a.txt", "b.txt"]
    assert [facts.path for facts in joined.apart] == ["nvlink.txt"]
    assert {"join-refused", "hosts-differ"} == set(rules(joined.findings))
    found = of_rule(joined.findings, "hosts-differ")
    assert "GPUs 4 against 8" in found.message
    assert found.numbers["left"] == "a.txt"
    assert found.numbers["right"] == "b.txt"


def test_two_equal_matrices_are_one_type() -> None:
    joined = join_hosts([topo_m(path="a.txt"), topo_m(path="b.txt")])
    assert len(joined.types) == 1
    assert joined.findings == ()


def test_several_kinds_of_peer_access_are_of_one_host() -> None:
    kinds = [
        msgspec.structs.replace(
            nvlink_s(path=f"p2p-{code}.txt"),
            format="nvidia_smi_topo_p2p",
            gpus=tuple(Gpu(i, f"GPU{i}") for i in range(4)),
            peer_access=tuple(tuple("X" if i == j else code for j in range(4)) for i in range(4)),
        )
        for code in ("OK", "NS")
    ]
    joined = join_hosts([topo_m(), *kinds])
    (one,) = joined.types
    assert len(one.sources) == 3
    assert one.facts.peer_access[0][1] in ("OK", "NS")


def test_fused_hosts_of_one_file_are_joined_with_nothing() -> None:
    fused = msgspec.structs.replace(
        topo_m(path="fused.xml"),
        format="nccl_topo_xml",
        gpus=tuple(Gpu(i, f"h{i // 2}/{i}", host=f"h{i // 2}") for i in range(4)),
    )
    joined = join_hosts([topo_m(), fused])
    assert [one.name for one in joined.types] == ["topo.txt"]
    assert [facts.path for facts in joined.apart] == ["fused.xml"]
    assert of_rule(joined.findings, "several-hosts").numbers == {"hosts": 2}


def test_a_thousand_equal_captures_are_one_type() -> None:
    joined = join_hosts([capture(f"n{i:04d}") for i in range(1000)])
    assert [len(one.hosts) for one in joined.types] == [1000]
    assert joined.findings == ()
