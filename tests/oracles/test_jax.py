"""Meshes of MaxText's axes are laid out as jax's mesh utilities lay them out on forced CPU devices."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

from groups.building import errors_of, layout_of
from meshwright.groups.table import group_kinds
from meshwright.job.jax_mesh import MESH_AXES
from oracles.asking import ask

pytestmark = pytest.mark.oracles

_COUNT, _SEED = 120, 20
_GATHERED = 6
"""Meshes over which jax gathers device ids along each axis: the members as it runs them."""
Case = dict[str, Any]


def _sizes(rng: random.Random, most: int) -> dict[str, int]:
    while True:
        axes = rng.sample(MESH_AXES, rng.choice((1, 2, 3, 4)))
        sizes = {axis: rng.choice((1, 2, 2, 3, 4)) for axis in axes}
        if math.prod(sizes.values()) <= most:
            return sizes


def _case(rng: random.Random) -> Case:
    """Return the job's keys, and the same as jax is asked."""
    ici = {"fsdp": 1} | _sizes(rng, 16)
    dcn = {"data": 1} | (_sizes(rng, 4) if rng.random() < 0.5 else {})
    slices = math.prod(dcn.values())
    world = math.prod(ici.values()) * slices
    if rng.random() < 0.2:
        axis = rng.choice(list(ici))
        ici[axis] += 1
    if slices > 1 and rng.random() < 0.2:
        dcn["data"] += 1
    keys: dict[str, Any] = {"ici": ici, "world_size": world, "num_slices": slices}
    if slices > 1:
        keys["dcn"] = dcn
    asked = {
        "ici": [ici.get(axis, 1) for axis in MESH_AXES],
        "dcn": [dcn.get(axis, 1) for axis in MESH_AXES],
        "world": world,
        "slices": slices,
        "gather": False,
    }
    return {"keys": keys, "asked": asked}


def _kinds(case: Case) -> dict[str, list[list[int]]]:
    layout = layout_of(framework="maxtext", **case["keys"])
    return {kind.name: kind.members().tolist() for kind in group_kinds(layout)}


def test_meshes_are_those_of_jax():
    rng = random.Random(_SEED)
    cases = [_case(rng) for _ in range(_COUNT)]
    for case in cases[:_GATHERED]:
        case["asked"]["gather"] = True
    answers = ask("jax_meshes.py", [case["asked"] for case in cases])
    refused = sliced = gathered = 0
    for case, answer in zip(cases, answers, strict=True):
        errors = errors_of(layout_of(framework="maxtext", **case["keys"]))
        if "refused" in answer:
            refused += 1
            assert {one.rule for one in errors} == {"maxtext/mesh-product"}, (case, answer)
            continue
        assert errors == [], case
        asked = case["asked"]
        shape = [ici * dcn for ici, dcn in zip(asked["ici"], asked["dcn"], strict=True)]
        mesh, ours = np.array(answer["devices"]).reshape(shape), _kinds(case)
        for index, axis in enumerate(MESH_AXES):
            expected = np.moveaxis(mesh, index, -1).reshape(-1, shape[index]).tolist()
            assert ours[axis] == expected, (case, axis)
        for index, by_device in answer.get("met", {}).items():
            lists = ours[MESH_AXES[int(index)]]
            assert sorted(map(list, {tuple(met) for met in by_device})) == sorted(lists), case
            assert all(device in met for device, met in enumerate(by_device))
            gathered += 1
        sliced += asked["slices"] > 1
    assert refused >= 20
    assert sliced >= 20
    assert gathered >= _GATHERED
