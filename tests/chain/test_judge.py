"""``check`` as a whole: fixes that keep the rules, and notes whose remedy can be pasted."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.context import trying
from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge, memory_of
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import plan_job
from meshwright.memory.fixes import fixes
from meshwright.rules.memory import lawful_fixes
from meshwright.rules.remedies import lawful
from remedies import alternatives, applied


@pytest.fixture
def load(tmp_path: Path):
    def one(text: str):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return load_job(path)

    return one


DEEPSPEED = """\
model: llama3-70b
cluster: dgx-h100 x 2
layout: {tp: 2, sharding: zero2, framework: deepspeed}
batch: {global_batch: 64, micro_batch: 2, seq_len: 8192}
"""


def test_fixes_that_break_a_rule_are_not_offered(load):
    job = load(DEEPSPEED)
    outline = outline_job(job)
    context = trying(outline)
    memory = memory_of(outline)
    offered = fixes(memory)
    broken = [fix for fix in offered if not lawful(context, fix.change)]
    keys = {fix.change.split(":")[0] for fix in broken}
    assert {"pp", "cp"} <= keys, "ZeRO-2 with stages, Ulysses with tp"
    assert {fix.change for fix in lawful_fixes(offered, context)} == {
        fix.change for fix in offered if fix not in broken
    }
    judge(outline)
    [finding] = [one for one in outline.findings if one.rule == "memory/does-not-fit"]
    for fix in broken:
        assert fix.change not in finding.remedy


def test_an_option_of_a_command_is_lawful(load):
    context = trying(outline_job(load(DEEPSPEED)))
    assert lawful(context, "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te")
    assert lawful(context, "recompute: full")
    assert lawful(context, "sequence_parallel: true")
    assert not lawful(context, "tp: 3")


@pytest.mark.parametrize(
    "framework", ["megatron", "torch", "torchtitan", "deepspeed", "nanotron", "maxtext"]
)
def test_the_note_on_a_framework_goes_when_its_remedy_is_pasted(load, framework):
    job = load(f"layout: {{dp: 2, framework: {framework}}}\n")
    [note] = [one for one in outline_job(job).findings if one.rule == "assumed/framework"]
    key, _, version = note.remedy.partition(": ")
    assert key == "framework_version"
    rest = {one.rule for one in outline_job(applied(job, {f"layout.{key}": version})).findings}
    assert not rest & {"assumed/framework", "framework/version-not-pinned"}


def test_without_a_framework_both_are_named(load):
    [note] = [
        one
        for one in outline_job(load("layout: {dp: 2}\n")).findings
        if one.rule == "assumed/framework"
    ]
    assert note.remedy.startswith("framework: megatron, framework_version: megatron-core ")


EXPERTS = """\
model: mixtral-8x7b
cluster: dgx-h100 x 4
layout: {{tp: 2, pp: 2, ep: {ep}, dp: 8, {more}sequence_parallel: true, sharding: zero1, framework: megatron}}
moe: {{dispatcher: alltoall}}
batch: {{global_batch: 128, micro_batch: 1, seq_len: 4096}}
"""


def _rules(job):
    outline = outline_job(job)
    plan_job(outline)
    return {one.rule: one for one in outline.findings}


def test_experts_that_leave_the_host_only_for_etp_are_warned_of(load):
    job = load(EXPERTS.format(ep=8, more=""))
    warning = _rules(job)["placement/ep-leaves-nvlink"]
    assert warning.numbers["bound_s"] > warning.numbers["inside_bound_s"]
    assert (warning.numbers["ep"], warning.numbers["etp"]) == (8, 2)
    [changes] = alternatives(warning.remedy)
    after = outline_job(applied(job, changes))
    plan = plan_job(after)
    assert "placement/ep-leaves-nvlink" not in {one.rule for one in after.findings}
    [route] = [one for one in plan.routes if one.axis == "ep"]
    assert route.islands().max() == 1


@pytest.mark.parametrize(("ep", "more"), [(4, ""), (8, "etp: 1, "), (8, "order: tp-cp-dp-ep-pp, ")])
def test_experts_inside_or_elsewhere_are_not(load, ep, more):
    assert "placement/ep-leaves-nvlink" not in _rules(load(EXPERTS.format(ep=ep, more=more)))
