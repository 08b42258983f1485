"""Configurations of no known family: read and marked, or refused with a reason and a remedy."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.findings import Place, Severity
from meshwright.job.catalogue import find_model
from meshwright.job.huggingface.config import TEXT_PART, read_huggingface_config
from meshwright.job.huggingface.families import FAMILIES
from meshwright.job.model_findings import model_findings
from meshwright.job.parameters import total_parameters

USUAL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 50,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {"kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}


def problem(config):
    with pytest.raises(InputError) as caught:
        read_huggingface_config(config)
    (one,) = caught.value.problems
    return one


def rules(model):
    return [(one.rule, one.severity) for one in model_findings(model)]


def test_families_are_many():
    assert len(FAMILIES) >= 90


@pytest.mark.parametrize(
    ("like", "more"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
        ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
        (
            "deepseek_v3",
            LATENT
            | {"n_routed_experts": 8, "n_shared_experts": 1, "q_lora_rank": 8}
            | {"num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1},
        ),
        ("minicpm3", LATENT | {"tie_word_embeddings": True}),
    ],
)
def test_an_unknown_family_with_the_usual_keys_counts_as_the_one_it_looks_like(like, more):
    model = read_huggingface_config(USUAL | more | {"model_type": "brandnew"})
    same = read_huggingface_config(USUAL | more | {"model_type": like})
    assert total_parameters(model) == total_parameters(same)
    assert "Llama-like decoder" in model.unverified
    assert model.name == "brandnew"
    assert not same.unverified
    assert ("model/unverified", Severity.WARNING) in rules(model)
    assert rules(same) == []


def test_experts_of_an_unknown_family_are_read():
    model = read_huggingface_config(
        USUAL | EXPERTS | {"model_type": "brandnew", "num_shared_experts": 2}
    )
    assert (model.experts, model.top_k, model.moe_ffn) == (8, 2, 16)
    assert (model.shared_experts, model.shared_ffn_total) == (2, 32)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"model_type": "bert"}, "no decoder of text"),
        ({"model_type": "xlm-roberta"}, "no decoder of text"),
        ({"model_type": "brandnew", "architectures": ["BrandForMaskedLM"]}, "no decoder of text"),
        ({"model_type": "t5", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"model_type": "llama", "is_encoder_decoder": True}, "encoder-decoder"),
        ({"_class_name": "UNet2DConditionModel"}, "diffusion"),
        ({"model_type": "gemma3n_text"}, "per-layer embeddings"),
        ({"model_type": "rwkv"}, "no attention"),
        ({"model_type": "brandnew", "ssm_cfg": {"d_state": 16}}, "ssm_cfg"),
        ({"model_type": "brandnew", "mamba_d_state": 16}, "mamba_d_state"),
        ({"model_type": "brandnew", "hybrid_override_pattern": "M*"}, "hybrid_override_pattern"),
    ],
)
def test_what_is_no_plain_decoder_is_refused_with_a_remedy(more, words):
    found = problem(USUAL | more)
    assert words in found.message
    assert "model: {name" in found.remedy


def test_a_vision_model_is_refused():
    vit = {"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    assert "no decoder of text" in problem(vit).message


def test_layer_types_that_are_not_known_are_named():
    found = problem(USUAL | {"model_type": "brandnew", "layer_types": ["odd"] * 3})
    assert found.place.subject == "layer_types"
    assert "'odd'" in found.message


@pytest.mark.parametrize(
    "path", [("text_config",), ("thinker_config", "text_config"), ("llm_config",)]
)
def test_the_text_part_of_a_multimodal_model_is_read_and_said(path):
    config = USUAL | {"model_type": "qwen2"}
    for key in reversed(path):
        config = {key: config}
    model = read_huggingface_config(
        config | {"model_type": "some_vl", "vision_config": {"depth": 2}}
    )
    assert (model.hidden, model.qkv_bias) == (64, True)
    assert model.note == TEXT_PART
    assert rules(model) == [("model/text-part", Severity.NOTE)]


@pytest.mark.parametrize("tied", [True, False])
def test_a_whole_may_say_that_its_text_part_ties_embeddings(tied):
    whole = {"text_config": USUAL | {"model_type": "qwen2"}, "tie_word_embeddings": tied}
    assert read_huggingface_config(whole).tied_embeddings is tied
    stated = whole | {"text_config": whole["text_config"] | {"tie_word_embeddings": not tied}}
    assert read_huggingface_config(stated).tied_embeddings is not tied


def test_a_problem_of_a_nested_part_has_its_place(tmp_path):
    path = tmp_path / "config.json"
    text = USUAL | {"model_type": "qwen2", "vocab_size": "many"}
    path.write_text(
        json.dumps({"model_type": "x", "thinker_config": {"text_config": text}}, indent=1)
    )
    found = problem(path)
    assert found.place.subject == "thinker_config.text_config.vocab_size"
    assert found.place.line == path.read_text().splitlines().index('   "vocab_size": "many",') + 1


def test_layers_that_are_not_modelled_are_said():
    (note,) = model_findings(find_model("jamba-1.5-mini"), Place(subject="model: jamba"))
    assert (note.rule, note.place.subject) == ("model/layers-not-modelled", "model: jamba")
    assert note.numbers == {"kinds": ["Mamba"]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KEYS = [
    "layer_types",
    "mlp_layer_types",
    "attn_type_list",
    "hybrid_override_pattern",
    "mamba_num_heads",
    "layers_block_type",
    "full_attn_idxs",
    "linear_attn_config",
    "attn_config",
    "ffn_config",
    "n_groups",
    "compress_ratios",
    "compress_rates",
    "o_groups",
    "moe_topk",
    "indexer_types",
    "expand",
    "text_config",
    "num_hidden_layers",
    "head_dim",
    "state_size",
    "block_ffn_dim_multiplier",
    "time_step_rank",
]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([*FAMILIES, "brandnew"]), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_values_of_any_family_are_read_or_refused(family, changes):
    try:
        model = read_huggingface_config(USUAL | EXPERTS | changes | {"model_type": family})
    except InputError:
        return
    assert total_parameters(model) > 0
    assert model_findings(model) is not None
