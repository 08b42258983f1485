"""Groups of torchtitan's dense and sparse meshes, as torch's DeviceMesh gave them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groups.building import findings_of, layout_of
from meshwright.groups.table import group_kinds
from support import shared_path

pytestmark = pytest.mark.golden

OUR_NAME = {"fsdp(dp_shard_cp)": "fsdp", "loss(dp_cp)": "loss"}


def _cases(kind: str) -> list[dict[str, Any]]:
    path = shared_path("reference/golden/rank_groups_other.json")
    cases = json.loads(path.read_text())["cases"]
    return [case for case in cases if f"ParallelDims {kind} mesh" in case["framework"]]


def _groups(case: dict[str, Any], framework: str) -> dict[str, list[list[int]]]:
    args = dict(case["args"])
    shard, replicate = args.pop("dp_shard"), args.pop("dp_replicate")
    layout = layout_of(
        framework=framework, dp=shard * replicate, shard_degree=shard, sharding="hsdp", **args
    )
    assert findings_of(layout) == [], case["args"]
    return {kind.name: kind.members().tolist() for kind in group_kinds(layout)}


@pytest.mark.parametrize("framework", ["torchtitan", "torch"])
def test_dense_meshes(framework):
    cases = _cases("dense")
    assert len(cases) == 7
    for case in cases:
        ours = _groups(case, framework)
        expected = {OUR_NAME.get(name, name): ranks for name, ranks in case["groups"].items()}
        if framework == "torch" and case["args"]["cp"] == 1:
            # without cp the flattened dimensions are dp_shard and batch under another name
            assert expected.pop("fsdp") == expected["dp_shard"]
            assert expected.pop("loss") == expected["batch"]
        assert list(ours.items()) == list(expected.items()), case["args"]


@pytest.mark.parametrize("framework", ["torchtitan", "torch"])
def test_sparse_meshes(framework):
    cases = _cases("sparse")
    assert len(cases) == 4
    for case in cases:
        ours = _groups(case, framework)
        for name, ranks in case["groups"].items():
            assert ours[name] == ranks, (name, case["args"])
