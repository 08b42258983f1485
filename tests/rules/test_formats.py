"""Which GPU multiplies in which format: by compute capability, from the figures of the data sheets."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import plan_job
from meshwright.cluster.gpus import find_gpu, gpu_names
from meshwright.rules.formats import can_multiply

CAPABILITY = {
    "V100 SXM2 32G": 7.0,
    "V100 PCIe 32G": 7.0,
    "A100 SXM 40G": 8.0,
    "A100 SXM 80G": 8.0,
    "A100 PCIe 40G": 8.0,
    "A100 PCIe 80G": 8.0,
    "A10G": 8.6,
    "L4": 8.9,
    "L40S": 8.9,
    "H100 PCIe 80G": 9.0,
    "H100 NVL 94G": 9.0,
    "H100 SXM 80G": 9.0,
    "H800 SXM 80G": 9.0,
    "H20 SXM 96G": 9.0,
    "H200 SXM 141G": 9.0,
    "H200 NVL 141G": 9.0,
    "GH200 141G": 9.0,
    "B200 SXM 180G": 10.0,
    "GB200": 10.0,
    "B300 SXM 288G": 10.3,
    "GB300": 10.3,
    "RTX PRO 6000 Server": 12.0,
}
"""CUDA compute capability; what Transformer Engine asks for: FP8 8.9, MXFP8 and NVFP4 10.0."""
AMD = {
    "MI250X (per OAM)": (False, False, False),
    "MI300X": (True, False, False),
    "MI325X": (True, False, False),
    "MI350X": (True, True, None),
    "MI355X": (True, True, None),
}
"""FP8, MXFP8, and NVIDIA's FP4 (``None``: not judged)."""


def test_every_gpu_is_judged_by_its_generation():
    assert set(gpu_names()) == CAPABILITY.keys() | AMD.keys()
    for name, capability in CAPABILITY.items():
        gpu = find_gpu(name)
        if capability == 12.0:
            # its sheet gives no rates: not judged, but for what the source refuses by name
            said = [can_multiply(gpu, one) for one in ("fp8", "mxfp8", "nvfp4")]
            assert said == [None, False, None]
            continue
        assert can_multiply(gpu, "fp8") == (capability >= 8.9), name
        assert can_multiply(gpu, "mxfp8") == (capability >= 10.0), name
        assert can_multiply(gpu, "nvfp4") == (capability >= 10.0), name
        assert can_multiply(gpu, "bf16") is True
    for name, formats in AMD.items():
        said = tuple(can_multiply(find_gpu(name), one) for one in ("fp8", "mxfp8", "nvfp4"))
        assert said == formats, name


@pytest.fixture
def outline(tmp_path: Path):
    def make(cluster: str, precision: str, framework: str = "megatron"):
        path = tmp_path / "job.yaml"
        path.write_text(
            f"model: llama3-8b\ncluster: {cluster}\nlayout: {{tp: 2, dp: 8, framework: {framework}}}\n"
            "batch: {global_batch: 32, micro_batch: 1, seq_len: 4096}\n"
            f"training: {{precision: {precision}}}\n"
        )
        return outline_job(load_job(path))

    return make


def _found(outline):
    judge(outline)
    return [one for one in outline.findings if one.rule == "precision/gpu-cannot"]


@pytest.mark.parametrize(
    ("cluster", "precision", "instead"),
    [
        ("dgx-a100 x 2", "fp8", "bf16"),
        ("dgx-a100 x 2", "mxfp8", "bf16"),
        ("dgx-h100 x 2", "mxfp8", "fp8"),
        ("dgx-h100 x 2", "nvfp4", "fp8"),
    ],
)
def test_a_format_the_gpus_lack_is_an_error(outline, cluster, precision, instead):
    [finding] = _found(outline(cluster, precision))
    assert finding.severity == "error"
    assert finding.place.line == 5
    assert finding.numbers["compute_capability"] == {"fp8": "8.9"}.get(precision, "10.0")
    assert finding.remedy.startswith(f"precision: {instead},")
    assert _found(outline(cluster, instead)) == []


@pytest.mark.parametrize(
    ("cluster", "precision"),
    [
        ("dgx-h100 x 2", "fp8"),
        ("dgx-b200 x 2", "mxfp8"),
        ("dgx-b200 x 2", "nvfp4"),
        ("{node: {gpus: 8}, nodes: 2}", "nvfp4"),
    ],
)
def test_what_the_gpus_have_or_nobody_knows_passes(outline, cluster, precision):
    assert _found(outline(cluster, precision)) == []


def test_xla_may_widen_a_format(outline):
    assert _found(outline("dgx-a100 x 2", "fp8", "maxtext")) == []


def test_map_warns_of_it_too(outline):
    mapped = outline("dgx-a100 x 2", "fp8")
    plan_job(mapped)
    [warning] = [one for one in mapped.findings if one.rule == "layout/will-not-run"]
    assert "precision/gpu-cannot" in warning.numbers["rules"]


def test_how_a_format_is_counted_is_said_where_it_counts(outline):
    def rules(one):
        return [finding.rule for finding in one.findings]

    note = "assumed/precision-as-bf16"
    bare = outline("dgx-h100 x 2", "fp8")
    assert note not in rules(bare), "groups and batch count no bytes"
    plan_job(bare)
    assert note in rules(bare)
    legal, wrong = outline("dgx-h100 x 2", "fp8"), outline("dgx-a100 x 2", "fp8")
    judge(legal)
    judge(wrong)
    assert note in rules(legal)
    assert note not in rules(wrong), "no memory was counted"
