"""The capture reader: whose word counts, what is wrong with a host, and edited captures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.hosts import (
    CLIQUE,
    GEN1,
    FakeHost,
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
from meshwright.capture.tools import Ran
from meshwright.cluster.degraded import degradations
from meshwright.cluster.facts import Facts, NvlinkPair
from meshwright.cluster.gpus import find_gpu
from meshwright.cluster.nodes.node import node_from_facts
from meshwright.cluster.readers import FORMATS, read_topology
from meshwright.cluster.readers.meshwright_capture import FORMAT, looks_like, read
from meshwright.errors import InputError
from meshwright.findings import Severity
from meshwright.origin import Origin
from meshwright.units import gb_per_s, gbit_per_s
from support import FIXTURES
from topology_samples import (
    claimed_by_others,
    facts_or_input_error,
    finding_of,
    mutated,
    rules,
)

_HERE = FIXTURES / "topology" / FORMAT
_NAMES = sorted(path.name for path in _HERE.iterdir())
NVLINK_S = (
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
)


def facts_of(
    host: FakeHost, texts: dict[str, Ran | str] | None = None, nvml: Any = None, **environ: str
) -> Facts:
    """Capture a made-up host and read the capture."""
    document = collect(host.root, run=Runner(texts), nvml=nvml, environ=environ)
    return read(to_json(document), "c.json")


def text_of(name: str = "eight_gpus.json") -> str:
    """Return a fixture."""
    return (_HERE / name).read_text()


def edited(change: Callable[[dict[str, Any]], None], name: str = "eight_gpus.json") -> str:
    """Return a fixture with something changed in it."""
    document = json.loads(text_of(name))
    change(document)
    return to_json(document)


def error(text: str) -> InputError:
    """Return the error that a text is refused with."""
    with pytest.raises(InputError) as caught:
        read(text, "c.json")
    return caught.value


def test_capture_comes_first_for_it_holds_what_other_readers_claim(tmp_path):
    assert FORMATS[0] == FORMAT
    texts: dict[str, Ran | str] = {"nvidia-smi nvlink -s": NVLINK_S}
    path = tmp_path / "c.json"
    path.write_text(to_json(collect(dgx(tmp_path / "h").root, run=Runner(texts), environ={})))
    assert claimed_by_others(path.read_text(), FORMAT)
    assert read_topology(path).format == FORMAT
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True, indent=4))
    assert read_topology(path).format == FORMAT, "also where another tool has laid it out"


def test_round_trip_of_a_dgx_to_its_node_type(tmp_path):
    facts = facts_of(dgx(tmp_path), {"nvidia-smi topo -m": topo_text()}, FakeNvml())
    assert (facts.host, facts.hosts) == ("node7", ("node7",))
    assert facts.numa_ids == (0, 1)
    assert len(facts.nvswitches or ()) == 4
    gpu = (facts.gpus or ())[5]
    assert (gpu.index, gpu.name, gpu.pci, gpu.numa) == (5, "GPU5", gpu_address(5), (1,))
    assert (gpu.model, gpu.uuid) == ("NVIDIA H100 80GB HBM3", "GPU-00005")
    assert (gpu.nvlinks, gpu.nvlinks_down) == (18, 0)
    nic = (facts.nics or ())[3]
    assert (nic.name, nic.label, nic.pci, nic.port, nic.lid) == (
        "mlx5_3",
        "NIC3",
        nic_address(3),
        1,
        19,
    )
    assert (nic.guid, nic.rate_bytes_per_s) == ("a088c20300aa0003", gbit_per_s(400))
    assert facts.places is not None
    assert (facts.places[0].host, facts.places[0].nvlink_domain) == ("node7", CLIQUE)
    node, findings = node_from_facts(facts, find_gpu("H100-SXM"), None, "node7")
    assert (node.nvlink, node.nvlink_bytes_per_s) == ("switch", gb_per_s(450))
    assert node.nic_of_gpu == tuple(range(8))
    assert node.origins["pcie"] is Origin.PARSED
    assert node.origins["paths"] is Origin.PARSED
    assert findings == []
    path = node.graph.path(4, 8 + 4)
    assert [node.graph.links[at].head for at in path] == ["0000:31:00.0", "mlx5_4"]
    # The GPUs were idle at gen 1 when captured: NCCL's figure of gen 5 x16 is taken.
    assert {node.graph.links[at].rate_bytes_per_s for at in path} == {gb_per_s(48)}
    assert "gpu-link-idle" in rules(facts)
    assert [one for one in facts.findings if one.severity is not Severity.NOTE] == []


def test_sources_agree_on_paths(tmp_path):
    host = dgx(tmp_path)
    by_text = facts_of(host, {"nvidia-smi topo -m": topo_text()})
    by_tree = facts_of(host, nvml=FakeNvml())
    assert by_text.gpu_nic_class == by_tree.gpu_nic_class
    assert by_text.nic_nic_class == by_tree.nic_nic_class
    assert by_text.gpu_gpu_class == by_tree.gpu_gpu_class
    assert {(one.a, one.b, one.count) for one in by_text.nvlink_pairs or ()} == {
        (one.a, one.b, one.count) for one in by_tree.nvlink_pairs or ()
    }
    assert "gpu-numbers-assumed" in rules(by_text)
    assert "gpu-numbers-assumed" not in rules(by_tree)


def test_printed_cell_goes_before_the_tree(tmp_path):
    text = (
        topo_text()
        .replace("GPU0\t X \tNV18", "GPU0\t X \tNV17")
        .replace("\tPIX\tPIX\tNODE", "\tPIX\tPHB\tNODE")
    )
    facts = facts_of(dgx(tmp_path), {"nvidia-smi topo -m": text}, FakeNvml())
    assert (facts.gpu_nic_class or ())[0][:3] == ("PIX", "PHB", "NODE")
    found = finding_of(facts, "matrix-asymmetric")
    assert found.place.file == "c.json"
    line = to_json(
        collect(tmp_path, run=Runner({"nvidia-smi topo -m": text}), nvml=FakeNvml(), environ={})
    )
    assert line.split("\n")[(found.place.line or 0) - 1].strip().startswith('"GPU0')
    assert str(found.place.subject).startswith("nvidia-smi topo -m: GPU0")


def test_text_that_is_cut_off_is_not_used(tmp_path):
    text = "\n".join(topo_text().split("\n")[:5])
    facts = facts_of(dgx(tmp_path), {"nvidia-smi topo -m": text}, FakeNvml())
    assert finding_of(facts, "tool-text-unreadable").severity is Severity.WARNING
    assert (facts.gpu_nic_class or ())[0][0] == "PIX"


def test_levels_of_switches(tmp_path):
    host = FakeHost(tmp_path)
    host.cpus(["0-7"])
    host.pci("0000:10:01.0", "pci0000:10", "060400")
    host.pci("0000:11:00.0", "0000:10:01.0", "060400")
    for side in range(2):
        down, up, low = f"0000:12:0{side}.0", f"0000:{13 + side}:00.0", f"0000:{15 + side}:00.0"
        host.pci(down, "0000:11:00.0", "060400")
        host.pci(up, down, "060400")
        host.pci(low, up, "060400")
        host.pci(f"0000:2{side}:00.0", low, "030200", "10de:2330")
    host.pci("0000:10:02.0", "pci0000:10", "060400")
    host.pci("0000:30:00.0", "0000:10:02.0", "020700", "15b3:1021")
    host.rdma("mlx5_0", "0000:30:00.0", 0)
    facts = facts_of(host)
    assert facts.gpu_gpu_class == (("X", "PXB"), ("PXB", "X"))
    assert facts.gpu_nic_class == (("PHB",), ("PHB",))
    assert [gpu.numa for gpu in facts.gpus or ()] == [(0,), (0,)], "the only node there is"


def test_virtual_machine_hides_the_tree(tmp_path):
    host = vm(tmp_path)
    facts = facts_of(host)
    assert {cell for row in facts.gpu_nic_class or () for cell in row} == {"PHB"}
    assert finding_of(facts, "pcie-hidden-by-vm").severity is Severity.NOTE
    assert [nic.rate_bytes_per_s for nic in facts.nics or ()] == [gbit_per_s(100)] * 2
    assert facts.nvlink_pairs is None, "no source tells"


def test_made_up_bridge_of_a_virtual_machine_does_not_slow_a_gpu(tmp_path):
    host = FakeHost(tmp_path)
    host.cpus(["0-7"], flags="hypervisor")
    host.pci("0000:00:02.0", "pci0000:00", "060400", max_link_speed=GEN1, max_link_width=1)
    host.pci("0000:01:00.0", "0000:00:02.0", "030200", "10de:2330")
    facts = facts_of(host)
    assert [chain.rates_bytes_per_s for chain in facts.pcie_chains or ()] == [(gb_per_s(48),)]


def test_host_without_gpu(tmp_path):
    facts = facts_of(plain(tmp_path))
    assert facts.gpus == ()
    assert [(nic.name, nic.rate_bytes_per_s) for nic in facts.nics or ()] == [
        ("eno1", gbit_per_s(1))
    ]
    assert rules(facts).count("source-missing") == 3
    assert "no-rdma-device" in rules(facts)


def test_nothing_known_is_unknown_not_none(tmp_path):
    facts = facts_of(FakeHost(tmp_path / "other"))
    assert facts.gpus == ()
    text = to_json(collect(tmp_path / "nothing", run=Runner(), environ={}))
    facts = read(text, "c.json")
    assert (facts.gpus, facts.nics, facts.nvswitches, facts.numa_ids) == (None, None, None, None)
    assert (facts.gpu_gpu_class, facts.pcie_chains, facts.places) == (None, None, None)


def test_narrow_and_slow_links(tmp_path):
    host = dgx(tmp_path)
    (host.folders[gpu_address(1)] / "current_link_width").write_text("8\n")
    (host.folders[nic_address(2)] / "current_link_width").write_text("4\n")
    (host.folders[nic_address(3)] / "current_link_speed").write_text("8.0 GT/s PCIe\n")
    (host.folders["0000:31:00.0"] / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    # A slot that can do less is no fault of the link.
    (host.folders["0000:42:03.0"] / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (host.folders[nic_address(7)] / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    facts = facts_of(host, nvml=FakeNvml())
    narrow = [one for one in facts.findings if one.rule == "topology/pcie-link-narrow"]
    assert [(one.numbers["links"], one.numbers["lanes"]) for one in narrow] == [
        (["GPU1"], 8),
        (["mlx5_2"], 4),
    ]
    slow = [one for one in facts.findings if one.rule == "topology/pcie-link-slow"]
    assert {(*one.numbers["links"], one.numbers["gt_per_s"]) for one in slow} == {  # type: ignore[misc]
        ("mlx5_3", "8"),
        ("switch 0000:31:00.0", "16"),
    }
    assert all(one.severity is Severity.WARNING for one in (*narrow, *slow))
    below = [one.message for one in facts.findings if one.rule == "topology/pcie-below-port"]
    assert len(below) == 3
    assert any("mlx5_7 carries 24.0 GB/s, its ports 50.0 GB/s" in one for one in below)
    rate = {chain.device: chain.rates_bytes_per_s[0] for chain in facts.pcie_chains or ()}
    assert (rate["GPU0"], rate["GPU1"]) == (gb_per_s(48), gb_per_s(24))
    assert (rate["mlx5_2"], rate["mlx5_3"]) == (gb_per_s(12), gb_per_s(12))


def test_ports_that_are_down_or_slow(tmp_path):
    host = dgx(tmp_path)
    ports = [host.folders[nic_address(nic)] / f"infiniband/mlx5_{nic}/ports/1" for nic in range(8)]
    (ports[1] / "state").write_text("1: DOWN\n")
    (ports[1] / "phys_state").write_text("2: Polling\n")
    (ports[1] / "rate").write_text("10 Gb/sec (4X SDR)\n")
    (ports[6] / "rate").write_text("200 Gb/sec (2X NDR)\n")
    facts = facts_of(host, nvml=FakeNvml())
    down = finding_of(facts, "port-not-active")
    assert "1 of 8 RDMA ports is not active: mlx5_1 (DOWN, Polling)" in down.message
    slow = finding_of(facts, "port-rate-differs")
    assert slow.message.startswith("mlx5_6 (25.0 GB/s): slower than equal adapters")
    rates = [nic.rate_bytes_per_s for nic in facts.nics or ()]
    assert rates[1] is None, "the rate of a port that is down is some default"
    assert rates[6] == gbit_per_s(200)


def test_one_fault_of_a_capture_is_one_finding(tmp_path):
    """A narrow link or a slow port is also slower than its peers: that is not said again."""
    host = dgx(tmp_path)
    (host.folders[gpu_address(1)] / "current_link_width").write_text("8\n")
    (host.folders[nic_address(6)] / "infiniband/mlx5_6/ports/1/rate").write_text(
        "200 Gb/sec (2X NDR)\n"
    )
    facts = facts_of(host, nvml=FakeNvml())
    assert finding_of(facts, "port-rate-differs").numbers["ports"] == ["mlx5_6"]
    assert finding_of(facts, "pcie-link-narrow").numbers["links"] == ["GPU1"]
    assert degradations(facts) == []
    # The comparison is what speaks where no reader has.
    silent = msgspec.structs.replace(facts, findings=())
    assert [one.rule for one in degradations(silent)] == [
        "topology/pcie-link-slow",
        "topology/nic-rate-low",
    ]


def test_nvlinks_that_are_down(tmp_path):
    host = dgx(tmp_path)
    facts = facts_of(host, nvml=FakeNvml(down=((2, 17), (2, 3))))
    assert "GPU2: 16 of 18 NVLinks up (inactive: 3, 17" in finding_of(facts, "nvlinks-down").message
    pairs = {(one.a, one.b): one.count for one in facts.nvlink_pairs or ()}
    assert (pairs[1, 2], pairs[0, 1]) == (16, 18)
    everything = tuple((gpu, link) for gpu in range(8) for link in range(18))
    facts = facts_of(host, nvml=FakeNvml(down=everything))
    assert finding_of(facts, "nvlink-all-down").severity is Severity.NOTE
    assert "nvlinks-down" not in rules(facts)
    assert facts.nvlink_pairs == ()


def test_links_of_nvml_between_gpus_without_a_switch(tmp_path):
    class Bridged(FakeNvml):
        def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
            return 0

        def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> Any:
            return self.nvmlDeviceGetPciInfo(gpu ^ 1)

    facts = facts_of(dgx(tmp_path), nvml=Bridged(links=4))
    assert facts.nvlink_pairs == tuple(
        NvlinkPair(gpu, gpu + 1, 4, via_switch=False) for gpu in range(0, 8, 2)
    )
    assert (facts.gpu_gpu_class or ())[0][:3] == ("X", "NV4", "NODE")


def test_nvlink_text_gives_models_and_states_where_nvml_is_absent(tmp_path):
    facts = facts_of(
        dgx(tmp_path), {"nvidia-smi topo -m": topo_text(), "nvidia-smi nvlink -s": NVLINK_S}
    )
    gpu = (facts.gpus or ())[0]
    assert (gpu.model, gpu.nvlinks, gpu.nvlinks_down) == ("NVIDIA H100 80GB HBM3", 1, 1)
    assert finding_of(facts, "nvlinks-down").place.file == "c.json"


def test_gpu_that_the_driver_has_lost(tmp_path):
    host = dgx(tmp_path)
    lost = finding_of(facts_of(host, nvml=FakeNvml(7)), "gpu-not-in-driver")
    assert lost.severity is Severity.WARNING
    assert lost.numbers == {"count": 1, "pci": [gpu_address(7)]}
    part = facts_of(host, nvml=FakeNvml(7), container="docker")
    assert finding_of(part, "gpu-not-in-driver").severity is Severity.NOTE


@pytest.mark.parametrize(
    ("uuid", "clique", "state", "domain"),
    [
        ("5a1e0c6f-93b2-4d17-83c4-d7e8f9a0b1c2", 0, "completed", True),
        ("00000000-0000-0000-0000-000000000000", 0, "completed", False),
        ("00000000-0000-0000-0000-000000000000", 5, "completed", False),
        ("5a1e0c6f-93b2-4d17-83c4-d7e8f9a0b1c2", 3, "in_progress", False),
        (None, 3, "completed", False),
    ],
)
def test_nvlink_domain_needs_a_cluster_uuid(uuid, clique, state, domain):
    def change(document: dict[str, Any]) -> None:
        for gpu in document["nvml"]["gpus"]:
            gpu["fabric"] = {"state": state, "cluster_uuid": uuid, "clique_id": clique}

    (place,) = read(edited(change), "c.json").places or ()
    assert place.nvlink_domain == (f"{uuid}.{clique}" if domain else None)


def test_fabric_findings():
    def change(document: dict[str, Any]) -> None:
        gpus = document["nvml"]["gpus"]
        gpus[0]["fabric"]["clique_id"] = 8
        gpus[1]["fabric"] = {"state": "in_progress"}
        gpus[2]["fabric"]["health_mask"] = 0b1001
        gpus[3]["fabric"]["health_mask"] = 0b1010

    facts = read(edited(change), "c.json")
    assert finding_of(facts, "nvlink-domains-differ").numbers["domains"] == [
        CLIQUE,
        f"{CLIQUE[:-1]}8",
    ]
    assert (facts.places or ())[0].nvlink_domain is None
    assert finding_of(facts, "gpu-fabric-not-ready").numbers["gpus"] == [1]
    assert finding_of(facts, "gpu-fabric-degraded").numbers["gpus"] == [2]


@pytest.mark.parametrize(
    ("address", "pattern", "tiers"),
    [
        ("spine0.leaf5.node7", "switch.switch.node", ("leaf5", "spine0")),
        ("leaf[4-5].node7", "switch.node", ()),
        ("a.b.leaf5.node7", "switch.node", ()),
        ("block1.node7", "block.node", ()),
        ("node7", "node", ()),
        ("", "", ()),
    ],
)
def test_switches_of_slurm(address, pattern, tiers):
    def change(document: dict[str, Any]) -> None:
        document["host"]["slurm"] |= {"topology_address": address, "topology_pattern": pattern}

    (place,) = read(edited(change), "c.json").places or ()
    assert place.tiers == tiers


def test_two_ports_of_a_card_and_virtual_functions(tmp_path):
    host = dgx(tmp_path)
    card = host.folders[nic_address(0)]
    second = card / "infiniband/mlx5_0/ports/2"
    second.mkdir()
    (second / "state").write_text("4: ACTIVE\n")
    host.pci("0000:15:00.1", "0000:12:02.0", "020700", "15b3:101e")
    (host.folders["0000:15:00.1"] / "physfn").symlink_to(f"../{nic_address(0)}")
    host.rdma("mlx5_8", "0000:15:00.1", 8)
    host.write("sys/class/infiniband/rxe0/node_guid", "0000:0000:0000:0000\n")
    facts = facts_of(host, {"nvidia-smi topo -m": topo_text()}, FakeNvml())
    names = [nic.name for nic in facts.nics or ()]
    assert names == ["mlx5_0:1", "mlx5_0:2", *(f"mlx5_{nic}" for nic in range(1, 8))]
    assert [nic.label for nic in facts.nics or ()][:3] == ["NIC0", "NIC0", "NIC1"]
    assert (facts.nic_nic_class or ())[0][:2] == ("X", "PIX")
    assert finding_of(facts, "nic-left-out").numbers["names"] == ["mlx5_8", "rxe0"]


AMD = """
============== Weight between two GPUs ==============
       GPU0         GPU1
