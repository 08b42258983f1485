"""Faults injected into a healthy fabric: exactly one finding, and it names the place."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.degraded.faults import only_finding, replaced, swapped
from cluster.degraded.maker import FAST, SLOW, Port, Site, loud, of_listing, site
from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Facts, Gpu
from meshwright.cluster.readers import ibnetdiscover, read_topology
from meshwright.cluster.switches.switch_levels import derive_levels
from support import shared_path

SHAPES = [
    {},
    {"units": 1, "rails": 8, "hosts": 4},
    {"units": 3, "rails": 1, "hosts": 5},
    {"units": 2, "rails": 2, "ports": 2},
    {"spines": 1, "cables": 4},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_fabric_gives_nothing(shape: dict[str, int]) -> None:
    made = site(**shape)
    assert degradations(made.facts()) == []
    facts = of_listing(made)
    assert len(facts.cables or ()) == len(made.ports) + len(made.trunks)
    assert (*facts.findings, *degradations(facts)) == ()


# Planes ------------------------------------------------------------------------------------------


def _without(made: Site, *gone: int) -> Site:
    return Site([one for at, one in enumerate(made.ports) if at not in gone], list(made.trunks))


@settings(deadline=None)
@given(st.integers(0, 47))
def test_a_host_that_lacks_a_rail(at: int) -> None:
    made = site()
    gone = made.ports[at]
    found = only_finding(_without(made, at).facts(), "plane-missing")
    assert found.message == (
        f"host {gone.host} has no cable from {gone.adapter} to {gone.leaf} (5 hosts of its unit have 1 "
        "there, it has 0)"
    )
    assert found.place.subject == gone.host
    assert (found.numbers["leaves"], found.numbers["adapters"]) == ([gone.leaf], [gone.adapter])


@settings(deadline=None)
@given(st.integers(0, 47))
def test_a_port_of_two_without_cable(at: int) -> None:
    made = site(rails=2, ports=2)
    gone = made.ports[at]
    found = only_finding(_without(made, at).facts(), "plane-missing")
    assert f"host {gone.host} has no cable from port {gone.port} of {gone.adapter}" in found.message
    assert f"(only port {3 - gone.port} is cabled)" in found.message


def test_a_whole_plane_of_a_host_is_one_finding() -> None:
    made = site(rails=2, ports=2)
    gone = [at for at, one in enumerate(made.ports) if one.host == "u0-n1" and one.port == 2]
    found = only_finding(_without(made, *gone).facts(), "plane-missing")
    assert found.numbers["leaves"] == ["leaf-0-0-p2", "leaf-0-1-p2"]


def test_a_leaf_that_a_unit_lacks_is_one_finding() -> None:
    made = site(units=4)
    gone = [at for at, one in enumerate(made.ports) if one.leaf == "leaf-2-1"]
    bad = _without(made, *gone)
    bad.trunks = [trunk for trunk in bad.trunks if trunk[0] != "leaf-2-1"]
    assert only_finding(bad.facts(), "leaf-missing").numbers["unit"] == 2


def test_another_kind_of_host_lacks_nothing() -> None:
    """A login node with one adapter on the first rail of eight."""
    made = site(rails=8)
    made.ports.append(Port("login", "mlx5_0", 1, "leaf-0-0", 20, FAST, "ff00"))
    assert loud(made.facts()) == []


def test_adapters_without_name_may_be_what_is_missing() -> None:
    made = site()
    made.ports[6] = msgspec.structs.replace(made.ports[6], host="")
    facts = of_listing(made)
    found = only_finding(facts, "nic-without-host")
    assert found.numbers == {
        "count": 1,
        "guids": ["0000000001010200"],
        "leaves": ["leaf-0-2"],
        "leaf_ports": [2],
    }
    assert "(GUID 0000000001010200 at leaf-0-2 port 2)" in found.message
    assert found.place.line is not None
    # Two hosts lack it, and one adapter there has no name.
    made = site(hosts=8)
    made.ports[6] = msgspec.structs.replace(made.ports[6], host="")
    both = [one.rule for one in loud(of_listing(_without(made, 10)))]
    assert sorted(both) == ["topology/nic-without-host", "topology/plane-missing"]


def _without_plane(made: Site, unit: int, port: int) -> Site:
    gone = {one.leaf for one in made.ports if one.leaf[5] == str(unit) and one.port == port}
    ports = [one for one in made.ports if one.leaf not in gone]
    return Site(ports, [trunk for trunk in made.trunks if trunk[0] not in gone])


@pytest.mark.parametrize(
    ("units", "rails", "which"),
    [(2, 2, "another unit has"), (2, 1, "another unit has"), (4, 8, "3 other units have")],
)
def test_a_plane_that_a_whole_unit_lacks(units: int, rails: int, which: str) -> None:
    made = site(units, rails, 6, ports=2)
    for port in (1, 2):
        found = only_finding(_without_plane(made, 1, port).facts(), "plane-missing")
        adapters = ", ".join(f"mlx5_{rail}" for rail in range(rails))
        assert found.message == (
            f"unit 1 (6 hosts: u1-n0, u1-n1, u1-n2, u1-n3, ...) has no leaf for port {port} of its adapters "
            f"({adapters}), which {which}: the whole plane is missing"
        )
        assert found.numbers["hosts"] == [f"u1-n{host}" for host in range(6)]
        assert (found.numbers["unit"], found.numbers["port"]) == (1, port)
        assert found.numbers["units_with_plane"] == units - 1


def test_units_of_one_port_beside_few_of_two_are_no_fault() -> None:
    """Most units are cabled with one port of each adapter: that is how they are made."""
    made = site(units=3, rails=2, ports=2)
    for unit in (1, 2):
        made = _without_plane(made, unit, 2)
    assert loud(made.facts()) == []


# Rates -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 47))
def test_a_slow_host_cable(at: int) -> None:
    made = site()
    bad = replaced(made, at, rate=SLOW)
    port = made.ports[at]
    found = only_finding(bad.facts(), "cable-slow")
    assert found.message == (
        f"{port.host}: a cable runs at 25.0 GB/s where 11 like it run at 50.0 GB/s: {port.host} "
        f"{port.adapter} port 1 to {port.leaf} port {port.leaf_port}"
    )


@settings(deadline=None)
@given(st.integers(0, 31))
def test_a_slow_spine_cable(at: int) -> None:
    made = site()
    made.trunks[at] = (*made.trunks[at][:4], SLOW)
    leaf, port, spine, far, _ = made.trunks[at]
    found = only_finding(made.facts(), "cable-slow")
    assert f"{leaf} port {port} to {spine} port {far}" in found.message
    assert found.place.subject == f"{leaf} port {port} to {spine} port {far}"


def test_slow_cables_of_one_leaf_are_one_finding() -> None:
    made = site()
    for at in (0, 2):
        made.trunks[at] = (*made.trunks[at][:4], SLOW)
    found = only_finding(made.facts(), "cable-slow")
    assert len(found.numbers["cables"]) == 2
    assert "2 cables run at 25.0 GB/s" in found.message


def test_generations_side_by_side_are_no_fault() -> None:
    """Half of the units older; an older spine; an adapter that is slow in all hosts."""
    made = site(units=2)
    old_unit = Site(
        [
            msgspec.structs.replace(one, rate=SLOW) if one.leaf.startswith("leaf-1") else one
            for one in made.ports
        ],
        [(*one[:4], SLOW) if one[0].startswith("leaf-1") else one for one in made.trunks],
    )
    assert loud(old_unit.facts()) == []
    old_spine = Site(
        made.ports, [(*one[:4], SLOW) if one[2] == "spine-0" else one for one in made.trunks]
    )
    assert loud(old_spine.facts()) == []
    storage = Site(
        [
            msgspec.structs.replace(one, rate=SLOW) if one.adapter == "mlx5_3" else one
            for one in made.ports
        ],
        made.trunks,
    )
    assert loud(storage.facts()) == []


# Twice -------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 11), st.integers(0, 11))
def test_two_machines_of_one_name(one: int, other: int) -> None:
    made = site()
    names = made.hosts()
    if one == other:
        other = (one + 6) % 12
    ports = [
        msgspec.structs.replace(port, host=names[one]) if port.host == names[other] else port
        for port in made.ports
    ]
    found = only_finding(Site(ports, made.trunks).facts(), "duplicate-host-name")
    assert found.place.subject == names[one]
    assert (
        f"2 machines call themselves {names[one]}: mlx5_0 stands there with GUID" in found.message
    )
    assert "at leaf-" in found.message
    assert "(3 more adapters alike)" in found.message


def test_adapters_that_all_have_one_name_are_no_machines() -> None:
    made = site()
    ports = [msgspec.structs.replace(port, adapter="HCA") for port in made.ports]
    rules = {one.rule for one in loud(Site(ports, made.trunks).facts())}
    assert "topology/duplicate-host-name" not in rules
    # One name for all machines is a fault.
    ports = [msgspec.structs.replace(port, host="localhost") for port in made.ports]
    rules = {one.rule for one in loud(Site(ports, made.trunks).facts())}
    assert rules == {"topology/duplicate-host-name"}


def test_a_guid_of_two_nodes_in_a_listing() -> None:
    made = site()
    text = made.listing()
    own, other = made.ports[0].guid.zfill(16), made.ports[4].guid.zfill(16)
    facts = of_listing(made)
    assert loud(facts) == []
    stanza = next(part for part in text.split("\n\n") if f'Ca\t2 "H-{other}"' in part)
    text = text.replace(stanza, stanza.replace(f'Ca\t2 "H-{other}"', f'Ca\t2 "H-{own}"'))
    rules = {one.rule for one in loud(ibnetdiscover.read(text, "made.txt"))}
    assert "topology/duplicate-guid" in rules


@pytest.mark.parametrize("other", [4, 28, 27])
def test_a_guid_of_two_adapters_is_no_miscabling(other: int) -> None:
    """Cables find their ends by GUID: all of both adapters seem to be one adapter's."""
    made = site()
    first, second = made.ports[0], made.ports[other]
    text = made.listing().replace(second.guid.zfill(16), first.guid.zfill(16))
    (found,) = loud(ibnetdiscover.read(text, "made.txt"))
    assert found.rule == "topology/duplicate-guid"
    assert found.numbers["names"] == [f"{one.host} {one.adapter}" for one in (first, second)]


