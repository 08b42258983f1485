"""Hugging Face configurations: families against the golden counts, and broken files."""

import csv
import json
import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.job.huggingface.config import read_huggingface_config
from meshwright.job.huggingface.families import FAMILIES
from meshwright.job.model import Model, moe_layers
from meshwright.job.parameters import active_parameters, total_parameters
from support import FIXTURES, shared_path

MODELS = FIXTURES / "models"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 50,
}


def problems(source):
    with pytest.raises(InputError) as caught:
        read_huggingface_config(source)
    return caught.value.problems


@pytest.mark.golden
def test_all_golden_configs_count_exactly():
    with shared_path("reference/golden/param_counts.csv").open(newline="") as stream:
        golden = list(csv.DictReader(stream))
    assert len(golden) == 29
    for row in golden:
        tail = "LMHeadModel" if row["hf_class"] == "GPT2" else "ForCausalLM"
        config = json.loads(row["config_json"]) | {"architectures": [row["hf_class"] + tail]}
        model = read_huggingface_config(config, name=row["model"])
        assert model.name == row["model"]
        assert total_parameters(model) == int(row["params_transformers_meta"]), row["model"]
        assert active_parameters(model) == int(row["active_params_closed_form"]), row["model"]


def test_dense_file():
    path = MODELS / "dense.json"
    assert read_huggingface_config(path) == Model(
        name="tiny-dense",
        num_layers=5,
        hidden=96,
        ffn=256,
        heads=6,
        kv_heads=2,
        head_dim=16,
        vocab=1000,
        max_positions=640,
        source=str(path),
    )


def test_latent_attention_with_experts():
    model = read_huggingface_config(str(MODELS / "latent_experts.json"))
    assert model.name == "latent_experts"
    assert moe_layers(model) == (False, False, True, True, True, True)
    assert (model.head_dim, model.value_dim, model.q_lora_rank) == (12, 8, 0)
    assert (model.shared_ffn_total, model.mtp_layers) == (48, 1)
    assert (model.router_groups, model.router_topk_groups) == (5, 2)
    attention = 64 * 4 * 12 + 64 * (16 + 4) + 16 + 16 * 4 * (8 + 8) + 4 * 8 * 64
    moe = (10 + 2) * 3 * 64 * 24 + 64 * 10
    layers = 6 * (attention + 2 * 64) + 2 * 3 * 64 * 160 + 4 * moe
    assert total_parameters(model) == layers + 2 * 500 * 64 + 64


def test_text_part_of_a_multimodal_file():
    model = read_huggingface_config(MODELS / "text_part.json")
    assert (model.hidden, model.heads, model.kv_heads, model.head_dim) == (128, 8, 4, 256)
    assert (model.vocab, model.norms_per_layer, model.tied_embeddings) == (262208, 4, True)


def test_directory_names_the_model(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8-sig")
    assert read_huggingface_config(folder).name == "my-model"
    assert read_huggingface_config(folder / "config.json", name="other").name == "other"


def test_experts_in_every_second_layer():
    config = LLAMA | {
        "model_type": "qwen2_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 24,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [],
    }
    model = read_huggingface_config(config)
    assert moe_layers(model) == (False, True, False)
    assert (model.shared_ffn_total, model.shared_expert_gate, model.qkv_bias) == (24, True, True)
    assert moe_layers(read_huggingface_config(config | {"mlp_only_layers": [1]})) == (False,) * 3
    every = read_huggingface_config(config | {"mlp_only_layers": [2], "decoder_sparse_step": 1})
    assert moe_layers(every) == (True, True, False)
    wrong = problems(config | {"mlp_only_layers": ["two"]})
    assert [problem.place.subject for problem in wrong] == ["mlp_only_layers"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # Hugging Face counts of the published checkpoints.
        (
            {
                "model_type": "opt",
                "hidden_size": 768,
                "ffn_dim": 3072,
                "num_hidden_layers": 12,
                "num_attention_heads": 12,
                "vocab_size": 50272,
                "max_position_embeddings": 2048,
            },
            125_239_296,
        ),
        (
            {
                "model_type": "bloom",
                "n_embed": 1024,
                "n_layer": 24,
                "num_attention_heads": 16,
                "vocab_size": 250880,
            },
            559_214_592,
        ),
        (
            {
                "model_type": "phi3",
                "hidden_size": 3072,
                "intermediate_size": 8192,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 32,
                "vocab_size": 32064,
            },
            3_821_079_552,
        ),
        (
            {
                "model_type": "falcon",
                "hidden_size": 4544,
                "num_hidden_layers": 32,
                "num_attention_heads": 71,
                "vocab_size": 65024,
                "multi_query": True,
                "parallel_attn": True,
                "bias": False,
            },
            6_921_720_704,
        ),
    ],
)
def test_published_sizes(config, expected):
    assert total_parameters(read_huggingface_config(config)) == expected


