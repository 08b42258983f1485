"""Lay out jax's meshes over forced CPU devices. See ``recording.answer`` for the form.

In: ``{"ici": sizes, "dcn": sizes or null, "world", "slices", "gather"}`` (all axes, slowest first). Out:
``{"devices": ids, row-major}`` of ``create_device_mesh`` (of ``create_hybrid_device_mesh`` where there are
slices), and where ``gather`` is true ``{"met": {axis: by device id, the ids that answered along it}}``.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=64"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import Mesh, PartitionSpec


class _OfSlice:
    """A CPU device that says in which slice it stands, as a TPU does."""

    def __init__(self, device: jax.Device, slice_index: int) -> None:
        self.device, self.slice_index = device, slice_index

    def __getattr__(self, name: str) -> Any:
        return getattr(self.device, name)


def _mesh(case: dict[str, Any]) -> np.ndarray:
    devices = jax.devices()[: case["world"]]
    if case["slices"] == 1:
        return mesh_utils.create_device_mesh(case["ici"], devices)
    per_slice = case["world"] // case["slices"]
    # jax itself counts the slices, and the devices of each
    sliced = [_OfSlice(device, index // per_slice) for index, device in enumerate(devices)]
    mesh = mesh_utils.create_hybrid_device_mesh(case["ici"], case["dcn"], sliced)
    return np.vectorize(lambda one: one.device, otypes=[object])(mesh)


def _met(devices: np.ndarray) -> dict[str, list[list[int]]]:
    """Gather device ids along each axis of more than one device: who is there, by device."""
    names = tuple(f"axis_{index}" for index in range(devices.ndim))
    mesh = Mesh(devices, names)
    ids = np.vectorize(lambda one: one.id, otypes=[int])(devices)
    found = {}
    for index, name in enumerate(names):
        if devices.shape[index] == 1:
            continue
        gather = functools.partial(jax.lax.all_gather, axis_name=name, axis=devices.ndim)
        spec = PartitionSpec(*names)
        many = jax.jit(jax.shard_map(gather, mesh=mesh, in_specs=spec, out_specs=spec))(ids)
        by_device = {
            int(one): list(map(int, row))
            for one, row in zip(ids.flat, np.asarray(many).reshape(ids.size, -1), strict=True)
        }
        found[str(index)] = [by_device[one] for one in sorted(by_device)]
    return found


def main() -> None:
    answers = []
    for case in json.load(sys.stdin):
        try:
            devices = _mesh(case)
        except ValueError as error:
            answers.append({"refused": str(error)})
            continue
        answer = {"devices": [one.id for one in devices.flat]}
        answers.append(answer | ({"met": _met(devices)} if case["gather"] else {}))
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
