"""Readers of families that mix known parts anew: gates, sinks, four norms. See ``fields.py``."""

from __future__ import annotations

from meshwright.job.huggingface.dense import apertus, llama
from meshwright.job.huggingface.experts import glm4_moe, granitemoe
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
from meshwright.job.mixers import Extra


def _listed_window(fields: Fields, shape: Shape) -> Shape:
    """Return the window of the layers that ``layer_types`` lists, if it does."""
    return sliding(fields, shape) if fields.get("layer_types") is not None else {}


def granite_swa(fields: Fields) -> Shape:
    """Granite with windows and sinks."""
    shape = llama(fields)
    return shape | _listed_window(fields, shape) | {"attention_sinks": True}


def granitemoe_swa(fields: Fields) -> Shape:
    """Granite MoE with windows and sinks."""
    shape = granitemoe(fields)
    return shape | _listed_window(fields, shape) | {"attention_sinks": True}


def hyperclovax(fields: Fields) -> Shape:
    """HyperCLOVA X: norms behind attention and MLP as well."""
    after = fields.flag("use_post_norm", default=True)
    return llama(fields) | {"norms_per_layer": 4 if after else 2}


def nanochat(fields: Fields) -> Shape:
    """nanochat: norms without weights, two matrices."""
    bare = {"norms_per_layer": 0, "final_norm": False, "gated_mlp": False}
    return common(fields) | biases(fields) | bare


def diffllama(fields: Fields) -> Shape:
    """DiffLlama: four vectors that weigh the difference of two attentions."""
    shape = llama(fields)
    weights = Extra(name="weights of the difference", parameters=4 * shape["head_dim"])
    return shape | {"extras": (weights,)}


def kolibri1(fields: Fields) -> Shape:
    """Kolibri: experts in every layer, four norms."""
    shape = common(fields, head_dim=128, has_mlp=False) | expert_sizes(fields, "num_local_experts")
    width = fields.count("shared_expert_intermediate_size")
    beside = {"shared_experts": 1, "shared_ffn_total": width} if width else {}
    return (
        shape | _listed_window(fields, shape) | {"qk_norm": "head", "norms_per_layer": 4} | beside
    )


def mellum(fields: Fields) -> Shape:
    """Mellum 2: Qwen 3 MoE with windows."""
    experts = expert_sizes(fields, fields.first("num_experts", "num_local_experts"))
    shape = common(fields, head_dim=128) | biases(fields) | experts | {"qk_norm": "head"}
    listed = dense_or_experts(fields, shape["num_layers"])
    return shape | _listed_window(fields, shape) | listed


def hy_v3(fields: Fields) -> Shape:
    """Hunyuan 3: a dense head of the model, shared experts."""
    shape = common(fields, head_dim=128) | biases(fields) | {"qk_norm": "head"}
    experts = expert_sizes(fields, "num_experts")
    beside = shared(fields, experts["moe_ffn"], key="num_shared_experts", default=1)
    listed = dense_or_experts(fields, shape["num_layers"])
    return shape | experts | beside | (listed or {"first_dense_layers": 1})


def minimax_m3(fields: Fields) -> Shape:
    """MiniMax M3, text part, where every layer has full attention."""
    shape = common(fields, head_dim=128) | {"qk_norm": "head"}
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    shape["ffn"] = fields.size("dense_intermediate_size", field="ffn")
    width = fields.count("shared_intermediate_size")
    beside = {"shared_experts": 1, "shared_ffn_total": width} if width else {}
    listed = dense_or_experts(fields, shape["num_layers"])
    return shape | experts | beside | _listed_window(fields, shape) | listed


def cohere2_moe(fields: Fields) -> Shape:
    """Command A MoE: attention and experts side by side behind one norm."""
    shape = common(fields, tied=True, head_dim=128) | biases(fields)
    shape |= {"norm": "layer", "norms_per_layer": 1}
    experts = expert_sizes(fields, "num_experts", "intermediate_size")
    beside = shared(fields, experts["moe_ffn"], key="num_shared_experts")
    listed = dense_or_experts(fields, shape["num_layers"])
    return shape | sliding(fields, shape, step=4, window=4096) | experts | beside | listed


def afmoe(fields: Fields) -> Shape:
    """Trinity: a gate on attention, four norms, the router's correction is a parameter."""
    shape = common(fields, head_dim=128) | biases(fields)
    experts = expert_sizes(fields, "num_experts")
    step = fields.size("global_attn_every_n_layers", 4)
    return (
        shape
        | sliding(fields, shape, step=step, window=1024)
        | experts
        | shared(fields, experts["moe_ffn"], key="num_shared_experts", default=2)
        | {
            "first_dense_layers": fields.count("num_dense_layers", 1, field="first_dense_layers"),
            "attention_gate": "full",
            "qk_norm": "head",
            "norms_per_layer": 4,
            "router_bias": True,
        }
    )


def laguna(fields: Fields) -> Shape:
    """Laguna, where every layer has as many heads: a gate a head, the router's correction counts."""
    shape = common(fields, head_dim=128) | biases(fields) | {"qk_norm": "head"}
    heads = fields.numbers("num_attention_heads_per_layer")
    if set(heads) - {shape["heads"]}:
        message = "other than num_attention_heads in every layer is not known"
        fields.reject("num_attention_heads_per_layer", message)
    gating = fields.get("gating")
    kind = {True: "head", "per-head": "head", False: "none", None: "head"}.get(
        gating if isinstance(gating, (bool, str)) else None
    )
    if kind is None:
        fields.reject("gating", "is a gate that is not known here")
    width = fields.count("shared_expert_intermediate_size")
    return (
        shape
        | _listed_window(fields, shape)
        | expert_sizes(fields, "num_experts")
        | {"shared_experts": 1, "shared_ffn_total": width}
        | {"attention_gate": kind or "none", "router_bias": True}
        | (dense_or_experts(fields, shape["num_layers"]) or {"first_dense_layers": 1})
    )


def aria_text(fields: Fields) -> Shape:
    """Aria, text part: experts and two shared ones in every layer."""
    width = fields.size("intermediate_size", field="moe_ffn")
    return (
        llama(fields)
        | {"experts": fields.size("moe_num_experts", field="experts"), "moe_ffn": width}
        | {"top_k": fields.size("moe_topk", field="top_k")}
        | shared(fields, width, key="moe_num_shared_experts", default=2)
    )


def sarvam_moe(fields: Fields) -> Shape:
    """Sarvam MoE: GLM-4.5 with norms of q and k."""
    fields.assume(use_qk_norm=True)
    return glm4_moe(fields)


def apertus1p5(fields: Fields) -> Shape:
    """Apertus 1.5, text part."""
    return apertus(fields)
