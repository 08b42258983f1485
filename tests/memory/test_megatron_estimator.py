"""The port of Megatron's estimator against its own figures."""

from __future__ import annotations

import csv
import json

import msgspec
import pytest
from click.testing import CliRunner

from memory.building import workload
from meshwright.cli.main import cli
from meshwright.job.model import Model
from meshwright.memory.megatron_estimator import megatron_estimate
from support import shared_path


def model_of(name: str, config: dict[str, object]) -> Model:
    """Return the shape behind the flags of a row."""
    get = config.get
    latent = bool(get("multi_latent_attention"))
    heads = int(get("num_attention_heads", 1))
    width = int(get("hidden_size", 1)) // heads
    return Model(
        name=name,
        num_layers=get("num_layers"),
        hidden=get("hidden_size"),
        ffn=get("ffn_hidden_size"),
        heads=heads,
        kv_heads=get("num_query_groups") if get("group_query_attention") else heads,
        head_dim=get("qk_head_dim", 0) + get("qk_pos_emb_head_dim", 0) if latent else width,
        vocab=get("padded_vocab_size"),
        tied_embeddings=not get("untie_embeddings_and_output_weights", True),
        gated_mlp=get("swiglu", True),
        norm="layer" if get("normalization") == "LayerNorm" else "rms",
        experts=get("num_experts", 0),
        top_k=get("moe_router_topk", 0),
        moe_ffn=get("moe_ffn_hidden_size", 0),
        # the row does not print moe_layer_freq: DeepSeek-V3's, three layers without experts
        first_dense_layers=3 if latent else 0,
        shared_ffn_total=get("moe_shared_expert_intermediate_size", 0),
        q_lora_rank=get("q_lora_rank", 0),
        kv_lora_rank=get("kv_lora_rank", 0),
        qk_nope_dim=get("qk_head_dim", 0) if latent else 0,
        qk_rope_dim=get("qk_pos_emb_head_dim", 0),
        v_head_dim=get("v_head_dim", 0),
    )


@pytest.mark.golden
def test_estimator_against_its_own_figures():
    compared = 0
    with shared_path("reference/golden/megatron_memory_flops.csv").open() as file:
        for row in csv.DictReader(file):
            config = json.loads(row["config_json"])
            tp, pp = int(row["tp"]), int(row["pp"])
            model = model_of(row["model"], config)
            stages = None
            if model.num_layers % pp:  # the estimator divides as it likes
                stages = (model.num_layers - (pp - 1) * (model.num_layers // pp),)
                stages += (model.num_layers // pp,) * (pp - 1)
            work = workload(
                model,
                tp=tp,
                pp=pp,
                vp=int(row["vpp"]) if row["vpp"] else None,
                dp=int(row["world"]) // (tp * pp),
                ep=int(row["ep"]),
                etp=1,
                stages=stages,
                sharding="zero1" if row["dist_opt"] == "True" else "none",
                micro_batch=int(row["mbs"]),
                num_microbatches=int(row["num_microbatches"]),
                seq_len=config["seq_length"],
                mtp_layers=config.get("mtp_num_layers"),
            )
            found = megatron_estimate(work)
            states = float(row["weight_optimizer_bytes_most_loaded"])
            kept = float(row["activation_bytes_first_stage_SP_selective"])
            assert found.weights_optimizer_bytes == pytest.approx(states, rel=1e-11), row["model"]
            assert found.activations_bytes == pytest.approx(kept, rel=1e-9), row["model"]
            assert found.total_bytes == pytest.approx(states + kept, rel=1e-9)
            compared += 1
    assert compared == 18


def test_estimator_needs_a_batch():
    with pytest.raises(ValueError, match="micro_batch"):
        megatron_estimate(workload(dp=1))


@pytest.mark.golden
def test_the_command_gives_the_same_figures(tmp_path):
    """All rows through a job file: the vocabulary they name is the padded one."""
    compared = 0
    with shared_path("reference/golden/megatron_memory_flops.csv").open() as file:
        for row in csv.DictReader(file):
            path = tmp_path / "job.json"
            path.write_bytes(msgspec.json.encode(_job_of(row)))
            ran = CliRunner().invoke(
                cli, ["memory", str(path), "--like", "megatron-estimator", "--json"]
            )
            found = json.loads(ran.stdout)["megatron_estimator"]
            states = float(row["weight_optimizer_bytes_most_loaded"])
            kept = float(row["activation_bytes_first_stage_SP_selective"])
            assert found["weights_optimizer_bytes"] == pytest.approx(states, rel=1e-11), row
            assert found["activations_bytes"] == pytest.approx(kept, rel=1e-9), row
            compared += 1
    assert compared == 18


def _job_of(row):
    config, tp, pp = json.loads(row["config_json"]), int(row["tp"]), int(row["pp"])
    model = model_of(row["model"], config)
    each = model.num_layers // pp
    layout = {
        "framework": "megatron",
        "tp": tp,
        "pp": pp,
        "dp": int(row["world"]) // (tp * pp),
        "sequence_parallel": tp > 1,
        "sharding": "zero1" if row["dist_opt"] == "True" else "none",
    }
    if row["vpp"]:
        layout["vp"] = int(row["vpp"])
    if int(row["ep"]) > 1:
        layout |= {"ep": int(row["ep"]), "etp": 1}
    if model.num_layers % pp:
        layout["stages"] = [model.num_layers - (pp - 1) * each] + [each] * (pp - 1)
    return {
        "model": {k: v for k, v in msgspec.to_builtins(model).items() if v not in (None, [], ())},
        "layout": layout,
        "batch": {
            "micro_batch": int(row["mbs"]),
            "num_microbatches": int(row["num_microbatches"]),
            "seq_len": config["seq_length"],
        },
        "training": {"recompute": "selective", "mtp_layers": config.get("mtp_num_layers") or 0},
    }
