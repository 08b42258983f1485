"""Families of Hugging Face configurations by ``model_type``, and what is not a decoder of text.

Parameter counts of every family are those of its class in ``transformers`` 5.24 on the meta device
(``tests/oracles/test_transformers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from meshwright.job import huggingface_deepseek_v4 as deepseek_v4
from meshwright.job import huggingface_dense as dense
from meshwright.job import huggingface_experts as experts
from meshwright.job import huggingface_gpt as gpt
from meshwright.job import huggingface_linear as linear
from meshwright.job import huggingface_mamba as mamba
from meshwright.job import huggingface_nemotron_h as nemotron_h
from meshwright.job import huggingface_newer as newer
from meshwright.job.huggingface_fields import Fields, Shape

Reader = Callable[[Fields], Shape]

_DENSE: Mapping[str, Reader] = {
    "apertus": dense.apertus,
    "arcee": dense.arcee,
    "biogpt": gpt.biogpt,
    "bitnet": dense.bitnet,
    "bloom": gpt.bloom,
    "codegen": gpt.gptj,
    "cohere": dense.cohere,
    "cohere2": dense.cohere2,
    "cwm": dense.cwm,
    "ernie4_5": dense.ernie4_5,
    "exaone": dense.llama,
    "exaone4": dense.exaone4,
    "falcon": gpt.falcon,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3": dense.gemma3,
    "gemma3_text": dense.gemma3,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "gpt2": gpt.gpt2,
    "gpt_bigcode": gpt.gpt_bigcode,
    "gpt_neo": gpt.gpt_neo,
    "gpt_neox": gpt.gpt_neox,
    "gptj": gpt.gptj,
    "granite": dense.llama,
    "helium": dense.llama,
    "hunyuan_v1_dense": dense.hunyuan,
    "internlm3": dense.llama,
    "jais2": dense.jais2,
    "llama": dense.llama,
    "minicpm3": dense.dense_latent,
    "ministral": dense.plain,
    "ministral3": dense.plain,
    "mistral": dense.plain,
    "mpt": gpt.mpt,
    "nemotron": dense.nemotron,
    "olmo": dense.olmo,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "openai-gpt": gpt.openai_gpt,
    "opt": gpt.opt,
    "persimmon": dense.persimmon,
    "phi": dense.phi,
    "phi3": dense.plain,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "seed_oss": dense.seed_oss,
    "smollm3": dense.llama,
    "stablelm": dense.stablelm,
    "starcoder2": dense.starcoder2,
    "vaultgemma": dense.vaultgemma,
    "xglm": gpt.xglm,
    "youtu": dense.dense_latent,
}
_EXPERTS: Mapping[str, Reader] = {
    "dbrx": experts.dbrx,
    "deepseek_v2": experts.deepseek_v2,
    "deepseek_v3": experts.deepseek,
    "deepseek_v32": experts.indexed,
    "dots1": experts.dots1,
    "ernie4_5_moe": experts.ernie4_5_moe,
    "exaone_moe": experts.exaone_moe,
    "flex_olmo": experts.olmoe,
    "glm4_moe": experts.glm4_moe,
    "glm4_moe_lite": experts.glm4_moe_lite,
    "glm_moe_dsa": experts.indexed,
    "gpt_oss": experts.gpt_oss,
    "granitemoe": experts.granitemoe,
    "granitemoeshared": experts.granitemoe,
    "hunyuan_v1_moe": experts.hunyuan_moe,
    "kimi_k2": experts.deepseek,
    "llama4": experts.llama4,
    "llama4_text": experts.llama4,
    "mimo_v2_flash": experts.mimo_v2_flash,
    "minimax_m2": experts.minimax_m2,
    "mixtral": experts.mixtral,
    "olmoe": experts.olmoe,
    "phimoe": experts.phimoe,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3_moe": experts.qwen3_moe,
    "solar_open": experts.solar_open,
}
_NEWER: Mapping[str, Reader] = {
    "afmoe": newer.afmoe,
    "apertus1p5_text": newer.apertus1p5,
    "aria_text": newer.aria_text,
    "cohere2_moe": newer.cohere2_moe,
    "diffllama": newer.diffllama,
    "granite_swa": newer.granite_swa,
    "granitemoe_swa": newer.granitemoe_swa,
    "hy_v3": newer.hy_v3,
    "hyperclovax": newer.hyperclovax,
    "iquestcoder": dense.llama,
    "kolibri1": newer.kolibri1,
    "laguna": newer.laguna,
    "mellum": newer.mellum,
    "minimax_m3_vl_text": newer.minimax_m3,
    "nanochat": newer.nanochat,
    "sarvam_mla": experts.glm4_moe_lite,
    "sarvam_moe": newer.sarvam_moe,
}
_HYBRID: Mapping[str, Reader] = {
    "bamba": mamba.bamba,
    "deepseek_v4": deepseek_v4.deepseek_v4,
    "falcon_h1": mamba.falcon_h1,
    "falcon_mamba": mamba.mamba,
    "granitemoehybrid": mamba.granitemoehybrid,
    "jamba": mamba.jamba,
    "kimi_linear": linear.kimi_linear,
    "lfm2": linear.lfm2,
    "lfm2_moe": linear.lfm2_moe,
    "mamba": mamba.mamba,
    "mamba2": mamba.mamba2,
    "minimax": linear.minimax,
    "nemotron_h": nemotron_h.nemotron_h,
    "olmo_hybrid": linear.olmo_hybrid,
    "qwen3_5": linear.qwen3_5,
    "qwen3_5_text": linear.qwen3_5,
    "qwen3_5_moe": linear.qwen3_5_moe,
    "qwen3_5_moe_text": linear.qwen3_5_moe,
    "qwen3_next": linear.qwen3_next,
    "zamba2": nemotron_h.zamba2,
}
FAMILIES: Mapping[str, Reader] = dict(sorted({**_DENSE, **_EXPERTS, **_NEWER, **_HYBRID}.items()))
"""Reader of each family by ``model_type``."""
