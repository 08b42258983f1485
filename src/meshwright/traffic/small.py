"""Small collectives: once a step or once a microbatch, a few bytes, waited for by all.

Megatron-Core and Megatron-LM:

===========================  =========================  ==========  ==================================
what                         axis                       S           source
===========================  =========================  ==========  ==================================
data inside tp               tp, from its first rank    b·s·8 or 4  ``get_batch_on_this_tp_rank``
gradient norm                tp-pp; with the            4 B         ``optimizer/clip_grads.py``
                             distributed optimizer all
                             ranks of an instance
overflow of fp16             the same                   4 B         ``optimizer/optimizer.py``
loss to be logged            dp (with cp), last stage   8 B         ``training/training.py train_step``
token count (per_token_loss) pp, then dp (with cp)      8 B         ``finalize_model_grads.py``
===========================  =========================  ==========  ==================================

Of the data tokens, labels and position ids are 8 bytes a token and the loss mask 4, before the
sequence is cut over cp; the first stage gets tokens and positions, the last labels and mask. A mask
of attention or lengths of packed sequences, where the data make them, are not counted. torch's FSDP
adds up the norm over its shards. What other frameworks do here was not established and is left out.
"""

from __future__ import annotations

import numpy as np

from meshwright.traffic.axes import gradient_axis, model_axis, shard_axis
from meshwright.traffic.collective import Collective, Floats, Run, known_run, unknown_run
from meshwright.traffic.workload import MESH, NO_BATCH, Workload

NUMBER, PAIR, COUNT = 4, 8, 8
TOKENS, LABELS, MASK, POSITIONS = 8, 8, 4, 8
"""Bytes a token of what a microbatch is made from."""


def small_collectives(work: Workload) -> list[Collective]:
    """Return the small collectives of a step."""
    layout = work.layout
    once = np.ones(layout.pp)
    norm = Run("all_reduce", "step", "gradient norm")
    if layout.framework in MESH:
        sharded = layout.sharding in ("fsdp", "hsdp")
        return [known_run(shard_axis(layout), norm, "step", NUMBER, once)] if sharded else []
    if layout.framework != "megatron":
        return []
    axis = "instance" if layout.sharding == "zero1" else model_axis(layout)
    found = [*_data(work), known_run(axis, norm, "step", NUMBER, once)]
    if work.training.precision == "fp16":
        overflow = Run("all_reduce", "step", "overflow")
        found.append(known_run(axis, overflow, "step", NUMBER, once))
    replicas, last = gradient_axis(layout.cp), work.output_stages()
    logged = Run("all_reduce", "step", "loss to be logged")
    found.append(known_run(replicas, logged, "step", PAIR, last))
    if work.training.per_token_loss:
        spread = Run("broadcast", "step", "token count")
        total = Run("all_reduce", "step", "token count")
        found.append(known_run("pp", spread, "step", COUNT, once))
        found.append(known_run(replicas, total, "step", COUNT, once))
    return found


def _data(work: Workload) -> list[Collective]:
    """Return what the first tp rank of the first and last stage gives the others."""
    micro, seq, rounds = work.batch.micro_batch, work.batch.seq_len, work.rounds
    first, last = work.embedding_stages(), work.output_stages()
    parts: list[tuple[str, int, Floats]] = [
        ("tokens", TOKENS, first),
        ("labels", LABELS, last),
        ("loss mask", MASK, last),
        ("positions", POSITIONS, first),
    ]
    found = []
    for what, width, by_stage in parts:
        run = Run("broadcast", "input", what)
        if micro is None or seq is None or rounds is None:
            found.append(unknown_run("tp", run, NO_BATCH))
        else:
            size = micro * seq * width
            found.append(known_run("tp", run, "microbatch", size, by_stage * rounds))
    return found
