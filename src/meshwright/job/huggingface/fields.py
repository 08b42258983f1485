"""Typed look-up in a Hugging Face configuration, and what most families' readers share.

Defaults and parameters follow the configuration and modelling classes of ``transformers``; each
reader returns the fields of ``Model`` besides its name and source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.job.mixers import ATTENTION, DENSE, EXPERTS, SLIDING

Shape = dict[str, Any]

_LARGEST = 2**31 - 1
_MOST_LAYERS = 100_000
LAYER_NORM = {"norm": "layer", "norm_bias": True, "gated_mlp": False}
ALL_BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}


class Fields:
    """Typed look-up in a decoded configuration that collects every problem instead of raising.

    A problem is (key, message); ``null`` reads as absent, as ``transformers`` does.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._assumed: Mapping[str, Any] = {}
        self._keys: dict[str, str] = {}
        self._problems: dict[tuple[str, str], None] = {}

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Every problem so far, each once, in the order found."""
        return list(self._problems)

    def reject(self, key: str, message: str) -> None:
        """Add a problem with the value of ``key``."""
        self._problems[key, message] = None

    def assume(self, **defaults: Any) -> None:
        """Set what absent keys mean: defaults that published files of a family rely on."""
        self._assumed = defaults

    def key_of(self, field: str) -> str:
        """Return the configuration's key from which a field of ``Model`` was read."""
        return self._keys.get(field, field)

    def size(self, key: str, default: int | None = None, *, field: str | None = None) -> int:
        """Return a whole number from 1 up; without a default the key must be there."""
        return self._whole(key, default, least=1, field=field)

    def count(self, key: str, default: int | None = 0, *, field: str | None = None) -> int:
        """Return a whole number from 0 up."""
        return self._whole(key, default, least=0, field=field)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.reject(key, f"must be true or false, not {_shown(value)}")
            return default
        return value

    def get(self, key: str) -> Any:
        """Return the bare value, or ``None``; a dot leads into a nested object."""
        value: Any = self._values
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return self._assumed.get(key) if value is None else value

    def first(self, *keys: str) -> str:
        """Return the first of some names of one key that has a value, else the first."""
        return next((key for key in keys if self.get(key) is not None), keys[0])

    def words(self, key: str, count: int) -> list[str] | None:
        """Return a list of ``count`` words, or ``None`` where the key is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.reject(key, f"must be a list of words, not {_shown(value)}")
        elif len(value) != count:
            self.reject(key, f"has {len(value)} entries for {count} layers")
        else:
            return value
        return None

    def numbers(self, key: str) -> list[int]:
        """Return a list of layer numbers; absent is none."""
        value = self.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(type(one) is int for one in value):
            return value
        self.reject(key, f"must be a list of layer numbers, not {_shown(value)}")
        return []

    def _whole(self, key: str, default: int | None, *, least: int, field: str | None) -> int:
        if field is not None:
            self._keys[field] = key
        value = self.get(key)
        if value is None:
            if default is None:
                self.reject(key, "is missing")
            return least if default is None else default
        if isinstance(value, bool) or not isinstance(value, int):
            message = f"must be a whole number, not {_shown(value)}"
        elif value < least:
            message = f"must be {least} or more, not {_shown(value)}"
        elif value > (_MOST_LAYERS if field == "num_layers" else _LARGEST):
            message = f"is {_shown(value)}: larger than any model"
        else:
            return value
        self.reject(key, message)
        return max(least, default or 0)


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge number"
    return text if len(text) <= 40 else text[:37] + "..."


def common(
    fields: Fields, *, tied: bool = False, head_dim: int | None = None, has_mlp: bool = True
) -> Shape:
    """Return what most families share: rotary positions, RMS norms, a gated MLP, no biases."""
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    positions = fields.count("max_position_embeddings", field="max_positions")
    return {
        "num_layers": fields.size("num_hidden_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("intermediate_size", field="ffn") if has_mlp else 0,
        "heads": heads,
        "kv_heads": fields.size("num_key_value_heads", heads, field="kv_heads"),
        "head_dim": head_width(fields, hidden, heads, head_dim),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied),
        "max_positions": positions or None,
    }


def head_width(fields: Fields, hidden: int, heads: int, default: int | None) -> int:
    """Return the width of a head: stated, the default, or the hidden size over the heads."""
    given = fields.get("head_dim") is not None
    if not given and default is None and hidden % heads and not fields.problems:
        fields.reject(
            "hidden_size", f"of {hidden} is no multiple of {heads} heads, and head_dim is absent"
        )
    return fields.size("head_dim", default or max(1, hidden // heads), field="head_dim")


def biases(fields: Fields, *, default: bool = False) -> Shape:
    """Return the biases of attention that one key switches."""
    bias = fields.flag("attention_bias", default)
    return {"qkv_bias": bias, "o_bias": bias}


def expert_sizes(fields: Fields, count_key: str, width_key: str = "moe_intermediate_size") -> Shape:
    """Return how many routed experts there are, how many a token meets, how wide one is."""
    return {
        "experts": fields.size(count_key, field="experts"),
        "top_k": fields.size("num_experts_per_tok", field="top_k"),
        "moe_ffn": fields.size(width_key, field="moe_ffn"),
    }


_KINDS = {
    "full_attention": ATTENTION,
    "attention": ATTENTION,
    "chunked_attention": ATTENTION,
    "sliding_attention": SLIDING,
}


def layer_letters(
    fields: Fields, layers: int, kinds: Mapping[str, str], *, key: str = "layer_types"
) -> str:
    """Return the letters of a list of layer types; empty where the key is absent."""
    words = fields.words(key, layers)
    if words is None:
        return ""
    known = {**_KINDS, **kinds}
    unknown = sorted(set(words) - set(known))
    if unknown:
        fields.reject(key, f"has {unknown[0]!r}, a kind of layer that is not known here")
        return ""
    return "".join(known[one] for one in words)


def every(layers: int, step: int, letter: str, others: str) -> str:
    """Return ``letter`` for each ``step``-th layer, and ``others`` for those before it."""
    return "".join(letter if (i + 1) % step == 0 else others for i in range(layers))


def sliding(fields: Fields, shape: Shape, *, step: int = 0, window: int = 0) -> Shape:
    """Return the layers whose attention sees a window.

    Without ``layer_types`` each ``step``-th layer sees all; with ``step`` 0 none does.
    """
    seen = fields.count("sliding_window", window, field="window")
    layers = shape["num_layers"]
    letters = layer_letters(fields, layers, {})
    if not letters:
        letters = every(layers, step, ATTENTION, SLIDING) if step else SLIDING * layers
    if not seen or SLIDING not in letters:
        return {}
    return {"mixers": letters, "window": seen}


def dense_or_experts(fields: Fields, layers: int) -> Shape:
    """Return the layers with experts where ``mlp_layer_types`` lists them, else nothing."""
    known = {"dense": DENSE, "sparse": EXPERTS, "moe": EXPERTS, "hash_moe": EXPERTS}
    letters = layer_letters(fields, layers, known, key="mlp_layer_types")
    return {"mlps": letters} if letters else {}


def latent_attention(fields: Fields) -> Shape:
    """Return the widths of DeepSeek's latent attention."""
    nope = fields.size("qk_nope_head_dim", field="qk_nope_dim")
    rope = fields.size("qk_rope_head_dim", field="qk_rope_dim")
    return {
        "head_dim": nope + rope,
        "q_lora_rank": fields.count("q_lora_rank", field="q_lora_rank"),
        "kv_lora_rank": fields.size("kv_lora_rank", field="kv_lora_rank"),
        "qk_nope_dim": nope,
        "qk_rope_dim": rope,
        "v_head_dim": fields.size("v_head_dim", field="v_head_dim"),
    }