def test_all_problems_at_once_with_places():
    path = MODELS / "many_problems.json"
    found = {problem.place.subject: problem for problem in problems(path)}
    places = {key: (problem.place.line, problem.place.column) for key, problem in found.items()}
    assert places == {
        "intermediate_size": (4, 24),
        "num_attention_heads": (5, 26),
        "num_key_value_heads": (7, 26),
        "vocab_size": (8, 17),
        "tie_word_embeddings": (9, 26),
        "num_hidden_layers": (1, 1),
    }
    assert "is missing" in str(found["num_hidden_layers"])
    heads = str(found["num_attention_heads"])
    assert heads.startswith(f"{path}:5:26: num_attention_heads must be 1 or more, not 0")
    assert found["num_attention_heads"].excerpt == '"num_attention_heads": 0,'


def test_contradiction_names_the_key_of_the_file():
    (problem,) = problems(MODELS / "uneven_heads.json")
    assert str(problem.place) == f"{MODELS / 'uneven_heads.json'}:4:26"
    assert "6 heads cannot share 4" in problem.message


def test_output_groups_are_read_where_a_file_has_them():
    assert read_huggingface_config(LLAMA).output_groups == 0
    assert read_huggingface_config(LLAMA | {"o_groups": 2}).output_groups == 2
    assert read_huggingface_config(LLAMA | {"o_groups": None}).output_groups == 0
    [problem] = problems(LLAMA | {"o_groups": 3})  # of 4 heads
    assert "o_groups 4 heads cannot form 3 output groups evenly" in str(problem)
    [problem] = problems(LLAMA | {"o_groups": "two"})
    assert "o_groups must be a whole number" in str(problem)


def test_unknown_family_lists_the_known():
    (problem,) = problems(MODELS / "unknown_family.json")
    assert (problem.place.line, problem.place.column) == (3, 17)
    assert "'lama' (did you mean llama?)" in problem.message
    assert all(family in problem.remedy for family in FAMILIES)
    (problem,) = problems(MODELS / "no_family.json")
    assert "names no model_type" in problem.message


@pytest.mark.parametrize(
    ("name", "line", "column", "words"),
    [
        ("empty.json", 1, 1, "is empty"),
        ("truncated.json", 4, 3, "broken JSON"),
        ("binary.json", 2, 5, "no UTF-8"),
        ("list.json", 1, 1, "no JSON object"),
    ],
)
def test_broken_files(name, line, column, words):
    (problem,) = problems(MODELS / name)
    assert (problem.place.line, problem.place.column) == (line, column)
    assert words in problem.message


def test_files_that_cannot_be_read(tmp_path):
    assert "no such file" in str(problems(tmp_path / "absent.json")[0])
    assert "no such file" in str(problems(tmp_path)[0])
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in str(problems(tmp_path / "pipe")[0])
    assert "cannot be read" in str(problems("a\0b")[0])
    (tmp_path / "big.json").write_bytes(b" " * (9 << 20))
    assert "larger than 8 MiB" in str(problems(tmp_path / "big.json")[0])
    (tmp_path / "deep.json").write_text("[" * 200_000)
    assert "nested too deep" in str(problems(tmp_path / "deep.json")[0])
    (tmp_path / "long.json").write_text('{"model_type": "llama", "vocab_size": ' + "9" * 9999 + "}")
    assert "number too long" in str(problems(tmp_path / "long.json")[0])


KEYS = sorted(
    {*LLAMA, "num_key_value_heads", "head_dim", "num_experts", "q_lora_rank", "mlp_only_layers"}
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), VALUES),
    st.one_of(st.sampled_from(sorted(FAMILIES)), VALUES),
)
def test_any_mapping_is_read_or_refused(changes, family):
    try:
        model = read_huggingface_config(LLAMA | changes | {"model_type": family})
    except InputError:
        return
    assert total_parameters(model) > 0
    assert msgspec.json.encode(model)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_place(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("models") / "config.json"
    path.write_bytes(content)
    for problem in problems(path):
        assert problem.place.file == str(path)
