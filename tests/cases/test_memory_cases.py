"""Users' questions on memory: the program on what the user has, every check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import finding_of, run
from meshwright.units import GIB, MIB
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


def case_of(name: str) -> dict[str, Any]:
    """Return a case."""
    return json.loads(shared_path(f"cases/{name}.json").read_text())


def written(path: Path, text: str) -> Path:
    """Write a file of the user's."""
    path.write_text(text)
    return path


def test_memory_uneven_pp_worst_stage(tmp_path: Path) -> None:
    """The thread does not print its model's shape: this one has its two counts and its stages."""
    case = case_of("memory-uneven-pp-worst-stage")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    job = written(
        tmp_path / "job.yaml",
        "model: {name: tiny, num_layers: 8, hidden: 8, ffn: 93, heads: 4, kv_heads: 2, head_dim: 4,\n"
        "        vocab: 256, learned_positions: 251}\n"
        f"layout: {{pp: 4, dp: 1, stages: {inputs['stage_layers']}}}\n"
        "batch: {micro_batch: 1, num_microbatches: 4, seq_len: 8}\n",
    )
    document = run("memory", job, "--json").document
    held = [stage["parameters"] for stage in document["stages"]]
    assert sum(held) / len(held) == inputs["average_params_reported"]
    assert max(held) == inputs["heaviest_stage_params"]
    within = case["expected"]["tolerance"]["abs"]
    assert document["underestimate_pct"] == pytest.approx(checks["underestimate_pct"], abs=within)
    assert document["worst_stage"] == checks["worst_stage"]
    finding = finding_of(document, "memory/mean-hides-worst-stage")
    assert finding["numbers"]["stage"] == checks["worst_stage"]
    assert "31.8 % too low" in finding["message"]
    assert "embedding stands on the first" in finding["message"]
    assert "3 worst" in run("memory", job).out


def test_memory_recipe_from_bigger_gpu() -> None:
    case = case_of("memory-recipe-from-bigger-gpu")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    arguments = (
        "memory",
        *("--live", f"{inputs['live_gib_at_oom']} GiB"),
        *("--part", f"state={inputs['state_gb']} GB"),
        *("--part", f"activations={inputs['activations_gb']} GB"),
        *("--capacity", f"{inputs['capacity_gib']} GiB"),
        *("--micro-batch", str(inputs["pp_microbatch"])),
    )
    measured = run(*arguments, "--json").document["measured"]
    rel = case["expected"]["tolerance"]["rel"]
    assert measured["activations_after_bytes"] / 1e9 == pytest.approx(
        checks["activations_after_gb"], rel=rel
    )
    assert measured["live_after_bytes"] / GIB == pytest.approx(checks["live_after_gib"], rel=rel)
    assert measured["margin_bytes"] / GIB == pytest.approx(checks["margin_gib"], rel=rel)
    assert measured["dominant"] == checks["dominant"]
    page = " ".join(run(*arguments).out.split())
    assert "micro_batch 2 instead of 4" in page
    assert "9.04 GB is in no part" in page


def test_memory_rises_with_m_under_1f1b() -> None:
    case = case_of("memory-rises-with-m-under-1f1b")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    peaks: list[str] = []
    for count, size in zip(inputs["microbatches"], inputs["peak_gib"], strict=True):
        peaks += ["--peak", f"{count}={size if size == 'OOM' else f'{size} GiB'}"]
    rel = case["expected"]["tolerance"]["rel"]
    for schedule in ("1f1b", "zb-h1"):
        document = run("memory", "--schedule", schedule, *peaks, "--json").document
        measured = document["measured"]
        for key in ("expected_trend", "observed_trend", "cause_class"):
            assert measured[key] == checks[key], key
        slope = measured["slope_bytes_per_microbatch"] / GIB
        assert slope == pytest.approx(checks["slope_gib_per_microbatch"], rel=rel)
        message = finding_of(document, "memory/peak-rises-with-microbatches")["message"]
        assert "each shrinks as their number grows" in message
        assert "weight gradients" in message
        assert "accumulate them in place" in message


def test_communicator_memory(tmp_path: Path) -> None:
    case = case_of("communicator-memory")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    job = written(
        tmp_path / "job.yaml",
        "model: mixtral-8x7b\ncluster: dgx-h100 x 1\nmoe: {dispatcher: alltoall}\n"
        "layout: {tp: 1, ep: 8, dp: 8, sharding: zero1, framework: megatron}\n"
        "batch: {micro_batch: 1, num_microbatches: 8, seq_len: 4096}\n"
        "training: {recompute: full}\n",
    )
    sizes = [f"{inputs[key]} GB" for key in ("before_first_all_to_all_gb", "after_gb")]
    channels = f"nccl_p2p_channels={inputs['channels_per_pair']}"
    ran = run("memory", job, "--first-collective", *sizes, "--set", channels, "--json")
    document = ran.document
    rel = case["expected"]["tolerance"]["rel"]
    measured = document["measured"]
    assert measured["extra_bytes"] / 1e9 == pytest.approx(checks["extra_gb"], rel=rel)
    modelled = measured["modelled_p2p_buffers_bytes"] / GIB
    assert modelled == pytest.approx(checks["modelled_p2p_buffers_gib"], rel=rel)
    one = next(
        c for c in document["communicators"] if c["axis"] == "ep" and c["use"] == "point-to-point"
    )
    buffer = one["receive_buffer_bytes"] / MIB
    assert buffer == checks["receive_buffer_mib_per_channel_and_peer"]
    assert one["bytes"] == measured["modelled_p2p_buffers_bytes"]
    assert document["stages"][0]["communicators_bytes"] >= one["bytes"]
    finding = finding_of(document, "memory/communicators-outside-allocator")
    assert "outside the framework's allocator" in finding["message"]
    assert "lazily created groups fail late" in finding["message"]
    assert "NCCL_MAX_P2P_NCHANNELS" in finding["remedy"]
