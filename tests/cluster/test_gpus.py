"""GPU models: every golden row, link counts, and the names drivers print."""

import csv

import pytest

from meshwright.cluster.gpus import UnknownGpuError, find_gpu, gpu_names, suggest_gpus
from support import shared_path


def scaled(text, factor):
    return None if text == "" else pytest.approx(float(text) * factor, rel=1e-12)


@pytest.mark.golden
def test_every_golden_row():
    with shared_path("reference/golden/gpus.csv").open(newline="") as stream:
        golden = list(csv.DictReader(stream))
    assert [row["gpu"] for row in golden] == list(gpu_names())
    assert len(golden) == 27
    for row in golden:
        gpu = find_gpu(row["gpu"])
        assert gpu.form == row["form"]
        assert gpu.memory_bytes == scaled(row["memory_gb"], 1e9)
        assert gpu.usable_memory_bytes == scaled(row["usable_mib_nvidia_smi"], 2**20)
        assert gpu.hbm_bytes_per_s == scaled(row["hbm_tb_s"], 1e12)
        for kind in ("bf16", "fp16", "fp8", "fp4"):
            expected = scaled(row[f"{kind}_dense_tflops"], 1e12)
            assert getattr(gpu, f"{kind}_flops_per_s") == expected, (gpu.name, kind)
        assert gpu.nvlink_bytes_per_s == scaled(row["nvlink_gb_s_per_direction"], 1e9)
        assert gpu.pcie_bytes_per_s == scaled(row["pcie_gb_s_per_direction"], 1e9)
        assert gpu.tdp_w == scaled(row["tdp_w"], 1)
        assert gpu.multiprocessors == scaled(row["sms_or_cus"], 1)
        assert (gpu.scaleup, gpu.source) == (row["scaleup_kind"], row["source"])
        assert (gpu.mark, gpu.note) == (row["mark"], row["note"])


@pytest.mark.parametrize("name", gpu_names())
def test_links_make_up_the_whole_rate(name):
    gpu = find_gpu(name)
    assert gpu.nvlink_links * gpu.nvlink_link_bytes_per_s == pytest.approx(gpu.nvlink_bytes_per_s)
    absent = (gpu.nvlink_kind == "none", gpu.link_protocol == "none", gpu.nvlink_bytes_per_s == 0)
    assert len(set(absent)) == 1


@pytest.mark.parametrize(
    ("name", "links", "kind"),
    [
        ("V100", 6, "mesh"),
        ("A100", 12, "switch"),
        ("A100-PCIe", 12, "bridge"),
        ("H100", 18, "switch"),
        ("H800", 8, "switch"),
        ("H20", 18, "switch"),
        ("H200", 18, "switch"),
        ("B200", 18, "switch"),
        ("B300", 18, "switch"),
        ("GB200", 18, "switch"),
        ("GB300", 18, "switch"),
        ("MI300X", 7, "mesh"),
        ("L40S", 0, "none"),
    ],
)
def test_link_counts(name, links, kind):
    gpu = find_gpu(name)
    assert (gpu.nvlink_links, gpu.nvlink_kind) == (links, kind)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h100", "H100 SXM 80G"),
        ("H100-SXM", "H100 SXM 80G"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM 80G"),
        ("NVIDIA H100 PCIe", "H100 PCIe 80G"),
        ("NVIDIA H100 NVL", "H100 NVL 94G"),
        ("A100-SXM4-80GB", "A100 SXM 80G"),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40G"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80G"),
        ("A100-PCIe", "A100 PCIe 80G"),
        ("NVIDIA H200", "H200 SXM 141G"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM 288G"),
        ("GB200", "GB200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("l40s", "L40S"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"),
    ],
)
def test_spellings(spelling, name):
    assert find_gpu(spelling).name == name


def test_memory_a_job_can_have():
    assert find_gpu("H100").capacity_bytes == 81559 * 2**20
    assert find_gpu("A100").capacity_bytes == 80 * 10**9


@pytest.mark.parametrize("name", ["", "H1000", "V100-SXM2-16GB", "NVIDIA", "x" * 10_000])
def test_unknown_gpu(name):
    with pytest.raises(UnknownGpuError) as caught:
        find_gpu(name)
    assert len(str(caught.value)) < 600


def test_suggestions():
    assert suggest_gpus("H100 SMX 80G")[0] == "H100 SXM 80G"
    assert "MI300X" in suggest_gpus("AMD Instinct MI300A")
