"""Rules of pipelines: one with the schedules' refusals, in the words and figures of the job."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.findings import Severity
from meshwright.rules.pipeline import PIPELINE_RULES
from meshwright.schedules.left_out import convention_of
from meshwright.schedules.make_refusals import refusals
from meshwright.schedules.names import SCHEDULES, TWO_CHUNKS
from remedies import alternatives, applied

RULES = {one.id for one in PIPELINE_RULES}


@pytest.fixture
def found(tmp_path: Path):
    """Return the findings of pipeline rules on a job, by id, and the job."""

    def one(layout: str, batch: str = "", training: str = "", model: str = ""):
        path = tmp_path / "job.yaml"
        text = f"model: {model}\n" if model else ""
        text += f"layout: {{dp: 1, {layout}}}\nbatch: {{{batch}}}\ntraining: {{{training}}}\n"
        path.write_text(text)
        job = load_job(path)
        outline = outline_job(job)
        judge(outline)
        return {f.rule: f for f in outline.findings if f.rule in RULES}, job

    return one


def _errors(findings) -> set[str]:
    return {rule for rule, one in findings.items() if one.severity is Severity.ERROR}


@pytest.mark.parametrize("framework", ["megatron", "torch"])
def test_a_job_is_refused_exactly_where_its_schedule_is(found, framework):
    for schedule, pp, vp, count in itertools.product(
        SCHEDULES, (2, 3, 4), (1, 2), (1, 3, 4, 5, 8, 11)
    ):
        findings, _ = found(
            f"pp: {pp}, vp: {vp}, framework: {framework}",
            f"micro_batch: 1, num_microbatches: {count}",
            f"schedule: {schedule}",
        )
        refused = refusals(schedule, pp, count, chunks=vp, convention=convention_of(framework))
        assert _errors(findings) == {one.rule for one in refused}, (schedule, pp, vp, count)


@pytest.mark.parametrize("framework", ["megatron", "torch", "torchtitan"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_chunks_left_out(found, framework, schedule):
    """torch's schedules of several stages have two; Megatron cuts where it is told to."""
    findings, job = found(
        f"pp: 4, framework: {framework}",
        "micro_batch: 1, num_microbatches: 8",
        f"schedule: {schedule}",
    )
    many = schedule in ("interleaved", "interleaved-zb", "looped-bfs")
    torch = framework != "megatron"
    assert ("pipeline/schedule-chunks" in findings) == (many and not torch)
    assert ("assumed/vp" in findings) == (torch and (many or schedule in TWO_CHUNKS))
    if "assumed/vp" in findings:
        assert outline_job(job).layout.vp == 2
    if "pipeline/schedule-chunks" in findings:
        assert "vp is left out, and megatron" in findings["pipeline/schedule-chunks"].message


@pytest.mark.parametrize("framework", ["torch", "torchtitan"])
def test_torchs_1f1b_is_of_one_stage(found, framework):
    layout, batch = f"pp: 2, vp: 2, framework: {framework}", "micro_batch: 1, num_microbatches: 8"
    findings, job = found(layout, batch, "schedule: 1f1b")
    error = findings["pipeline/schedule-chunks"]
    assert "Schedule1F1B) holds one stage a rank, not 2" in error.message
    for changes in alternatives(error.remedy):
        after = outline_job(applied(job, changes))
        judge(after)
        assert "pipeline/schedule-chunks" not in {one.rule for one in after.findings}, changes
    assert _errors(found(layout, batch)[0]) == set(), "left out, it is interleaved"
    megatron = found("pp: 2, vp: 2, framework: megatron", batch, "schedule: 1f1b")[0]
    assert _errors(megatron) == set(), "Megatron interleaves its 1F1B"


@pytest.mark.parametrize(
    ("version", "count", "group", "errors"),
    [
        ("0.16.1", 8, None, False),
        ("0.16.1", 10, None, True),
        ("0.16.1", 10, 5, False),  # two full groups of five
        ("0.16.1", 14, 5, False),  # the last group of 4 is as full as pp
        ("0.16.1", 13, 5, True),  # 3 are left, fewer than pp
        ("0.16.1", 12, 3, True),  # a group has pp microbatches at least
        ("0.16.1", 12, 13, True),
        ("0.9.0", 8, None, False),
        ("0.9.0", 8, 4, True),  # no groups in that release
        ("0.9.0", 10, None, True),
    ],
)  # fmt: skip
def test_groups_of_microbatches(found, version, count, group, errors):
    """Megatron-LM megatron/core/pipeline_parallel/schedules.py, get_schedule_table and its checks."""
    more = f"microbatch_group: {group}" if group else ""
    findings, job = found(
        f"pp: 4, vp: 2, framework: megatron, framework_version: megatron-core {version}",
        f"micro_batch: 1, num_microbatches: {count}",
        more,
    )
    assert (_errors(findings) == {"pipeline/interleaved-microbatches"}) == errors
    if not errors:
        return
    error = findings["pipeline/interleaved-microbatches"]
    assert error.numbers["release"] == f"megatron-core {version}"
    pasted = [one for one in alternatives(error.remedy) if "layout.framework_version" not in one]
    assert pasted
    for changes in pasted:
        after = outline_job(applied(job, changes))
        judge(after)
        assert "pipeline/interleaved-microbatches" not in {one.rule for one in after.findings}, (
            changes
        )


def test_torchs_rounds_are_spelled(found):
    error = found(
        "pp: 4, vp: 2, framework: torch",
        "micro_batch: 1, num_microbatches: 11",
        "schedule: interleaved",
    )[0]["pipeline/interleaved-microbatches"]
    assert "rounds = max(1, m // pp) = 2" in error.message
    assert "m % rounds == 0; 11 % 2 = 1" in error.message
    assert error.remedy == "num_microbatches: 10 or 12"


