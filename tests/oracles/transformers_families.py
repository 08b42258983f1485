"""Configurations of each family to count: small ones, with the switches that change the count.

Every family also stands with its class' own defaults where its class makes a model of them.
"""

from __future__ import annotations

from typing import Any

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "vocab_size": 160,
}
_GPT = {"n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 32, "vocab_size": 160}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
_DEEPSEEK = SMALL | _EXPERTS | {"n_routed_experts": 8, "n_shared_experts": 2}
_LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
}
_NO_LATENT_QUERY = _LATENT | {"q_lora_rank": None}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 3,
}
_V4 = {key: size for key, size in SMALL.items() if key != "intermediate_size"} | _EXPERTS
_MAMBA2 = {
    "mamba_n_heads": 16,
    "mamba_d_head": 8,
    "mamba_d_state": 10,
    "mamba_n_groups": 2,
    "mamba_d_conv": 3,
}
_MIXED = ["linear_attention", "full_attention", "linear_attention"] * 2

WITHOUT_DEFAULTS = frozenset({"dbrx", "dots1", "hunyuan_v1_moe", "lfm2_moe", "nemotron"})
"""Families whose class makes no model of its own defaults in transformers 5.24."""
ALIASES = frozenset({"gemma3", "kimi_k2", "llama4", "qwen3_5", "qwen3_5_moe"})
"""Names of the multimodal whole, or not known to transformers, of families that stand here."""

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("llama", SMALL | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", SMALL | {"sliding_window": 16}),
    ("ministral", SMALL),
    ("qwen2", SMALL | {"head_dim": 8, "use_sliding_window": True, "max_window_layers": 2}),
    ("qwen3", SMALL | {"attention_bias": True, "tie_word_embeddings": True}),
    ("gemma3_text", SMALL | {"attention_bias": True}),
    ("vaultgemma", SMALL),
    ("olmo3", SMALL | {"head_dim": 8}),
    ("exaone4", SMALL),
    ("cohere", SMALL | {"head_dim": 8, "use_qk_norm": True, "attention_bias": True}),
    ("stablelm", SMALL | {"head_dim": 8, "use_qkv_bias": True, "qk_layernorm": True}),
    ("stablelm", SMALL | {"head_dim": 8, "use_parallel_residual": True}),
    ("phi", SMALL | {"head_dim": 8, "qk_layernorm": True}),
    ("persimmon", SMALL | {"head_dim": 8, "qk_layernorm": False}),
    ("starcoder2", SMALL | {"use_bias": False, "tie_word_embeddings": False}),
    ("ernie4_5", SMALL | {"use_bias": True}),
    ("seed_oss", SMALL | {"attention_out_bias": True, "mlp_bias": True}),
    ("hunyuan_v1_dense", SMALL | {"attention_bias": True}),
    ("nemotron", SMALL | {"attention_bias": True, "mlp_bias": True}),
    ("minicpm3", SMALL | _LATENT),
    ("gpt2", _GPT | {"n_inner": 80}),
    ("gpt_bigcode", _GPT | {"multi_query": False}),
    ("gptj", _GPT | {"rotary_dim": 8}),
    ("opt", {"hidden_size": 64, "ffn_dim": 96, "num_hidden_layers": 3, "num_attention_heads": 4}),
    ("mpt", {"d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 160}),
    (
        "falcon",
        {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 3, "num_kv_heads": 2}
        | {"new_decoder_architecture": True, "bias": True, "vocab_size": 160},
    ),
    ("mixtral", SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("granitemoeshared", SMALL | {"head_dim": 8, "shared_intermediate_size": 40}),
    ("phimoe", SMALL | {"head_dim": 8, "attention_bias": True, "lm_head_bias": True}),
    ("gpt_oss", SMALL | {"num_local_experts": 4}),
    (
        "dbrx",
        {"d_model": 64, "n_heads": 4, "n_layers": 3, "vocab_size": 160}
        | {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0}}
        | {"ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "hidden_size": 64}},
    ),
    ("qwen2_moe", SMALL | _EXPERTS | {"head_dim": 8, "num_experts": 4, "mlp_only_layers": [2]}),
    ("qwen2_moe", SMALL | _EXPERTS | {"head_dim": 8, "num_experts": 4, "decoder_sparse_step": 2}),
    ("qwen3_moe", SMALL | _EXPERTS | {"num_experts": 4, "decoder_sparse_step": 2}),
    ("llama4_text", SMALL | {"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2}),
    ("deepseek_v2", _DEEPSEEK | _NO_LATENT_QUERY | {"first_k_dense_replace": 1}),
    ("deepseek_v3", _DEEPSEEK | _LATENT | {"attention_bias": True, "n_group": 2, "topk_group": 1}),
    ("deepseek_v32", _DEEPSEEK | _LATENT | {"index_n_heads": 4, "index_head_dim": 8, "n_group": 2}),
    ("glm4_moe", _DEEPSEEK | {"use_qk_norm": True, "attention_bias": True}),
    ("glm4_moe_lite", _DEEPSEEK | _LATENT | {"head_dim": 4}),
    ("glm_moe_dsa", _DEEPSEEK | _LATENT | {"index_n_heads": 4, "index_head_dim": 8}),
    ("dots1", _DEEPSEEK | {"first_k_dense_replace": 2}),
    (
        "ernie4_5_moe",
        SMALL
        | {"head_dim": 8, "moe_intermediate_size": 24, "moe_num_experts": 8}
        | {"moe_k": 2, "moe_layer_start_index": 2, "moe_layer_interval": 2},
    ),
    ("hunyuan_v1_moe", SMALL | {"num_experts": 4, "moe_topk": 2}),
    ("exaone_moe", SMALL | _EXPERTS | {"num_experts": 4}),
    ("mimo_v2_flash", _DEEPSEEK | {"head_dim": 12, "v_head_dim": 8}),
    (
        "qwen3_next",
        SMALL
        | _EXPERTS
        | _DELTA
        | {"num_experts": 4, "mlp_only_layers": [3]}
        | {"shared_expert_intermediate_size": 40, "layer_types": _MIXED},
    ),
    ("qwen3_5_text", SMALL | _DELTA | {"tie_word_embeddings": True, "attention_bias": True}),
    ("qwen3_5_moe_text", SMALL | _EXPERTS | _DELTA | {"num_experts": 4}),
    ("olmo_hybrid", SMALL | _DELTA | {"head_dim": 8, "layer_types": _MIXED, "pad_token_id": 1}),
    (
        "kimi_linear",
        SMALL
        | _NO_LATENT_QUERY
        | {"linear_num_heads": 4, "linear_head_dim": 8}
        | {
            "num_experts": 4,
            "num_experts_per_token": 2,
            "moe_intermediate_size": 24,
            "pad_token_id": 1,
        },
    ),
    ("minimax", SMALL | {"num_local_experts": 4}),
    (
        "mamba",
        {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 160, "expand": 3}
        | {"use_bias": True, "use_conv_bias": False, "state_size": 6, "time_step_rank": 5},
    ),
    (
        "mamba2",
        {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 160, "num_heads": 16}
        | {"head_dim": 8, "n_groups": 4, "use_bias": True, "tie_word_embeddings": True},
    ),
    (
        "bamba",
        SMALL | _MAMBA2 | {"head_dim": 8, "attn_layer_indices": [1, 4], "mamba_proj_bias": True},
    ),
    (
        "granitemoehybrid",
        SMALL
        | _MAMBA2
        | {"head_dim": 8, "layer_types": _MIXED}
        | {"num_local_experts": 4, "shared_intermediate_size": 40},
    ),
    (
        "granitemoehybrid",
        SMALL
        | _MAMBA2
        | {"head_dim": 8, "layer_types": _MIXED}
        | {"num_local_experts": 0, "shared_intermediate_size": 40},
    ),
    ("falcon_h1", SMALL | _MAMBA2 | {"mamba_d_ssm": 128, "mamba_rms_norm": True}),
    (
        "jamba",
        SMALL
        | {"head_dim": 8, "num_experts": 4, "attn_layer_period": 3, "attn_layer_offset": 1}
        | {"mamba_d_state": 6, "mamba_dt_rank": 5, "mamba_proj_bias": True},
    ),
    (
        "nemotron_h",
        SMALL
        | {"hybrid_override_pattern": "MEM*E-", "mamba_num_heads": 8}
        | {"mamba_head_dim": 12, "ssm_state_size": 6, "n_groups": 2, "n_routed_experts": 4}
        | {"moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40},
    ),
    (
        "nemotron_h",
        SMALL
        | {"hybrid_override_pattern": "MEM*E-", "mamba_num_heads": 8}
        | {"mamba_head_dim": 12, "n_groups": 2, "n_routed_experts": 4, "moe_latent_size": 20},
    ),
    (
        "zamba2",
        {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 160}
        | {"layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"]}
        | {"num_mem_blocks": 2, "adapter_rank": 4, "use_shared_attention_adapter": True}
        | {"n_mamba_heads": 8, "mamba_headdim": 16, "mamba_ngroups": 2},
    ),
    ("lfm2", SMALL | {"head_dim": 8, "full_attn_idxs": [1, 4], "conv_bias": True}),
    (
        "lfm2_moe",
        SMALL
        | _EXPERTS
        | {"head_dim": 8, "num_experts": 4, "num_dense_layers": 1}
        | {"layer_types": ["conv", "full_attention", "conv"] * 2},
    ),
    (
        "deepseek_v4",
        _V4
        | {"n_routed_experts": 8, "q_lora_rank": 24, "o_groups": 4}
        | {"o_lora_rank": 10, "index_n_heads": 4, "index_head_dim": 16, "num_key_value_heads": 1}
        | {"head_dim": 16, "num_attention_heads": 8, "hc_mult": 3},
    ),
    (
        "deepseek_v4",
        _V4
        | {"n_routed_experts": 8, "q_lora_rank": 24, "o_groups": 2}
        | {"head_dim": 16, "num_key_value_heads": 1, "compress_ratios": [0, 4, 128, 4, 0, 128]},
    ),
    ("laguna", SMALL | _EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 40}),
    (
        "afmoe",
        SMALL | _EXPERTS | {"num_experts": 4, "num_shared_experts": 1, "num_dense_layers": 2},
    ),
    ("cohere2_moe", SMALL | {"num_experts": 4, "num_shared_experts": 2, "num_experts_per_tok": 2}),
    ("hyperclovax", SMALL | {"use_post_norm": False}),
    ("sarvam_moe", _DEEPSEEK | {"use_qk_norm": False}),
    ("hy_v3", SMALL | _EXPERTS | {"num_experts": 4}),
]