def test_a_guid_of_two_adapters_hides_no_other_fault() -> None:
    made = site()
    text = made.listing().replace(made.ports[28].guid.zfill(16), made.ports[0].guid.zfill(16))
    # Two other cables swapped beside it.
    one, other = made.ports[9], made.ports[10]
    ends = [f'"H-{port.guid.zfill(16)}"[{port.port}]' for port in (one, other)]
    assert all(end in text for end in ends)
    swapped = text
    for line in text.splitlines():
        if any(end in line for end in ends):
            mine, theirs = (one, other) if ends[0] in line else (other, one)
            new = line.replace(mine.guid, theirs.guid).replace(mine.adapter, theirs.adapter)
            swapped = swapped.replace(line, new)
    rules = Counter(each.rule for each in loud(ibnetdiscover.read(swapped, "made.txt")))
    assert rules["topology/duplicate-guid"] == 1
    assert rules["topology/rail-miscabled"] >= 1


def test_a_uuid_of_two_gpus() -> None:
    gpus = (Gpu(0, "GPU0", uuid="GPU-a"), Gpu(1, "GPU1", uuid="GPU-b"))
    facts = Facts(format="made", path="x", gpus=gpus)
    assert degradations(facts) == []
    twice = (*gpus, Gpu(2, "GPU2", uuid="GPU-b"))
    found = only_finding(msgspec.structs.replace(facts, gpus=twice), "duplicate-uuid")
    assert found.numbers == {"uuid": "GPU-b", "gpus": ["GPU1", "GPU2"]}


