"""``meshwright memory``: the document's keys, exit status, what wrong options say."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cli.running import finding_of, rules_of, run
from support import ROOT, shared_path

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


def test_a_capacity_given_names_no_gpu_that_has_another():
    ran = run("memory", EXAMPLE, "--capacity", "180 GB")
    assert "of 167.64 GiB (the capacity given): it fits" in " ".join(ran.out.split())
    assert run("memory", EXAMPLE, "--capacity", "180 GB", "--json").document["gpu"] is None


def test_prediction_layers_stand_beside_the_models(tmp_path):
    text = (
        "model: deepseek-v3\nlayout: {tp: 1, pp: 4, ep: 8, dp: 8, sharding: zero1, "
        "framework: megatron, stages: [16, 15, 15, 15]}\n"
        "batch: {global_batch: 64, micro_batch: 1, seq_len: 4096}\ntraining: {mtp_layers: 1}\n"
    )
    job = written(tmp_path, text)
    stages = run("memory", job, "--json").document["stages"]
    assert [one["layers"] for one in stages] == [16, 15, 15, 15]
    assert [one["mtp_layers"] for one in stages] == [0, 0, 0, 1]
    assert "15 + 1 MTP" in run("memory", job).out


@pytest.mark.parametrize("command", ["memory", "groups"])
def test_idle_gpus_are_said(tmp_path, command):
    job = written(
        tmp_path,
        "model: llama3-8b\ncluster: dgx-h100 x 4\nlayout: {world_size: 24, tp: 4}\n"
        "batch: {micro_batch: 1, global_batch: 36, seq_len: 8192}\n",
    )
    ran = run(command, job, "--json")
    assert ran.status == 0
    assert rules_of(ran.document).count("layout/gpus-unused") == 1


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


@pytest.mark.parametrize(
    ("batch", "cluster", "why"),
    [
        ("seq_len: 4096", "dgx-h100 x 1", "memory (no micro_batch)"),
        ("micro_batch: 1, seq_len: 4096", "", "memory (the GPU is not known)"),
        ("micro_batch: 1, seq_len: 4096", "dgx-h100 x 1", None),
    ],
)
def test_check_says_memory_was_checked_only_where_it_was(tmp_path, batch, cluster, why):
    head = f"cluster: {cluster}\n" if cluster else ""
    text = f"{head}model: llama3-8b\nlayout: {{tp: 8, world_size: 8}}\nbatch: {{{batch}}}\n"
    document = run("check", written(tmp_path, text), "--json").document
    assert ("memory" in document["checked"]) == (why is None)
    if why is not None:
        assert why in document["not_checked"]


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
        ((EXAMPLE, "--capacity", "0"), "above 0"),
        ((EXAMPLE, "--set", "context_bytes=1", "--set", "context_bytes=2"), "given twice"),
        (("--peak", "8=10GB", "--peak", "8=5GB", "--schedule", "1f1b"), "given twice"),
        (("--peak", "8=10GB", "--peak", "08=5GB", "--schedule", "1f1b"), "given twice"),
        (
            ("--live", "1 GiB", "--part", "a=2GB", "--capacity", "3GB", "--micro-batch", "2"),
            "more than the 1 GiB",
        ),
        (
            ("--live", "9GB", "--part", "a=2GB", "--part", "a=3GB", "--capacity", "9GB", "--micro-batch", "2"),
            "given twice",
        ),
        ((EXAMPLE, "--first-collective", "3GB", "1GB"), "less after"),
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


def test_what_is_not_there_is_not_printed():
    ran = run("memory", "--schedule", "1f1b", "--peak", "8=10GB", "--peak", "16=5GB")
    assert ran.status == 0
    assert "None" not in ran.out


@pytest.mark.golden
def test_the_papers_figures_by_command(tmp_path):
    rows = {}
    with shared_path("reference/golden/korthikanti.csv").open() as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["model"], []).append(row)
    assert len(rows) == 4
    for one in rows.values():
        first = {key: value for key, value in one[0].items() if value.isdigit()}
        size = {key: int(value) for key, value in first.items()}
        vp = f", vp: {size['vpp']}" if size["vpp"] > 1 else ""
        job = written(
            tmp_path,
            f"model: {{name: gpt, num_layers: {size['layers']}, hidden: {size['hidden']}, "
            f"ffn: {4 * size['hidden']}, heads: {size['heads']}, kv_heads: {size['heads']}, "
            f"head_dim: {size['hidden'] // size['heads']}, vocab: 51200, gated_mlp: false}}\n"
            f"layout: {{framework: megatron, tp: {size['tp']}, pp: {size['pp']}, dp: 1{vp}}}\n"
            f"batch: {{micro_batch: {size['mbs']}, global_batch: {size['gbs']}, seq_len: 2048}}\n",
        )
        found = run("memory", job, "--like", "korthikanti", "--json").document["korthikanti"]
        by_name = {row["strategy"]: row for row in found}
        assert set(by_name) == {row["strategy"] for row in one}
        for row in one:
            ours = by_name[row["strategy"]]
            assert ours["bytes_per_layer"] == pytest.approx(float(row["bytes_per_layer"]), rel=1e-9)
            column = "first_stage_bytes_L_layers_x_interleave_penalty"
            assert ours["first_stage_bytes"] == pytest.approx(float(row[column]), rel=1e-9)
            share = float(row["percent_of_tp_baseline"])
            assert ours["percent_of_tp_baseline"] == pytest.approx(share, abs=0.006)
    assert "tp_sp_selective" in run("memory", job, "--like", "korthikanti").out


def test_a_fused_dispatcher_has_buffers_of_its_own(tmp_path):
    text = (
        "model: mixtral-8x7b\ncluster: dgx-h100 x 1\nlayout: {ep: 8, etp: 1, dp: 8, framework: megatron}\n"
        "batch: {micro_batch: 1, num_microbatches: 1, seq_len: 512}\nmoe: {dispatcher: %s}\n"
    )
    fused = run("memory", written(tmp_path, text % "deepep"), "--json").document
    [stage] = fused["stages"]
    parts = ("reserved", "communicators", "context", "dispatcher")
    assert stage["total_bytes"] == sum(stage[f"{part}_bytes"] for part in parts)
    assert stage["dispatcher_bytes"] > 32 * 2**20
    assert "ep" not in [one["axis"] for one in fused["communicators"]]
    plain = run("memory", written(tmp_path, text % "alltoall"), "--json").document
    assert plain["stages"][0]["dispatcher_bytes"] == 0
    assert "communicators" in plain["dispatcher_reason"]
    assert "ep" in [one["axis"] for one in plain["communicators"]]


def test_a_compiled_loss_keeps_less(tmp_path):
    text = (
        "model: llama3-8b\nlayout: {dp: 8, framework: torchtitan, sharding: fsdp}\n"
        "batch: {local_batch: 1, seq_len: 8192}\ntraining: {compile: %s}\n"
    )
    eager, compiled = (
        run("memory", written(tmp_path, text % word), "--json").document["stages"][0]
        for word in ("false", "true")
    )
    # 14 against 4 bytes a logit
    assert eager["activations_bytes"] - compiled["activations_bytes"] == 8192 * 128256 * 10
