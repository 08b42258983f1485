"""Parameter counts of the catalogue's shapes are those of transformers' classes, made on no device."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.job.catalogue import find_model
from meshwright.job.huggingface.config import read_huggingface_config
from meshwright.job.huggingface.families import FAMILIES
from meshwright.job.model import Model
from meshwright.job.parameters import (
    StageLayers,
    parameter_parts,
    parameters_per_rank,
    total_parameters,
)
from oracles.asking import ask
from oracles.transformers_families import ALIASES, VARIANTS, WITHOUT_DEFAULTS

pytestmark = pytest.mark.oracles

_FAMILIES = {
    "llama-3-8b": "llama",
    "llama-3.1-405b": "llama",
    "llama-3.2-1b": "llama",
    "qwen2.5-72b": "qwen2",
    "qwen3-32b": "qwen3",
    "gemma-2-27b": "gemma2",
    "olmo2-32b": "olmo2",
    "gpt2-xl": "gpt2",
    "gpt-neox-20b": "gpt_neox",
    "mixtral-8x22b": "mixtral",
    "qwen3-235b-a22b": "qwen3_moe",
    "olmoe-1b-7b": "olmoe",
    "gpt-oss-120b": "gpt_oss",
    "deepseek-v3": "deepseek_v3",
}
"""Dense and experts, with and without biases, tied and not, per-head and latent attention."""


def _config(model: Model, family: str) -> dict[str, Any]:
    """Return the shape in the words of a ``config.json``."""
    if family == "gpt2":
        return {
            "n_embd": model.hidden,
            "n_head": model.heads,
            "n_layer": model.num_layers,
            "n_inner": model.ffn,
            "n_positions": model.learned_positions,
            "vocab_size": model.vocab,
        }
    config = {
        "hidden_size": model.hidden,
        "intermediate_size": model.ffn,
        "num_hidden_layers": model.num_layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.tied_embeddings,
        "max_position_embeddings": model.max_positions,
    }
    if not model.is_mla and family != "gpt_neox":
        config["head_dim"] = model.head_dim
    return config | _experts(model, family) | _latent(model)


def _experts(model: Model, family: str) -> dict[str, Any]:
    if not model.is_moe:
        return {}
    config: dict[str, Any] = {"num_experts_per_tok": model.top_k}
    names = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts"}
    names |= {"deepseek_v3": "n_routed_experts"}
    config[names.get(family, "num_experts")] = model.experts
    if family in ("qwen3_moe", "deepseek_v3"):
        config["moe_intermediate_size"] = model.moe_ffn
    else:
        config["intermediate_size"] = model.moe_ffn
    if family == "deepseek_v3":
        config |= {
            "n_shared_experts": model.shared_experts,
            "first_k_dense_replace": model.first_dense_layers,
            "n_group": model.router_groups,
            "topk_group": model.router_topk_groups,
        }
    return config


def _latent(model: Model) -> dict[str, Any]:
    if not model.is_mla:
        return {}
    return {
        "q_lora_rank": model.q_lora_rank or None,
        "kv_lora_rank": model.kv_lora_rank,
        "qk_nope_head_dim": model.qk_nope_dim,
        "qk_rope_head_dim": model.qk_rope_dim,
        "v_head_dim": model.v_head_dim,
    }


@functools.cache
def _answers() -> dict[str, dict[str, Any]]:
    cases = [
        {"model_type": family, "config": _config(find_model(name), family)}
        for name, family in _FAMILIES.items()
    ]
    return dict(zip(_FAMILIES, ask("transformers_counts.py", cases), strict=True))


def test_counts_are_those_of_transformers():
    assert len(_FAMILIES) >= 10
    for name, answer in _answers().items():
        assert "refused" not in answer, (name, answer)
        model = find_model(name)
        assert total_parameters(model) == answer["parameters"], name
        assert _routed(model) == answer["routed"], name


def test_configurations_that_transformers_writes_are_read_to_the_same_count():
    for name, answer in _answers().items():
        model = read_huggingface_config(answer["config"])
        assert total_parameters(model) == answer["parameters"], name


def _routed(model: Model) -> int:
    kinds = parameter_parts(model).kinds
    return sum(
        one.count * (one.parts.experts_sharded + one.parts.experts_replicated) for one in kinds
    )


def _of_stages(model: Model, stages: int) -> float:
    """Return what the ranks of a pipeline hold together, and no copy of a tied embedding."""
    cuts = [model.num_layers * i // stages for i in range(stages + 1)]
    held = 0.0
    for i in range(stages):
        last = i == stages - 1
        part = StageLayers(tuple(range(cuts[i], cuts[i + 1])), i == 0, last)
        found = parameters_per_rank(model, part, tp=1, ep=1, etp=1)
        held += found.dense + found.expert
    return held - (model.vocab * model.hidden if model.tied_embeddings and stages > 1 else 0)


@functools.cache
def _families() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return (family, configuration given, answer) for each family's defaults and variants."""
    named = sorted(set(FAMILIES) - ALIASES - WITHOUT_DEFAULTS)
    # Two classes look up a head's width that their own defaults leave out.
    odd = {"hunyuan_v1_dense": {"head_dim": 128}, "ministral": {"head_dim": 128}}
    given = [(family, odd.get(family, {})) for family in named] + VARIANTS
    cases = [{"model_type": family, "config": config} for family, config in given]
    answers = ask("transformers_counts.py", cases)
    return [(*one, answer) for one, answer in zip(given, answers, strict=True)]


def test_every_family_counts_what_its_class_in_transformers_counts():
    counted = set()
    for family, _, answer in _families():
        assert "refused" not in answer, (family, answer)
        model = read_huggingface_config(answer["config"])
        assert not model.unverified, family
        assert total_parameters(model) == answer["parameters"], (family, answer["config"])
        assert _routed(model) == answer["routed"], (family, answer["config"])
        counted.add(family)
    assert counted == set(FAMILIES) - ALIASES
    assert len(counted) >= 45


def test_a_short_configuration_counts_the_same_or_lacks_a_dimension():
    read, lacking = 0, {}
    for family, config, answer in _families():
        if not config:
            continue
        try:
            model = read_huggingface_config(config | {"model_type": family})
        except InputError as error:
            lacking[family] = [str(one) for one in error.problems if "missing" not in str(one)]
            continue
        assert total_parameters(model) == answer["parameters"], (family, config)
        read += 1
    assert read > 40
    assert not any(lacking.values()), lacking


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_stages_of_every_family_add_up(stages):
    for family, _, answer in _families():
        model = read_huggingface_config(answer["config"])
        if model.num_layers < stages:
            continue
        assert _of_stages(model, stages) == answer["parameters"], (family, answer["config"])
