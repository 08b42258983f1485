"""Readers of Hugging Face configurations with experts: see ``fields.py``."""

from __future__ import annotations

from meshwright.job.huggingface.fields import (
    LAYER_NORM,
    Fields,
    Shape,
    biases,
    common,
    dense_or_experts,
    every,
    expert_sizes,
    head_width,
    latent_attention,
    layer_letters,
    shared,
    sliding,
    sparse_steps,
)
from meshwright.job.mixers import ATTENTION, DENSE, EXPERTS, SLIDING, Extra


def mixtral(fields: Fields) -> Shape:
    """Mixtral."""
    shape = common(fields)
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    return shape | sliding(fields, shape) | experts


def granitemoe(fields: Fields) -> Shape:
    """Granite 3 MoE, with or without a shared expert."""
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    width = fields.count("shared_intermediate_size")
    both = {"shared_experts": 1, "shared_ffn_total": width} if width else {}
    return common(fields) | biases(fields) | experts | both


def phimoe(fields: Fields) -> Shape:
    """Phi-3.5 MoE: layer norms, maybe biases."""
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    bias = {"output_bias": fields.flag("lm_head_bias", default=False)}
    return common(fields) | LAYER_NORM | {"gated_mlp": True} | biases(fields) | experts | bias


def olmoe(fields: Fields) -> Shape:
    """OLMoE, FlexOlmo."""
    experts = expert_sizes(fields, "num_experts", "intermediate_size")
    return common(fields) | biases(fields) | {"qk_norm": "full"} | experts


def gpt_oss(fields: Fields) -> Shape:
    """gpt-oss: sinks, a window in every other layer."""
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    extras = {"attention_sinks": True, "router_bias": True, "mlp_bias": True}
    shape = common(fields, head_dim=64)
    window = sliding(fields, shape, step=2, window=128)
    return shape | window | biases(fields, default=True) | experts | extras


def minimax_m2(fields: Fields) -> Shape:
    """MiniMax M2."""
    experts = expert_sizes(fields, "num_local_experts", "intermediate_size")
    return common(fields, head_dim=None) | {"qk_norm": "full"} | experts


def dbrx(fields: Fields) -> Shape:
    """DBRX: norms without biases, sizes in ``attn_config`` and ``ffn_config``."""
    hidden = fields.size("d_model", field="hidden")
    heads = fields.size("n_heads", field="heads")
    shape = {
        "num_layers": fields.size("n_layers", field="num_layers"),
        "hidden": hidden,
        "ffn": 0,
        "heads": heads,
        "kv_heads": fields.size("attn_config.kv_n_heads", field="kv_heads"),
        "head_dim": head_width(fields, hidden, heads, None),
        "vocab": fields.size("vocab_size", field="vocab"),
        "tied_embeddings": fields.flag("tie_word_embeddings", default=False),
        "max_positions": fields.count("max_seq_len", field="max_positions") or None,
        "experts": fields.size("ffn_config.moe_num_experts", field="experts"),
        "top_k": fields.size("ffn_config.moe_top_k", field="top_k"),
        "moe_ffn": fields.size("ffn_config.ffn_hidden_size", field="moe_ffn"),
    }
    return shape | {"norm": "layer"}


def qwen2_moe(fields: Fields) -> Shape:
    """Qwen 1.5 and 2 MoE."""
    shape = common(fields) | expert_sizes(fields, "num_experts") | {"qkv_bias": True}
    return shape | sparse_steps(fields, "decoder_sparse_step") | gated_shared(fields)


def gated_shared(fields: Fields) -> Shape:
    """Return Qwen's one shared expert behind a gate."""
    return {
        "shared_experts": 1,
        "shared_ffn_total": fields.size("shared_expert_intermediate_size"),
        "shared_expert_gate": True,
    }


