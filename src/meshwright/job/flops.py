"""FLOPs of a model in closed form, and what share of a GPU's peak a measured rate is.

As Megatron-LM counts (``megatron/training/training.py`` ``num_floating_point_operations``): two a
multiply-add, three passes (forward, gradients of inputs, gradients of weights), the causal half of
attention, no router and no norm. The other convention (PaLM, Korthikanti et al. arXiv 2205.05198)
counts the full square of attention; both are given, since an MFU says nothing without its convention.
"""

from __future__ import annotations

import msgspec

from meshwright.job.model import Model, moe_layers

PASSES = 3
_PER_PARAMETER = 2 * PASSES


class FlopsPerToken(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of one token, forward and backward, at one sequence length."""

    seq_len: int
    projections: float
    """Of attention: q, k, v and o, latent down- and up-projections."""
    core_causal: float
    """Of attention, the half below the diagonal."""
    mlp: float
    """Dense layers."""
    experts: float
    """The routed experts a token meets."""
    shared_experts: float
    mtp: float
    """Multi-token prediction: its projection and its logits (its layer counts above)."""
    logits: float

    @property
    def core_full(self) -> float:
        """Of attention, the full square."""
        return 2 * self.core_causal

    @property
    def causal(self) -> float:
        """All, the causal half of attention counted (Megatron)."""
        return self._outside_core + self.core_causal

    @property
    def full(self) -> float:
        """All, the full square of attention counted (PaLM)."""
        return self._outside_core + self.core_full

    @property
    def forward(self) -> float:
        """One forward, causal half."""
        return self.causal / PASSES

    @property
    def _outside_core(self) -> float:
        return (
            self.projections
            + self.mlp
            + self.experts
            + self.shared_experts
            + self.mtp
            + self.logits
        )

    def hardware(self, recompute: str) -> float:
        """Return what a GPU runs with ``recompute`` (none, selective, full), causal half.

        ``full`` runs the layers' forward again, ``selective`` the core of attention.
        """
        if recompute == "full":
            return self.causal + (self.causal - self.logits - self.mtp) / PASSES
        return self.causal + (self.core_causal / PASSES if recompute == "selective" else 0.0)


def flops_per_token(
    model: Model, seq_len: int, *, mtp_layers: int = 0, vocab: int | None = None
) -> FlopsPerToken:
    """Return the FLOPs of one token.

    Parameters
    ----------
    seq_len
        Tokens of a sequence; attention grows with it.
    mtp_layers
        Multi-token prediction layers that are trained.
    vocab
        Rows of the output layer where they are padded; the model's own otherwise.
    """
    kinds = moe_layers(model)
    experts_in = [*kinds, *([kinds[-1]] * mtp_layers)]
    layers, with_experts = len(experts_in), sum(experts_in)
    matrices = 3 if model.gated_mlp else 2
    width = model.head_dim + model.value_dim
    each = _PER_PARAMETER * model.hidden
    rows = model.vocab if vocab is None else vocab
    return FlopsPerToken(
        seq_len=seq_len,
        projections=float(layers * _PER_PARAMETER * _projections(model)),
        # Q = N·s; the half below the diagonal of q·k and of p·v
        core_causal=float(layers * _PER_PARAMETER * seq_len * model.heads * width) / 2,
        mlp=float((layers - with_experts) * each * matrices * model.ffn),
        experts=float(with_experts * each * matrices * model.moe_ffn * model.top_k),
        shared_experts=float(with_experts * each * matrices * model.shared_ffn_total),
        mtp=float(mtp_layers * (each * (2 * model.hidden + 3) + each * rows)),
        logits=float(each * rows),
    )


def _projections(model: Model) -> int:
    """Return the multiply-adds of one token in the projections of one attention."""
    hidden, heads = model.hidden, model.heads
    if not model.is_mla:
        keys = model.kv_heads * (model.head_dim + model.value_dim)
        return hidden * (heads * model.head_dim + keys) + heads * model.value_dim * hidden
    query = hidden * heads * model.head_dim
    if model.q_lora_rank:
        query = model.q_lora_rank * (hidden + heads * model.head_dim + 1)
    latent = model.kv_lora_rank * (hidden + heads * (model.qk_nope_dim + model.value_dim) + 1)
    return query + latent + hidden * model.qk_rope_dim + heads * model.value_dim * hidden


def utilisation(tokens_per_s: float, flops_of_token: float, peak_flops_per_s: float) -> float:
    """Return the share of a GPU's (dense) peak that a rate of one GPU comes to."""
    return tokens_per_s * flops_of_token / peak_flops_per_s
