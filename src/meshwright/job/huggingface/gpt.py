"""Readers of the GPT-2 generation: layer norms, biases, key names of their own."""

from __future__ import annotations

from meshwright.job.huggingface.fields import (
    ALL_BIASES,
    LAYER_NORM,
    Fields,
    Shape,
    biases,
    common,
    head_width,
    layer_letters,
)
from meshwright.job.mixers import (
    ATTENTION,
    SLIDING,
)


def gpt_neox(fields: Fields) -> Shape:
    """GPT-NeoX and Pythia."""
    return common(fields) | LAYER_NORM | biases(fields, default=True) | {"mlp_bias": True}


def _gpt(fields: Fields) -> Shape:
    """Return the sizes of a configuration in GPT-2's words."""
    hidden = fields.size("n_embd", field="hidden")
    heads = fields.size("n_head", field="heads")
    if hidden % heads:
        fields.reject("n_embd", f"of {hidden} is no multiple of {heads} heads")
    return {
        "num_layers": fields.size("n_layer", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("n_inner", 4 * hidden, field="ffn"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "vocab": fields.size("vocab_size", field="vocab"),
    }


def gpt2(fields: Fields) -> Shape:
    """GPT-2, GPT-SW3."""
    positions = fields.size("n_positions", field="learned_positions")
    tied = fields.flag("tie_word_embeddings", default=True)
    learned = {"learned_positions": positions, "max_positions": positions, "tied_embeddings": tied}
    return _gpt(fields) | learned | LAYER_NORM | ALL_BIASES


def openai_gpt(fields: Fields) -> Shape:
    """GPT-1: no norm behind the last layer."""
    return gpt2(fields) | {"final_norm": False}


def gpt_bigcode(fields: Fields) -> Shape:
    """StarCoder 1, SantaCoder: one key/value head."""
    one = fields.flag("multi_query", default=True)
    return gpt2(fields) | ({"kv_heads": 1} if one else {})


def gptj(fields: Fields) -> Shape:
    """GPT-J, CodeGen: one norm, biases of the MLP and the output only."""
    shape = (
        _gpt(fields) | LAYER_NORM | {"norms_per_layer": 1, "mlp_bias": True, "output_bias": True}
    )
    tied = fields.flag("tie_word_embeddings", default=False)
    positions = fields.count("n_positions", field="max_positions") or None
    return shape | {"tied_embeddings": tied, "max_positions": positions}


def gpt_neo(fields: Fields) -> Shape:
    """GPT-Neo: a window in every other layer."""
    hidden = fields.size("hidden_size", field="hidden")
    heads = fields.size("num_heads", field="heads")
    layers = fields.size("num_layers", field="num_layers")
    positions = fields.size("max_position_embeddings", field="learned_positions")
    kinds = {"global": ATTENTION, "local": SLIDING}
    letters = layer_letters(fields, layers, kinds, key="attention_layers")
    letters = letters or (ATTENTION + SLIDING) * (layers // 2) + ATTENTION * (layers % 2)
    shape = {
        "num_layers": layers,
        "hidden": hidden,
        "ffn": fields.size("intermediate_size", 4 * hidden, field="ffn"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "learned_positions": positions,
        "max_positions": positions,
        "mixers": letters,
        "window": fields.size("window_size", 256, field="window"),
    }
    return shape | LAYER_NORM | {"o_bias": True, "mlp_bias": True}


def opt(fields: Fields) -> Shape:
    """OPT, where the embedding is as wide as the layers."""
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
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "learned_positions": positions + 2,  # OPT's table begins with two rows for padding
        "max_positions": positions,
        "final_norm": fields.flag("do_layer_norm_before", default=True),
    }
    return shape | LAYER_NORM | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}


def biogpt(fields: Fields) -> Shape:
    """BioGPT."""
    shape = common(fields, tied=True) | LAYER_NORM | ALL_BIASES
    return shape | {"learned_positions": (shape["max_positions"] or 1024) + 2}


def xglm(fields: Fields) -> Shape:
    """XGLM: sinusoidal positions."""
    hidden = fields.size("d_model", field="hidden")
    heads = fields.size("attention_heads", field="heads")
    shape = {
        "num_layers": fields.size("num_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": fields.size("ffn_dim", field="ffn"),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "max_positions": fields.count("max_position_embeddings", field="max_positions") or None,
    }
    return shape | LAYER_NORM | ALL_BIASES


def bloom(fields: Fields) -> Shape:
    """BLOOM: ALiBi, a norm behind the embedding."""
    hidden = fields.size(fields.first("hidden_size", "n_embed"), field="hidden")
    heads = fields.size(fields.first("n_head", "num_attention_heads"), field="heads")
    shape = {
        "num_layers": fields.size("n_layer", field="num_layers"),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "embedding_norm": True,
        "max_positions": fields.count("seq_length", field="max_positions") or None,
    }
    return shape | LAYER_NORM | ALL_BIASES


def mpt(fields: Fields) -> Shape:
    """MPT: ALiBi, norms without biases (``transformers`` sets them none)."""
    hidden = fields.size("d_model", field="hidden")
    heads = fields.size("n_heads", field="heads")
    shape = {
        "num_layers": fields.size("n_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": 4 * hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "max_positions": fields.count("max_seq_len", field="max_positions") or None,
    }
    return shape | LAYER_NORM | {"norm_bias": False}


def falcon(fields: Fields) -> Shape:
    """Falcon."""
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
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=True),
        "norms_per_layer": norms if parallel else 2,
        "max_positions": fields.count("max_position_embeddings", field="max_positions") or None,
    }
    return shape | LAYER_NORM | {"qkv_bias": bias, "o_bias": bias, "mlp_bias": bias}
