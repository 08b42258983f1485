"""Levels, rails and units: the captured fabric, and small fabrics built for each trap."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cluster.facts import Cable, Facts, Nic, OtherDevice, Switch
from meshwright.cluster.readers import ibnetdiscover
from meshwright.cluster.switches.switch_levels import SwitchLevels, derive_levels
from meshwright.findings import Finding, Severity
from support import shared_path


class _Builder:
    """Makes facts of a fabric; switch names say nothing on purpose."""

    def __init__(self) -> None:
        self.cables: list[Cable] = []
        self.nics: dict[str, Nic] = {}
        self.switches: dict[str, None] = {}

    def plug(self, leaf: str, host: str | None, name: str, port: int = 1) -> _Builder:
        guid = f"{host}/{name}" if host else f"nameless{len(self.nics)}"
        self.nics.setdefault(guid, Nic(len(self.nics), name, host=host, guid=guid))
        self.switches[leaf] = None
        self.cables.append(Cable(leaf, guid, len(self.cables), port))
        return self

    def trunk(self, one: str, other: str, count: int = 1) -> _Builder:
        self.switches |= {one: None, other: None}
        self.cables += [Cable(one, other)] * count
        return self

    def unit(
        self, name: str, adapters: list[str], hosts: int = 6, skip: tuple[int, ...] = ()
    ) -> None:
        for host in range(1, hosts + 1):
            for index, adapter in enumerate(adapters):
                if index not in skip:
                    self.plug(f"{name}.{index}", f"{name}-n{host}", adapter)

    def facts(self, seed: int | None = None) -> Facts:
        cables, switches = list(self.cables), list(self.switches)
        if seed is not None:
            random.Random(seed).shuffle(cables)
            random.Random(seed).shuffle(switches)
        return Facts(
            format="test",
            path="fabric.txt",
            nics=tuple(self.nics.values()),
            switches=tuple(Switch(name, f"sw<{name}>") for name in switches),
            cables=tuple(cables),
            other_devices=(OtherDevice("ufm", "UFM", "manager"),),
        )


_HCA = ["HCA-1", "HCA-2", "HCA-5", "HCA-6"]
_MLX = ["mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"]


def _rules(levels: SwitchLevels) -> Counter[str]:
    return Counter(finding.rule for finding in levels.findings)


def _one(levels: SwitchLevels, rule: str) -> Finding:
    (finding,) = [item for item in levels.findings if item.rule == rule]
    return finding


@pytest.fixture
def gb200() -> Facts:
    path = shared_path("data/topology/ibnetdiscover/gb200_superpod_ndr_582ca.txt")
    return ibnetdiscover.read(path.read_text(encoding="utf-8"), path.name)


@pytest.mark.captured
def test_gb200_levels_rails_and_units(gb200: Facts) -> None:
    levels = derive_levels(gb200)
    assert Counter(levels.level_by_switch.values()) == {0: 31, 1: 9}
    trunks = [
        cable
        for cable in gb200.cables or ()
        if {levels.level_by_switch.get(cable.a), levels.level_by_switch.get(cable.b)} == {0, 1}
    ]
    assert len(trunks) == 532
    assert len(levels.leaf_of_nic) == 540
    names = {switch.id: switch.name for switch in gb200.switches or ()}
    assert len(levels.rail_of_leaf) == 31
    for leaf, rail in levels.rail_of_leaf.items():
        match = re.search(r"LEAF-(\d\d)-(\d\d)", names[leaf])
        assert match is not None
        assert rail == int(match[1]) - 1
        assert levels.unit_of_leaf[leaf] == int(match[2]) - 1
    for switch, level in levels.level_by_switch.items():
        assert ("SPINE" in names[switch]) == (level == 1)


@pytest.mark.captured
def test_gb200_faults_are_found(gb200: Facts) -> None:
    levels = derive_levels(gb200)
    assert _rules(levels) == {
        "topology/leaf-missing": 1,
        "topology/rail-miscabled": 1,
        "topology/spine-cables-missing": 1,
        "topology/spine-unreached": 1,
    }
    assert all(finding.severity is Severity.WARNING for finding in levels.findings)
    missing = _one(levels, "topology/leaf-missing").numbers
    assert (missing["unit"], missing["rail"], missing["adapter"]) == (0, 2, "HCA-5")
    swap = _one(levels, "topology/rail-miscabled")
    assert swap.numbers == {
        "host": "rack08-tray01",
        "hosts": ["rack08-tray01"] * 2,
        "adapters": ["HCA-5", "HCA-6"],
        "adapter_ports": [1, 1],
        "leaves": ["MF0;LEAF-04-08:MQM9701/U1", "MF0;LEAF-03-08:MQM9701/U1"],
        "leaf_ports": [1, 1],
        "expected_leaves": ["MF0;LEAF-03-08:MQM9701/U1", "MF0;LEAF-04-08:MQM9701/U1"],
    }
    for word in ("rack08-tray01 HCA-5 port 1 on", "HCA-6", "LEAF-03-08 port 1"):
        assert word in swap.message
    assert "LEAF-03-08 port 1" in str(swap.remedy)
    assert "LEAF-04-08 port 1" in str(swap.remedy)
    thin = _one(levels, "topology/spine-cables-missing")
    leaves, spines = thin.numbers["leaves"], thin.numbers["spines_by_leaf"]
    assert isinstance(leaves, list)
    assert isinstance(spines, dict)
    five = ["LEAF-01-01", "LEAF-01-05", "LEAF-01-08", "LEAF-02-03", "LEAF-03-07"]
    assert sorted(str(leaf)[4:14] for leaf in leaves) == five
    assert [*spines] == leaves
    assert {count for own in spines.values() for count in own.values()} == {1}  # type: ignore[union-attr]
    assert (thin.numbers["usual"], thin.numbers["count"]) == (2, 5)
    assert "LEAF-01-05: 1 to SPINE-04, 1 to SPINE-08" in thin.message
    unreached = _one(levels, "topology/spine-unreached").numbers
    assert (unreached["absent"], unreached["pairs"]) == (10, 279)
    assert 31 * 9 * 2 - 532 == 2 * 10 + 6  # all missing cables are accounted for


@pytest.mark.captured
def test_director_has_three_levels_and_no_rails() -> None:
    path = shared_path("data/topology/ibnetdiscover/superbench_hdr_director.txt")
    levels = derive_levels(ibnetdiscover.read(path.read_text(encoding="utf-8"), path.name))
    assert Counter(levels.level_by_switch.values()) == {0: 5, 1: 2, 2: 1}
    assert set(levels.rail_of_leaf.values()) == {0}
    assert sorted(levels.unit_of_leaf.values()) == [0, 1, 2, 3, 4]
    assert levels.findings == ()


def test_no_cables_gives_empty_maps() -> None:
    levels = derive_levels(Facts(format="f", path="p"))
    assert levels == SwitchLevels({}, {}, {}, {}, ())


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_two_naming_families_are_the_same_rails(seed: int | None) -> None:
    build = _Builder()
    build.unit("b", _MLX)
    build.unit("a", _HCA)
    levels = derive_levels(build.facts(seed))
    assert levels.rail_of_leaf == {f"{u}.{rail}": rail for u in "ab" for rail in range(4)}
    assert levels.unit_of_leaf == {f"{u}.{i}": "ab".index(u) for u in "ab" for i in range(4)}
    assert levels.leaf_of_nic["a-n3/HCA-5"] == "a.2"
    assert levels.findings == ()


def test_units_are_numbered_in_natural_order_of_hosts() -> None:
    build = _Builder()
    for name in ("r10", "r9", "r1"):
        build.unit(name, _HCA)
    unit = derive_levels(build.facts()).unit_of_leaf
    assert [unit[f"{name}.0"] for name in ("r1", "r9", "r10")] == [0, 1, 2]


def test_ten_adapters_are_in_order_of_number_not_of_text() -> None:
    names = [f"mlx5_{i}" for i in (0, 3, 4, 5, 6, 9, 10, 11)]
    build = _Builder()
    build.unit("u", names)
    rails = derive_levels(build.facts()).rail_of_leaf
    assert rails == {f"u.{index}": index for index in range(8)}


def test_missing_leaf_keeps_the_rails_of_the_others() -> None:
    build = _Builder()
    for name in ("a", "b", "c"):
        build.unit(name, _HCA)
    build.unit("d", _HCA, skip=(1,))
    levels = derive_levels(build.facts())
    assert [levels.rail_of_leaf[f"d.{i}"] for i in (0, 2, 3)] == [0, 2, 3]
    finding = _one(levels, "topology/leaf-missing")
    assert finding.severity is Severity.WARNING
    assert finding.numbers == {
        "unit": 3,
        "rail": 1,
        "adapter": "HCA-2",
        "hosts": 6,
        "first_host": "d-n1",
    }


def test_missing_leaf_of_an_unmatched_family() -> None:
    build = _Builder()
    build.unit("a", _HCA)
    build.unit("b", _HCA)
    build.unit("c", _MLX, skip=(2,))
    levels = derive_levels(build.facts())
    finding = _one(levels, "topology/leaf-missing")
    assert (finding.numbers["unit"], finding.numbers["rail"]) == (2, None)


def test_an_extra_leaf_in_one_unit_moves_no_rail() -> None:
    build = _Builder()
    for index in range(12):
        build.unit(f"u{index}", _HCA)
    for host in range(1, 7):
        build.plug("extra", f"u3-n{host}", "HCA-3")
    levels = derive_levels(build.facts())
    assert [levels.rail_of_leaf[f"u3.{i}"] for i in range(4)] == [0, 1, 2, 3]
    assert levels.rail_of_leaf["extra"] == 4
    assert levels.unit_of_leaf["extra"] == levels.unit_of_leaf["u3.0"]
    assert levels.findings == ()


def test_swapped_adapters_of_one_host() -> None:
    build = _Builder()
    build.unit("a", _HCA)
    build.plug("a.3", "a-n9", "HCA-5").plug("a.2", "a-n9", "HCA-6").plug("a.0", "a-n9", "HCA-1")
    levels = derive_levels(build.facts())
    assert _one(levels, "topology/rail-miscabled").numbers == {
        "host": "a-n9",
        "hosts": ["a-n9", "a-n9"],
        "adapters": ["HCA-5", "HCA-6"],
        "adapter_ports": [1, 1],
        "leaves": ["sw<a.3>", "sw<a.2>"],
        "leaf_ports": [24, 25],
        "expected_leaves": ["sw<a.2>", "sw<a.3>"],
    }
    assert levels.rail_of_leaf == {f"a.{i}": i for i in range(4)}


@pytest.mark.parametrize("seed", [None, 5, 6])
def test_cables_into_another_unit_do_not_join_units(seed: int | None) -> None:
    build = _Builder()
    build.unit("a", _HCA)
    build.unit("b", _MLX)
    for host, adapter, leaf in (("a-n8", 1, "b.1"), ("a-n9", 2, "b.0")):
        for index in range(4):
            build.plug(leaf if index == adapter else f"a.{index}", host, _HCA[index])
    levels = derive_levels(build.facts(seed))
    assert levels.unit_of_leaf == {f"{u}.{i}": "ab".index(u) for u in "ab" for i in range(4)}
    assert levels.rail_of_leaf == {f"{u}.{i}": i for u in "ab" for i in range(4)}
    found = {f.numbers["host"]: f.numbers for f in levels.findings}
    assert _rules(levels) == {"topology/rail-miscabled": 2}
    assert found["a-n8"]["expected_leaves"] == ["sw<a.1>"]
    assert found["a-n8"]["leaves"] == ["sw<b.1>"]
    assert found["a-n9"]["adapters"] == ["HCA-5"]


def test_a_leaf_with_few_named_hosts_joins_the_unit_of_its_hosts() -> None:
    build = _Builder()
    build.unit("a", _HCA, hosts=12, skip=(3,))
    build.unit("b", _HCA, hosts=12)
    for host in (1, 2):
        build.plug("a.3", f"a-n{host}", "HCA-6")
    for _ in range(10):
        build.plug("a.3", None, "MT4129")
    levels = derive_levels(build.facts())
    assert levels.unit_of_leaf["a.3"] == levels.unit_of_leaf["a.0"]
    assert levels.rail_of_leaf["a.3"] == 3
    assert levels.findings == ()


def test_a_leaf_whose_only_named_host_is_a_stranger_joins_no_unit() -> None:
    build = _Builder()
    build.unit("a", _HCA)
    build.plug("other", "a-n9", "HCA-1")
    for index in (1, 2, 3):
        build.plug(f"a.{index}", "a-n9", _HCA[index])
    build.plug("other", None, "MT4129")
    levels = derive_levels(build.facts())
    assert levels.unit_of_leaf["other"] == 1
    assert levels.rail_of_leaf["other"] == 0
    assert _one(levels, "topology/rail-miscabled").numbers["leaves"] == ["sw<other>"]


def test_two_rails_on_one_leaf() -> None:
    names = [f"mlx5_{i}" for i in range(8)]
    build = _Builder()
    for host in range(6):
        for index, name in enumerate(names):
            build.plug(f"l{index // 2}", f"n{host}", name)
    levels = derive_levels(build.facts())
    assert levels.rail_of_leaf == {"l0": 0, "l1": 1, "l2": 2, "l3": 3}
    assert levels.findings == ()


def test_one_leaf_a_host_has_no_rails() -> None:
    build = _Builder()
    for host in range(8):
        for index in range(8):
            build.plug(f"l{host // 4}", f"n{host}", f"mlx5_{index}")
    levels = derive_levels(build.facts())
    assert levels.rail_of_leaf == {"l0": 0, "l1": 0}
    assert levels.unit_of_leaf == {"l0": 0, "l1": 1}
    assert levels.findings == ()


def test_two_ports_of_an_adapter_are_two_rails() -> None:
    build = _Builder()
    for host in range(4):
        build.plug("p2", f"n{host}", "mlx5_0", port=2).plug("p1", f"n{host}", "mlx5_0", port=1)
    levels = derive_levels(build.facts())
    assert levels.rail_of_leaf == {"p1": 0, "p2": 1}
    assert levels.leaf_of_nic["n0/mlx5_0"] == "p1"


def test_leaves_that_adapters_do_not_tell_apart_are_reported() -> None:
    build = _Builder()
    for host in range(4):
        for leaf in ("x", "y"):
            build.plug(leaf, f"n{host}", "mlx5_0")
    levels = derive_levels(build.facts())
    assert levels.rail_of_leaf == {"x": 0, "y": 0}
    finding = _one(levels, "topology/rails-unknown")
    assert finding.severity is Severity.NOTE
    assert finding.numbers == {"unit": 0, "leaves": ["sw<x>", "sw<y>"]}


def test_levels_by_distance_and_switches_apart() -> None:
    build = _Builder()
    build.unit("a", _HCA)
    for index in range(4):
        build.trunk(f"a.{index}", "s", 2)
    build.trunk("s", "c").trunk("lost1", "lost2")
    levels = derive_levels(build.facts())
    assert levels.level_by_switch == {"a.0": 0, "a.1": 0, "a.2": 0, "a.3": 0, "s": 1, "c": 2}
    assert _one(levels, "topology/switch-without-hosts").numbers["count"] == 2


def test_thin_and_absent_spine_cables() -> None:
    build = _Builder()
    for unit in ("a", "b", "c"):
        build.unit(unit, _HCA)
        for leaf in range(4):
            for spine in ("s1", "s2", "s3"):
                name = f"{unit}.{leaf}"
                missing = {("a.1", "s2"): 3, ("b.0", "s3"): 4, ("a.1", "s3"): 1}
                build.trunk(name, spine, 4 - missing.get((name, spine), 0))
    levels = derive_levels(build.facts())
    assert _rules(levels) == {"topology/spine-cables-missing": 1, "topology/spine-unreached": 1}
    thin = _one(levels, "topology/spine-cables-missing")
    assert thin.numbers == {
        "usual": 4,
        "count": 1,
        "leaves": ["sw<a.1>"],
        "spines_by_leaf": {"sw<a.1>": {"sw<s2>": 1, "sw<s3>": 3}},
    }
    assert thin.message == (
        "1 leaf has fewer cables than the usual 4 to a spine: sw<a.1>: 1 to sw<s2>, 3 to sw<s3>"
    )
    assert _one(levels, "topology/spine-unreached").numbers == {
        "absent": 1,
        "pairs": 36,
        "spines_by_leaf": {"sw<b.0>": ["sw<s3>"]},
    }


def test_thin_leaves_of_one_pod_are_one_finding() -> None:
    build = _Builder()
    for pod in ("a", "b"):
        build.unit(pod, _HCA)
        for leaf in range(4):
            for spine in range(4):
                build.trunk(f"{pod}.{leaf}", f"{pod}.s{spine}", 1 if leaf == spine else 3)
    levels = derive_levels(build.facts())
    found = [one.numbers for one in levels.findings]
    assert [one["leaves"] for one in found] == [
        [f"sw<{pod}.{leaf}>" for leaf in range(4)] for pod in ("a", "b")
    ]


def test_pods_with_their_own_spines_and_counts_are_no_fault() -> None:
    build = _Builder()
    for unit, count in (("a", 4), ("b", 2)):
        build.unit(unit, _HCA)
        for leaf in range(4):
            for spine in range(2):
                build.trunk(f"{unit}.{leaf}", f"{unit}.s{spine}", count)
                build.trunk(f"{unit}.s{spine}", "core")
    levels = derive_levels(build.facts())
    assert levels.findings == ()
    assert levels.level_by_switch["core"] == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 6), st.sampled_from(["m0", "m1", "", "x9y8"])),
        max_size=60,
    ),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20),
)
def test_any_fabric_gets_levels(
    plugs: list[tuple[int, int, str]], trunks: list[tuple[int, int]]
) -> None:
    build = _Builder()
    for leaf, host, name in plugs:
        build.plug(str(leaf), f"h{host}" if host else None, name)
    for one, other in trunks:
        build.trunk(str(one), str(other))
    levels = derive_levels(build.facts())
    leaves = {switch for switch, level in levels.level_by_switch.items() if level == 0}
    assert leaves == set(levels.rail_of_leaf) == set(levels.unit_of_leaf)
    assert leaves == {str(leaf) for leaf, _, _ in plugs}
    assert sorted(set(levels.unit_of_leaf.values())) == list(
        range(len(set(levels.unit_of_leaf.values())))
    )


def test_a_large_fabric_is_no_problem() -> None:
    build = _Builder()
    for unit in range(128):
        build.unit(f"su{unit}", [f"mlx5_{i}" for i in range(8)], hosts=32)
    levels = derive_levels(build.facts(7))
    assert len(levels.leaf_of_nic) == 32_768
    assert set(Counter(levels.unit_of_leaf.values()).values()) == {8}
    assert all(int(leaf[-1]) == rail for leaf, rail in levels.rail_of_leaf.items())
    assert levels.findings == ()
