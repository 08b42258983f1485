"""What a second breaker found: numbers that are none, names in jobs without groups, states beyond a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import finding_of, run

pytestmark = pytest.mark.process


@pytest.mark.parametrize("option", ["--tokens-per-s", "--tflop-per-token", "--peak"])
def test_a_number_that_is_none_is_a_usage_error(option):
    ran = run("model", "llama3-8b", "--gpu", "H100", "--tokens-per-s", "9000", option, "nan")
    assert ran.status == 2
    assert "nan is no number" in ran.err
    assert ran.out == ""


def test_a_number_of_a_log_in_a_job_without_groups(tmp_path: Path):
    job = tmp_path / "job.yaml"
    job.write_text("layout: {tp: 5, world_size: 16, framework: megatron}\n")
    ran = run("groups", job, "--name", "5", "--json")
    assert ran.status == 1
    assert finding_of(ran.document, "grid/world-divides")


def test_states_alone_beyond_the_gpu_do_not_fit(tmp_path: Path):
    job = tmp_path / "job.yaml"
    job.write_text(
        "model: llama-3-70b\ncluster: dgx-h100 x 1\nlayout: {framework: megatron, dp: 8}\n"
    )
    assert run("memory", job, "--json").document["fits"] is False
    checked = run("check", job, "--json")
    assert checked.status == 1
    assert finding_of(checked.document, "memory/does-not-fit")["severity"] == "error"
