"""Rules on layers by stage and on the batch."""

from __future__ import annotations

import msgspec
import pytest

from groups.building import layout_of
from meshwright.findings import Severity
from meshwright.job.batch import resolve_batch
from meshwright.job.catalogue import find_model
from meshwright.job.sections import BatchSection
from meshwright.rules.job import check_job_rules
from meshwright.rules.registry import RuleContext

MODEL = find_model("llama-3-8b")


def _findings(num_layers=32, batch=None, model=MODEL, **keys):
    layout = layout_of(**keys)
    shape = msgspec.structs.replace(model, num_layers=num_layers) if model else None
    resolved = resolve_batch(BatchSection(**(batch or {})), layout.dp)
    return check_job_rules(RuleContext(layout), shape, resolved)


def test_layers_that_divide_and_a_batch_that_divides():
    batch = {"global_batch": 64, "micro_batch": 1}
    assert _findings(pp=4, dp=4, batch=batch) == []
    assert _findings(pp=4, vp=8, dp=1) == []
    assert _findings(pp=5, dp=1, model=None) == []


def test_layers_left_over():
    [finding] = _findings(num_layers=28, pp=5, dp=1)
    assert finding.rule == "pipeline/layers-divide"
    assert finding.severity is Severity.ERROR
    assert str(finding.place) == "layout.pp"
    assert "leave 3 over (28 = 5 × 5 + 3)" in finding.message
    splits = [[5, 6, 6, 6, 5], [6, 6, 6, 5, 5]]
    assert finding.numbers == {
        "layers": 28,
        "pp": 5,
        "vp": 1,
        "floor_total": 25,
        "lost": 3,
        "splits": splits,
    }
    assert finding.remedy == (
        "pp: 1, 2, 4, 7, 14, 28, or an uneven stage map: stages: [5, 6, 6, 6, 5]"
    )
    for split in splits:
        assert _findings(num_layers=28, pp=5, dp=1, stages=tuple(split)) == []
    assert _findings(num_layers=28, pp=5, dp=1, stages=(5, 5, 6, 6, 6)) == []


def test_chunks_left_over():
    [finding] = _findings(num_layers=32, pp=4, vp=3, dp=1)
    assert "32 layers over 4 stages × 3 chunks leave 8 over" in finding.message


def test_a_stage_map_that_does_not_fit():
    [finding] = _findings(pp=4, dp=1, stages=(8, 8, 8))
    assert str(finding.place) == "layout.stages"
    assert "hold 24 layers on 3 stages" in finding.message
    [finding] = _findings(pp=2, dp=1, stages=(-1, 33))
    assert str(finding.place) == "layout.stages"


def test_fixed_ends_that_leave_a_rest_say_so():
    [finding] = _findings(pp=4, dp=1, first_stage_layers=6)
    assert str(finding.place) == "layout.first_stage_layers"
    assert "first_stage_layers 6 of 32 layers leave 26 for 3 of 4 stages" in finding.message
    [finding] = _findings(pp=4, dp=1, first_stage_layers=30, last_stage_layers=2)
    assert "leave 0 for 2 of 4 stages" in finding.message
    [finding] = _findings(pp=4, vp=2, dp=1, first_stage_layers=5)
    assert "2 equal chunks" in finding.message


@pytest.mark.parametrize("pp", [33, 40, 1000, 10**9, 2**62])
def test_more_stages_than_layers(pp):
    [finding] = _findings(pp=pp, dp=1)
    assert finding.remedy == "pp: 1, 2, 4, 8, 16, 32"


def test_degrees_that_are_no_degrees_are_left_to_their_own_rule():
    assert _findings(pp=0, dp=1) == []
    assert _findings(pp=2, vp=0, dp=1) == []


def test_a_batch_that_cannot_be():
    [finding] = _findings(dp=3, batch={"global_batch": 64})
    assert finding.rule == "batch/contradiction"
    assert finding.severity is Severity.ERROR
    assert str(finding.place) == "batch"
    assert "64 is not divisible by dp 3" in finding.message
    assert finding.numbers == {"dp": 3}
    assert finding.remedy
