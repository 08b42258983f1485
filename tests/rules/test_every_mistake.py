"""``check`` names every mistake at once; a changed degree is legal or explained, by plain arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.running import run
from meshwright.chain.batch_of_job import batch_page
from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.nearest import nearest_layouts
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import place_ranks
from meshwright.findings import Severity
from meshwright.job.sections import MOST_COUNT
from meshwright.report.batch_report import batch_json

FIVE = """\
model: llama3-8b
cluster: dgx-h100 x 2
layout:
  tp: 4
  cp: 2
  pp: 2
  vp: 3
  ep: 2
  etp: 1
  order: tp-cp-ep-dp-pp
  framework: megatron
  sequence_parallel: true
moe: {pad_to_capacity: true}
batch: {global_batch: 63, micro_batch: 2, seq_len: 8190}
training: {overlap_p2p: false}
"""


@pytest.mark.process
def test_five_mistakes_are_named_at_once_with_place_numbers_and_remedy(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(FIVE)
    ran = run("check", path, "--json")
    assert ran.status == 1
    errors = {one["rule"]: one for one in ran.document["findings"] if one["severity"] == "error"}
    expected = {
        "pipeline/layers-divide": (":6:", {"layers": 32, "pp": 2, "vp": 3}),
        "experts/divide-ep": (":8:", {"experts": 0, "ep": 2}),
        "sequence/factor": (":14:", {"seq_len": 8190, "factor": 8}),
        "pipeline/interleaved-pp2": (":6:", {"pp": 2, "vp": 3}),
        "batch/contradiction": (":14:", {"dp": 1}),
        "dispatcher/pad-to-capacity": (":13:", {"pad_to_capacity": True}),
    }
    assert errors.keys() == expected.keys()
    for rule, (line, numbers) in expected.items():
        assert line in errors[rule]["place"], rule
        assert numbers.items() <= errors[rule]["numbers"].items()
        assert errors[rule]["remedy"]
    page = run("check", path).out
    for rule in expected:
        assert rule in page
    stays = "batch/contradiction, dispatcher/pad-to-capacity"
    assert f"No change of one or two degrees cures {stays}" in " ".join(page.split())


@pytest.mark.process
def test_nearest_layouts_change_two_degrees_at_most_and_pass(tmp_path: Path):
    path = tmp_path / "job.yaml"
    text = (
        "model: llama3-8b\ncluster: dgx-h100 x 2\nlayout: {{{keys}, sharding: zero1, framework: megatron}}\n"
        "batch: {{global_batch: 64, micro_batch: 1, seq_len: 8192}}\n"
    )
    path.write_text(text.format(keys="tp: 3, pp: 1, cp: 1"))
    document = run("check", path, "--json").document
    assert document["nearest"][0]["tp"] in (2, 4)
    for near in document["nearest"]:
        assert near["tp"] * near["cp"] * near["pp"] * near["dp"] == 16
        assert sum(near[name] != was for name, was in (("tp", 3), ("pp", 1), ("cp", 1))) <= 2
        degrees = ", ".join(f"{name}: {near[name]}" for name in ("tp", "cp", "pp"))
        path.write_text(text.format(keys=degrees))
        assert run("check", path, "--json").document["valid"], near


@pytest.mark.process
def test_a_layout_too_large_for_its_gpus_gets_one_that_fits(tmp_path: Path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: llama3-70b\ncluster: dgx-h100 x 8\n"
        "layout: {tp: 2, sharding: zero1, sequence_parallel: true, framework: megatron}\n"
        "batch: {global_batch: 64, micro_batch: 1, seq_len: 8192}\ntraining: {recompute: selective}\n"
    )
    document = run("check", path, "--json").document
    assert [one["rule"] for one in document["findings"] if one["severity"] == "error"] == [
        "memory/does-not-fit"
    ]
    assert "memory" in document["checked"]
    assert document["nearest"]
    for near in document["nearest"]:
        assert near["tp"] * near["pp"] > 2


HEADS, KV_HEADS, FFN, LAYERS, EXPERTS = 48, 4, 6144, 24, 12
GLOBAL_BATCH, SEQ_LEN, GPUS = 96, 3072, 48
_BASE = {"tp": 2, "cp": 2, "pp": 2, "vp": 1, "ep": 2, "etp": 1, "dp": 6}
_MODEL = (
    f"model: {{name: odd, num_layers: {LAYERS}, hidden: 768, ffn: {FFN}, heads: {HEADS}, kv_heads: {KV_HEADS}, "
    f"head_dim: 16, vocab: 4096, experts: {EXPERTS}, top_k: 2, moe_ffn: {FFN}}}\n"
)


def _legal(degrees: dict[str, int]) -> bool:
    """Return what Megatron-Core 0.16.1 says, written once more from its error messages."""
    tp, cp, pp, vp, ep, etp, dp = (degrees[name] for name in _BASE)
    world = tp * cp * pp * dp
    divides = [
        world <= GPUS,
        world % (etp * ep * pp) == 0,
        HEADS % tp == 0,
        KV_HEADS % tp == 0 or tp % KV_HEADS == 0,
        FFN % etp == 0,
        EXPERTS % ep == 0,
        LAYERS % (pp * vp) == 0,
        vp == 1 or pp > 1,
        GLOBAL_BATCH % dp == 0,
        vp == 1 or pp == 1 or (GLOBAL_BATCH // dp) % pp == 0,
        cp == 1 or SEQ_LEN % (2 * cp) == 0,
        tp == 1 or SEQ_LEN % cp or (SEQ_LEN // cp) % tp == 0,
    ]
    return all(divides)


def _judged(path: Path, degrees: dict[str, int]):
    keys = ", ".join(f"{name}: {value}" for name, value in degrees.items())
    path.write_text(
        f"{_MODEL}cluster: dgx-h100 x {GPUS // 8}\n"
        f"layout: {{{keys}, sequence_parallel: true, framework: megatron}}\n"
        f"batch: {{global_batch: {GLOBAL_BATCH}, micro_batch: 1, seq_len: {SEQ_LEN}}}\n"
    )
    outline = outline_job(load_job(path))
    placement = place_ranks(outline, outline.fabric) if outline.is_legal else None
    judge(outline, placement)
    return outline


_FOLDER = [HealthCheck.function_scoped_fixture]


def test_the_base_of_the_mutations_is_legal(tmp_path: Path):
    assert _legal(_BASE)
    assert _judged(tmp_path / "job.yaml", _BASE).is_legal


@settings(max_examples=150, deadline=None, suppress_health_check=_FOLDER)
@given(name=st.sampled_from(sorted(_BASE)), value=st.integers(1, 49))
def test_one_changed_degree_is_legal_or_explained(tmp_path: Path, name: str, value: int):
    degrees = _BASE | {name: value}
    outline = _judged(tmp_path / "job.yaml", degrees)
    errors = [one for one in outline.findings if one.severity is Severity.ERROR]
    assert (not errors) == _legal(degrees), (degrees, [one.rule for one in errors])
    for one in errors:
        assert one.numbers, one.rule
        assert one.remedy, one.rule
        assert one.place.line is not None, one.rule
        assert any(f"{number}" in one.message for number in one.numbers.values()), one.message


@settings(max_examples=12, deadline=None, suppress_health_check=_FOLDER)
@given(name=st.sampled_from(sorted(_BASE)), value=st.integers(1, 49))
def test_what_is_proposed_passes(tmp_path: Path, name: str, value: int):
    degrees = _BASE | {name: value}
    outline = _judged(tmp_path / "job.yaml", degrees)
    for near in nearest_layouts(outline):
        given_degrees = {key: near.degrees[key] for key in _BASE}
        changed = [key for key in _BASE if given_degrees[key] != degrees[key]]
        assert 1 <= len(changed) <= 2, changed
        again = _judged(tmp_path / "near.yaml", given_degrees)
        assert again.is_legal, (given_degrees, [one.rule for one in again.findings])
        assert again.layout.world_size == min(outline.layout.world_size, GPUS)
        assert _legal(given_degrees)


_NUMBER = st.one_of(st.integers(-2, 130), st.sampled_from([0, MOST_COUNT, -(2**62)]))
_COUNT = st.one_of(st.integers(1, 5000), st.just(MOST_COUNT))
_LAYOUT = st.fixed_dictionaries(
    {"framework": st.sampled_from(["megatron", "torch", "torchtitan", "deepspeed", "nanotron", "maxtext"])},
    optional={
        "world_size": _NUMBER,
        "sequence_parallel": st.sampled_from(["true", "false"]),
        "cp_kind": st.sampled_from(["p2p", "all_gather", "a2a", "a2a+p2p"]),
        "kv_replication": st.integers(1, 9),
        "hierarchical_cp": st.lists(_NUMBER, max_size=3),
        "first_stage_layers": st.integers(1, 99),
        "framework_version": st.sampled_from(["megatron-core 0.5", "0.99.1", "main", "torchtitan"]),
    }
    | dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "etp", "dp"), _NUMBER),
)  # fmt: skip
_BATCH = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("global_batch", "micro_batch", "num_microbatches", "local_batch", "grad_accum", "seq_len"),
        _COUNT,
    ),
)
_TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "precision": st.sampled_from(["bf16", "fp8", "mxfp8", "nvfp4"]),
        "schedule": st.sampled_from(["1f1b", "interleaved", "zb-v", "dualpipe", "dualpipev", "x"]),
        "overlap_p2p": st.sampled_from(["true", "false"]),
    },
)
_DISPATCHER = st.sampled_from(["alltoall", "allgather", "deepep", "hybridep"])
_NAME = st.sampled_from(["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt2", "none"])


def _flow(keys: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


@settings(max_examples=200, deadline=None, suppress_health_check=_FOLDER)
@given(name=_NAME, layout=_LAYOUT, batch=_BATCH, training=_TRAINING, dispatcher=_DISPATCHER)
def test_no_numbers_break_the_rules(tmp_path: Path, name, layout, batch, training, dispatcher):
    """Any numbers give findings, each whole; none raises, and what is proposed is no worse."""
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: {name}\nlayout: {_flow(layout)}\nbatch: {_flow(batch)}\ntraining: {_flow(training)}\n"
        f"moe: {{dispatcher: {dispatcher}}}\n"
    )
    job = load_job(path)
    outline = outline_job(job)
    judge(outline)
    for one in outline.findings:
        assert one.message, one.rule
        if one.severity is Severity.ERROR:
            assert one.remedy, one.rule
    assert len(nearest_layouts(outline)) <= 5
    batch_json(batch_page(job))