# Leaves alone ------------------------------------------------------------------------------------


def test_leaves_and_no_spine() -> None:
    made = site(units=3)
    found = only_finding(Site(made.ports, []).facts(), "spine-tier-unknown")
    assert found.numbers["count"] == 12
    assert "all leaves look equally far" in found.message
    # Rails that do not meet look so too.
    one_unit = only_finding(Site(site(units=1).ports, []).facts(), "spine-tier-unknown")
    assert "of a rail-only fabric this is the whole" in one_unit.message
    assert "rail-only" in str(one_unit.remedy)


def test_one_leaf_or_leaves_joined_to_each_other_are_whole() -> None:
    assert loud(Site(site(units=1, rails=1).ports, []).facts()) == []
    made = site(units=2, rails=1)
    made.trunks = [("leaf-0-0", 40, "leaf-1-0", 40, FAST)]
    assert loud(made.facts()) == []


# Properties --------------------------------------------------------------------------------------

FAULTS = ("swap", "plane", "host cable", "spine cable", "name", "missing", "none")


def _two_places(at: int, made: Site) -> tuple[int, int]:
    """Return a cable and the next one on another leaf."""
    ports = len(made.ports)
    one = made.ports[at % ports]
    later = ((at + step) % ports for step in range(1, ports))
    return at % ports, next(other for other in later if made.ports[other].leaf != one.leaf)


