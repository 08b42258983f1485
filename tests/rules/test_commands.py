"""``batch``, ``model`` and ``rules`` as commands: their documents, their pages, wrong use."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import finding_of, run

pytestmark = pytest.mark.process


@pytest.fixture
def job(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return write


def test_batch_derives_dp_where_nothing_else_gives_it(job):
    path = job(
        "layout: {tp: 2, framework: megatron}\n"
        "batch: {global_batch: 64, micro_batch: 1, num_microbatches: 8, seq_len: 128}\n"
    )
    ran = run("batch", path, "--json")
    assert ran.status == 0
    document = ran.document
    assert document["dp"] == 8
    assert document["world_size"] == 16
    assert document["tokens_per_step"] == 64 * 128
    assert document["origin"]["dp"] == "modelled"
    assert document["origin"]["global_batch"] == "stated"
    page = run("batch", path).out
    assert "8192" in page or "8,192" in page


def test_batch_says_every_contradiction(job):
    path = job(
        "layout: {dp: 3}\nbatch: {global_batch: 64, micro_batch: 3, num_microbatches: 8, grad_accum: 4}\n"
    )
    ran = run("batch", path, "--json")
    assert ran.status == 1
    found = [one for one in ran.document["findings"] if one["rule"] == "batch/contradiction"]
    assert len(found) == 3
    assert all(one["numbers"] == {"dp": 3} and one["remedy"] for one in found)


def test_batch_with_a_remedy_that_holds(job):
    document = run(
        "batch", job("layout: {dp: 4}\nbatch: {global_batch: 63, micro_batch: 2}\n"), "--json"
    ).document
    assert finding_of(document, "batch/contradiction")["remedy"].startswith(
        "global_batch: 56 or 64"
    )
    for total in (56, 64):
        text = f"layout: {{dp: 4}}\nbatch: {{global_batch: {total}, micro_batch: 2}}\n"
        assert run("batch", job(text)).status == 0


def test_batch_marks_microbatches_a_schedule_refuses(job):
    path = job(
        "layout: {pp: 4, vp: 2, dp: 1, framework: megatron}\nbatch: {global_batch: 12, micro_batch: 1}\n"
    )
    rows = {
        one["num_microbatches"]: one["legal"]
        for one in run("batch", path, "--json").document["trade_offs"]
    }
    assert rows == {12: True, 6: False, 4: True, 3: False, 2: False, 1: False}
    assert "not legal" in run("batch", path).out


def test_batch_counts_the_tokens_of_an_expert(job):
    path = job(
        "model: mixtral-8x7b\nlayout: {dp: 8, ep: 8, etp: 1, framework: megatron}\n"
        "batch: {micro_batch: 1, num_microbatches: 1, seq_len: 4096}\n"
    )
    # 8 ranks of 4096 tokens, each to 2 of 8 experts, one expert a rank
    assert run("batch", path, "--json").document["tokens_per_expert"] == 8 * 4096 * 2 / 8


def test_model_of_the_catalogue():
    ran = run("model", "llama3-8b", "--seq-len", "8192", "--json")
    assert ran.status == 0
    document = ran.document
    assert document["parameters"] == document["active_parameters"] == 8_030_261_248
    assert sum(document["parts"].values()) == document["parameters"]
    flops = document["flops_per_token"]
    assert sum(flops["parts"].values()) == pytest.approx(flops["causal"])
    assert flops["full_square"] - flops["causal"] == pytest.approx(
        flops["parts"]["attention_core_causal"]
    )
    page = run("model", "llama3-8b").out
    assert "8,030,261,248 parameters" in page
    assert "causal half" in page
    assert "full square" in " ".join(page.split())


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gpt2"])
def test_parts_sum_to_the_parameters(name):
    document = run("model", name, "--json").document
    assert sum(document["parts"].values()) == document["parameters"]
    assert document["active_parameters"] <= document["parameters"]


def test_model_of_a_configuration(tmp_path: Path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,'
        '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}'
    )
    document = run("model", tmp_path / "config.json", "--json").document
    attention = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64)
    assert document["parts"]["attention"] == attention
    assert document["parts"]["mlp"] == 2 * 3 * 64 * 128


def test_utilisation_of_a_model_follows_its_own_flops():
    ran = run("model", "llama3-8b", "--gpu", "H100", "--tokens-per-s", "9000", "--json")
    document = ran.document
    each = document["flops_per_token"]["causal"]
    assert document["mfu"] == pytest.approx(9000 * each / document["dense_peak_flops_per_s"])
    assert document["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no-such-model",), "unknown model"),
        ((), "name a model"),
        (("llama3-8b", "--gpu", "H1000"), "unknown GPU"),
        (("llama3-8b", "--tokens-per-s", "5"), "--gpu"),
        (("--gpu", "H100", "--tokens-per-s", "5"), "--tflop-per-token"),
        (("llama3-8b", "--gpu", "A100", "--precision", "fp8"), "no known fp8 peak"),
    ],
)
def test_model_used_wrongly(arguments, said):
    ran = run("model", *arguments)
    assert ran.status == 2
    assert said in ran.err


def test_a_peak_that_is_no_other_figure_is_only_noted():
    base = (
        "model",
        "--gpu",
        "H100",
        "--tokens-per-s",
        "9600",
        "--tflop-per-token",
        "0.05",
        "--peak",
    )
    noted = run(*base, "700", "--json")
    assert noted.status == 0
    assert finding_of(noted.document, "model/peak-differs")["severity"] == "note"
    assert run(*base, "989.4", "--json").document["findings"] == []


def test_rules_lists_and_explains():
    every = run("rules", "--json").document["rules"]
    assert len(every) > 200
    for one in every:
        assert {"id", "source", "frameworks", "versions", "severity", "summary", "example"} <= set(
            one
        )
    (one,) = run("rules", "heads/kv-divide-tp", "--json").document["rules"]
    assert "0.16" in one["versions"]
    page = run("rules", "heads/kv-divide-tp").out
    assert "transformer_config.py" in page
    assert "tp: 16" in page
    room = run("rules", "heads", "--json").document["rules"]
    assert {entry["id"].split("/")[0] for entry in room} == {"heads"}
    assert "topology/conflict-" in run("rules", "topology/conflict-leaf").out


def test_an_unknown_rule_is_wrong_use():
    ran = run("rules", "heads/divides-tp")
    assert ran.status == 2
    assert "did you mean heads/divide-tp" in ran.err
