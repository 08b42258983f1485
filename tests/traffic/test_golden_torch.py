"""Collectives that torch 2.13 runs, counted by running it: 4 blocks, one microbatch."""

from __future__ import annotations

import ast
import csv

import msgspec
import pytest

from meshwright.job.catalogue import find_model
from meshwright.traffic.data_fsdp import fsdp_collectives
from meshwright.traffic.pipeline import pipeline_collectives
from meshwright.traffic.tensor import tensor_collectives
from support import shared_path
from traffic.building import of_layers, on, workload

pytestmark = [pytest.mark.captured, pytest.mark.golden]
FUNCTIONS = {
    "all_gather": ("_allgather_base_", "all_gather_into_tensor"),
    "reduce_scatter": ("_reduce_scatter_base_", "reduce_scatter_tensor"),
    "all_reduce": ("allreduce_", "all_reduce"),
}
"""The functions torch counts: of the c10d backend, and functional ones."""
BATCH = {"micro_batch": 1, "num_microbatches": 1, "seq_len": 128}


def _rows():
    path = shared_path("reference/golden/torch_comm_counts.csv")
    with path.open() as lines:
        return [
            (row["case"], row["phase"], ast.literal_eval(row["collective_counts"]))
            for row in csv.DictReader(lines)
        ]


def _keys(case: str):
    """Return layout and training keys of a case, as its name says them."""
    layout = {"framework": "torch", "dp": 8, "sharding": "fsdp"}
    training = {}
    if case.startswith("HSDP"):
        layout |= {"sharding": "hsdp", "shard_degree": 4}
    if "reshard_after_forward=" in case:
        word = case.rpartition("=")[2]
        words = {"True": True, "False": False}
        training["reshard_after_forward"] = words[word] if word in words else int(word)
    # The cases count a microbatch that is not the last; without the last there is no reduction.
    skipped = None
    if "set_requires_gradient_sync(False)" in case:
        training["gradient_sync"], skipped = "last", ("reduce_scatter", "all_reduce")
    if "set_requires_all_reduce(False)" in case:
        training["replica_sync"], skipped = "last", ("all_reduce",)
    return layout, training, skipped


def _counted(collectives, phase, microbatches=1):
    found = {}
    for one in collectives:
        if one.phase == phase:
            found[one.op] = found.get(one.op, 0) + one.count_by_stage[0] / microbatches
    return found


def _expected(counts):
    return {
        op: sum(counts.get(name, 0) for name in names)
        for op, names in FUNCTIONS.items()
        if any(name in counts for name in names)
    }


def _model():
    return msgspec.structs.replace(find_model("llama-3-8b"), num_layers=4)


def test_fsdp_and_hsdp():
    checked = 0
    for case, phase, counts in _rows():
        if "FSDP2" not in case and "HSDP" not in case:
            continue
        layout, training, skipped = _keys(case)
        work = workload(_model(), BATCH, training, **layout)
        # The measured model has no parameters outside its blocks, so its root adds none.
        blocks = [one for one in fsdp_collectives(work) if one.what.endswith(" layers")]
        if skipped is not None:
            # Once a step means not in this microbatch: count what each of two runs but the last.
            two = workload(_model(), BATCH | {"num_microbatches": 2}, training, **layout)
            again = [one for one in fsdp_collectives(two) if one.what.endswith(" layers")]
            more, less = _counted(again, phase), _counted(blocks, phase)
            found = {op: more[op] - less[op] for op in more if more[op] > less[op]}
            assert not set(found) & set(skipped)
        else:
            found = _counted(blocks, phase)
        assert found == _expected(counts), (case, phase)
        checked += 1
    assert checked == 16


def test_tensor_parallel_mlp():
    """The counts are of one block; a layer has two."""
    checked = 0
    for case, phase, counts in _rows():
        if not case.startswith("torch TP MLP"):
            continue
        split = case.endswith("SP=True")
        work = workload(_model(), BATCH, tp=2, dp=4, framework="torch", sequence_parallel=split)
        found = _counted(of_layers(tensor_collectives(work)), phase)
        assert {op: times / (4 * 2) for op, times in found.items()} == _expected(counts)
        checked += 1
    assert checked == 4


def test_sends_of_pipeline_schedules():
    """Each rank's SEND_F and SEND_B in torch's own schedules; parameters are gathered once a chunk."""
    path = shared_path("reference/golden/pipeline_torch_comms.csv")
    checked = set()
    with path.open() as lines:
        for row in csv.DictReader(lines):
            p, m, v, rank = (int(row[name]) for name in ("p", "m", "v", "rank"))
            batch = {"micro_batch": 1, "num_microbatches": m, "seq_len": 128}
            keys = {"pp": p, "vp": v, "dp": 2, "framework": "torchtitan", "sharding": "fsdp"}
            work = workload(_divisible(p * v), batch, {"schedule": row["schedule"]}, **keys)
            for phase, op in (("forward", "SEND_F"), ("backward", "SEND_B")):
                sends = on(pipeline_collectives(work), "pp")
                found = sum(one.count_by_stage[rank] for one in sends if one.phase == phase)
                assert found == sum(op in word for word in row["ops"].split()), (row, phase)
            layers = [one for one in fsdp_collectives(work) if one.what.endswith(" layers")]
            runs = {one.op: one.count_by_stage[rank] / one.each for one in layers}
            held = work.layers_by_stage()[rank]
            assert runs == {"all_gather": held, "reduce_scatter": held}
            for op in ("UNSHARD", "REDUCE_GRAD"):
                assert sum(word.endswith(op) for word in row["ops"].split()) == v
            checked.add(row["schedule"])
    assert {"ZBVZeroBubble", "DualPipeV", "Interleaved1F1B"} <= checked


def _divisible(chunks):
    """Return a model with a whole number of layers a chunk."""
    return msgspec.structs.replace(find_model("llama-3-8b"), num_layers=2 * chunks)