def _words(fault: str, at: int, made: Site, names: dict[str, str]) -> list[str]:
    """Return what the finding on a fault of a healthy fabric must say; ``names``: new ones by old."""
    port, trunk = made.ports[at % len(made.ports)], made.trunks[at % len(made.trunks)]
    host = names.get(port.host, port.host)
    match fault:
        case "swap":
            one, other = (made.ports[index] for index in _two_places(at, made))
            return [
                f"host {names.get(a.host, a.host)} {a.adapter} port 1 on {b.leaf} port {b.leaf_port} "
                f"belongs on {a.leaf}"
                for a, b in ((one, other), (other, one))
            ]
        case "plane":
            return [f"host {host} has no cable from {port.adapter} to {port.leaf} "]
        case "host cable":
            return [f"{host} {port.adapter} port 1 to {port.leaf} port {port.leaf_port}"]
        case "spine cable":
            return [f"{trunk[0]} port {trunk[1]} to {trunk[2]} port {trunk[3]}"]
        case "missing":
            return [f"{trunk[0]}: 1 to {trunk[2]}"]
        case "name":
            first = made.hosts()[at % len(made.hosts())]
            return [f"2 machines call themselves {names.get(first, first)}: "]
    return []


def _faulty(fault: str, at: int, made: Site) -> Site:
    ports, trunks = len(made.ports), len(made.trunks)
    match fault:
        case "swap":
            return swapped(made, *_two_places(at, made))
        case "plane":
            return _without(made, at % ports)
        case "host cable":
            return replaced(made, at % ports, rate=SLOW)
        case "spine cable":
            made.trunks[at % trunks] = (*made.trunks[at % trunks][:4], SLOW)
        case "missing":
            del made.trunks[at % trunks]
        case "name":
            names = made.hosts()
            new = names[at % len(names)]
            old = names[(at + 1) % len(names)]
            made.ports = [
                msgspec.structs.replace(one, host=new) if one.host == old else one
                for one in made.ports
            ]
    return made


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(FAULTS),
    st.integers(0, 10_000),
    st.integers(2, 4),
    st.integers(2, 8),
    st.integers(4, 7),
)
def test_one_fault_one_finding_whatever_the_hosts_are_called(
    fault: str, at: int, units: int, rails: int, hosts: int
) -> None:
    made = _faulty(fault, at, site(units, rails, hosts))
    sources = [(made.facts(), made), (of_listing(made), made)]
    for prefix in ("n", "zz-top-", "1rack"):
        renamed = made.rename(prefix)
        sources.append((renamed.facts(), renamed))
    for facts, own in sources:
        names = dict(zip(made.hosts(), own.hosts(), strict=True))
        found = loud(facts)
        assert len(found) == (fault != "none"), found
        for one in found:
            said = one.message.partition(" (by the cables alone ")[0]
            for words in _words(fault, at, site(units, rails, hosts), names):
                assert words in said