def shared(fields: Fields, width: int, *, key: str = "n_shared_experts", default: int = 0) -> Shape:
    """Return shared experts of ``width`` each."""
    count = fields.count(key, default, field="shared_experts")
    return {"shared_experts": count, "shared_ffn_total": count * width}


def sparse_steps(fields: Fields, step_key: str) -> Shape:
    """Return which layers have experts: every ``step``-th but those of ``mlp_only_layers``."""
    step = fields.size(step_key, 1, field="moe_layer_period")
    dense = fields.numbers("mlp_only_layers")
    if dense == list(range(len(dense))):
        return {
            "first_dense_layers": len(dense),
            "moe_layer_period": step,
            "moe_layer_offset": step - 1,
        }
    layers = fields.size("num_hidden_layers", field="num_layers")
    letters = every(layers, step, EXPERTS, DENSE)
    plain = set(dense)
    return {"mlps": "".join(DENSE if i in plain else one for i, one in enumerate(letters))}


def linear_or_full(fields: Fields, layers: int, letter: str, step: int) -> str:
    """Return the layers of a hybrid by ``layer_types``, else each ``step``-th with attention."""
    names = ("linear_attention", "mamba", "conv", "recurrent")
    letters = layer_letters(fields, layers, dict.fromkeys(names, letter))
    return letters or every(layers, step, ATTENTION, letter)


def listed(layers: int, numbers: Sequence[int], letter: str, others: str) -> str:
    """Return ``letter`` for the layers listed (from 0), ``others`` for the rest."""
    chosen = set(numbers)
    return "".join(letter if i in chosen else others for i in range(layers))
