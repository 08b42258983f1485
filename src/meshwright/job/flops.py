"""FLOPs of a model in closed form, and what share of a GPU's peak a measured rate is.

As Megatron-LM counts (``megatron/training/training.py`` ``num_floating_point_operations``): two a
multiply-add, three passes (forward, gradients of inputs, gradients of weights), the causal half of
attention, no router and no norm; by layer in ``layer_flops.py``. The other convention (PaLM, Korthikanti et al. arXiv 2205.05198)
counts the full square of attention; both are given, since an MFU says nothing without its convention.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from meshwright.job.layer_flops import LayerWork, work_of
from meshwright.job.layer_parts import layer_kind
from meshwright.job.model import Model

PASSES = 3
_PER_PARAMETER = 2 * PASSES


class FlopsPerToken(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of one token, forward and backward, at one sequence length."""

    seq_len: int
    projections: float
    """Of attention: q, k, v and o, latent down- and up-projections; of whatever else mixes tokens."""
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
    recurrence: float = 0.0
    """Of state spaces, delta rules and convolutions."""
    extras: float = 0.0
    """What a family has of its own: indexers, compressors, further streams."""

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
            + self.recurrence
            + self.extras
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
    last = model.num_layers - 1
    kinds = Counter(layer_kind(model, layer) for layer in range(model.num_layers))
    kinds[layer_kind(model, last)] += mtp_layers
    works = [(count, work_of(model, kind, seq_len)) for kind, count in kinds.items()]
    each = _PER_PARAMETER * model.hidden
    rows = model.vocab if vocab is None else vocab
    ends = sum(one.multiply_adds for one in model.extras if one.place != "layers")
    return FlopsPerToken(
        seq_len=seq_len,
        projections=_summed(works, "projections"),
        core_causal=_summed(works, "core"),
        mlp=_summed(works, "mlp"),
        experts=_summed(works, "experts"),
        shared_experts=_summed(works, "shared_experts"),
        mtp=float(mtp_layers * (each * (2 * model.hidden + 3) + each * rows)),
        logits=float(each * rows),
        recurrence=_summed(works, "recurrence"),
        extras=_summed(works, "extras") + _PER_PARAMETER * float(ends),
    )


def _summed(works: list[tuple[int, LayerWork]], part: str) -> float:
    return float(_PER_PARAMETER * sum(count * getattr(work, part) for count, work in works))


def utilisation(tokens_per_s: float, flops_of_token: float, peak_flops_per_s: float) -> float:
    """Return the share of a GPU's (dense) peak that a rate of one GPU comes to."""
    return tokens_per_s * flops_of_token / peak_flops_per_s