GPU0   0            15
GPU1   15           0
============== Link Type between two GPUs ==============
       GPU0         GPU1
GPU0   0            XGMI
GPU1   XGMI         0
"""


def test_amd_host(tmp_path):
    host = FakeHost(tmp_path)
    host.cpus(["0-7"])
    for gpu in range(2):
        host.pci(f"0000:0{gpu}:00.0", f"pci0000:0{gpu}", "120000", "1002:74a1", numa_node=0)
    facts = facts_of(host, {"rocm-smi": AMD})
    assert [(gpu.name, gpu.pci, gpu.numa) for gpu in facts.gpus or ()] == [
        ("GPU0", "0000:00:00.0", (0,)),
        ("GPU1", "0000:01:00.0", (0,)),
    ]
    assert [(one.a, one.b) for one in facts.nvlink_pairs or ()] == [(0, 1)]
    node, _ = node_from_facts(facts, find_gpu("MI300X"), None, "amd")
    assert node.nvlink == "mesh"


BAD: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "schema": (lambda d: d.update(schema="meshwright/capture/99"), "schema of this capture is not"),
    "unknown key": (lambda d: d["host"].update(nmae="x"), "unknown key 'nmae'"),
    "missing key": (lambda d: d["host"].pop("name"), "missing key 'name'"),
    "type": (lambda d: d["pci"][0].update(width="16 lanes"), "expected an integer"),
    "list": (lambda d: d.update(infiniband={}), "expected a list"),
    "address twice": (lambda d: d["pci"].append(d["pci"][0]), "stands twice"),
    "loop": (lambda d: d["pci"][0].update(parent=d["pci"][1]["address"]), "above itself"),
    "gpu twice": (lambda d: d["nvml"]["gpus"][1].update(index=0), "GPU number 0"),
    "gpu number": (lambda d: d["nvml"]["gpus"][1].update(index=1 << 40), "too large"),
    "nic twice": (lambda d: d["infiniband"][1].update(name="mlx5_0"), "have one name"),
}


@pytest.mark.parametrize("name", BAD)
def test_edited_capture_is_refused_with_its_place(name):
    change, message = BAD[name]
    caught = error(edited(change))
    assert message in str(caught)
    assert all(problem.place.file == "c.json" and problem.place.line for problem in caught.problems)


def test_text_that_is_no_capture():
    assert "no schema" in str(error("{}"))
    assert error(text_of()[:3000]).problems[0].place.line
    twice = error(text_of() + text_of())
    assert twice.problems[0].place.line == text_of().count("\n") + 2
    assert "one file a host" in str(twice)


def test_too_many_devices():
    def gpus(document: dict[str, Any]) -> None:
        one = document["pci"][-1] | {"code": "030200", "physical_function": None}
        document["pci"] += [one | {"address": f"{n:04x}:ff:00.0"} for n in range(1025)]
        del document["nvml"], document["tools"]

    assert "more than 1024 GPUs" in str(error(edited(gpus)))

    def nics(document: dict[str, Any]) -> None:
        one = document["infiniband"][0]
        document["infiniband"] += [one | {"name": f"x{n}"} for n in range(1025)]

    assert "more than 1024 network adapters" in str(error(edited(nics)))


@settings(max_examples=60)
@given(data=st.data(), name=st.sampled_from(_NAMES))
def test_edited_text_gives_facts_or_an_input_error(data, name):
    facts_or_input_error(mutated(text_of(name), data, "0123456789"), looks_like, read)


_VALUES = st.one_of(
    st.none(),
    st.integers(-5, 1 << 40),
    st.text(max_size=12),
    st.just([]),
    st.just({}),
    st.booleans(),
)


@settings(max_examples=80)
@given(data=st.data())
def test_edited_values_give_facts_or_an_input_error(data):
    document = json.loads(text_of())
    for _ in range(data.draw(st.integers(1, 4))):
        at: Any = document
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = data.draw(st.sampled_from(keys))
            inner = at[key]
            if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 9)):
                at = inner
                continue
            at[key] = data.draw(_VALUES)
            break
    facts_or_input_error(to_json(document), looks_like, read)


def test_fixture_of_a_host_is_read_from_a_file(tmp_path: Path):
    facts = read_topology(_HERE / "without_gpu.json")
    assert (facts.gpus, len(facts.nics or ())) == ((), 1)