def qwen3_moe(fields: Fields) -> Shape:
    """Qwen 3 MoE."""
    # transformers 5 writes the key under another name than the published files
    experts = expert_sizes(fields, fields.first("num_experts", "num_local_experts"))
    steps = sparse_steps(fields, "decoder_sparse_step")
    return common(fields) | biases(fields) | experts | steps | {"qk_norm": "head"}


def llama4(fields: Fields) -> Shape:
    """Llama 4: a shared expert as wide as a routed one."""
    width = fields.size("intermediate_size", field="moe_ffn")
    shape = common(fields) | biases(fields)
    return (
        shape
        | expert_sizes(fields, "num_local_experts", "intermediate_size")
        | sparse_steps(fields, "interleave_moe_layer_step")
        | {
            "ffn": fields.size("intermediate_size_mlp", field="ffn"),
            "shared_experts": 1,
            "shared_ffn_total": width,
        }
    )


def _deepseek_experts(fields: Fields, dense: int = 0) -> Shape:
    experts = expert_sizes(fields, "n_routed_experts")
    return (
        experts
        | shared(fields, experts["moe_ffn"])
        | {
            "first_dense_layers": fields.count(
                "first_k_dense_replace", dense, field="first_dense_layers"
            ),
            "moe_layer_period": fields.size("moe_layer_freq", 1, field="moe_layer_period"),
            "router_groups": fields.count("n_group", field="router_groups"),
            "router_topk_groups": fields.count("topk_group", field="router_topk_groups"),
            "mtp_layers": fields.count("num_nextn_predict_layers", field="mtp_layers"),
        }
    )


def deepseek(fields: Fields, dense: int = 3) -> Shape:
    """DeepSeek-V3, Kimi K2: latent attention, shared experts, a dense head of the model."""
    # The class' own head_dim is the rotary part, and heads * head_dim is not the hidden size.
    shape = common(fields, head_dim=1) | biases(fields) | latent_attention(fields)
    return shape | _deepseek_experts(fields, dense) | dense_or_experts(fields, shape["num_layers"])


def glm4_moe_lite(fields: Fields) -> Shape:
    """GLM-4.7-Flash: DeepSeek-V3 with one dense layer."""
    return deepseek(fields, 1)


def deepseek_v2(fields: Fields) -> Shape:
    """DeepSeek-V2: its class leaves the chosen experts open, all published files say 6."""
    fields.assume(num_experts_per_tok=6)
    return deepseek(fields, 0)


def indexed(fields: Fields) -> Shape:
    """DeepSeek-V3.2, GLM-5: an indexer chooses which keys a token sees."""
    shape = deepseek(fields)
    heads = fields.size("index_n_heads")
    width = fields.size("index_head_dim")
    rank, hidden, layers = shape["q_lora_rank"], shape["hidden"], shape["num_layers"]
    matrices = rank * heads * width + hidden * (width + heads)
    owners = [one == "full" for one in fields.words("indexer_types", layers) or ["full"] * layers]
    indexer = Extra(
        name="indexer",
        parameters=matrices + 2 * width,
        multiply_adds=matrices,
        core_width=heads * width,
        at=() if all(owners) else tuple(i for i, has in enumerate(owners) if has),
    )
    chosen = {"mixers": SLIDING * layers, "window": fields.size("index_topk", field="window")}
    return shape | chosen | {"extras": (indexer,)}