# Captured ----------------------------------------------------------------------------------------


@pytest.mark.captured
def test_gb200_fabric() -> None:
    path = shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt")
    found = loud(read_topology(path))
    assert Counter(one.rule.removeprefix("topology/") for one in found) == {
        "nic-without-host": 1,
        "leaf-missing": 1,
        "rail-miscabled": 1,
        "spine-cables-missing": 1,
        "spine-unreached": 1,
    }
    (swap,) = [one for one in found if one.rule == "topology/rail-miscabled"]
    assert "LEAF-04-08 port 1" in swap.message
    assert "LEAF-03-08 port 1" in swap.message
    assert not [one.rule for one in found if "MF0;" in one.message]
    assert all(one.remedy for one in found)
    facts = read_topology(path)
    assert degradations(facts, derive_levels(facts)) == degradations(facts)


LOUD = {
    "ibnetdiscover/gb200_superpod_ndr_582ca.txt": {
        "nic-without-host",
        "leaf-missing",
        "rail-miscabled",
        "spine-cables-missing",
        "spine-unreached",
    },
    "ibnetdiscover_ports/edr_ports_report.txt": {"node-not-listed"},
    "hwloc_xml/nvidia_dgx2.xml": {"nvlink-planes-not-joined"},
    "nvidia_smi_topo_m/a100_4gpu_kvm_2nic.txt": {"pcie-hidden-by-vm"},
    "nvidia_smi_topo_m/a100_kvm_8gpu_4nic_phb_numa_na.txt": {"pcie-hidden-by-vm"},
    "nvidia_smi_topo_m/h800_kvm_nv8_9nic_phb.txt": {"pcie-hidden-by-vm"},
    "nvidia_smi_topo_m/l20z_kvm_8nic_all_phb_numa_range.txt": {"pcie-hidden-by-vm"},
    "nvidia_smi_topo_m/b200_hgx8_2nic.txt": {"gpu-without-near-nic"},
    "nvidia_smi_topo_m/h100_4gpu_nv6_interleaved_cpus.txt": {"gpu-without-near-nic"},
    "nccl_topo_xml/rccl_mi300a_4gpu_bad_speed.xml": {"net-speed-doubtful"},
    "rocm_smi_showtopo/mi100_8gpu_two_hives.txt": {"xgmi-hives-interleaved"},
}
"""All captured files of hosts and fabrics that have a warning; the others must have none."""


@pytest.mark.captured
@pytest.mark.parametrize(
    "kind",
    [
        "nvidia_smi_topo_m",
        "nvidia_smi_nvlink_s",
        "nccl_topo_xml",
        "hwloc_xml",
        "rocm_smi_showtopo",
        "ibnetdiscover",
        "ibnetdiscover_ports",
        "iblinkinfo",
        "ibsim_net",
    ],
)
def test_no_false_alarm_on_captured_files(kind: str) -> None:
    paths = sorted(shared_path(f"data/topology/{kind}").iterdir())
    assert paths
    for path in paths:
        name = f"{kind}/{path.name}"
        rules = {one.rule.removeprefix("topology/") for one in loud(read_topology(path))}
        assert rules == LOUD.get(name, set()), name
