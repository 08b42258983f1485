"""Where ranks sit: in order, by hosts, by a table; scattered ranks grouped again."""

from __future__ import annotations

import random

import numpy as np
import pytest

from meshwright.cluster.build import HostSet, build_fabric
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.nodes.presets import bare_node
from meshwright.findings import Place, Severity
from meshwright.placement.place import (
    Placement,
    by_host_order,
    by_table,
    grouped_by_host,
    in_order,
)
from meshwright.placement.rank_table import RankTable

HERE = Place("job.yaml", 3, 1)


def _fabric(gpus: tuple[int, ...] = (2, 2, 2)) -> Fabric:
    sizes = sorted(set(gpus))
    kinds = np.array([sizes.index(one) for one in gpus], dtype=np.int32)
    names = [f"n{i}" for i in range(len(gpus))]
    return build_fabric(HostSet(names, tuple(bare_node(one) for one in sizes), kinds))


def _pairs(fabric: Fabric, placement: Placement) -> list[tuple[str, int]]:
    return [fabric.slot_name(slot) for slot in placement.slot_by_rank.tolist()]


def test_in_order_and_by_hosts_on_hosts_of_unequal_size() -> None:
    fabric = _fabric((2, 1, 3))
    assert _pairs(fabric, in_order(4)) == [("n0", 0), ("n0", 1), ("n1", 0), ("n2", 0)]
    turned = by_host_order(fabric, ["n2", "n0", "n1"], 6)
    assert _pairs(fabric, turned) == [
        ("n2", 0), ("n2", 1), ("n2", 2), ("n0", 0), ("n0", 1), ("n1", 0),
    ]  # fmt: skip
    assert _pairs(fabric, by_host_order(fabric, ["n1", "n2"], 2)) == [("n1", 0), ("n2", 0)]


def test_host_orders_that_cannot_be() -> None:
    fabric = _fabric()
    with pytest.raises(KeyError, match="n9"):
        by_host_order(fabric, ["n0", "n9"], 4)
    with pytest.raises(ValueError, match="'n1' is named twice"):
        by_host_order(fabric, ["n0", "n1", "n1"], 6)
    with pytest.raises(ValueError, match="2 hosts have 4 GPUs for 6 ranks"):
        by_host_order(fabric, ["n0", "n1"], 6)


def test_by_table() -> None:
    fabric = _fabric()
    table = RankTable(("n1", "n0", "n1"), (1, 0, 0))
    placement, findings = by_table(fabric, table, HERE)
    assert findings == []
    assert _pairs(fabric, placement) == [("n1", 1), ("n0", 0), ("n1", 0)]
    assert placement.rule == "table of ranks"


def test_tables_that_do_not_fit_the_cluster() -> None:
    fabric = _fabric()
    table = RankTable(("n0", "n9", "n0", "n2", "n0"), (1, 1, 1, 2, 0))
    _, findings = by_table(fabric, table, HERE)
    assert {one.severity for one in findings} == {Severity.ERROR}
    assert {one.place for one in findings} == {HERE}
    missing = [one.numbers for one in findings if one.rule == "placement/no-such-gpu"]
    assert missing == [{"rank": 1, "host": "n9", "gpu": 1}, {"rank": 3, "host": "n2", "gpu": 2}]
    # Rank 1 is nowhere: it shares no GPU with the ranks of the first host.
    (twice,) = [one.numbers for one in findings if one.rule == "placement/gpu-used-twice"]
    assert twice == {"host": "n0", "gpu": 1, "ranks": [0, 2]}


def test_scattered_ranks_are_grouped_by_first_appearance() -> None:
    fabric = _fabric()
    scattered = Placement(np.array([3, 0, 2, 5, 1, 4]), "table of ranks")
    better = grouped_by_host(fabric, scattered)
    assert better is not None
    assert better.slot_by_rank.tolist() == [2, 3, 0, 1, 4, 5]
    assert grouped_by_host(fabric, better) is None
    assert grouped_by_host(fabric, in_order(6)) is None


def test_grouping_keeps_the_slots_and_joins_each_host() -> None:
    for seed in range(100):
        dice = random.Random(seed)
        fabric = _fabric(tuple(dice.randint(1, 4) for _ in range(dice.randint(1, 6))))
        slots = dice.sample(range(fabric.num_slots), dice.randint(1, fabric.num_slots))
        placement = Placement(np.array(slots), "table of ranks")
        better = grouped_by_host(fabric, placement) or placement
        assert sorted(better.slot_by_rank.tolist()) == sorted(slots)
        hosts = [host for host, _ in _pairs(fabric, better)]
        first = dict.fromkeys(host for host, _ in _pairs(fabric, placement))
        assert hosts == [host for one in first for host in hosts if host == one]
        assert _pairs(fabric, better) == sorted(
            _pairs(fabric, better), key=lambda pair: (list(first).index(pair[0]), pair[1])
        )