def glm4_moe(fields: Fields) -> Shape:
    """GLM-4.5 and 4.6: biases of q, k and v."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    norm = "head" if fields.flag("use_qk_norm", default=False) else "none"
    bias = {"qkv_bias": fields.flag("attention_bias", default=False), "qk_norm": norm}
    return common(fields, head_dim=max(1, hidden // heads)) | bias | _deepseek_experts(fields, 1)


def dots1(fields: Fields) -> Shape:
    """dots.llm1: norms of q and k."""
    shape = common(fields) | biases(fields) | {"qk_norm": "head"}
    letters = layer_letters(fields, shape["num_layers"], {})
    window = sliding(fields, shape) if SLIDING in letters else {}
    return shape | window | _deepseek_experts(fields)


def solar_open(fields: Fields) -> Shape:
    """Solar Open: experts in every layer, no latent attention."""
    fields.assume(intermediate_size=1)
    return common(fields) | biases(fields) | _deepseek_experts(fields) | {"ffn": 0}


def ernie4_5_moe(fields: Fields) -> Shape:
    """ERNIE 4.5 MoE: the router's correction is a parameter."""
    shape = common(fields, tied=True)
    if fields.flag("use_bias", default=False):
        fields.reject("use_bias", "true is not known with experts")
    layers = shape["num_layers"]
    first = fields.count("moe_layer_start_index", 1)
    last = fields.get("moe_layer_end_index")
    last = last if isinstance(last, int) and last >= 0 else layers - 1
    step = fields.size("moe_layer_interval", 1)
    letters = "".join(
        EXPERTS if first <= i <= last and (i + 1) % step == 0 else DENSE for i in range(layers)
    )
    width = fields.size("moe_intermediate_size", field="moe_ffn")
    return (
        shape
        | {
            "mlps": letters,
            "experts": fields.size("moe_num_experts", field="experts"),
            "top_k": fields.size("moe_k", field="top_k"),
            "moe_ffn": width,
            "router_bias": True,
        }
        | shared(fields, width, key="moe_num_shared_experts", default=2)
    )


def hunyuan_moe(fields: Fields) -> Shape:
    """Hunyuan A13B: one shared expert as wide as a routed one, in every layer."""
    top = fields.get("moe_topk")
    if isinstance(top, list) and top:
        fields.assume(top=top[0])
    key = "top" if isinstance(top, list) else "moe_topk"
    width = fields.size("intermediate_size", field="moe_ffn")
    return (
        common(fields)
        | biases(fields)
        | {"qk_norm": "head", "experts": fields.size("num_experts", field="experts")}
        | {"top_k": fields.size(key, field="top_k"), "moe_ffn": width}
        | {"shared_experts": 1, "shared_ffn_total": width}
    )


def exaone_moe(fields: Fields) -> Shape:
    """K-EXAONE."""
    shape = common(fields) | {"qk_norm": "head"}
    experts = expert_sizes(fields, "num_experts")
    dense = fields.count("first_k_dense_replace", 1, field="first_dense_layers")
    return (
        shape
        | sliding(fields, shape, step=4, window=4096)
        | experts
        | shared(fields, experts["moe_ffn"], key="num_shared_experts", default=1)
        | {"first_dense_layers": dense}
        | dense_or_experts(fields, shape["num_layers"])
    )


def mimo_v2_flash(fields: Fields) -> Shape:
    """MiMo-V2-Flash: sliding layers have more key/value heads and learned sinks."""
    shape = common(fields) | biases(fields)
    layers = shape["num_layers"]
    window = fields.count("sliding_window", 128, field="window")
    letters = layer_letters(fields, layers, {})
    pattern = fields.numbers("hybrid_layer_pattern")
    if not letters and len(pattern) == layers:
        letters = "".join(SLIDING if one else ATTENTION for one in pattern)
    letters = letters or ATTENTION + every(layers, 6, ATTENTION, SLIDING)[1:]
    shape |= {"mixers": letters, "window": window}
    value = fields.size("v_head_dim", shape["head_dim"], field="v_head_dim")
    swa = fields.size("swa_num_key_value_heads", 2 * shape["kv_heads"], field="sliding_kv_heads")
    sinks = Extra(name="sinks", parameters=shape["heads"], mixers=SLIDING)
    kinds = "".join(EXPERTS if one else DENSE for one in fields.numbers("moe_layer_freq"))
    listed = {"mlps": kinds} if kinds else dense_or_experts(fields, layers)
    return (
        shape
        | {"v_head_dim": value, "sliding_kv_heads": swa, "extras": (sinks,)}
        | expert_sizes(fields, "n_routed_experts")
        | (listed or {"first_dense_layers": 1})
    )
