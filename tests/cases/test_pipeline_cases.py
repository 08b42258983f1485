"""Users' questions on pipelines: ``pipeline`` on what the user has, every value of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import finding_of, rules_of, run
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


_ONE_SECOND = ("--forward", "1", "--backward", "1", "--weight", "1")


def case_of(name: str) -> dict[str, Any]:
    """Return a case."""
    return dict(json.loads(shared_path(f"cases/{name}.json").read_text()))


def written(folder: Path, text: str) -> Path:
    """Write a job file."""
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_bubble_mbs_vs_m(tmp_path: Path) -> None:
    case = case_of("bubble-mbs-vs-m")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    within = case["expected"]["tolerance"]["abs"]
    for micro, count, idle in zip(inputs["mbs"], checks["m"], checks["bubble"], strict=True):
        job = written(
            tmp_path,
            f"layout: {{pp: {inputs['pp']}, dp: {inputs['dp']}}}\n"
            f"batch: {{global_batch: {inputs['global_batch']}, micro_batch: {micro}}}\n"
            "training: {schedule: 1f1b}\n",
        )
        document = run("pipeline", job, *_ONE_SECOND, "--json").document
        assert document["microbatches"] == count
        assert document["formula_bubble_fraction"] == pytest.approx(idle, abs=within)
        assert document["bubble_fraction"] == pytest.approx(idle, abs=within)
    # raising the micro-batch pays only where the global batch grows with it
    rows = run("pipeline", "-p", "8", "-m", "32", "--compare", "--json").document["alternatives"]
    same = {row["microbatches"]: row for row in rows if row["schedule"] == "1f1b"}
    assert same[16]["bubble_fraction"] == pytest.approx(checks["bubble"][1], abs=within)
    assert same[16]["makespan_s"] > same[32]["makespan_s"]


def test_stages_first_last_fixed(tmp_path: Path) -> None:
    case = case_of("stages-first-last-fixed")
    inputs = case["inputs"]
    job = written(
        tmp_path,
        f"model: {{name: nine, num_layers: {inputs['layers']}, hidden: 1024, ffn: 4096, heads: 8, kv_heads: 8, "
        "head_dim: 128, vocab: 32000}\ncluster: dgx-h100 x 1\n"
        f"layout: {{pp: {inputs['pp']}, dp: 1, first_stage_layers: {inputs['first']}, "
        f"last_stage_layers: {inputs['last']}}}\n"
        "batch: {micro_batch: 1, num_microbatches: 8, seq_len: 2048}\n",
    )
    document = run("pipeline", job, "--json").document
    assert document["layers"] == case["expected"]["checks"]["stages"]
    forward = document["stage_times"]["forward_s"]
    assert forward[1] == pytest.approx(forward[2])
    assert forward[0] == pytest.approx(forward[1] * 2 / 3)


def test_warmup_interleaved() -> None:
    case = case_of("warmup-interleaved")
    inputs = case["inputs"]
    arguments = (
        *("pipeline", "-p", str(inputs["pp"]), "-m", str(inputs["microbatches"])),
        *("-v", str(inputs["chunks"]), "--schedule", "interleaved", "--orders"),
    )
    document = run(*arguments, "--json").document
    assert document["warmup"] == case["expected"]["checks"]["warmup"]
    for rank, operations in enumerate(document["orders"]):
        before = next(place for place, one in enumerate(operations) if "B" in one)
        assert before == document["warmup"][rank] + 1  # the forward of the first turn comes too
    page = " ".join(run(*arguments).out.split())
    for reason in ("busy in the steady state", "has the group size", "when m was p", "MoE overlap"):
        assert reason in page, reason


def test_schedule_ranking_calibration(tmp_path: Path) -> None:
    """Orders only: the thread gives no number of microbatches; p 8 and m 64 are assumed, F = I = W.

    The model is one of 6.2 billion parameters, which the thread names by its size alone, with so large a
    micro-batch that 1F1B comes near the thread's 48 GB.
    """
    case = case_of("schedule-ranking-calibration")
    checks, measured = case["expected"]["checks"], case["inputs"]["measured"]
    asked = {
        "1F1B": ("1f1b", 1),
        "interleaved": ("interleaved", 2),
        "ZB-2p": ("zb-h2", 1),
        "ZB-V": ("zb-v", 2),
    }
    assert set(asked) == set(measured)
    step, memory = {}, {}
    for name, (schedule, chunks) in asked.items():
        given = ("--schedule", schedule, "-v", str(chunks), "--json")
        durations = [f"--{part}={1 / chunks}" for part in ("forward", "backward", "weight")]
        step[name] = run("pipeline", "-p", "8", "-m", "64", *given, *durations).document[
            "makespan_s"
        ]
        job = written(
            tmp_path,
            "model: {name: six, num_layers: 32, hidden: 4096, ffn: 16384, heads: 32, kv_heads: 32, "
            "head_dim: 128, vocab: 51200, gated_mlp: false}\ncluster: dgx-h100 x 1\n"
            f"layout: {{pp: 8, vp: {chunks}, dp: 1, framework: megatron}}\n"
            "batch: {micro_batch: 6, num_microbatches: 64, seq_len: 1024}\n"
            f"training: {{schedule: {schedule}}}\n",
        )
        document = run("memory", job, "--json").document
        memory[name] = max(stage["total_bytes"] for stage in document["stages"])
    assert max(step, key=step.__getitem__) == checks["throughput_worst"]
    assert sorted(memory, key=memory.__getitem__) == checks["memory_order"]
    assert memory["1F1B"] == pytest.approx(measured["1F1B"]["mem_gb"] * 1e9, rel=0.2)
    assert sorted(measured, key=lambda name: measured[name]["mem_gb"]) == checks["memory_order"]


@pytest.mark.parametrize(("rule", "convention"), [("strict", "megatron"), ("flexible", "torch")])
def test_valid_interleaved_microbatches(rule: str, convention: str) -> None:
    case = case_of("valid-interleaved-microbatches")
    inputs, legal = case["inputs"], []
    for count in inputs["microbatches"]:
        ran = run(
            *("pipeline", "-p", str(inputs["pp"]), "-v", "2", "--schedule", "interleaved"),
            *("-m", str(count), "--convention", convention, "--json"),
        )
        if ran.status == 0:
            legal.append(count)
            continue
        assert ran.status == 1
        finding = finding_of(ran.document, "pipeline/interleaved-microbatches")
        assert finding["numbers"]["microbatches"] == count
        assert convention in finding["message"].lower()
    assert legal == case["expected"]["checks"][rule]


def test_valid_interleaved_pp2(tmp_path: Path) -> None:
    case = case_of("valid-interleaved-pp2")
    checks = case["expected"]["checks"]

    def legal(version: str) -> list[bool]:
        found = []
        for overlap in case["inputs"]["overlap_p2p"]:
            job = written(
                tmp_path,
                f"layout: {{pp: 2, vp: 2, dp: 1, framework: megatron, framework_version: {version}}}\n"
                "batch: {micro_batch: 1, num_microbatches: 4}\n"
                f"training: {{overlap_p2p: {str(overlap).lower()}}}\n",
            )
            ran = run("pipeline", job, *_ONE_SECOND, "--json")
            found.append(ran.status == 0)
            assert ("pipeline/interleaved-pp2" in rules_of(ran.document)) == (ran.status == 1)
        return found

    assert legal("megatron-core 0.16.1") == checks["legal"]
    assert legal("megatron-core 0.7.0") == checks["legal_before_fix"]


def test_memory_rises_with_m_under_1f1b(tmp_path: Path) -> None:
    """The law: at a fixed global batch what 1F1B and zero-bubble keep does not rise with m."""
    case = case_of("memory-rises-with-m-under-1f1b")
    inputs = case["inputs"]
    for schedule in ("1f1b", "zb-h1"):
        peaks = []
        for count in inputs["microbatches"]:
            job = written(
                tmp_path,
                "model: llama3-8b\ncluster: dgx-h100 x 1\nlayout: {pp: 8, dp: 1}\n"
                f"batch: {{global_batch: 256, num_microbatches: {count}, seq_len: 2048}}\n"
                f"training: {{schedule: {schedule}}}\n",
            )
            document = run("pipeline", job, "--json").document
            assert document["microbatches"] == count
            peaks.append(max(document["peak_activation_bytes"]))
        assert peaks == sorted(peaks, reverse=True), schedule
    assert case["expected"]["checks"]["expected_trend"] == "non_increasing"
