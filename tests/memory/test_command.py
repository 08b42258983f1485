"""``meshwright memory``: the document's keys, exit status, what wrong options say."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import finding_of, rules_of, run
from support import ROOT

pytestmark = pytest.mark.process
EXAMPLE = ROOT / "examples" / "llama3-8b-16gpu.yaml"
STAGE_KEYS = {
    "stage", "parameters", "weights_bytes", "optimizer_bytes", "gradients_bytes", "activations_bytes",
    "communicators_bytes", "total_bytes",
}  # fmt: skip


def written(folder: Path, text: str) -> Path:
    """Write a job file."""
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_the_example_of_the_help():
    ran = run("memory", EXAMPLE)
    assert ran.status == 0
    shown = "Worst rank: stage 0, 31.97 GiB of 79.65 GiB (H100 SXM 80G): it fits."
    assert shown in run("memory", "--help").out
    assert shown in ran.out


def test_document():
    document = run("memory", EXAMPLE, "--json").document
    assert document["schema"] == "meshwright/memory/1"
    assert set(document["stages"][0]) >= STAGE_KEYS
    assert document["worst_stage"] == 0
    assert document["capacity_bytes"] == 81559 * 2**20
    assert document["fits"] is True
    stage = document["stages"][0]
    parts = [value for key, value in stage.items() if key.endswith("_bytes")]
    named = sum(parts) - stage["total_bytes"] - stage["reserved_bytes"] - stage["allocated_bytes"]
    assert named == pytest.approx(stage["total_bytes"])
    assert {one["axis"] for one in document["communicators"]} >= {"tp", "dp"}
    assert all(one["source"] for one in document["constants"])


def test_a_job_that_does_not_fit_is_invalid(tmp_path):
    job = written(
        tmp_path,
        "model: llama3-70b\ncluster: dgx-h100 x 4\nlayout: {tp: 4, pp: 2, sharding: zero1}\n"
        "batch: {micro_batch: 1, num_microbatches: 16, seq_len: 8192}\n",
    )
    ran = run("memory", job, "--json")
    assert ran.status == 1
    finding = finding_of(ran.document, "memory/does-not-fit")
    assert finding["numbers"]["stage"] == ran.document["worst_stage"] == 0
    assert "recompute: full" in finding["remedy"]
    fits = run("memory", job, "--json", "--capacity", "200 GiB")
    assert fits.status == 0
    assert run("memory", job, "--gpu", "B300", "--json").document["gpu"] == "B300 SXM 288G"


def test_constants_are_set_and_marked():
    document = run("memory", EXAMPLE, "--json", "--set", "fragmentation_share=0.2").document
    stage = document["stages"][0]
    assert stage["reserved_bytes"] == pytest.approx(1.2 * stage["allocated_bytes"])
    assert document["origin"]["constants.fragmentation_share"] == "parsed"


def test_like_megatrons_estimator():
    found = run("memory", EXAMPLE, "--json", "--like", "megatron-estimator").document
    estimate = found["megatron_estimator"]
    assert estimate["total_bytes"] == pytest.approx(
        estimate["weights_optimizer_bytes"] + estimate["activations_bytes"]
    )
    assert any("without cp" in gap for gap in estimate["gaps"])
    assert "Its gaps:" in run("memory", EXAMPLE, "--like", "megatron-estimator").out


def test_an_illegal_layout_counts_nothing(tmp_path):
    job = written(tmp_path, "model: llama3-8b\nlayout: {tp: 3, world_size: 16}\n")
    ran = run("memory", job, "--json")
    assert ran.status == 1
    assert ran.document["stages"] == []
    assert "grid/world-divides" in rules_of(ran.document)


def test_without_batch_and_gpu_it_says_what_is_missing(tmp_path):
    job = written(tmp_path, "model: llama3-8b\nlayout: {tp: 2, dp: 2}\n")
    ran = run("memory", job, "--json")
    assert ran.status == 0
    assert ran.document["stages"][0]["activations_bytes"] is None
    assert rules_of(ran.document).count("memory/not-known") == 2
    assert "memory/not-known" in run("memory", job).out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "give a job file"),
        (("--live", "10 GiB"), "--live needs --part"),
        (("--live", "much", "--part", "a=1 GB", "--capacity", "1 GB", "--micro-batch", "2"), "no size"),
        (("--peak", "8"), "NAME=VALUE"),
        (("--peak", "8=1 GiB"), "at least two"),
        (("--peak", "x=1 GiB", "--peak", "8=2 GiB"), "number of microbatches"),
        (("--peak", "4=1 GiB", "--peak", "8=2 GiB", "--schedule", "mine"), "not known"),
        ((EXAMPLE, "--set", "context_bytes"), "NAME=VALUE"),
        ((EXAMPLE, "--set", "contxt_bytes=1"), "did you mean context_bytes"),
        ((EXAMPLE, "--gpu", "H1000"), "unknown GPU"),
        ((EXAMPLE, "--capacity", "lots"), "no size"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_clear_message(arguments, word):
    ran = run("memory", *arguments)
    assert ran.status == 2
    assert word in ran.err


def test_a_job_without_a_model_is_refused(tmp_path):
    ran = run("memory", written(tmp_path, "layout: {tp: 2, dp: 2}\n"))
    assert ran.status == 2
    assert "names no model" in ran.err
