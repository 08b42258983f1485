"""``model``: catalogue, configurations, what it says about shapes that are not plain."""

import json

import pytest

from cli.running import run

USUAL = {
    "model_type": "brandnew",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "vocab_size": 50,
}


@pytest.fixture
def config(tmp_path):
    def write(**more):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(USUAL | more))
        return path

    return write


def test_parts_of_a_hybrid_sum_to_its_parameters():
    ran = run("model", "nemotron-3-nano-30b-a3b", "--json")
    assert ran.status == 0
    page = ran.document
    assert sum(page["parts"].values()) == page["parameters"]
    assert {"mamba", "attention", "experts"} < set(page["parts"])
    assert page["unmodelled_layers"] == ["Mamba", "layers of one part alone"]
    flops = page["flops_per_token"]
    assert sum(flops["parts"].values()) == pytest.approx(flops["causal"])
    assert [one["rule"] for one in page["findings"]] == ["model/layers-not-modelled"]
    text = run("model", "nemotron-3-nano-30b-a3b").out
    assert "23 Mamba, 23 experts, 6 attention" in " ".join(text.split())


def test_a_model_without_attention_names_no_heads():
    assert "heads" not in run("model", "falcon-mamba-7b").out.split("\n\n")[0]


def test_an_unknown_family_is_read_and_marked(config):
    ran = run("model", config(), "--json")
    assert ran.status == 0
    assert "not verified" in ran.document["unverified"]
    (warning,) = ran.document["findings"]
    assert (warning["rule"], warning["severity"]) == ("model/unverified", "warning")
    assert warning["numbers"]["parameters"] == ran.document["parameters"]
    assert "not verified" in " ".join(run("model", config()).out.split())


@pytest.mark.parametrize(
    "more", [{"is_encoder_decoder": True}, {"mamba_d_state": 4}, {"model_type": "bert"}]
)
def test_what_is_no_decoder_is_refused_with_a_place(config, more):
    ran = run("model", config(**more))
    assert ran.status == 2
    assert "config.json:1:" in ran.err
    assert "model: {name" in " ".join(ran.err.split())


def test_a_multimodal_model_says_that_its_text_part_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "seeing", "text_config": USUAL | {"model_type": "qwen2"}})
    )
    ran = run("model", path, "--json")
    assert ran.status == 0
    assert [one["rule"] for one in ran.document["findings"]] == ["model/text-part"]


def test_a_hybrid_may_stand_inline_in_a_job(tmp_path):
    shape = {"name": "mine", "num_layers": 2, "hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2}
    shape |= {"head_dim": 16, "vocab": 128, "mixers": "M*"}
    shape["mamba"] = {"version": 2, "inner": 128, "state": 16, "heads": 8}
    path = tmp_path / "job.json"
    path.write_text(
        json.dumps({"model": shape, "layout": {"framework": "megatron", "world_size": 2, "pp": 2}})
    )
    assert run("check", path, "--json").status in (0, 1)
    shape["mamba"]["heads"] = 7
    path.write_text(
        json.dumps({"model": shape, "layout": {"framework": "megatron", "world_size": 2, "pp": 2}})
    )
    ran = run("check", path)
    assert ran.status == 2
    assert "7 heads cannot share 128 channels evenly" in " ".join(ran.err.split())
