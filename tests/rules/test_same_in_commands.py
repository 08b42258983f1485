"""What ``map`` and ``check`` say of one layout agrees; the layouts ``check`` proposes are real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.nearest import nearest_layouts
from meshwright.chain.outline import outline_job
from meshwright.chain.outlined import Outline
from meshwright.chain.plan import plan_job
from meshwright.findings import Severity


@pytest.fixture
def job(tmp_path: Path):
    def write(text: str) -> Outline:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return outline_job(load_job(path))

    return write


def _checked(outline: Outline):
    judge(outline)
    return {one.rule: one for one in outline.findings}


def _mapped(outline: Outline):
    plan_job(outline)
    return {one.rule: one for one in outline.findings}


IDLE = "cluster: dgx-h100 x 2\nlayout: {tp: 4, dp: 2, framework: megatron}\n"


def test_idle_gpus_are_named_once_by_both(job):
    by_check, by_map = job(IDLE), job(IDLE)
    check, mapped = _checked(by_check), _mapped(by_map)
    assert check["layout/gpus-unused"] == mapped["layout/gpus-unused"]
    assert check["layout/gpus-unused"].numbers == {"gpus": 16, "ranks": 8, "idle": 8}
    assert check["layout/gpus-unused"].remedy.startswith("leave dp out")
    for outline in (by_check, by_map):
        assert [one.rule for one in outline.findings].count("layout/gpus-unused") == 1
    full = job("cluster: dgx-h100 x 2\nlayout: {tp: 4, framework: megatron}\n")
    assert "layout/gpus-unused" not in _checked(full)
    bare = job("layout: {tp: 4, dp: 2, framework: megatron}\n")
    assert "layout/gpus-unused" not in _checked(bare), "no cluster, nothing idle"


def _text(layout: str, rest: str = "") -> str:
    return f"model: llama3-8b\ncluster: dgx-h100 x 2\nlayout: {{{layout}}}\n{rest}"


@pytest.mark.parametrize(
    ("layout", "rest", "named"),
    [
        ("tp: 3, dp: 2, framework: megatron", "", "heads/divide-tp"),
        ("tp: 16, framework: torch", "", "heads/kv-divide-tp"),
        ("cp: 4, dp: 4, framework: megatron", "batch: {seq_len: 8196}\n", "sequence/factor"),
        ("tp: 16, framework: nanotron, kv_replication: 2", "", "heads/kv-divide-tp"),
        ("tp: 2, dp: 8, framework: megatron", "training: {precision: fp8}\nbatch: {micro_batch: 1, seq_len: 8200}\n",
         "precision/tokens-multiple"),
    ],
)  # fmt: skip
def test_map_names_the_errors_that_check_finds(job, layout, rest, named):
    errors = {
        rule
        for rule, one in _checked(job(_text(layout, rest))).items()
        if one.severity is Severity.ERROR
    }
    assert named in errors
    warning = _mapped(job(_text(layout, rest)))["layout/will-not-run"]
    assert warning.severity is Severity.WARNING
    assert set(warning.numbers["rules"]) == errors
    assert named in warning.message
    assert warning.place.line == 3 or "batch" in rest


def test_map_has_no_such_warning_on_a_layout_that_passes(job):
    text = _text("tp: 8, framework: megatron", "batch: {global_batch: 8, micro_batch: 1}\n")
    assert "layout/will-not-run" not in _mapped(job(text))


@pytest.mark.parametrize("word", ["NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD"])
def test_neighbours_of_fsdp1_shard_over_their_own_dp(job, word):
    # tp 3 leaves dp without a value: nothing of the wrong layout may stick to its neighbours
    outline = job(_text(f"tp: 3, sharding: {word}, framework: torch"))
    judge(outline)
    near = nearest_layouts(outline)
    assert {"tp": 4, "dp": 4}.items() <= near[0].degrees.items()
    assert len(near) == 5


def test_neighbours_of_hybrid_shard_use_the_gpus_of_a_host(job):
    text = (
        "cluster: dgx-h100 x {hosts}\nlayout: {{tp: 2, sharding: HYBRID_SHARD, framework: torch}}\n"
    )
    outline = job(text.format(hosts=2))
    judge(outline)
    assert [one.degrees["dp"] for one in nearest_layouts(outline)] == [16]
    # without a host of a known size there is no shard degree, and no neighbour is legal
    unknown = job("layout: {tp: 2, dp: 8, sharding: HYBRID_SHARD, framework: torch}\n")
    judge(unknown)
    assert nearest_layouts(unknown) == []
