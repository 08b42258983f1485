"""Models with layers that are not modelled: parameters are said, what is unknown is null with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import axis_of, finding_of, run

pytestmark = pytest.mark.process

JOB = """\
model: nemotron-h-8b
cluster: dgx-h100 x 1
layout: {tp: 2, pp: 2, dp: 2, framework: megatron}
batch: {global_batch: 16, micro_batch: 1, seq_len: 4096}
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job of a hybrid model."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


def test_traffic_of_such_layers_is_null_and_that_of_their_parameters_is_known(job):
    document = run("map", job, "--json").document
    assert "Mamba" in finding_of(document, "model/layers-not-modelled")["message"]
    for one in axis_of(document, "tp")["collectives"]:
        assert one["bytes"] is None
        assert "Mamba" in one["reason"]
    assert all(one["bytes"] for one in axis_of(document, "dp")["collectives"])
    assert all(one["bytes"] for one in axis_of(document, "pp")["collectives"])


def test_memory_counts_states_and_leaves_activations_open(job):
    document = run("memory", job, "--json").document
    assert document["fits"] is None
    for stage in document["stages"]:
        assert stage["weights_bytes"] > 0
        assert stage["activations_bytes"] is None
    checked = run("check", job).out
    assert "Mamba" in checked.split("Not checked")[1]


def test_a_pipeline_of_such_layers_has_their_flops_and_no_bytes(job):
    document = run("pipeline", job, "--json").document
    assert document["peak_activation_bytes"] is None
    forward = document["stage_times"]["forward_s"]
    assert len(set(forward)) == 2  # no two layers cost the same here
    assert min(forward) > 0
