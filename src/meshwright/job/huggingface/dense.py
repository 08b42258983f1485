"""Readers of Hugging Face configurations without experts: see ``fields.py``."""

from __future__ import annotations

from meshwright.job.huggingface.fields import (
    ALL_BIASES,
    LAYER_NORM,
    Fields,
    Shape,
    biases,
    common,
    latent_attention,
    sliding,
)
from meshwright.job.mixers import (
    ATTENTION,
    SLIDING,
    Extra,
)


def llama(fields: Fields) -> Shape:
    """Llama, Granite, SmolLM3, EXAONE 3 and what else is of their shape."""
    if fields.get("num_hidden_layers") is None and fields.get("num_layers") is not None:
        fields.assume(num_hidden_layers=fields.get("num_layers"))  # EXAONE 3 as published
    return common(fields) | biases(fields) | {"mlp_bias": fields.flag("mlp_bias", default=False)}


def plain(fields: Fields) -> Shape:
    """Mistral, Phi-3, Ministral: no biases, maybe a window in every layer."""
    shape = common(fields)
    return shape | sliding(fields, shape)


def cwm(fields: Fields) -> Shape:
    """Code World Model: Llama with a window where ``layer_types`` says so."""
    shape = llama(fields)
    return shape | (sliding(fields, shape) if fields.get("layer_types") is not None else {})


def hunyuan(fields: Fields) -> Shape:
    """Hunyuan dense: Llama with norms of q and k."""
    return common(fields) | biases(fields) | {"qk_norm": "head"}


def qwen2(fields: Fields) -> Shape:
    """Qwen 1.5, 2 and 2.5."""
    shape = common(fields)
    return shape | _late_window(fields, shape) | {"qkv_bias": True}


def qwen3(fields: Fields) -> Shape:
    """Qwen 3."""
    shape = common(fields, head_dim=128)
    return shape | _late_window(fields, shape) | biases(fields) | {"qk_norm": "head"}


def _late_window(fields: Fields, shape: Shape) -> Shape:
    """Return Qwen's window, in the layers from ``max_window_layers`` on."""
    if not fields.flag("use_sliding_window", default=False):
        return {}
    if fields.get("layer_types") is not None:
        return sliding(fields, shape)
    first = min(fields.count("max_window_layers", 28), shape["num_layers"])
    letters = ATTENTION * first + SLIDING * (shape["num_layers"] - first)
    seen = fields.count("sliding_window", 4096, field="window")
    return {"mixers": letters, "window": seen} if seen and SLIDING in letters else {}


def ernie4_5(fields: Fields) -> Shape:
    """ERNIE 4.5 dense."""
    bias = fields.flag("use_bias", default=False)
    shape = common(fields, tied=True, head_dim=128)
    return shape | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}


def seed_oss(fields: Fields) -> Shape:
    """Seed-OSS: q, k and v have biases, o has its own switch."""
    return (
        common(fields)
        | {"qkv_bias": fields.flag("attention_bias", default=True)}
        | {"o_bias": fields.flag("attention_out_bias", default=False)}
        | {"mlp_bias": fields.flag("mlp_bias", default=False)}
    )


def arcee(fields: Fields) -> Shape:
    """Arcee: Llama with an MLP of two matrices."""
    return llama(fields) | {"gated_mlp": False}


def apertus(fields: Fields) -> Shape:
    """Apertus: two matrices, norms of q and k, and two numbers of the activation a layer."""
    numbers = Extra(name="activation", parameters=2)
    return arcee(fields) | {"qk_norm": "head", "extras": (numbers,)}


def bitnet(fields: Fields) -> Shape:
    """BitNet b1.58: norms before the output projection and inside the MLP."""
    shape = common(fields) | biases(fields)
    norms = shape["heads"] * shape["head_dim"] + shape["ffn"]
    return shape | {"extras": (Extra(name="inner norms", parameters=norms),)}


def olmo(fields: Fields) -> Shape:
    """OLMo 1: norms without weights."""
    return common(fields) | biases(fields) | {"norms_per_layer": 0, "final_norm": False}


def olmo2(fields: Fields) -> Shape:
    """OLMo 2."""
    return common(fields) | biases(fields) | {"qk_norm": "full"}


def olmo3(fields: Fields) -> Shape:
    """OLMo 3: OLMo 2 with a window in three of four layers."""
    shape = olmo2(fields)
    return shape | sliding(fields, shape, step=4, window=4096)


def exaone4(fields: Fields) -> Shape:
    """EXAONE 4: a window in three of four layers of the 32B model, in none of the 1.2B."""
    shape = common(fields) | {"qk_norm": "head"}
    return shape | sliding(fields, shape, step=4)


