"""The memory of a job: terms, worst stage, what fits, what helps."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.building import BATCH, DENSE, EXPERTS, workload
from meshwright.errors import UsageError
from meshwright.findings import Severity
from meshwright.memory.assumptions import assumptions_of
from meshwright.memory.constants import constants_with, default_constants
from meshwright.memory.fixes import fixes, together
from meshwright.memory.job import Device, JobMemory, job_memory
from meshwright.rules.memory import check_memory, memory_rules
from meshwright.rules.registry import RuleContext
from meshwright.traffic.workload import Workload


def memory(work: Workload, capacity: float | None = None, **constants: str) -> JobMemory:
    """Return the memory of a job."""
    return job_memory(work, Device("some GPU", capacity), constants_with(constants))


BARE = {"context_bytes": "0", "workspace_bytes": "0", "fragmentation_share": "0"}


def test_total_is_the_sum_of_its_terms():
    found = memory(workload(pp=2, dp=2, **BATCH))
    for stage in range(2):
        assert sum(found.terms(stage).values()) == pytest.approx(found.total[stage])
    assert found.reserved == pytest.approx(1.05 * found.allocated)


def test_states_of_a_small_job_by_hand():
    found = memory(workload(dp=4, sharding="zero1", **BATCH), **BARE)
    layer = 64 * 2 * (8 + 4) * 8 + 3 * 64 * 192 + 2 * 64
    count = 8 * layer + 2 * 1024 * 64 + 64
    assert found.parameters.total[0] == count
    assert found.weights[0] == 2 * count
    assert found.gradients[0] == 4 * count
    assert found.optimizer[0] == 12 * count / 4


def test_first_stage_holds_pp_microbatches_and_the_last_the_loss():
    found = memory(workload(pp=4, dp=1, **BATCH))
    assert found.peak is not None
    assert found.peak.in_flight.microbatches.tolist() == [4, 3, 2, 1]
    assert found.peak.kept[0] == pytest.approx(4 * found.peak.kept[3])
    assert found.peak.loss.tolist()[:3] == [0, 0, 0]
    assert found.peak.loss[3] > 0


def test_worst_stage_is_not_the_mean():
    found = memory(
        workload(pp=4, dp=1, stages=(1, 2, 2, 3), num_microbatches=1, micro_batch=1, seq_len=8)
    )
    assert found.worst_stage == 3
    assert found.total[3] == max(found.total)


def test_opposed_pipelines_hold_two_copies():
    one = memory(workload(pp=2, dp=1, **BATCH))
    two = memory(workload(pp=2, dp=1, schedule="dualpipe", **BATCH))
    assert two.parameters.total == pytest.approx(np.full(2, one.parameters.total.sum()), rel=0.01)


def test_without_a_batch_activations_are_unknown_and_said():
    found = memory(workload(dp=4), capacity=1e9)
    assert found.peak is None
    assert found.fits is None
    assert "activations" not in found.terms(0)
    assert "memory/not-known" in rules_of(found)


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        ({}, ("micro_batch", "seq_len")),
        ({"micro_batch": 1}, ("seq_len",)),
        ({"seq_len": 128, "global_batch": 64}, ("micro_batch",)),
        ({"seq_len": 128, "micro_batch": 1}, ()),
        # a pipeline keeps as many microbatches as there are: without their number it is not known
        ({"seq_len": 128, "micro_batch": 1, "pp": 2}, ("num_microbatches",)),
        ({"seq_len": 128, "micro_batch": 1, "pp": 2, "global_batch": 64}, ()),
    ],
)
def test_what_is_missing_is_named(keys, missing):
    found = memory(workload(dp=4, **keys), capacity=1e12)
    assert found.missing == missing
    assert (found.peak is None) == bool(missing)


def test_a_local_batch_is_in_flight_and_not_the_whole_step():
    """torchtitan runs a step as passes: GPipe keeps the microbatches of one."""
    keys = {"framework": "torchtitan", "schedule": "gpipe", "pp": 2, "dp": 2, "seq_len": 128}
    whole = memory(workload(local_batch=8, micro_batch=1, global_batch=16, **keys))
    passes = memory(workload(local_batch=8, micro_batch=1, global_batch=64, **keys))
    assert passes.peak is not None
    assert passes.peak.in_flight.microbatches.tolist() == [8, 8]
    assert passes.total.tolist() == whole.total.tolist()


def test_fp8_parameters_take_fewer_bytes():
    keys = {"dp": 4, "sharding": "zero1", "precision": "fp8", **BATCH}
    wide = memory(workload(**keys))
    narrow = memory(workload(fp8_param_gather=True, **keys))
    assert wide.weights[0] == narrow.weights[0]  # two copies of a byte where the GPU is not known
    on_blackwell = job_memory(
        workload(fp8_param_gather=True, **keys), Device("B200 SXM 180G", 1e12), default_constants()
    )
    assert on_blackwell.weights[0] == wide.weights[0] / 2


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"framework": "torch"}, ("fp32, under autocast", "second time")),
        ({"framework": "torch", "gradient_dtype": "bf16"}, ("a model in bf16", "second time")),
        ({"framework": "torchtitan", "sharding": "fsdp"}, ("reduced in fp32 (torchtitan's default)",)),
        ({"framework": "torch", "sharding": "fsdp"}, ("reduced in 16 bit (torch's default)",)),
        ({"framework": "deepspeed", "sharding": "zero3"}, ("grad_accum_dtype", "ZeRO-3")),
        ({"framework": "nanotron"}, ("accumulate_grad_in_fp32",)),
        ({"precision": "mxfp8"}, ("reduced in fp32", "of mxfp8 count as bf16")),
        ({"precision": "fp8", "fp8_param_gather": True}, ("kept in fp8",)),
        ({"framework": "torchtitan", "pp": 2, "local_batch": 8}, ("micro_batch 1, num_microbatches 8",)),
    ],
)  # fmt: skip
def test_what_is_taken_for_granted_is_said(keys, words):
    said = " ".join(assumptions_of(workload(dp=4, **keys)))
    assert all(word in said for word in words), said


def rules_of(found: JobMemory) -> dict[str, Severity]:
    """Return the rules that find something, with their severity."""
    context = RuleContext(found.work.layout)
    return {one.rule: one.severity for one in check_memory(found, fixes(found), context)}


@given(st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_more_tokens_never_take_less_and_more_sharding_never_more(micro, tp, cp):
    keys = {"num_microbatches": 4, "seq_len": 128, "tp": tp, "cp": cp, "dp": 2}
    small = memory(workload(micro_batch=micro, **keys)).total.max()
    assert memory(workload(micro_batch=2 * micro, **keys)).total.max() > small
    sharded = memory(workload(micro_batch=micro, sharding="zero1", **keys))
    assert sharded.total.max() < small
    split = memory(workload(micro_batch=micro, **{**keys, "tp": 2 * tp}))
    assert split.total.max() < small


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "torch", "deepspeed"])
@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3", "fsdp", "hsdp"])
@pytest.mark.parametrize("model", [DENSE, EXPERTS])
def test_every_framework_and_sharding_gives_finite_bytes(framework, sharding, model):
    found = memory(workload(model, dp=4, pp=2, framework=framework, sharding=sharding, **BATCH))
    assert np.isfinite(found.total).all()
    assert (found.total > found.states).all()


def test_a_job_that_does_not_fit_is_an_error_with_numbers_and_remedy():
    work = workload(tp=2, dp=4, **BATCH)
    total = float(memory(work, **BARE).total.max())
    found = memory(work, 0.8 * total, **BARE)
    (finding,) = check_memory(found, fixes(found), RuleContext(work.layout))
    assert (finding.rule, finding.severity) == ("memory/does-not-fit", Severity.ERROR)
    assert finding.numbers["missing_bytes"] == pytest.approx(0.2 * total)
    assert finding.numbers["dominant"] == found.dominant
    assert "sharding: zero1" in (finding.remedy or "")
    assert found.fits is False
    assert memory(work, 2 * total, **BARE).fits is True


def test_little_room_is_a_warning():
    work = workload(dp=4, sharding="zero1", **BATCH)
    total = float(memory(work).total.max())
    assert rules_of(memory(work, 1.01 * total))["memory/little-room"] is Severity.WARNING
    assert "memory/little-room" not in rules_of(memory(work, 2 * total))


def test_rules_are_registered_with_source_and_summary():
    found = memory(workload(dp=2, **BATCH))
    rules = memory_rules(found, ())
    assert len({one.id for one in rules}) == len(rules)
    assert all(one.source and one.summary for one in rules)


def test_unknown_schedule_is_said_and_counts_as_1f1b():
    found = memory(workload(pp=2, dp=1, schedule="my own", **BATCH))
    assert found.peak is not None
    assert found.peak.in_flight.microbatches.tolist() == [2, 1]
    assert "memory/schedule-unknown" in rules_of(found)


def test_fixes_save_what_they_say():
    work = workload(tp=2, dp=4, **BATCH)
    found = memory(work, **BARE)
    best = {fix.change: fix for fix in fixes(found)}
    sharded = memory(workload(tp=2, dp=4, sharding="zero1", **BATCH), **BARE)
    fix = best["sharding: zero1"]
    assert fix.total_bytes == pytest.approx(float(sharded.total.max()))
    assert fix.saved_bytes == pytest.approx(float(found.total.max() - sharded.total.max()))
    assert "recompute: full" in best
    assert "sequence_parallel: true" in best
    halved = memory(workload(tp=2, dp=4, micro_batch=1, num_microbatches=16, seq_len=128), **BARE)
    assert best["micro_batch: 1"].total_bytes == pytest.approx(float(halved.total.max()))


def test_a_torch_pipeline_may_gather_again():
    keys = {"framework": "torchtitan", "sharding": "fsdp", "pp": 2, "dp": 2}
    deep = msgspec.structs.replace(DENSE, num_layers=64)
    found = memory(workload(deep, **keys, **BATCH), **BARE)
    fix = next(one for one in fixes(found) if one.change == "reshard_after_forward: true")
    # two bytes a parameter less, and units gathered one at a time instead
    assert 0 < fix.saved_bytes < 2 * float(found.parameters.total.max())


def test_fixes_that_fit_and_cost_nothing_come_first():
    work = workload(tp=2, dp=4, **BATCH)
    found = fixes(memory(work, 0.8 * float(memory(work, **BARE).total.max()), **BARE))
    assert found[0].fits
    order = [(not fix.fits, fix.price) for fix in found]
    assert order == sorted(order)


def test_changes_together_where_none_is_enough():
    work = workload(tp=2, dp=4, **BATCH)
    least = min(fix.total_bytes for fix in fixes(memory(work, **BARE)))
    found = memory(work, 0.7 * least, **BARE)
    chosen = together(found)
    assert len(chosen) > 1
    assert chosen[-1].fits
    assert chosen[-1].total_bytes <= 0.7 * least
    assert together(memory(work, 1.0, **BARE)) == []


def test_constants_have_source_and_can_be_set():
    constants = default_constants().by_name
    assert all(one.source and one.what for one in constants.values())
    changed = constants_with({"context_bytes": "600 MB", "fragmentation_share": "0.1"})
    assert changed["context_bytes"] == 600_000_000
    assert changed["fragmentation_share"] == 0.1
    assert changed.by_name["context_bytes"].origin.value == "parsed"


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("contxt_bytes", "1", "context_bytes"),
        ("context_bytes", "many", "no number"),
        ("fragmentation_share", "-1", "outside"),
        ("fragmentation_share", "nan", "outside"),
        ("nothing_like_it", "1", "constants:"),
    ],
)
def test_wrong_constants_are_refused(name, value, word):
    with pytest.raises(UsageError, match=word):
        constants_with({name: value})
