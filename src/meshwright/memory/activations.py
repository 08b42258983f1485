"""Activations of one layer and microbatch, tensor by tensor, on one rank.

Pre-norm layers with flash attention and no dropout, as Megatron-Core with TransformerEngine and
torchtitan run them. T tokens = b·s/c, n query and g key/value heads of width d, e bytes an element:

==================  ==========================================================================
norms               input and output of both, e·4·T·h, over tp with sequence parallelism
attention           q, k, v and output, e·T·(2n + 2g)·d/t; log-sum-exp 4·T·n/t. Latent attention:
                    latents before and after their norms, q and k with both parts, v, output
MLP                 e·3·T·f/t gated (gate and up, product), else e·2·T·f/t
experts             e·T·k·λ·(h + 3·fe/etp): λ the most loaded rank's tokens over the mean.
                    Router weights multiply the inner activation (Megatron-Core 0.13 and newer),
                    so that the experts' outputs are not kept
context parallel    with all-to-all one more copy of attention's output (TransformerEngine 2.8)
==================  ==========================================================================

Checked against real runs: ``docs/accuracy.md``. Every figure may be an array over layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright.job.model import Model

Count = Any


@dataclass(frozen=True, slots=True)
class Cut:
    """One microbatch on one rank: its tokens and how tensors are divided.

    ``sequence`` is tp with sequence parallelism, else 1; ``imbalance`` the tokens of the most
    loaded expert rank over the mean.
    """

    tokens: Count
    element_bytes: Count
    tp: Count
    sequence: Count
    etp: Count = 1
    imbalance: Count = 1.0
    copies_output: bool = False
    """Context parallelism by all-to-all."""


@dataclass(frozen=True, slots=True)
class LayerBytes:
    """Bytes of one layer: kept from forward to backward, and more while its backward runs."""

    kept: Count
    working: Count


def hidden_bytes(model: Model, cut: Cut) -> Count:
    """Return one hidden tensor as it stands between layers."""
    return cut.element_bytes * cut.tokens * model.hidden / cut.sequence


def attention_bytes(model: Model, cut: Cut) -> Count:
    """Return what attention keeps besides the norm, log-sum-exp included."""
    lse = 4 * cut.tokens * model.heads / cut.tp
    more = model.value_dim if cut.copies_output else 0
    if model.is_mla:
        latent = 2 * (model.q_lora_rank + model.kv_lora_rank) + model.qk_rope_dim
        heads = model.heads * (2 * model.head_dim + 2 * model.value_dim + more)
        return cut.element_bytes * cut.tokens * (latent + heads / cut.tp) + lse
    heads = (2 * model.heads + 2 * model.kv_heads) * model.head_dim + model.heads * more
    if model.qk_norm != "none":
        heads += (model.heads + model.kv_heads) * model.head_dim
    return cut.element_bytes * cut.tokens * heads / cut.tp + lse


def mlp_bytes(model: Model, cut: Cut, *, experts: bool) -> Count:
    """Return what the MLP or the experts keep besides the norm."""
    widths = 3 if model.gated_mlp else 2
    if not experts:
        return cut.element_bytes * cut.tokens * widths * model.ffn / cut.tp
    shared = cut.element_bytes * cut.tokens * widths * model.shared_ffn_total / cut.tp
    routed = routed_tokens(model, cut) * (model.hidden + widths * model.moe_ffn / cut.etp)
    return shared + cut.element_bytes * routed


def routed_tokens(model: Model, cut: Cut) -> Count:
    """Return the token copies a rank's experts take.

    tp ranks dispatch different tokens (under sequence parallelism they hold only those; else copies are
    left out first), and the etp ranks that share an expert all take the tokens of each other: with etp
    = tp, as experts sharded like an MLP, all tokens of the context-parallel rank, whatever tp is.
    """
    return cut.tokens / cut.tp * cut.etp * model.top_k * cut.imbalance


def whole_layer_bytes(model: Model, cut: Cut, *, experts: bool) -> Count:
    """Return what a layer keeps without recomputation."""
    norms = 4 * hidden_bytes(model, cut)
    return norms + attention_bytes(model, cut) + mlp_bytes(model, cut, experts=experts)


def gathered_bytes(model: Model, cut: Cut) -> Count:
    """Return one hidden tensor gathered over tp."""
    return cut.element_bytes * cut.tokens * model.hidden


def backward_bytes(model: Model, cut: Cut, *, experts: bool) -> Count:
    """Return temporaries of a layer's backward: gradients of the MLP's inside and of its ends."""
    widths = 3 if model.gated_mlp else 2
    ends = (1 + (cut.sequence > 1)) * gathered_bytes(model, cut)
    if not experts:
        return cut.element_bytes * cut.tokens * widths * model.ffn / cut.tp + ends
    width = widths * model.moe_ffn / cut.etp + 2 * model.hidden
    return cut.element_bytes * routed_tokens(model, cut) * width + ends


def megatron_layer(model: Model, cut: Cut, recompute: str, *, experts: bool) -> LayerBytes:
    """Return a layer in Megatron-Core: ``recompute`` none, selective (core attention) or full."""
    whole = whole_layer_bytes(model, cut, experts=experts)
    back = backward_bytes(model, cut, experts=experts)
    if recompute == "full":
        kept = hidden_bytes(model, cut)
        return LayerBytes(kept, whole - kept + back)
    if recompute == "selective":
        # Flash attention keeps no scores: only the log-sum-exp is left to recompute.
        lse = 4 * cut.tokens * model.heads / cut.tp
        return LayerBytes(whole - lse, lse + back)
    return LayerBytes(whole, back)


def torch_layer(model: Model, cut: Cut, recompute: str, *, experts: bool) -> LayerBytes:
    """Return a layer of torchtitan: DTensor keeps inputs gathered over tp.

    ``selective`` is per operator (``_save_list`` of parallelize_llama.py): the layer's input,
    attention's output, and every second matrix product of q, k, v, o, gate, up, down.
    """
    whole = whole_layer_bytes(model, cut, experts=experts)
    whole = whole + 2 * gathered_bytes(model, cut) * (cut.tp > 1)
    back = backward_bytes(model, cut, experts=experts)
    kept = hidden_bytes(model, cut)
    if recompute == "none":
        return LayerBytes(whole, back)
    if recompute == "selective":
        kept = kept + _operators_bytes(model, cut, experts=experts)
    return LayerBytes(kept, whole - kept + back)


def _operators_bytes(model: Model, cut: Cut, *, experts: bool) -> Count:
    """Return the outputs that selective recomputation keeps in a layer."""
    lse = 4 * cut.tokens * model.heads / cut.tp
    query = model.heads * model.head_dim
    value = model.kv_heads * model.value_dim
    output = model.heads * model.value_dim
    kept = cut.element_bytes * cut.tokens * (query + value + output) / cut.tp + lse
    kept = kept + 2 * hidden_bytes(model, cut) * (cut.tp > 1)  # reduce-scattered outputs
    if experts:  # grouped products are not on the list of every release: count them as kept
        return kept + mlp_bytes(model, cut, experts=True)
    return kept + cut.element_bytes * cut.tokens * (model.ffn / cut.tp + model.hidden)
