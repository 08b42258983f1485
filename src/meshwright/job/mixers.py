"""What mixes tokens in a layer where it is not attention, and what a layer has besides.

A letter stands for each kind of layer, as in Megatron-LM's ``--hybrid-layer-pattern``
(``megatron/core/ssm/mamba_hybrid_layer_allocation.py``: M, ``*``, ``-``, E, G); the others are this
program's own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ATTENTION, SLIDING, MAMBA, PARALLEL, DELTA = "*", "S", "M", "P", "G"
LIGHTNING, CONVOLUTION, COMPRESSED, SPARSE, NONE = "L", "C", "H", "K", "."
DENSE, EXPERTS = "-", "E"

MIXERS = {
    ATTENTION: "attention",
    SLIDING: "sliding attention",
    MAMBA: "Mamba",
    PARALLEL: "attention beside Mamba",
    DELTA: "delta rule",
    LIGHTNING: "lightning attention",
    CONVOLUTION: "short convolution",
    COMPRESSED: "heavily compressed attention",
    SPARSE: "compressed sparse attention",
    NONE: "nothing",
}
"""Name of each kind of token mixing by its letter in ``Model.mixers``."""
MLPS = {DENSE: "MLP", EXPERTS: "experts", NONE: "nothing"}
"""Name of each kind of feed-forward part by its letter in ``Model.mlps``."""
WITH_ATTENTION = frozenset({ATTENTION, SLIDING, PARALLEL, COMPRESSED, SPARSE})
WINDOWED = frozenset({SLIDING, COMPRESSED, SPARSE})
"""Mixers whose attention sees at most ``Model.window`` keys."""

_LARGEST = 2**31 - 1
_MOST_PARAMETERS = 2**50


class Mamba(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A selective state space: Mamba-1 (arXiv 2312.00752) or Mamba-2 (arXiv 2405.21060)."""

    version: Literal[1, 2]
    inner: int
    """Channels inside, ``heads`` times the width of one in Mamba-2."""
    state: int
    heads: int = 0
    """Mamba-2 only; Mamba-1 has one state matrix a channel."""
    groups: int = 1
    """Mamba-2: heads of a group share B and C."""
    dt_rank: int = 0
    """Mamba-1: rank of the step's projection."""
    conv: int = 4
    conv_bias: bool = True
    proj_bias: bool = False
    gated_norm: bool = True
    """Mamba-2: the norm before the output projection has a weight."""
    inner_norms: bool = False
    """Mamba-1: norms of the step, B and C (Jamba)."""


class DeltaNet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gated delta rule: Gated DeltaNet (arXiv 2412.06464) or Kimi Delta Attention (2510.26692)."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4
    rule: Literal["gated", "kimi"] = "gated"
    """``kimi`` gates each channel through two low-rank projections of width ``value_dim``."""

    @property
    def keys(self) -> int:
        """Width of all keys (and of all queries)."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Width of all values."""
        return self.value_heads * self.value_dim


class ShortConvolution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gated convolution over few tokens (LFM2): three projections of ``hidden``, then one."""

    kernel: int
    bias: bool = False


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Weights of a family's own, held whole on every tp rank, in closed form by its reader."""

    name: str
    parameters: int
    place: Literal["layers", "input", "output"] = "layers"
    mixers: str = ""
    """Letters of the layers that have it; empty: every layer (of ``at``)."""
    at: tuple[int, ...] = ()
    """Numbers of the layers that hold it; empty: all that ``mixers`` names."""
    multiply_adds: int = 0
    """Of one token, in each layer that has it."""
    core_width: int = 0
    """Multiply-adds of a token and one key it sees."""
    core_stride: int = 1
    """Tokens that one such key stands for."""
    core_most: int = 0
    """The most such keys a token sees (0: all before it)."""

    def is_in(self, layer: int, mixer: str) -> bool:
        """Tell whether layer ``layer`` (from 0) with this mixer has it."""
        return (
            self.place == "layers"
            and (not self.mixers or mixer in self.mixers)
            and (not self.at or layer in self.at)
        )


def mean_keys(seq_len: int, most: int = 0) -> float:
    """Return how many keys a token sees on average, causally; ``most`` of them where above 0.

    Half the sequence without a limit, as Megatron-LM counts (``num_floating_point_operations``);
    with one, s·w - w²/2 over s, which is the same at s = w.
    """
    if not most or seq_len <= most:
        return seq_len / 2
    return most - most * most / (2 * seq_len)


def nested_problems(part: msgspec.Struct | None, field: str) -> list[tuple[str, str]]:
    """Return the counts of a nested record that no model can have, as (field, message)."""
    if part is None:
        return []
    least_one = {"inner", "state", "key_heads", "value_heads", "key_dim", "value_dim", "kernel"}
    least_one |= {"groups", "conv", "core_stride"}
    problems = []
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        least = 1 if name in least_one else 0
        most = _MOST_PARAMETERS if isinstance(part, Extra) else _LARGEST
        if not least <= value <= most:
            problems.append((f"{field}.{name}", f"must be {least} to {most}, not {value}"))
    return problems or _unsound(part, field)


def _unsound(part: msgspec.Struct, field: str) -> list[tuple[str, str]]:
    if isinstance(part, Mamba) and part.version == 2:
        if part.heads < 1 or part.inner % part.heads:
            message = f"{part.heads} heads cannot share {part.inner} channels evenly"
            return [(f"{field}.heads", message)]
        if part.heads % part.groups:
            message = f"{part.groups} groups cannot share {part.heads} heads evenly"
            return [(f"{field}.groups", message)]
    if isinstance(part, Mamba) and part.version == 1 and part.dt_rank < 1:
        return [(f"{field}.dt_rank", "Mamba-1 needs the rank of its step")]
    if isinstance(part, DeltaNet) and part.value_heads % part.key_heads:
        message = f"{part.value_heads} value heads cannot share {part.key_heads} key heads evenly"
        return [(f"{field}.value_heads", message)]
    return []