def gemma(fields: Fields) -> Shape:
    """Gemma 1."""
    return common(fields, tied=True, head_dim=256) | biases(fields)


def gemma2(fields: Fields) -> Shape:
    """Gemma 2: four norms, a window in every other layer."""
    shape = gemma(fields) | {"norms_per_layer": 4}
    return shape | sliding(fields, shape, step=2, window=4096)


def vaultgemma(fields: Fields) -> Shape:
    """VaultGemma: Gemma 2 with two norms."""
    return gemma2(fields) | {"norms_per_layer": 2}


def gemma3(fields: Fields) -> Shape:
    """Gemma 3: a window in five of six layers."""
    # Published files leave out what equals the 4B model.
    fields.assume(num_attention_heads=8, num_key_value_heads=4, vocab_size=262208)
    step = fields.size(fields.first("_sliding_window_pattern", "sliding_window_pattern"), 6)
    shape = gemma(fields) | {"norms_per_layer": 4, "qk_norm": "head"}
    return shape | sliding(fields, shape, step=step, window=4096)


def glm(fields: Fields) -> Shape:
    """GLM-4 9B of the first release: biases of q, k and v."""
    return common(fields, head_dim=128) | {"qkv_bias": fields.flag("attention_bias", default=True)}


def glm4(fields: Fields) -> Shape:
    """GLM-4-0414: four norms."""
    return glm(fields) | {"norms_per_layer": 4}


def cohere(fields: Fields) -> Shape:
    """Command R: attention and MLP side by side behind one norm."""
    norms = {"norm": "layer", "norms_per_layer": 1}
    full = fields.flag("use_qk_norm", default=False)
    return (
        common(fields, tied=True) | biases(fields) | norms | {"qk_norm": "full" if full else "none"}
    )


def cohere2(fields: Fields) -> Shape:
    """Command R7B and A: a window in three of four layers."""
    shape = cohere(fields)
    step = fields.size(fields.first("_sliding_window_pattern", "sliding_window_pattern"), 4)
    return shape | sliding(fields, shape, step=step, window=4096)


def stablelm(fields: Fields) -> Shape:
    """StableLM 2 and Zephyr."""
    full = fields.flag("qk_layernorm", default=False)
    beside = fields.flag("use_parallel_residual", default=False)
    return (
        common(fields)
        | LAYER_NORM
        | {
            "gated_mlp": True,
            "qkv_bias": fields.flag("use_qkv_bias", default=False),
            "qk_norm": "full" if full else "none",  # each head its own
            "norms_per_layer": 1 if beside else 2,
        }
    )


def phi(fields: Fields) -> Shape:
    """Phi 1 to 2: attention and MLP side by side behind one norm, a bias of the output."""
    shape = common(fields) | LAYER_NORM | ALL_BIASES | {"norms_per_layer": 1, "output_bias": True}
    return shape | _biased_qk_norm(fields, shape, default=False)


def persimmon(fields: Fields) -> Shape:
    """Persimmon and Fuyu's text part."""
    shape = common(fields) | LAYER_NORM | ALL_BIASES
    shape["kv_heads"] = shape["heads"]
    return shape | _biased_qk_norm(fields, shape, default=True)


def _biased_qk_norm(fields: Fields, shape: Shape, *, default: bool) -> Shape:
    if not fields.flag("qk_layernorm", default):
        return {}
    return {"extras": (Extra(name="norms of q and k", parameters=4 * shape["head_dim"]),)}


def starcoder2(fields: Fields) -> Shape:
    """StarCoder 2."""
    bias = fields.flag("use_bias", default=True)
    shape = common(fields, tied=True)
    found = shape | sliding(fields, shape) | LAYER_NORM
    return found | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}


def jais2(fields: Fields) -> Shape:
    """Jais 2: layer norms and biases throughout, two matrices."""
    mlp_bias = fields.flag("mlp_bias", default=True)
    return common(fields) | LAYER_NORM | biases(fields, default=True) | {"mlp_bias": mlp_bias}


def nemotron(fields: Fields) -> Shape:
    """Nemotron 3 and 4, Minitron."""
    mlp_bias = fields.flag("mlp_bias", default=False)
    return common(fields) | LAYER_NORM | biases(fields) | {"mlp_bias": mlp_bias}


def dense_latent(fields: Fields) -> Shape:
    """MiniCPM3 and Youtu: latent attention, no experts."""
    return common(fields, tied=True, head_dim=1) | biases(fields) | latent_attention(fields)