def test_the_counts_near_a_refused_one_are_taken():
    for pp, count in itertools.product(range(2, 9), range(1, 80)):
        for convention in ("megatron", "torch"):
            for one in refusals("interleaved", pp, count, chunks=2, convention=convention):
                for value in one.values:
                    assert not refusals(
                        "interleaved", pp, value, chunks=2, convention=convention
                    ), (pp, value)


def test_chimera(found):
    findings, _ = found("pp: 3", "micro_batch: 1, num_microbatches: 6", "schedule: chimera")
    assert findings["pipeline/chimera-even"].numbers == {"pp": 3}
    assert findings["pipeline/chimera-even"].remedy == "pp: 2, 4"
    findings, _ = found("pp: 4", "micro_batch: 1, num_microbatches: 5", "schedule: chimera")
    assert findings["pipeline/chimera-even"].remedy == "num_microbatches: 6"


@pytest.mark.parametrize(
    ("given", "near"),
    [("interleavd", "interleaved"), ("1fb1", "1f1b"), ("zbv", "zb-v"), ("dual-pipe-v2", "dualpipev"), ("qqqq", None)],
)  # fmt: skip
def test_an_unknown_schedule_is_named_with_its_neighbours(found, given, near):
    warning = found("pp: 4", "micro_batch: 1, num_microbatches: 8", f"schedule: {given}")[0].get(
        "pipeline/schedule-unknown"
    )
    if given == "zbv":
        assert warning is None, "a spelling of zb-v"
        return
    assert warning.severity is Severity.WARNING
    assert repr(given) in warning.message
    assert (near in warning.numbers["nearest"]) if near else warning.numbers["nearest"] == []
    assert all(name in warning.remedy for name in SCHEDULES)


@pytest.mark.parametrize(
    ("schedule", "layout", "count", "idle"),
    [
        ("1f1b", "pp: 8", 8, 7 / 15),
        ("gpipe", "pp: 8", 8, 7 / 15),
        ("interleaved", "pp: 8, vp: 2, framework: megatron", 8, 7 / 23),
        ("looped-bfs", "pp: 8, vp: 2", 8, 7 / 23),
        # (p-1)(F+I-W) over that and m(F+I+W), arXiv 2401.10241 table 1: 7 / (24 + 7)
        ("zb-h1", "pp: 8", 8, None),
        # (p/2-1)(F&B+B-3W) = 7 · 2 of 32 · 3 and that
        ("dualpipe", "pp: 16", 32, None),
        ("zb-h1", "pp: 8", 4, None),  # no form: fewer microbatches than stages
        ("zb-h2", "pp: 8", 8, None),
    ],
)  # fmt: skip
def test_much_idle_of_every_schedule_with_a_form(found, schedule, layout, count, idle):
    findings, job = found(
        layout, f"micro_batch: 1, num_microbatches: {count}", f"schedule: {schedule}"
    )
    warning = findings.get("pipeline/much-idle")
    if idle is None:
        assert warning is None
        return
    assert warning.numbers["formula_bubble_fraction"] == pytest.approx(idle)
    [changes] = [one for one in alternatives(warning.remedy) if "batch.num_microbatches" in one]
    after = outline_job(applied(job, changes))
    judge(after)
    assert "pipeline/much-idle" not in {one.rule for one in after.findings}


def test_chimera_idles_too(found):
    findings, _ = found("pp: 8", "micro_batch: 1, num_microbatches: 8", "schedule: chimera")
    # (p-2) F of m·2F and that
    assert findings["pipeline/much-idle"].numbers["formula_bubble_fraction"] == pytest.approx(
        6 / 22
    )


MODEL = "{name: u, num_layers: 24, hidden: 4096, ffn: 16384, heads: 32, kv_heads: 4, head_dim: 128, vocab: 32000}"


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("pp: 2, vp: 2, stages: [13, 11]", "13 layers do not divide into 2 equal chunks"),
        ("pp: 2, vp: 2, stages: [6, 6, 6, 7]", "hold 25 layers on 4 entries; the model has 24"),
        ("pp: 2, vp: 2, stages: [8, 8, 8]", "4, one a chunk (pp 2 × vp 2), or 2, one a rank"),
        ("pp: 4, stages: [8, 8, 8]", "the map has 4 entries"),
        ("pp: 2, stages: [-1, 25]", "no fewer than 0 layers"),
        ("pp: 4, first_stage_layers: 20, last_stage_layers: 4", "leave 0 for 2 of 4 stages"),
        ("pp: 4, vp: 3, first_stage_layers: 20", "3 equal chunks"),
        ("pp: 1, stages: [23]", "the model has 24 layers"),
        ("pp: 28, framework: torchtitan", "there are 26 for 28"),
        ("pp: 5, first_stage_layers: 3, last_stage_layers: 24", "leave -3 for 3 of 5"),
    ],
)  # fmt: skip
def test_layers_that_do_not_divide(found, layout, said):
    findings, job = found(layout, "micro_batch: 1, num_microbatches: 56", model=MODEL)
    error = findings["pipeline/layers-divide"]
    assert said in error.message
    pasted = alternatives(error.remedy)
    assert pasted, error.remedy
    for changes in pasted:
        after = outline_job(applied(job, changes))
        assert "pipeline/layers-divide" not in {one.rule for one in after.findings}, changes


def test_torchtitan_divides_what_does_not(found):
    findings, _ = found("pp: 5, framework: torchtitan", model=MODEL)
    assert "pipeline/layers-divide" not in findings
    assert "pipeline/layers-divide" in found("pp: 5, framework: torch", model=MODEL)[0]
