"""What a capture holds, leaves out and says to be missing, on made-up hosts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.hosts import (
    CLIQUE,
    FakeNvml,
    Runner,
    dgx,
    gpu_address,
    nic_address,
    plain,
    topo_text,
    vm,
)
from meshwright.capture.collect import collect, to_json
from meshwright.capture.document import SCHEMA, Capture
from meshwright.capture.tools import Ran
from meshwright.documents import decode, parse_document


def capture_of(root: Path, **given: Any) -> Capture:
    """Collect, write as JSON, decode: what a reader gets."""
    document = collect(root, **{"run": Runner(), "environ": {}, **given})
    text = to_json(document)
    assert json.loads(text) == json.loads(json.dumps(document))
    return decode(parse_document(text, "c.json", "json"), Capture).required()


def missing(capture: Capture) -> dict[str, str]:
    """Return what is missing and why."""
    return {one.what: one.why for one in capture.missing}


def test_dgx_like_host(tmp_path):
    dgx(tmp_path)
    capture = capture_of(tmp_path, nvml=FakeNvml())
    assert capture.schema == SCHEMA
    assert (capture.host.name, capture.host.hostname) == ("node7", "node7.cluster.example")
    assert (capture.host.product, capture.host.virtual_machine) == ("DGXH100", False)
    assert capture.host.container is None
    nodes = [(node.id, node.cpus, node.distances) for node in capture.cpus.numa_nodes or ()]
    assert nodes == [(0, "0-55,112-167", (10, 21)), (1, "56-111,168-223", (21, 10))]
    assert capture.cpus.model == "Made Up 9000"
    by_address = {one.address: one for one in capture.pci or ()}
    # 4 root ports, 4 upstream and 16 downstream ports, 8 GPUs, 8 NICs, 4 NVSwitches with root ports
    assert len(by_address) == 4 + 4 + 16 + 8 + 8 + 8
    assert not [one for one in by_address.values() if one.code.startswith("01")], "NVMe is left out"
    gpu = by_address[gpu_address(5)]
    assert (gpu.code, gpu.vendor, gpu.numa_node, gpu.width) == ("030200", "10de", 1, 16)
    assert (gpu.speed, gpu.max_speed) == ("2.5 GT/s PCIe", "32.0 GT/s PCIe")
    assert gpu.parent == "0000:32:01.0"
    assert by_address["0000:31:00.0"].parent == "0000:30:01.0"
    assert by_address["0000:30:01.0"].parent == "pci0000:30"
    rdma = {one.name: one for one in capture.infiniband or ()}
    assert list(rdma) == [f"mlx5_{number}" for number in range(8)]
    assert rdma["mlx5_3"].pci == nic_address(3)
    assert rdma["mlx5_3"].node_guid == "a088:c203:00aa:0003"
    assert rdma["mlx5_3"].netdevs == ("ibp3",)
    (port,) = rdma["mlx5_3"].ports
    assert (port.number, port.lid, port.state) == (1, "0x13", "4: ACTIVE")
    assert port.gid == "fe80:0000:0000:0000:a088:c203:0000:0003"


def test_nvml_is_asked_and_closed(tmp_path):
    dgx(tmp_path)
    nvml = FakeNvml(down=((2, 17),))
    capture = capture_of(tmp_path, nvml=nvml)
    assert nvml.open == 0
    assert capture.nvml is not None
    assert capture.nvml.driver == "550.90.07"
    gpu = capture.nvml.gpus[2]
    assert (gpu.pci, gpu.uuid, gpu.model) == (gpu_address(2), "GPU-00002", "NVIDIA H100 80GB HBM3")
    assert (gpu.pcie_generation, gpu.max_pcie_width, gpu.mig) == (1, None, False)
    assert gpu.fabric is not None
    assert f"{gpu.fabric.cluster_uuid}.{gpu.fabric.clique_id}" == CLIQUE
    assert [link.number for link in gpu.nvlinks or () if not link.up] == [17]
    first = (gpu.nvlinks or ())[0]
    assert (first.remote, first.remote_type) == ("0000:c1:00.0", "switch")
    assert "nvml" not in missing(capture)


def test_older_fabric_call_and_one_not_started(tmp_path):
    dgx(tmp_path)

    class Older(FakeNvml):
        nvmlDeviceGetGpuFabricInfoV = property()  # as a module that lacks it

        def nvmlDeviceGetGpuFabricInfo(self, gpu: int, reference: Any) -> int:
            info = reference._obj
            info.state, info.cliqueId = (3, 9) if gpu else (2, 0)
            info.clusterUuid[:] = [0] * 15 + [1]
            return 0

    capture = capture_of(tmp_path, nvml=Older())
    assert capture.nvml is not None
    first, second = (gpu.fabric for gpu in capture.nvml.gpus[:2])
    assert first is not None
    assert (first.state, first.cluster_uuid) == ("in_progress", None)
    assert second is not None
    assert second.cluster_uuid == "00000000-0000-0000-0000-000000000001", "zero bytes do not end it"
    assert second.clique_id == 9


def test_nvml_that_does_not_start(tmp_path):
    dgx(tmp_path)
    nvml = FakeNvml()

    def fail() -> None:
        raise nvml.NVMLError("Driver Not Loaded")

    nvml.nvmlInit = fail  # type: ignore[method-assign]
    capture = capture_of(tmp_path, nvml=nvml)
    assert capture.nvml is None
    assert missing(capture)["nvml"] == "NVML does not start: Driver Not Loaded"


def test_missing_nvml_and_tools_are_said_where_there_are_gpus(tmp_path):
    dgx(tmp_path / "dgx")
    told = missing(capture_of(tmp_path / "dgx"))
    assert set(told) == {"nvml", "nvidia-smi topo -m", "nvidia-smi nvlink -s", "lstopo --of xml"}
    plain(tmp_path / "plain")
    capture = capture_of(tmp_path / "plain")
    assert set(missing(capture)) == {"gpus", "infiniband", "lstopo --of xml"}
    assert [(one.name, one.speed_mbit) for one in capture.network or ()] == [("eno1", 1000)]
    assert capture.cpus.numa_nodes


def test_nothing_at_all(tmp_path):
    capture = capture_of(tmp_path)
    assert {"pci", "infiniband", "network", "numa"} <= set(missing(capture))
    assert (capture.pci, capture.infiniband, capture.network) == (None, None, None)
    assert capture.host.name == "unknown"


def test_texts_are_kept_as_printed(tmp_path):
    dgx(tmp_path)
    texts: dict[str, Ran | str] = {
        "nvidia-smi topo -m": topo_text(),
        "nvidia-smi nvlink -s": Ran(failure="ended with status 9: no devices"),
    }
    capture = capture_of(tmp_path, run=Runner(texts))
    (tool,) = capture.tools
    assert "\n".join(tool.lines) == topo_text()
    assert missing(capture)["nvidia-smi nvlink -s"] == "ended with status 9: no devices"


def test_second_command_is_asked_where_the_first_is_not_there(tmp_path):
    runner = Runner({"lstopo": "<topology></topology>\n"})
    capture = capture_of(tmp_path, run=runner)
    assert [tool.name for tool in capture.tools] == ["lstopo --of xml"]
    assert not any(asked.startswith("hwloc-ls") for asked in runner.asked)


def test_addresses_and_serial_numbers_are_left_out(tmp_path):
    host = dgx(tmp_path)
    host.write("sys/class/dmi/id/product_serial", "SERIAL-4711")
    host.rdma("roce0", nic_address(7), 99, link_layer="Ethernet")
    xml = (
        '<topology version="2.0">\n <object type="Machine">\n'
        '  <info name="DMIProductSerial" value="SERIAL-4711"/>\n'
        '  <info name="PCIDevice" value="ConnectX-7"/>\n'
        '  <info name="Address" value="b8:3f:d2:11:22:33"/>\n'
        '  <info name="Port1GID0" value="fe80::ba3f:d2ff:fe11:2233"/>\n'
        ' </object>\n <support name="discovery.pu"/>\n</topology>\n'
    )
    text = to_json(collect(tmp_path, run=Runner({"lstopo": xml}), nvml=FakeNvml(), environ={}))
    for private in ("SERIAL-4711", "b8:3f:d2", "ba3f:d2ff", "discovery"):
        assert private not in text
    assert "ConnectX-7" in text
    capture = decode(parse_document(text, "c.json", "json"), Capture).required()
    (roce,) = [one for one in capture.infiniband or () if one.name == "roce0"]
    assert roce.ports[0].gid is None, "on Ethernet it is made of an address"


@pytest.mark.parametrize(
    "xml",
    [
        "<topology><info value='b8:3f:d2:11:22:33' name='Address'/></topology>",
        '<topology><object type="Misc" name="ssh"/></topology>',
    ],
)
def test_hwloc_text_of_an_unknown_form_is_withheld(tmp_path, xml):
    capture = capture_of(tmp_path, run=Runner({"lstopo": xml}))
    assert capture.tools == ()
    assert "addresses cannot be left out" in missing(capture)["lstopo --of xml"]


def test_size_of_a_full_host(tmp_path):
    dgx(tmp_path)
    link = "\t Link {}: 26.562 GB/s"
    nvlink = "".join(
        f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
        + "\n".join(link.format(k) for k in range(18))
        + "\n"
        for gpu in range(8)
    )
    pu = (
        '      <object type="PU" os_index="{0}" cpuset="0x00000001,,,,,," complete_cpuset="0x1,,,,,,"'
        ' nodeset="0x00000001" complete_nodeset="0x00000001" gp_index="{0}"/>'
    )
    xml = "<topology>\n" + "\n".join(pu.format(k) for k in range(224)) + "\n</topology>\n"
    texts: dict[str, Ran | str] = {
        "nvidia-smi topo -m": topo_text(),
        "nvidia-smi nvlink -s": nvlink,
        "lstopo": xml,
    }
    text = to_json(collect(tmp_path, run=Runner(texts), nvml=FakeNvml(), environ={}))
    assert len(text) < 200_000


def test_virtual_functions_without_an_interface_are_left_out(tmp_path):
    host = plain(tmp_path)
    physical = host.folders["0000:00:03.0"]
    for number in range(3):
        address = f"0000:00:03.{number + 1}"
        host.pci(address, "pci0000:00", "020000", "8086:1520")
        (host.folders[address] / "physfn").symlink_to(f"../{physical.name}")
    host.net("eno1v2", "0000:00:03.3")
    kept = {one.address: one.physical_function for one in capture_of(tmp_path).pci or ()}
    assert kept == {
        "0000:00:02.0": None,
        "0000:00:03.0": None,
        "0000:00:03.3": "0000:00:03.0",
    }


def test_bonds_virtio_and_what_drivers_write_of_links_that_are_down(tmp_path):
    host = plain(tmp_path)
    folder = host.folders["0000:00:03.0"]
    (folder / "virtio0/net/eth9").mkdir(parents=True)
    (folder / "virtio0/net/eth9/device").symlink_to("../..")
    (folder / "virtio0/net/eth9/speed").write_text("-1\n")
    host.link("sys/class/net/eth9", folder / "virtio0/net/eth9")
    bond = tmp_path / "sys/devices/virtual/net/bond0"
    (bond / "bonding").mkdir(parents=True)
    host.link("sys/class/net/bond0", bond)
    (folder / "net/eno1/master").symlink_to(os.path.relpath(bond, folder / "net/eno1"))
    (folder / "net/eno1/speed").write_text("4294967295\n")
    found = {one.name: one for one in capture_of(tmp_path).network or ()}
    assert set(found) == {"eno1", "eth9"}
    assert found["eno1"].bond == "bond0"
    assert found["eth9"].pci == "0000:00:03.0"
    assert [one.speed_mbit for one in found.values()] == [None, None]


def test_slurm_names_the_host(tmp_path):
    plain(tmp_path)
    environ = {
        "SLURMD_NODENAME": "gpu-0042",
        "SLURM_NODEID": "3",
        "SLURM_TOPOLOGY_ADDR": "spine0.leaf5.gpu-0042",
        "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node",
        "SECRET_TOKEN": "never",
    }
    capture = capture_of(tmp_path, environ=environ)
    assert (capture.host.name, capture.host.hostname) == ("gpu-0042", "node7.cluster.example")
    assert capture.host.slurm is not None
    assert capture.host.slurm.topology_address == "spine0.leaf5.gpu-0042"
    assert "never" not in to_json(collect(tmp_path, run=Runner(), environ=environ))


def test_machine_kinds(tmp_path):
    vm(tmp_path / "vm")
    assert capture_of(tmp_path / "vm").host.virtual_machine is True
    arm = tmp_path / "arm"
    plain(arm)
    (arm / "proc/cpuinfo").write_text("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n")
    capture = capture_of(arm)
    assert capture.host.virtual_machine is None, "Arm shows no flag that would tell"
    assert capture.cpus.model == "implementer 0x41 part 0xd4f"
    (arm / "proc/1").mkdir()
    (arm / "proc/1/cgroup").write_text("0::/kubepods/besteffort/pod1\n")
    assert capture_of(arm).host.container == "cgroup kubepods"
    assert capture_of(arm, environ={"ENROOT_ROOTFS": "/x"}).host.container == "$ENROOT_ROOTFS"


def test_nothing_is_written(tmp_path):
    dgx(tmp_path)
    before = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    capture_of(tmp_path, nvml=FakeNvml())
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == before


GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [b"", b"\xff\xfe", b"\x00" * 9, b"9" * 5000, b"-1", b"0x", b"Unknown", b"\x1b[4m"]
    ),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_collect_never_raises_and_always_gives_a_document(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("host")
    data.draw(st.sampled_from([vm, plain]))(root)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in data.draw(st.lists(st.sampled_from(files), max_size=12, unique=True)):
        if data.draw(st.booleans()):
            path.write_bytes(data.draw(GARBAGE))
        else:
            path.unlink()
            if data.draw(st.booleans()):
                path.mkdir()
    text = data.draw(st.text(max_size=60))
    broken = data.draw(st.sampled_from([None, SimpleNamespace(), FakeNvml(3), BrokenNvml(text)]))
    run = Runner({"lstopo": text, "nvidia-smi": text})
    capture = capture_of(root, run=run, nvml=broken, environ={"SLURMD_NODENAME": text})
    assert capture.schema == SCHEMA
    assert msgspec.json.encode(capture)


class BrokenNvml:
    """Answers every call with something that is none of what it should be."""

    NVML_NVLINK_MAX_LINKS = "many"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.answer


def test_unreadable_files_and_pipes(tmp_path):
    host = plain(tmp_path)
    folder = host.folders["0000:00:03.0"]
    (folder / "numa_node").unlink()
    os.mkfifo(folder / "numa_node")  # nobody writes: it must not be waited for
    (folder / "vendor").unlink()
    (folder / "vendor").symlink_to("vendor")
    (folder / "class").chmod(0)
    assert capture_of(tmp_path).cpus.numa_nodes


def test_what_is_missing_stands_as_findings_too_and_numbers_have_their_origin(tmp_path):
    capture = capture_of(tmp_path / "dgx")
    assert [(one.subject, one.severity) for one in capture.findings] == [
        (one.what, "note") for one in capture.missing
    ]
    assert capture.findings
    assert set(capture.origin.values()) == {"measured"}
    assert "cpus" in capture.origin
