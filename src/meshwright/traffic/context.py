"""Context parallelism: keys and values (or heads) of every attention layer, over cp.

K_c = 2·b·(s/c)·max(g/t, 1)·d·w is the keys and values of a rank, Q_c its queries
(TransformerEngine ``pytorch/attention/dot_product_attention/context_parallel.py``):

- p2p (``AttnFuncWithCPAndKVP2P``): a ring of c-1 sends of K_c to the next rank forward; backward
  c steps to the previous one: keys and values c-1 times, their gradients c-1 times;
- all_gather: keys and values apart, gathered forward and again backward, gradients scattered;
- a2a (Ulysses): q, k, v in and o out by all-to-all; backward dO in and dq, dk, dv out;
- a2a+p2p: the all-to-alls over the low level of ``hierarchical_cp``, the ring over the high level:
  its piece has 1/c0 of the heads and c0 times the tokens, so it is K_c again.

Recompute, full or of the core attention (Megatron's ``selective``), runs the forward ones again:
they are part of the core attention. Latent attention sends keys and values of all its heads, made
whole. fp8 attention, which sends one byte, is not told apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from meshwright.traffic.collective import Collective, Run, known_run, unknown_run
from meshwright.traffic.workload import MESH, NO_BATCH, Workload

DEFAULT_KIND = {"megatron": "p2p", "deepspeed": "a2a"}
_ATTENTION = "attention of the piece in hand"


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Bytes of one attention layer's pieces on a rank."""

    query: float
    key: float
    value: float
    out: float


def context_collectives(work: Workload) -> list[Collective]:
    """Return what every attention layer sends along cp."""
    layout = work.layout
    if layout.cp == 1:
        return []
    kind = work.section.cp_kind or DEFAULT_KIND.get(layout.framework)
    rows = [*_rows(work, kind)]
    rows += [(axis, _again(run), part) for axis, run, part in rows if _is_repeated(work, run)]
    pieces, rounds = _pieces(work), work.rounds
    reason = _unproved(work, kind)
    if pieces is None or rounds is None or reason is not None:
        return [unknown_run(axis, run, reason or NO_BATCH) for axis, run, _ in rows]
    times = work.layers_by_stage() * rounds
    return [
        known_run(axis, run, "layer and microbatch", _size(pieces, part, layout.cp), times)
        for axis, run, part in rows
    ]


def _unproved(work: Workload, kind: str | None) -> str | None:
    if work.layout.framework in MESH and work.section.cp_kind is None:
        return "what torch's context parallelism sends was not established; cp_kind says it"
    if kind is None:
        return f"what {work.layout.framework} sends along cp was not established; cp_kind says it"
    if kind == "a2a+p2p" and len(work.layout.hierarchical_cp) != 2:
        return "hierarchical_cp is not given (two sizes: all-to-all, ring)"
    return None


def _pieces(work: Workload) -> _Pieces | None:
    tokens, model, tp = work.tokens, work.model, work.layout.tp
    if tokens is None:
        return None
    # Latent attention makes keys and values of every head before the core attention.
    kv_heads = model.heads if model.is_mla else model.kv_heads
    row = tokens * work.activation_bytes
    heads, kept = model.heads / tp, max(kv_heads / tp, 1.0)
    return _Pieces(
        query=row * heads * model.head_dim,
        key=row * kept * model.head_dim,
        value=row * kept * model.value_dim,
        out=row * heads * model.value_dim,
    )


def _size(pieces: _Pieces, part: str, cp: int) -> float:
    sizes = {
        "kv": pieces.key + pieces.value,
        "every k": cp * pieces.key,
        "every v": cp * pieces.value,
        "q": pieces.query,
        "k": pieces.key,
        "v": pieces.value,
        "o": pieces.out,
    }
    return sizes[part]


_Row = tuple[str, Run, str]


def _rows(work: Workload, kind: str | None) -> Iterable[_Row]:
    """Return (axis, row, piece) of one layer and microbatch."""
    layout = work.layout
    if kind == "all_gather":
        return _gathered()
    if kind == "a2a":
        return _exchanged("cp")
    if kind == "a2a+p2p":
        sizes = layout.hierarchical_cp
        low, high = ("cp_l0", "cp_l1") if len(sizes) == 2 else ("cp", "cp")
        steps = sizes[1] - 1 if len(sizes) == 2 else 1
        return [*_exchanged(low), *_ring(high, steps)]
    return _ring("cp", layout.cp - 1)


def _ring(axis: str, steps: int) -> list[_Row]:
    if steps == 0:
        return []
    rows = (
        Run("send", "forward", "keys and values", steps, _ATTENTION),
        Run("send", "backward", "keys and values", steps, _ATTENTION, reverse=True),
        Run("send", "backward", "gradients of keys and values", steps, _ATTENTION, reverse=True),
    )
    return [(axis, run, "kv") for run in rows]


def _gathered() -> list[_Row]:
    return [
        ("cp", Run(op, phase, what), f"every {part}")
        for op, phase, of in (
            ("all_gather", "forward", ""),
            ("all_gather", "backward", ""),
            ("reduce_scatter", "backward", "gradients of "),
        )
        for what, part in ((f"{of}keys", "k"), (f"{of}values", "v"))
    ]


def _exchanged(axis: str) -> list[_Row]:
    """Return the all-to-alls: heads against sequence, each way."""
    names = (("queries", "q"), ("keys", "k"), ("values", "v"))
    rows = [
        (axis, Run("all_to_all", "forward", what, hides_behind="the next of q, k, v"), part)
        for what, part in names
    ]
    rows.append((axis, Run("all_to_all", "forward", "attention's output"), "o"))
    rows.append((axis, Run("all_to_all", "backward", "gradients of attention's output"), "o"))
    rows += [(axis, Run("all_to_all", "backward", f"gradients of {n}"), p) for n, p in names]
    return rows


def _is_repeated(work: Workload, run: Run) -> bool:
    if run.phase != "forward":
        return False
    mode = work.training.recompute
    return mode == "full" or (mode == "selective" and work.layout.framework == "megatron")


def _again(run: Run) -> Run:
    return replace(run, phase="recompute")
