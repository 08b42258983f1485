"""``check`` as a command: layouts nearby with their warnings, and what no degree cures."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import finding_of, run

pytestmark = pytest.mark.process

LONG = """\
model: llama3.1-8b
cluster: dgx-h100 x 8
layout: {tp: 8, dp: 8, sequence_parallel: true, sharding: zero1, framework: megatron}
batch: {global_batch: 16, micro_batch: 1, seq_len: 131072}
"""
NARROW = """\
model: llama3-8b
cluster: dgx-a100 x 2
layout: {tp: 2, sharding: zero1, sequence_parallel: true, framework: megatron}
batch: {global_batch: 32, micro_batch: 1, seq_len: 4096}
training: {precision: mxfp8}
"""
PIPED = """\
model: llama3-8b
cluster: dgx-h100 x 2
layout: {tp: 2, pp: 2, sharding: zero2, framework: deepspeed}
batch: {global_batch: 32, micro_batch: 1, seq_len: 4096}
"""


def test_warnings_stand_beside_their_layouts(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(LONG)
    document = run("check", path, "--json").document
    warnings = document["nearest_warnings"]
    assert len(warnings) == len(document["nearest"]) > 0
    for degrees, ids in zip(document["nearest"], warnings, strict=True):
        assert ("placement/tp-exceeds-nvlink-domain" in ids) == (degrees["tp"] > 8)
    assert document["not_cured_by_degrees"] == []


def test_what_no_degree_cures_is_named(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(NARROW)
    ran = run("check", path, "--json")
    assert ran.status == 1
    document = ran.document
    assert document["not_cured_by_degrees"] == ["precision/gpu-cannot"]
    assert document["nearest"] == []
    remedy = finding_of(document, "precision/gpu-cannot")["remedy"]
    assert remedy == "precision: bf16, or GPUs that have mxfp8"
    path.write_text(NARROW.replace("mxfp8", "bf16"))
    assert run("check", path).status == 0


def test_zero_2_with_a_pipeline_will_not_run(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(PIPED)
    ran = run("check", path)
    assert ran.status == 1
    page = " ".join(ran.out.split())
    assert "deepspeed/zero-with-pipeline" in page
    assert "Remedy: sharding: zero1" in page
    for text in (PIPED.replace("zero2", "zero1"), PIPED.replace("pp: 2", "pp: 1")):
        path.write_text(text)
        ran = run("check", path, "--json")
        assert "deepspeed/zero-with-pipeline" not in [
            one["rule"] for one in ran.document["findings"]
        ]
