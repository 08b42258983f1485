"""Groups that a schedule or FSDP's settings make."""

from __future__ import annotations

import numpy as np
import pytest

from groups.building import layout_of
from meshwright.groups.of_training import mirror_kind, spread_kinds
from meshwright.groups.table import group_kinds, stage_of_rank


@pytest.mark.parametrize("pp", [2, 4, 5, 8])
@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "pp-tp-cp-ep-dp"])
def test_mirrored_stages_meet(pp, order):
    layout = layout_of(tp=2, pp=pp, dp=3, order=order)
    kind = mirror_kind(group_kinds(layout))
    ranks, stage = kind.members(), stage_of_rank(layout)
    assert ranks.shape == (kind.num_groups, kind.degree) == (6 * (pp // 2), 2)
    assert (stage[ranks].sum(axis=1) == pp - 1).all()
    assert (stage[ranks[:, 0]] < stage[ranks[:, 1]]).all()
    assert len(np.unique(ranks)) == ranks.size
    pipelines = {rank: number for number, one in enumerate(_pipelines(layout)) for rank in one}
    assert all(pipelines[a] == pipelines[b] for a, b in ranks.tolist())


def _pipelines(layout):
    [kind] = [kind for kind in group_kinds(layout) if kind.axis == "pp"]
    return kind.members().tolist()


def test_one_stage_has_no_mirror():
    assert mirror_kind(group_kinds(layout_of(tp=2, dp=2))) is None


@pytest.mark.parametrize("ranks", [2, 4])
def test_shard_groups_are_cut_into_neighbours(ranks):
    kinds = group_kinds(layout_of(framework="torch", tp=2, dp=8, sharding="fsdp"))
    whole = next(kind for kind in kinds if kind.axis == "dp_shard").members()
    [cut] = [one for one in spread_kinds(kinds, ranks) if one.axis == f"dp_shard/{ranks}"]
    members = cut.members()
    assert members.shape == (cut.num_groups, cut.degree) == (16 // ranks, ranks)
    assert members.reshape(whole.shape).tolist() == whole.tolist()


@pytest.mark.parametrize("ranks", [1, 3, 8, 16])
def test_what_does_not_cut_a_shard_group_makes_none(ranks):
    kinds = group_kinds(layout_of(framework="torch", tp=2, dp=8, sharding="fsdp"))
    assert [one for one in spread_kinds(kinds, ranks) if one.axis.startswith("dp_shard")] == []
