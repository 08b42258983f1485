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


@pytest.mark.parametrize(
    ("hosts", "status", "said"),
    [
        ("host[0-1]", 1, "error"),
        ("nohost[0-1]", 2, "no host 'nohost0' in the cluster"),
        ("host0,host0", 2, "host 'host0' is named twice"),
    ],
)
def test_hosts_are_looked_at_in_a_job_that_cannot_run(tmp_path: Path, hosts, status, said):
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: llama3-8b\ncluster: dgx-h100 x 4\nlayout: {tp: 3, framework: megatron}\n"
        f'batch: {{global_batch: 64, micro_batch: 1, seq_len: 4096}}\nplacement: {{hosts: "{hosts}"}}\n'
    )
    ran = run("check", path, "--json")
    assert ran.status == status
    if status == 2:
        assert said in ran.err
        assert "job.yaml:5:" in ran.err
        return
    document = ran.document
    assert document["world_size"] == 16, "the GPUs of the two hosts"
    assert document["nearest"]
    for near in document["nearest"]:
        assert near["tp"] * near["cp"] * near["pp"] * near["dp"] == 16


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("pp: 4, first_stage_layers: 8", "the others (32 - 8) / (4 - 1) = 8 each"),
        ("pp: 4", "32 / 4 = 8 a stage"),
        ("pp: 4, vp: 2", "32 / (4 × 2) = 4 a chunk"),
        ("pp: 2, stages: [15, 17]", "as the stage map says, one entry a rank"),
        ("pp: 2, vp: 2, stages: [9, 8, 8, 7]", "as the stage map says, one entry a chunk"),
        ("pp: 4, framework: torchtitan", "(32 + 2) / 4 = 8, 2 over, which the first stages take"),
    ],
)
def test_how_the_layers_were_divided_is_said(tmp_path: Path, layout, said):
    path = tmp_path / "job.yaml"
    path.write_text(f"model: llama3-8b\nlayout: {{dp: 1, {layout}}}\n")
    assert said in run("check", path, "--json").document["stages_from"]
    assert said in " ".join(run("check", path).out.split())
