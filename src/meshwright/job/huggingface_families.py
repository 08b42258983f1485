"""Families of Hugging Face configurations: which key means what, and the family's own defaults.

Defaults and parameters follow the configuration and modelling classes of ``transformers``; each
function returns the fields of ``Model`` besides its name and source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Shape = dict[str, Any]

_LARGEST = 2**31 - 1
_MOST_LAYERS = 100_000


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
        """Return the bare value, or ``None``."""
        value = self._values.get(key)
        return self._assumed.get(key) if value is None else value

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


def _common(fields: Fields, *, tied: bool = False, head_dim: int | None = None) -> Shape:
    """Return what most families share: rotary positions, RMS norms, a gated MLP, no biases."""
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    positions = fields.count("max_position_embeddings", field="max_positions")
    return {
        "num_layers": fields.size("num_hidden_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("intermediate_size", field="ffn"),
        "heads": heads,
        "kv_heads": fields.size("num_key_value_heads", heads, field="kv_heads"),
        "head_dim": _head_dim(fields, hidden, heads, head_dim),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", tied),
        "max_positions": positions or None,
    }


def _head_dim(fields: Fields, hidden: int, heads: int, default: int | None) -> int:
    given = fields.get("head_dim") is not None
    if not given and default is None and hidden % heads and not fields.problems:
        fields.reject(
            "hidden_size", f"of {hidden} is no multiple of {heads} heads, and head_dim is absent"
        )
    return fields.size("head_dim", default or max(1, hidden // heads), field="head_dim")


def _biases(fields: Fields, *, default: bool = False) -> Shape:
    bias = fields.flag("attention_bias", default)
    return {"qkv_bias": bias, "o_bias": bias}


def _experts(fields: Fields, count_key: str, width_key: str = "moe_intermediate_size") -> Shape:
    return {
        "experts": fields.size(count_key, field="experts"),
        "top_k": fields.size("num_experts_per_tok", field="top_k"),
        "moe_ffn": fields.size(width_key, field="moe_ffn"),
    }


def _llama(fields: Fields) -> Shape:
    return _common(fields) | _biases(fields) | {"mlp_bias": fields.flag("mlp_bias", default=False)}


def _plain(fields: Fields) -> Shape:
    return _common(fields)


def _qwen2(fields: Fields) -> Shape:
    return _common(fields) | {"qkv_bias": True}


def _qwen3(fields: Fields) -> Shape:
    return _common(fields, head_dim=128) | _biases(fields) | {"qk_norm": "head"}


def _olmo2(fields: Fields) -> Shape:
    return _common(fields) | _biases(fields) | {"qk_norm": "full"}


def _gemma(fields: Fields) -> Shape:
    return _common(fields, tied=True, head_dim=256) | _biases(fields)


def _gemma2(fields: Fields) -> Shape:
    return _gemma(fields) | {"norms_per_layer": 4}


def _gemma3(fields: Fields) -> Shape:
    # Published files leave out what equals the 4B model.
    fields.assume(num_attention_heads=8, num_key_value_heads=4, vocab_size=262208)
    return _gemma2(fields) | {"qk_norm": "head"}


def _mixtral(fields: Fields) -> Shape:
    return _common(fields) | _experts(fields, "num_local_experts", "intermediate_size")


def _olmoe(fields: Fields) -> Shape:
    experts = _experts(fields, "num_experts", "intermediate_size")
    return _common(fields) | _biases(fields) | {"qk_norm": "full"} | experts


def _gpt_oss(fields: Fields) -> Shape:
    experts = _experts(fields, "num_local_experts", "intermediate_size")
    extras = {"attention_sinks": True, "router_bias": True, "mlp_bias": True}
    return _common(fields, head_dim=64) | _biases(fields, default=True) | experts | extras


def _sparse_steps(fields: Fields, step_key: str) -> Shape:
    """Return which layers have experts: every ``step``-th, after a dense head of the model."""
    step = fields.size(step_key, 1, field="moe_layer_period")
    dense = fields.get("mlp_only_layers") or []
    if not isinstance(dense, list) or dense != list(range(len(dense))):
        fields.reject(
            "mlp_only_layers", "may only name the first layers, as in [0, 1]: others are not known"
        )
        dense = []
    return {
        "first_dense_layers": len(dense),
        "moe_layer_period": step,
        "moe_layer_offset": step - 1,
    }


def _qwen2_moe(fields: Fields) -> Shape:
    shape = _common(fields) | _experts(fields, "num_experts") | {"qkv_bias": True}
    return (
        shape
        | _sparse_steps(fields, "decoder_sparse_step")
        | {
            "shared_experts": 1,
            "shared_ffn_total": fields.size("shared_expert_intermediate_size"),
            "shared_expert_gate": True,
        }
    )


def _qwen3_moe(fields: Fields) -> Shape:
    # transformers 5 writes the key under another name than the published files
    renamed = fields.get("num_experts") is None and fields.get("num_local_experts") is not None
    count = "num_local_experts" if renamed else "num_experts"
    experts = _experts(fields, count) | _sparse_steps(fields, "decoder_sparse_step")
    shape = _common(fields, head_dim=None) | _biases(fields)
    return shape | experts | {"qk_norm": "head"}


def _llama4(fields: Fields) -> Shape:
    width = fields.size("intermediate_size", field="moe_ffn")
    shape = _common(fields) | _biases(fields)
    return (
        shape
        | _experts(fields, "num_local_experts", "intermediate_size")
        | _sparse_steps(fields, "interleave_moe_layer_step")
        | {
            "ffn": fields.size("intermediate_size_mlp", field="ffn"),
            "shared_experts": 1,
            "shared_ffn_total": width,
        }
    )


def _latent_attention(fields: Fields) -> Shape:
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


def _deepseek(fields: Fields) -> Shape:
    # The class' own head_dim is the rotary part, and heads * head_dim is not the hidden size.
    shape = _common(fields, head_dim=1) | _biases(fields) | _latent_attention(fields)
    experts = _experts(fields, "n_routed_experts")
    shared = fields.count("n_shared_experts", field="shared_experts")
    return (
        shape
        | experts
        | {
            "shared_experts": shared,
            "shared_ffn_total": shared * experts["moe_ffn"],
            "first_dense_layers": fields.count("first_k_dense_replace", field="first_dense_layers"),
            "moe_layer_period": fields.size("moe_layer_freq", 1, field="moe_layer_period"),
            "router_groups": fields.count("n_group", field="router_groups"),
            "router_topk_groups": fields.count("topk_group", field="router_topk_groups"),
            "mtp_layers": fields.count("num_nextn_predict_layers", field="mtp_layers"),
        }
    )


_LAYER_NORM = {"norm": "layer", "norm_bias": True, "gated_mlp": False}
_ALL_BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}


def _gpt2(fields: Fields) -> Shape:
    hidden = fields.size("n_embd", field="hidden")
    heads = fields.size("n_head", field="heads")
    positions = fields.size("n_positions", field="learned_positions")
    if hidden % heads:
        fields.reject("n_embd", f"of {hidden} is no multiple of {heads} heads")
    shape = {
        "num_layers": fields.size("n_layer", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("n_inner", 4 * hidden, field="ffn"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "learned_positions": positions,
        "max_positions": positions,
    }
    return shape | _LAYER_NORM | _ALL_BIASES


def _gpt_neox(fields: Fields) -> Shape:
    return _common(fields) | _LAYER_NORM | _biases(fields, default=True) | {"mlp_bias": True}


def _opt(fields: Fields) -> Shape:
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    positions = fields.size("max_position_embeddings", field="max_positions")
    if fields.size("word_embed_proj_dim", hidden) != hidden:
        fields.reject("word_embed_proj_dim", "other than hidden_size is not known")
    bias = fields.flag("enable_bias", default=True)
    shape = {
        "num_layers": fields.size("num_hidden_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("ffn_dim", field="ffn"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_dim(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "learned_positions": positions + 2,  # OPT's table begins with two rows for padding
        "max_positions": positions,
        "final_norm": fields.flag("do_layer_norm_before", default=True),
    }
    return shape | _LAYER_NORM | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}


def _bloom(fields: Fields) -> Shape:
    hidden_key = "hidden_size" if fields.get("hidden_size") is not None else "n_embed"
    hidden = fields.size(hidden_key, field="hidden")
    heads_key = "n_head" if fields.get("n_head") is not None else "num_attention_heads"
    heads = fields.size(heads_key, field="heads")
    shape = {
        "num_layers": fields.size("n_layer", field="num_layers"),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": _head_dim(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "embedding_norm": True,
        "max_positions": fields.count("seq_length", field="max_positions") or None,
    }
    return shape | _LAYER_NORM | _ALL_BIASES


def _falcon(fields: Fields) -> Shape:
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_attention_heads", field="heads")
    new = fields.flag("new_decoder_architecture", default=False)
    parallel = fields.flag("parallel_attn", default=True)
    bias = fields.flag("bias", default=False)
    norms = fields.size("num_ln_in_parallel_attn", 2 if new else 1)
    one_group = fields.flag("multi_query", default=True) and not new
    shape = {
        "num_layers": fields.size("num_hidden_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("ffn_hidden_size", 4 * hidden, field="ffn"),
        "heads": heads,
        "kv_heads": 1 if one_group else fields.size("num_kv_heads", heads, field="kv_heads"),
        "head_dim": _head_dim(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "norms_per_layer": norms if parallel else 2,
        "max_positions": fields.count("max_position_embeddings", field="max_positions") or None,
    }
    return shape | _LAYER_NORM | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}


def _nemotron(fields: Fields) -> Shape:
    mlp_bias = fields.flag("mlp_bias", default=False)
    return _common(fields) | _LAYER_NORM | _biases(fields) | {"mlp_bias": mlp_bias}


FAMILIES: Mapping[str, Callable[[Fields], Shape]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "mistral": _plain,
    "mixtral": _mixtral,
    "nemotron": _nemotron,
    "olmo2": _olmo2,
    "olmoe": _olmoe,
    "opt": _opt,
    "phi3": _plain,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
}
"""Reader of each family by ``model_type``."""
