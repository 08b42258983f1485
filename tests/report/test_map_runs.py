"""What ``map`` says an axis runs is what one rank of the stage that sends most runs."""

from __future__ import annotations

import re

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import Plan, plan_job
from meshwright.report.map_json import busiest_stage, sent_bytes, stages_differ
from meshwright.report.map_tables import axis_label, groups_text
from meshwright.report.map_text import map_text
from meshwright.traffic.collective import ring_factor


@pytest.fixture
def plan(tmp_path):
    def one(layout: str, model: str = "llama3-8b") -> Plan:
        path = tmp_path / "job.yaml"
        path.write_text(
            f"model: {model}\ncluster: dgx-h100 x 2\nlayout: {{{layout}}}\n"
            "batch: {global_batch: 32, micro_batch: 1, seq_len: 4096}\n"
        )
        return plan_job(outline_job(load_job(str(path))))

    return one


def _line(plan: Plan, axis: str) -> str:
    """Return the line on an axis, without its breaks."""
    text = groups_text(plan).replace("\n  ", " ")
    return next(one for one in text.splitlines() if one.startswith(f"{axis} runs a step"))


@pytest.mark.parametrize(
    "layout",
    [
        "tp: 2, pp: 4, dp: 2, sequence_parallel: true, sharding: zero1",
        "tp: 2, pp: 2, dp: 4, sharding: none",
        "dp: 8, pp: 2, framework: torchtitan, sharding: fsdp",
        "dp: 16, framework: deepspeed, sharding: zero3",
    ],
)
def test_counts_are_those_of_one_rank_and_make_up_what_it_sends(plan, layout):
    made = plan(layout)
    assert made.routes
    for route in made.routes:
        stage = busiest_stage(route)
        if stage is None:
            continue
        sent, counts = 0.0, {}
        for one in route.collectives:
            if one.is_known:
                times, size = one.count_by_stage[stage], one.bytes_by_stage[stage]
                sent += times * size * ring_factor(one.op, route.degree)
                counts[one.op] = counts.get(one.op, 0.0) + times * (size > 0)
        assert sent == pytest.approx(sent_bytes(route))
        line = _line(made, axis_label(route.axis))
        said: dict[str, float] = {}
        for op, count in re.findall(r"(\w+) ([\d,]+) × ", line):
            said[op] = said.get(op, 0) + float(count.replace(",", ""))
        assert said == {op: count for op, count in counts.items() if count}
        assert (f"step, stage {stage}:" in line) == stages_differ(route)


def test_ends_of_a_pipeline_are_not_added_up(plan):
    """No rank embeds the words and makes the logits too when they are on different stages."""
    made = plan("tp: 2, pp: 4, dp: 2, sequence_parallel: true, sharding: zero1")
    route = next(one for one in made.routes if one.axis == "tp")
    gathers = [one.count_by_stage for one in route.collectives if one.op == "all_gather"]
    counted = sum(
        float(count.replace(",", ""))
        for op, count in re.findall(r"(\w+) ([\d,]+) × ", _line(made, "TP"))
        if op == "all_gather"
    )
    assert counted == max(sum(gathers))
    assert counted <= sum(float(one.max()) for one in gathers)


def test_one_axis_crosses_and_several_cross(plan):
    alone = " ".join(map_text(plan("tp: 8, dp: 2, sharding: zero2")).split())
    assert "DP crosses the network, load not known." in alone
