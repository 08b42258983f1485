"""Users' questions about PCIe boxes, answered from a cluster file written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import axis_of, run
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]
SIZE = 1e9
MATERIAL = 1.1
"""A gain of a tenth."""


@pytest.fixture
def case() -> dict[str, Any]:
    """Return what the user has, and what is compared."""
    return json.loads(shared_path("cases/pcie-box-more-nics-little-gain.json").read_text())


def mapped(folder: Path, inputs: dict[str, Any], nics: int, op: str) -> dict[str, Any]:
    """Map one collective of all GPUs over the hosts, with so many NICs a host."""
    gpus, hosts = int(inputs["box"].split()[0]), inputs["hosts"]
    (folder / "box.yaml").write_text(
        f"node: {{gpus: {gpus}, gpus_per_switch: 4, pcie: {inputs['pcie_gb_s_usable']} GB/s, "
        f"nics: {nics}, nic: {inputs['nic_gb_s']} GB/s, nvlink: none}}\n"
        f"nodes: {hosts}\n"
        "fabric: {preset: leaf-spine}\n"
    )
    axis = "dp" if op == "all_reduce" else "ep"
    (folder / "job.yaml").write_text(
        "cluster: box.yaml\n"
        f"layout: {{dp: {gpus * hosts}, ep: {gpus * hosts if axis == 'ep' else 1}, "
        "framework: megatron}\n"
        f"traffic: [{{axis: {axis}, op: {op}, bytes: {SIZE:g}}}]\n"
    )
    ran = run("map", "job.yaml", "--json", cwd=folder)
    assert ran.status == 0, ran.err
    return ran.document


def load(document: dict[str, Any], kind: str) -> float:
    """Return the load of the busiest link of a kind, in units of S."""
    return (
        max(one["load_bytes"] for one in document["links"]["classes"] if one["kind"] == kind) / SIZE
    )


def test_pcie_box_more_nics_little_gain(case, tmp_path):
    inputs, checks = case["inputs"], case["expected"]["checks"]
    assert set(inputs["collectives"]) == {"all_reduce", "all_to_all"}
    ring, exchange = (
        {nics: mapped(tmp_path, inputs, nics, op) for nics in (1, inputs["nics"])}
        for op in ("all_reduce", "all_to_all")
    )
    # Ring of 16: 30/16 S over every PCIe link, and over one NIC; four NICs share it.
    assert {nics: load(one, "pcie") for nics, one in ring.items()} == {1: 1.875, 4: 1.875}
    assert {nics: load(one, "nic") for nics, one in ring.items()} == {1: 1.875, 4: 0.46875}
    bounds = {nics: axis_of(one, "dp") for nics, one in ring.items()}
    gain = bounds[1]["bound_s"] / bounds[4]["bound_s"]
    assert (gain > MATERIAL) == checks["all_reduce_material_gain"]
    assert gain == 1.0
    # The reason: PCIe is the busiest link with one NIC already.
    for bound in bounds.values():
        assert bound["bottleneck"]["kind"] == checks["all_reduce_bottleneck"]
        assert bound["bottleneck"]["load_bytes"] == 1.875 * SIZE
    # All-to-all: 8 senders x 8 receivers x S/16 off each host.
    assert {nics: load(one, "nic") for nics, one in exchange.items()} == {1: 4.0, 4: 1.0}
    bounds = {nics: axis_of(one, "ep") for nics, one in exchange.items()}
    gain = bounds[1]["bound_s"] / bounds[4]["bound_s"]
    assert (gain > MATERIAL) == checks["all_to_all_material_gain"]
    assert gain == pytest.approx(4.0)
    # One NIC is the place all has to pass: its own PCIe link, slower than its port, binds.
    ends = {bounds[1]["bottleneck"]["tail"], bounds[1]["bottleneck"]["head"]}
    assert "host0 nic0" in ends


def test_on_nvlink_boxes_nics_add_up(tmp_path):
    """The second half of the answer: over an NVLink switch four NICs carry four times one's."""
    bound = {}
    for nics in (1, 4):
        (tmp_path / "job.yaml").write_text(
            "cluster:\n"
            f"  node: {{gpus: 8, gpu: H100-SXM, gpus_per_switch: 4, nics: {nics}, nic: 12.5 GB/s}}\n"
            "  nodes: 2\n"
            "  fabric: {preset: leaf-spine}\n"
            "layout: {dp: 16, framework: megatron}\n"
            f"traffic: [{{axis: dp, op: all_reduce, bytes: {SIZE:g}}}]\n"
        )
        document = run("map", "job.yaml", "--json", cwd=tmp_path).document
        bound[nics] = axis_of(document, "dp")
        assert bound[nics]["bottleneck"]["kind"] == "nic"
    assert bound[1]["bound_s"] / bound[4]["bound_s"] == pytest.approx(4.0)
