"""The real ``lstopo``: of this machine, and of a made-up one that is also captured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from capture.hosts import FakeHost, Runner, dgx
from components.requirements import need
from meshwright.capture.collect import collect, to_json
from meshwright.capture.tools import ASKED, run_tool
from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import read_topology

pytestmark = pytest.mark.components
OPTIONS = [
    (),
    ("--whole-io",),
    ("--no-caches", "--merge"),
    ("--export-xml-flags", "v1"),
    ("--no-bridges",),
]


@pytest.fixture
def lstopo() -> str:
    """Return the program, or skip."""
    path = shutil.which("lstopo-no-graphics") or shutil.which("lstopo")
    need([] if path else ["lstopo"], "hwloc")
    return str(path)


def facts_of(lstopo: str, folder: Path, *options: str, root: Path | None = None) -> Facts:
    """Run lstopo, on another root where one is given, and read its XML."""
    environ = dict(os.environ) | ({"HWLOC_FSROOT": str(root)} if root else {})
    # Other back ends would ask the processor of this machine.
    environ |= {"HWLOC_COMPONENTS": "-x86,linux,stop"} if root else {}
    ran = subprocess.run(
        [lstopo, "--of", "xml", *options], env=environ, capture_output=True, text=True, check=True
    )
    path = folder / "lstopo.xml"
    path.write_text(ran.stdout)
    return read_topology(path)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
def test_this_machine_is_read(lstopo, tmp_path, options):
    facts = facts_of(lstopo, tmp_path, *options)
    assert facts.format == "hwloc_xml"
    known = Path("/sys/devices/system/node")
    nodes = {int(path.name[4:]) for path in known.glob("node[0-9]*")}
    assert set(facts.numa_ids or ()) <= (nodes or {0})
    assert facts.numa_ids


def test_without_devices_they_are_unknown(lstopo, tmp_path):
    facts = facts_of(lstopo, tmp_path, "--no-io")
    assert facts.gpus is None
    assert "topology/io-not-listed" in [one.rule for one in facts.findings]


def test_text_in_a_capture_is_read_too_and_holds_no_address(lstopo, tmp_path):
    document = collect(run=run_tool)
    (tool,) = [one for one in document["tools"] if one["name"] == ASKED[-1].name]
    text = "\n".join(tool["lines"])
    (tmp_path / "captured.xml").write_text(text)
    assert read_topology(tmp_path / "captured.xml").numa_ids
    for path in Path("/sys/class/net").glob("*/address"):
        address = path.read_text().strip()
        assert address.strip("0:") == "" or address not in json.dumps(document)


def _for_hwloc(host: FakeHost) -> None:
    """Add what hwloc needs beyond a capture: cores of CPUs, and the buses of bridges."""
    system = "sys/devices/system"
    for cpu in range(4):
        topology = f"{system}/cpu/cpu{cpu}/topology"
        host.write(f"{topology}/physical_package_id", f"{cpu // 2}\n")
        host.write(f"{topology}/core_id", f"{cpu % 2}\n")
        for name in ("core_cpus", "thread_siblings"):
            host.write(f"{topology}/{name}", f"{1 << cpu:x}\n")
        for name in ("package_cpus", "core_siblings"):
            host.write(f"{topology}/{name}", f"{3 << 2 * (cpu // 2):x}\n")
    host.write(f"{system}/cpu/possible", "0-3\n")
    host.write(f"{system}/cpu/online", "0-3\n")
    host.write(f"{system}/node/online", "0-1\n")
    for node in range(2):
        host.write(f"{system}/node/node{node}/cpumap", f"{3 << 2 * node:x}\n")
        host.write(f"{system}/node/node{node}/cpulist", f"{2 * node}-{2 * node + 1}\n")
    for address, folder in host.folders.items():
        config = bytearray(256)
        is_bridge = (folder / "class").read_text().startswith("0x0604")
        if is_bridge:
            buses = [
                int(one.split(":")[1], 16)
                for one, at in host.folders.items()
                if folder in at.parents
            ]
            config[0x0E] = 1
            config[0x18:0x1B] = (
                int(address.split(":")[1], 16),
                min(buses, default=0xFF),
                max(buses, default=0xFF),
            )
        (folder / "config").write_bytes(config)
        node = (folder / "numa_node").read_text().strip()
        (folder / "local_cpus").write_text("f\n" if node == "-1" else f"{3 << 2 * int(node):x}\n")


def test_lstopo_and_capture_see_the_same_tree(lstopo, tmp_path):
    host = dgx(tmp_path / "root")
    _for_hwloc(host)
    # Without --whole-io lstopo leaves NVSwitches out.
    by_hwloc = facts_of(lstopo, tmp_path, "--whole-io", root=host.root)
    capture = tmp_path / "capture.json"
    capture.write_text(to_json(collect(host.root, run=Runner(), environ={})))
    by_capture = read_topology(capture)
    assert [gpu.pci for gpu in by_hwloc.gpus or ()] == [gpu.pci for gpu in by_capture.gpus or ()]
    assert len(by_hwloc.gpus or ()) == 8
    assert {nic.pci for nic in by_hwloc.nics or ()} == {nic.pci for nic in by_capture.nics or ()}
    names = [nic.name for nic in by_hwloc.nics or ()]
    order = [names.index(nic.name) for nic in by_capture.nics or ()]
    of_hwloc = [[row[at] for at in order] for row in by_hwloc.gpu_nic_class or ()]
    assert of_hwloc == [list(row) for row in by_capture.gpu_nic_class or ()]
    assert {"PIX", "NODE", "SYS"} == {cell for row in of_hwloc for cell in row}
    assert by_hwloc.gpu_gpu_class == by_capture.gpu_gpu_class
    ways = {chain.device: chain.nodes for chain in by_hwloc.pcie_chains or ()}
    for nic in by_capture.nics or ():
        (own,) = [chain for chain in by_capture.pcie_chains or () if chain.device == nic.name]
        assert own.nodes == ways[nic.name]
    assert by_hwloc.nvswitches == by_capture.nvswitches
    assert by_hwloc.numa_ids == by_capture.numa_ids == (0, 1)
