"""The catalogue: names, spellings, and its figures against the golden files."""

import csv

import msgspec
import pytest

from meshwright.data.load import load_json
from meshwright.job.catalogue import UnknownModelError, find_model, model_names, suggest
from meshwright.job.parameters import active_parameters, total_parameters
from support import shared_path

SAME_NAME = (
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "vocab",
    "experts",
    "top_k",
    "moe_ffn",
    "shared_experts",
    "shared_ffn_total",
    "first_dense_layers",
    "gated_mlp",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_dim",
    "qk_rope_dim",
    "v_head_dim",
    "router_groups",
    "router_topk_groups",
)
FIELDS = {"layers": "num_layers", "tied": "tied_embeddings"} | {name: name for name in SAME_NAME}


def rows(name):
    with shared_path(f"reference/golden/{name}").open(newline="") as stream:
        return list(csv.DictReader(stream))


def matrices_only(model):
    return msgspec.structs.replace(
        model,
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        router_bias=False,
        attention_sinks=False,
        norms_per_layer=0,
        final_norm=False,
        qk_norm="none",
        learned_positions=0,
        extras=(),
    )


def test_names_are_many_lower_case_and_sourced():
    names = model_names()
    assert len(names) == len(set(names)) == 108
    assert all(name == name.lower() for name in names)
    assert [name for name in names if not find_model(name).source] == []


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("llama3-8b", "llama-3-8b"),
        ("Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("LLAMA3_70B", "llama-3-70b"),
        ("llama-2-7b-chat-hf", "llama-2-7b"),
        ("llama3.1-405b", "llama-3.1-405b"),
        ("llama-3-1-405b", "llama-3.1-405b"),
        ("qwen2.5-7b", "qwen2.5-7b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b-v0.1"),
        ("GPT-3 175B", "gpt3-175b"),
        ("megatron-530b", "megatron-529.6b"),
        ("megatron-1t", "megatron-1008b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("nvidia/Nemotron-H-56B-Base-8K", "nemotron-h-56b"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next-80b-a3b"),
        ("ai21labs/AI21-Jamba-1.5-Large", "jamba-1.5-large"),
    ],
)
def test_spellings(spelling, name):
    assert find_model(spelling).name == name


def test_every_name_finds_itself():
    assert [find_model(name).name for name in model_names()] == list(model_names())


@pytest.mark.parametrize("name", ["", "/", "---", "x" * 10_000, "qwen2-57b", "llama-4-8b", "\x00"])
def test_unknown_name_is_a_key_error(name):
    with pytest.raises(UnknownModelError) as caught:
        find_model(name)
    assert isinstance(caught.value, KeyError)
    assert len(str(caught.value)) < 600


def test_suggestions():
    assert suggest("lama3-8b")[0] == "llama-3-8b"
    assert "qwen2.5-72b" in suggest("Qwen/Qwen-2.5-70B")
    with pytest.raises(UnknownModelError, match=r"did you mean deepseek-v3"):
        find_model("deepseek-v33")


def test_packaged_files_are_read_once():
    assert load_json("models.json") is load_json("models.json")
    assert len(load_json("models.json")["models"]) == len(model_names())
    with pytest.raises(FileNotFoundError):
        load_json("absent.json")


@pytest.mark.golden
def test_parameter_counts_are_exact():
    golden = rows("param_counts.csv")
    assert len(golden) == 29
    for row in golden:
        model = find_model(row["model"])
        assert total_parameters(model) == int(row["params_transformers_meta"]), row["model"]
        assert active_parameters(model) == int(row["active_params_closed_form"]), row["model"]


