"""Llama-3-8B on 16 GPUs, TP 4 × DP 4: figures worked by hand from the shapes."""

from __future__ import annotations

import pytest

from meshwright.job.catalogue import find_model
from meshwright.job.parameters import total_parameters
from meshwright.traffic.job import modelled_collectives
from meshwright.units import MIB
from traffic.building import count, named, of_layers, on, ops, sent_bytes, workload

GB = 10**9
EXAMPLE = {"tp": 4, "dp": 4, "sequence_parallel": True, "sharding": "zero1"}
TRAINING = {"precision": "bf16", "gradient_dtype": "fp32", "recompute": "selective"}


def _collectives(training=TRAINING, **changes):
    return modelled_collectives(workload(training=training, **(EXAMPLE | changes)))


def test_the_hidden_tensor_and_the_microbatches():
    work = workload(**EXAMPLE)
    assert work.batch.num_microbatches == 16
    assert work.hidden_tensor_bytes == 64 * MIB


def test_tensor_parallel_with_sequence_parallelism():
    found = of_layers(on(_collectives(), "tp"))
    assert count(found) == 5120
    assert {float(size) for one in found for size in one.bytes_by_stage} == {64 * MIB}
    assert sent_bytes(found, 4) == 5120 * 64 * MIB * 3 / 4
    assert sent_bytes(found, 4) == pytest.approx(257.7 * GB, rel=1e-4)
    assert sent_bytes(found, 4) / (450 * GB) == pytest.approx(0.573, rel=1e-3)
    by_phase = {
        (op, phase): count([one for one in found if (one.op, one.phase) == (op, phase)])
        for op, phase in set(ops(found))
    }
    # 2 + 2 forward, 4 (2 of them for weight gradients) + 2 backward, 32 layers × 16 microbatches
    assert by_phase == {
        ("all_gather", "forward"): 1024,
        ("reduce_scatter", "forward"): 1024,
        ("all_gather", "backward"): 2048,
        ("reduce_scatter", "backward"): 1024,
    }


def test_embedding_output_layer_and_loss():
    """2 A for the embedding, 3 A for the output layer, each microbatch; the loss is small."""
    found = on(_collectives(), "tp")
    ends = [one for one in found if one.per == "microbatch" and one.phase != "input"]
    hidden = [one for one in ends if one.bytes_by_stage[0] == 64 * MIB]
    assert count(hidden) == 5 * 16
    [loss] = named(ends, "vocab-parallel cross entropy")
    assert loss.bytes_by_stage.tolist() == [8192 * 4]
    assert loss.count_by_stage.tolist() == [3 * 16]
    assert sent_bytes(found, 4) == pytest.approx(261.7 * GB, rel=2e-4)
    assert sent_bytes(found, 4) / (450 * GB) == pytest.approx(0.582, rel=1e-3)


def test_tensor_parallel_without_sequence_parallelism():
    found = of_layers(on(_collectives(sequence_parallel=False), "tp"))
    assert {one.op for one in found} == {"all_reduce"}
    assert count(found) == 4 * 32 * 16
    assert sent_bytes(found, 4) == pytest.approx(206.2 * GB, rel=1e-3)


def test_data_parallel_with_the_distributed_optimizer():
    scatter, gather, loss = on(_collectives(), "dp")
    assert loss.what == "loss to be logged"
    assert (scatter.op, gather.op) == ("reduce_scatter", "all_gather")
    assert scatter.bytes_by_stage.tolist() == pytest.approx([8.03 * GB], rel=2e-3)
    assert gather.bytes_by_stage.tolist() == pytest.approx([4.02 * GB], rel=2e-3)
    assert scatter.count_by_stage.tolist() == gather.count_by_stage.tolist() == [1]
    # each NIC of the worked example carries half of both, two members of a group a host
    assert sent_bytes([scatter, gather], 4) / 2 == pytest.approx(4.52 * GB, rel=2e-3)


def test_a_rank_holds_a_quarter_and_the_whole_norms():
    model = find_model("llama-3-8b")
    assert model.vocab % (128 * 4) == 256  # Megatron adds 256 rows to each of the two matrices
    total = total_parameters(model) + 2 * 256 * 4096
    norms = (2 * 32 + 1) * 4096
    scatter, gather, _ = on(_collectives(), "dp")
    held = (total - norms) / 4 + norms
    assert scatter.bytes_by_stage.tolist() == [held * 4]
    assert gather.bytes_by_stage.tolist() == [held * 2]


def test_data_parallel_without_the_distributed_optimizer():
    reduce, _ = on(_collectives(sharding="none"), "dp")
    assert reduce.op == "all_reduce"
    assert reduce.bytes_by_stage.tolist() == pytest.approx([8.03 * GB], rel=2e-3)
    assert sent_bytes([reduce], 4) / 2 == pytest.approx(6.02 * GB, rel=2e-3)


def test_gradients_in_bf16_halve_what_is_reduced():
    training = TRAINING | {"gradient_dtype": "bf16"}
    reduce, _ = on(_collectives(training, sharding="none"), "dp")
    assert sent_bytes([reduce], 4) / 2 == pytest.approx(3.01 * GB, rel=2e-3)
    scatter, gather, _ = on(_collectives(training), "dp")
    assert scatter.bytes_by_stage.tolist() == gather.bytes_by_stage.tolist()


def test_turning_the_order_changes_no_bytes():
    turned = _collectives(order="dp-cp-ep-tp-pp")
    assert sent_bytes(on(turned, "tp"), 4) == sent_bytes(on(_collectives(), "tp"), 4)
    # over the eight NICs of a host, two hosts: 128.8 GB each way for the layers
    layers = of_layers(on(turned, "tp"))
    assert sent_bytes(layers, 4) / 2 == pytest.approx(128.8 * GB, rel=1e-3)


def test_nothing_is_unknown():
    assert [one for one in _collectives() if not one.is_known] == []
