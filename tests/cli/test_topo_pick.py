"""``topo --pick`` and ``--split``: several files, ranges, standard input, whose tools are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import Ran, finding_of, run
from cluster.degraded.maker import box, each_its_own, matrix
from support import FIXTURES

TOPOLOGY = FIXTURES / "topology"


@pytest.fixture
def topo(tmp_path: Path) -> Path:
    """A box of eight GPUs on a switch; GPU3 has a link down."""
    path = tmp_path / "topo.txt"
    path.write_text(matrix(box(links={3: 17}), 8, each_its_own()))
    return path


def _words(ran: Ran) -> str:
    return " ".join(ran.out.split())


def test_the_class_is_that_of_the_chosen(topo: Path) -> None:
    ran = run("topo", topo, "--pick", "4", "--among", "[2-3,5-7]")
    assert "GPUs {2, 5, 6, 7}: NV18 at worst inside a group; nearest NIC PIX" in _words(ran)
    assert "(all 5 possibilities compared)" in _words(ran)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,5,6,7" in ran.out
    only = run("topo", topo, "--pick", "2", "--among", "2-3", "--json").document
    assert only["choice"] == {
        "groups": [[2, 3]],
        "worst_class": "NV17",
        "nic_class": "PIX",
        "tried": 1,
        "numbers": "driver",
        "pci": None,
    }
    assert "the only possibility" in finding_of(only, "topology/choice")["message"]


@pytest.mark.parametrize("among", ["3-2", "1-", "-1", "0-99999", "1,,x", "[", "1-2-3"])
def test_what_is_no_list_of_gpus(topo: Path, among: str) -> None:
    ran = run("topo", topo, "--pick", "1", f"--among={among}")
    assert ran.status == 2
    assert "--among" in ran.err


def test_files_of_one_host_are_asked_together(tmp_path: Path, topo: Path) -> None:
    """Numbers from the matrix, the PCIe tree from a skeleton that has none."""
    skeleton = TOPOLOGY / "nccl_topo_xml" / "skeleton.xml"
    gpus = len(run("topo", skeleton, "--json").document["gpus"])
    small = tmp_path / "small.txt"
    small.write_text(matrix(dict.fromkeys(box(gpus), "NV4"), gpus))
    document = run("topo", skeleton, small, "--pick", "2", "--json").document
    assert document["choice"]["worst_class"] == "NV4"
    assert document["choice"]["numbers"] == "driver"
    # Two hosts that differ have no one answer.
    other = tmp_path / "other.txt"
    other.write_text(matrix(box(4), 4, each_its_own(4)))
    ran = run("topo", topo, other, "--pick", "2")
    assert ran.status == 2
    assert "need the files of one host, or of hosts of one type" in " ".join(ran.err.split())


def test_a_skeleton_says_how_its_gpus_are_numbered() -> None:
    ran = run("topo", TOPOLOGY / "nccl_topo_xml" / "skeleton.xml", "--pick", "1", "--json")
    choice = ran.document["choice"]
    assert choice["numbers"] == "pci order"
    note = finding_of(ran.document, "topology/choice")
    assert "the order of the PCI addresses" in note["message"]
    assert choice["pci"][0][0] in note["message"]
    assert note["remedy"].startswith("CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=")


def test_gpus_of_amd_have_their_makers_words() -> None:
    ran = run("topo", TOPOLOGY / "rocm_smi_showtopo" / "ring_of_four.txt", "--pick", "2")
    assert "xGMI1 at worst" in _words(ran)
    assert "RCCL does not choose GPUs: set ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES" in _words(
        ran
    )
    assert "\nROCR_VISIBLE_DEVICES=" in ran.out
    for word in ("NVLink", "nvlink", "NV1", "NCCL does", "CUDA"):
        assert word not in ran.out.replace("RCCL does", "")
    document = run("topo", TOPOLOGY / "rocm_smi_showtopo" / "ring_of_four.txt", "--json").document
    assert document["nvlink_pairs"]


def _piped(text: str, *arguments: str) -> Ran:
    process = subprocess.run(
        [sys.executable, "-m", "meshwright", "topo", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in process.stderr, process.stderr
    return Ran(process.returncode, process.stdout, process.stderr)


def test_standard_input(topo: Path) -> None:
    text = topo.read_text()
    piped = _piped(text, "-", "--pick", "2", "--json").document
    named = run("topo", topo, "--pick", "2", "--json").document
    assert piped["choice"] == named["choice"]
    assert piped["files"] == [{"path": "-", "format": "nvidia_smi_topo_m"}]
    assert "-:1:1: is empty" in _piped("", "-").err
    assert _piped("no topology\n", "-").status == 2
    for refused in (["-", "-"], ["-", "--write", "c.yaml"]):
        ran = _piped(text, *refused)
        assert ran.status == 2
        assert "standard input" in ran.err