@pytest.mark.golden
def test_dimensions_and_matrix_counts():
    checked = 0
    for row in rows("models.csv"):
        if not row["matrix_params"]:
            continue  # hybrid models: dimensions only
        name = row["model"]
        # The golden count of mixtral-8x22b is v0.3, this row is v0.1.
        model = find_model(f"{name}-v0.1" if name == "mixtral-8x22b" else name)
        for column, field in FIELDS.items():
            assert int(row[column] or 0) == getattr(model, field), (name, column)
        assert int(row["head_dim"] or model.head_dim) == model.head_dim
        assert int(row["moe_layer_period"] or 1) == model.moe_layer_period
        bare = matrices_only(model)
        for count, column in (
            (total_parameters(bare), "matrix_params"),
            (active_parameters(bare), "active_matrix_params"),
        ):
            # The norms inside latent attention cannot be switched off.
            tolerance = 1e-5 * int(row[column]) if model.is_mla else 0
            assert abs(count - int(row[column])) <= tolerance, (name, column)
        checked += 1
    assert checked == 72


@pytest.mark.golden
def test_dimensions_of_hybrids():
    """The golden rows leave out what hybrids have besides; the shared expert of one is half there."""
    checked = set()
    for row in rows("models.csv"):
        if row["matrix_params"] or row["model"] == "kimi-k3":  # whose row has no top-k
            continue
        model = find_model(row["model"])
        for column, field in FIELDS.items():
            if row[column] and column not in ("ffn", "shared_ffn_total", "gated_mlp", "tied"):
                assert int(row[column]) == getattr(model, field), (row["model"], column)
        assert int(row["head_dim"]) == model.head_dim
        checked.add(row["model"])
    assert len(checked) == 6


HYBRIDS = {
    "nemotron-h-8b": (8.1, None),
    "nemotron-h-47b": (47, None),
    "nemotron-h-56b": (56, None),
    "nemotron-nano-9b-v2": (8.89, None),
    "nemotron-nano-12b-v2": (12.31, None),
    "nemotron-3-nano-30b-a3b": (31.6, 3.6),
    "nemotron-3-super-120b-a12b": (120.6, 12.7),
    "qwen3-next-80b-a3b": (80, None),
    "qwen3.5-9b": (9, None),
    "qwen3.5-27b": (27, None),
    "qwen3.5-35b-a3b": (35, None),
    "qwen3.5-122b-a10b": (122, 10),
    "qwen3.5-397b-a17b": (397, 17),
    "jamba-1.5-mini": (52, 12),
    "jamba-1.5-large": (398, 94),
    "granite-4.0-h-small": (32, 9),
    "granite-4.0-h-tiny": (7, None),
    "falcon-h1-7b": (7.59, None),
    "falcon-h1-34b": (33.6, None),
    "mamba2-2.7b": (2.7, None),
    "mamba-codestral-7b": (7.285, None),
    "falcon-mamba-7b": (7.27, None),
    "zamba2-7b": (7.36, None),
    "kimi-linear-48b-a3b": (49.1, None),
    "minimax-text-01": (456, None),
    "lfm2-8b-a1b": (8.34, 1.5),
    "deepseek-v4-flash": (284, 13),
    "deepseek-v4-pro": (1600, 49),
    "mimo-v2-flash": (309, 15),
    "deepseek-v3.2": (671, 37),
}
"""Published parameters in billions, all and active (``None``: not said with both embeddings)."""


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids_count_what_is_published(name):
    model = find_model(name)
    published, active = HYBRIDS[name]
    assert total_parameters(model) == pytest.approx(published * 1e9, rel=0.02)
    if active is not None:
        assert active_parameters(model) == pytest.approx(active * 1e9, rel=0.065)
    assert model.unmodelled_layers


def test_what_is_no_hybrid_has_no_layer_that_is_not_modelled():
    plain = [name for name in model_names() if not find_model(name).unmodelled_layers]
    assert set(model_names()) - set(plain) == set(HYBRIDS)


@pytest.mark.golden
def test_every_model_is_in_a_golden_file():
    known = {row["model"] for name in ("models.csv", "param_counts.csv") for row in rows(name)}
    assert set(model_names()) - known - set(HYBRIDS) == {"mixtral-8x22b-v0.1"}
