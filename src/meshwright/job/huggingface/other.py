"""Configurations of no known family: read as a plain decoder and marked so, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from meshwright.job.huggingface.dense import dense_latent
from meshwright.job.huggingface.experts import deepseek
from meshwright.job.huggingface.fields import (
    Fields,
    Shape,
    biases,
    common,
    dense_or_experts,
    expert_sizes,
    shared,
    sliding,
)

UNVERIFIED = "read as a Llama-like decoder: its parameters are not verified"
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
"""Without these a configuration of an unknown family is not read at all."""
_WIDTHS = ("intermediate_size", "moe_intermediate_size")

_CAUSAL = re.compile(r"CausalLM|LMHead|ConditionalGeneration|ForLM|GPT")
_ENCODERS = re.compile(
    r"(^|_|-)(bert|roberta|deberta|electra|albert|ernie|camembert|mpnet|xlnet|xlm|funnel|esm|longformer|"
    r"vit|deit|clip|siglip\d?|swin\w*|beit|dino\w*|wav2vec2\w*|hubert|whisper)(_|-|$)|bert$"
)
_ODD = re.compile(
    r"(^|_)(ssm|mamba|linear|rwkv|conv|delta|kda|lru|state)_|_ssm$|hybrid|block_types?$"
)
_OWN_SHAPE = {
    "gemma3n": "per-layer embeddings and alternating updates",
    "gemma4": "per-layer embeddings and shared keys and values",
    "longcat_flash": "two attentions and idle experts a layer",
    "recurrent_gemma": "linear recurrent units",
    "rwkv": "no attention",
    "xlstm": "no attention",
    "zamba": "blocks that layers share",
    "reformer": "hashed attention",
    "doge": "experts of single neurons",
    "hrm_text": "layers that run several times",
    "jetmoe": "experts of attention",
}


def refusal(config: Mapping[str, Any], values: Mapping[str, Any], family: str) -> str | None:
    """Return why a configuration of an unknown family is not read as a decoder; ``None``: it may be.

    ``values`` holds the language model's keys, ``config`` the whole file.
    """
    if config.get("_class_name") or config.get("_diffusers_version"):
        return "is a part of a diffusion pipeline: no language model"
    if config.get("is_encoder_decoder") is True:
        return f"is an encoder-decoder model ({family}): only decoders of text are known here"
    classes = config.get("architectures")
    named = [one for one in classes if isinstance(one, str)] if isinstance(classes, list) else []
    if _ENCODERS.search(family) or (named and not any(_CAUSAL.search(one) for one in named)):
        stated = f", {named[0][:80]}" if named else ""
        return f"is no decoder of text ({family}{stated})"
    for name, why in _OWN_SHAPE.items():
        if family == name or family.startswith(name + "_"):
            return f"has layers of its own ({family}: {why}) that are not known here"
    if values.get("type_vocab_size") is not None or values.get("relative_attention_num_buckets"):
        return f"is no decoder of text ({family}: it reads pairs of texts or both directions)"
    if all(values.get(one) is None for one in NEEDED):
        return None  # nothing to read: the family is what is wrong
    odd = sorted(key for key in values if _ODD.search(key) and values[key] not in (None, False, 0))
    if odd:
        return f"has layers of a kind that is not known here ({family}: {odd[0][:80]})"
    return None


def has_usual_keys(values: Mapping[str, Any]) -> bool:
    """Tell whether the keys that any decoder's configuration has are there."""
    has_width = any(values.get(one) is not None for one in _WIDTHS)
    return has_width and all(values.get(one) is not None for one in NEEDED)


def generic(fields: Fields) -> Shape:
    """Read an unknown family as a decoder like Llama, DeepSeek or Qwen, by the keys it has."""
    if fields.get("kv_lora_rank") is not None:
        return _with_unverified(_latent(fields))
    has_mlp = fields.get("intermediate_size") is not None
    shape = common(fields, has_mlp=has_mlp) | biases(fields)
    shape |= {"mlp_bias": fields.flag("mlp_bias", default=False)}
    if fields.flag("qkv_bias", default=False):
        shape["qkv_bias"] = True
    if fields.flag("use_qk_norm", default=fields.flag("qk_norm", default=False)):
        shape["qk_norm"] = "head"
    if fields.get("layer_types") is not None:
        shape |= sliding(fields, shape)
    return _with_unverified(shape | _mixture(fields))


def _latent(fields: Fields) -> Shape:
    key = fields.first("n_routed_experts", "num_experts", "num_local_experts")
    if fields.get(key) is not None:
        fields.assume(n_routed_experts=fields.get(key))
        return deepseek(fields)
    return dense_latent(fields)


def _mixture(fields: Fields) -> Shape:
    """Return the experts where the configuration has some."""
    count = fields.first("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    if not fields.get(count) or fields.get("is_moe") is False:
        return {}
    top = fields.first("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k")
    fields.assume(num_experts_per_tok=fields.get(top))
    width = fields.first("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size")
    experts = expert_sizes(fields, count, width)
    number = fields.first("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    beside = shared(fields, experts["moe_ffn"], key=number)
    wide = fields.first("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    if fields.get(wide) is not None:
        total = fields.count(wide)
        beside = {"shared_experts": 1 if total else 0, "shared_ffn_total": total}
    first = fields.count("first_k_dense_replace", 0, field="first_dense_layers")
    listed = dense_or_experts(fields, fields.size("num_hidden_layers", field="num_layers"))
    return experts | beside | {"first_dense_layers": first} | listed


def _with_unverified(shape: Shape) -> Shape:
    return shape | {"unverified": UNVERIFIED}
