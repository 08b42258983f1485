"""Users' questions on validity, batches and models: the program on what the user has, every check.

What a job file needs and the thread does not give (a width, a head's size) is chosen so that it
breaks nothing itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.running import finding_of, rules_of, run
from groups.building import layout_of
from meshwright.job.model import Model
from meshwright.rules.job import JOB_RULES
from meshwright.rules.registry import RuleContext, run_rules
from support import shared_path

pytestmark = [pytest.mark.captured, pytest.mark.process]


def case_of(name: str) -> dict[str, Any]:
    """Return a case."""
    return dict(json.loads(shared_path(f"cases/{name}.json").read_text()))


def model(**keys: object) -> str:
    """Return a model mapping in flow style; what is not given divides by all that is asked of it."""
    shape: dict[str, object] = {
        "name": "asked",
        "num_layers": 24,
        "hidden": 3840,
        "ffn": 15360,
        "heads": 120,
        "kv_heads": 120,
        "head_dim": 32,
        "vocab": 30720,
    }
    return (
        "model: {" + ", ".join(f"{key}: {value}" for key, value in (shape | keys).items()) + "}\n"
    )


@pytest.fixture
def check(tmp_path: Path):
    """Run ``check --json`` (or another command) on a job of the user's."""

    def one(text: str, command: str = "check") -> dict[str, Any]:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return run(command, path, "--json").document

    return one


def test_valid_deepep_160_ranks(check):
    case = case_of("valid-deepep-160-ranks")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    legal = []
    for ep in inputs["wanted_ep"]:
        document = check(
            f"cluster: {{node: {{gpus: 8}}, nodes: {inputs['nodes']}}}\n"
            f"layout: {{ep: {ep}, framework: megatron}}\nmoe: {{dispatcher: deepep}}\n"
        )
        if "dispatcher/deepep-peers" not in rules_of(document):
            legal.append(ep)
            continue
        finding = finding_of(document, "dispatcher/deepep-peers")
        assert finding["severity"] == "error"
        assert finding["numbers"]["limit"] == checks["limit"]
        for said in ("legacy buffer", "normal mode", "elastic", "low-latency", "not the job"):
            assert said in finding["message"]
    assert legal == checks["legal"]
    rule = run("rules", "dispatcher/deepep-peers", "--json").document["rules"][0]
    assert "legacy" in rule["versions"]


def test_valid_ep_divides_sparse_region(check):
    case = case_of("valid-ep-divides-sparse-region")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    reasons = {"experts/divide-ep": "experts", "grid/ep-divides-sparse-region": "sparse_region"}
    shape = model(experts=inputs["num_experts"], top_k=2, moe_ffn=1024)
    legal, rejected = [], {}
    for ep in inputs["candidates"]:
        document = check(
            f"{shape}layout: {{dp: 6, sharding: fsdp, shard_degree: 6, cp: 1, tp: 2, ep: {ep}, "
            "framework: torch, framework_version: torchtitan}\n"
        )
        why = [reasons[rule] for rule in rules_of(document) if rule in reasons]
        assert document["valid"] == (not why)
        if why:
            rejected[str(ep)] = why
        else:
            legal.append(ep)
    assert legal == checks["legal"]
    assert rejected == checks["rejected"]


def test_valid_fp8_multiple_of_16(check):
    checks = case_of("valid-fp8-multiple-of-16")["expected"]["checks"]

    def document(vocab: int, tp: int) -> dict[str, Any]:
        return check(
            f"{model(vocab=vocab, heads=128, kv_heads=128, hidden=4096, ffn=16384)}layout: {{tp: {tp}, dp: 1, framework: torch}}\n"
            "training: {precision: fp8}\n"
        )

    for vocab in (2256, 2560):
        legal = [tp for tp in (2, 4, 8) if document(vocab, tp)["valid"]]
        assert legal == checks[f"legal_tp_{vocab}"]
    finding = finding_of(document(2256, 8), "precision/output-layer-multiple")
    assert finding["numbers"]["nearest_vocab"] == checks["nearest_vocab_for_tp_2_4_8"]
    assert "normally kept out" in finding["message"]
    # the two bare dimensions: 5504 columns of an MLP, 184 tokens of a rank under cp 2
    both = check(
        f"{model(ffn=5504)}layout: {{cp: 2, dp: 1}}\nbatch: {{micro_batch: 1, num_microbatches: 1, seq_len: 368}}\n"
        "training: {precision: fp8}\n"
    )
    found = [f for f in both["findings"] if f["rule"].startswith("precision/")]
    assert [one["numbers"]["size"] for one in found] == [checks["offending_dim"]]
    assert "padding" in found[0]["message"]


def test_valid_heads_52(check):
    checks = case_of("valid-heads-52")["expected"]["checks"]
    document = check(
        f"{model(heads=52, kv_heads=52, hidden=1664, ffn=6656)}cluster: {{node: {{gpus: 8}}, nodes: 1}}\n"
        "layout: {tp: 8}\n"
    )
    numbers = finding_of(document, "heads/divide-tp")["numbers"]
    assert numbers["divisors"] == checks["divisors"]
    assert numbers["usable"] == checks["usable"]
    assert document["nearest"][0]["tp"] == 4
    assert all(one["tp"] in checks["usable"] for one in document["nearest"])


@pytest.mark.parametrize(
    ("rule", "layout"),
    [
        ("strict", "framework: megatron, framework_version: megatron-core 0.9.0"),
        ("strict", "framework: megatron, framework_version: megatron-core 0.16.1"),
        ("flexible", "framework: torch"),
    ],
)
def test_valid_interleaved_microbatches(check, rule, layout):
    """By ``check``: the ``pipeline`` command is still to come."""
    case = case_of("valid-interleaved-microbatches")
    legal = []
    for count in case["inputs"]["microbatches"]:
        document = check(
            f"layout: {{pp: {case['inputs']['pp']}, vp: 2, dp: 1, {layout}}}\n"
            f"batch: {{micro_batch: 1, num_microbatches: {count}}}\ntraining: {{schedule: interleaved}}\n"
        )
        if document["valid"]:
            legal.append(count)
        else:
            assert "pipeline/interleaved-microbatches" in rules_of(document)
    assert legal == case["expected"]["checks"][rule]
    versions = run("rules", "pipeline/interleaved-microbatches", "--json").document["rules"][0][
        "versions"
    ]
    assert "m % pp == 0" in versions
    assert "rounds = max(1, m // pp), m % rounds == 0" in versions
    said = finding_of(document, "pipeline/interleaved-microbatches")["message"]
    if rule == "flexible":
        assert "rounds = max(1, m // pp) = 2" in said
    else:
        assert "m % pp had to be 0" in said


def test_valid_interleaved_pp2(check):
    case = case_of("valid-interleaved-pp2")
    checks = case["expected"]["checks"]

    def legal(version: str) -> list[bool]:
        return [
            check(
                f"layout: {{pp: 2, vp: 2, dp: 1, framework: megatron, framework_version: {version}}}\n"
                f"training: {{overlap_p2p: {str(overlap).lower()}}}\n"
            )["valid"]
            for overlap in case["inputs"]["overlap_p2p"]
        ]

    assert legal("megatron-core 0.16.1") == checks["legal"]
    assert legal("megatron-core 0.7.0") == checks["legal_before_fix"]
    rule = run("rules", "pipeline/interleaved-pp2", "--json").document["rules"][0]
    assert ("before" in rule["versions"]) == checks["version_dependent"]


def test_valid_kv_heads_4_tp8(check):
    case = case_of("valid-kv-heads-4-tp8")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    shape = model(heads=32, kv_heads=4, head_dim=128, hidden=4096, ffn=16384, vocab=32000)
    batch = "batch: {micro_batch: 4, num_microbatches: 1, seq_len: 178}\n"
    for framework, key in (("torch", "legal_tp"), ("megatron", "legal_tp_megatron_core_0_16")):
        layout = f"dp: 1, framework: {framework}"
        found = {
            tp: check(f"{shape}layout: {{tp: {tp}, {layout}}}\n{batch}")
            for tp in inputs["candidates"]
        }
        legal = [tp for tp, document in found.items() if document["valid"]]
        assert legal == checks[key]
        if framework == "torch":
            finding = finding_of(found[8], "heads/kv-divide-tp")
            assert finding["numbers"]["tokens"] == inputs["tokens"]
            assert finding["numbers"]["columns_per_rank"] == checks["cols_per_rank"]
            assert finding["numbers"]["elements"] == checks["elements"]
            assert "45568" in finding["message"]
            assert "Megatron-Core 0.16 on copies KV heads itself" in finding["message"]
        else:
            note = finding_of(found[8], "heads/kv-copied")
            assert "megatron-core 0.16.1 puts a copy of each on 2 ranks" in note["message"]


def test_valid_layers_silently_dropped(check):
    case = case_of("valid-layers-silently-dropped")
    checks = case["expected"]["checks"]
    shape = model(num_layers=case["inputs"]["layers"])
    document = check(f"{shape}layout: {{pp: 4, dp: 1}}\n")
    finding = finding_of(document, "pipeline/layers-divide")
    assert finding["severity"] == "error"
    numbers = finding["numbers"]
    assert numbers["floor_total"] == checks["floor_total"]
    assert numbers["lost"] == checks["lost"]
    rule = checks["split_rule"]
    for split in numbers["splits"]:
        assert sum(split) == rule["sum"]
        assert len(split) == rule["parts"]
        assert max(split) - min(split) <= rule["max_minus_min"]
        again = check(f"{shape}layout: {{pp: 4, dp: 1, stages: {split}}}\n")
        assert again["valid"]
        assert again["stages"] == split
    assert numbers["splits"] == checks["example_splits"]


def test_valid_pp_batch_chain(check):
    checks = case_of("valid-pp-batch-chain")["expected"]["checks"]

    def job(local: int) -> str:
        return (
            "layout: {pp: 8, dp: 8, ep: 8, sharding: fsdp, framework: torch, world_size: 64}\n"
            f"batch: {{local_batch: {local}, micro_batch: 1, global_batch: 512}}\n"
            "training: {schedule: interleaved1f1b}\n"
        )

    document = check(job(4))
    assert not document["valid"]
    finding = finding_of(document, "pipeline/microbatches-fill-stages")
    numbers = finding["numbers"]
    assert numbers["microbatches"] == checks["microbatches_before"]
    assert numbers["min_local_batch"] == checks["min_local_batch"]
    assert numbers["grad_accum"] == checks["accum_before"]
    assert numbers["grad_accum_after"] == checks["accum_after"]
    assert "local_batch: 8 (grad_accum 8)" in finding["remedy"]
    assert "memory of a microbatch stays the same" in finding["remedy"]
    assert check(job(4), "batch")["grad_accum"] == checks["accum_before"]
    after = check(job(8), "batch")
    assert after["grad_accum"] == checks["accum_after"]
    assert check(job(8))["valid"]


def test_valid_seq_factor_cp_tp(check):
    checks = case_of("valid-seq-factor-cp-tp")["expected"]["checks"]
    for key, factor in checks["factor"].items():
        cp, tp = (int(part[2:]) for part in key.split("_"))
        layout = f"layout: {{tp: {tp}, cp: {cp}, dp: 1, sequence_parallel: true}}\n"
        document = check(f"{layout}batch: {{seq_len: {8 * factor + 1}}}\n")
        finding = finding_of(document, "sequence/factor")
        assert finding["numbers"]["factor"] == factor
        assert finding["remedy"] == f"seq_len: {8 * factor} or {9 * factor}"
        assert check(f"{layout}batch: {{seq_len: {8 * factor}}}\n")["valid"]
        for wrong, rule in (
            ("wrong_small_example", "lcm_rule"),
            ("wrong_big_example", "product_rule"),
        ):
            example = checks[wrong]
            if (cp, tp) == (example["cp"], example["tp"]):
                assert finding["numbers"][rule] == example[rule]
                assert finding["numbers"]["factor"] == example["right"]


_TP24 = {
    "vocabulary/divide-tp": "vocab",
    "heads/divide-tp": "heads",
    "heads/query-width": "q_width",
    "heads/output-groups": "output_groups",
}


def test_valid_tp24_two_blockers(check):
    """Heads and output groups block tp 24; the vocabulary can be padded."""
    checks = case_of("valid-tp24-two-blockers")["expected"]["checks"]
    shape = model(
        vocab=129280,
        heads=128,
        kv_heads=128,
        head_dim=512,
        hidden=7168,
        ffn=18432,
        output_groups=16,
    )
    document = check(
        f"{shape}cluster: {{node: {{gpus: 8}}, nodes: 3}}\nlayout: {{tp: 24, framework: torch}}\n"
    )
    found = {one["rule"]: one["numbers"] for one in document["findings"] if one["rule"] in _TP24}
    assert {_TP24[rule] for rule in found} == set(checks["failing_rules"])
    assert [_TP24[rule] for rule, numbers in found.items() if numbers["paddable"]] == checks[
        "paddable"
    ]
    vocabulary = found["vocabulary/divide-tp"]
    assert vocabulary["remainder"] == checks["vocab_mod"]
    assert vocabulary["padded"] == checks["padded_vocab"]
    assert vocabulary["per_rank"] == checks["vocab_per_rank"]
    assert found["heads/divide-tp"]["remainder"] == checks["heads_mod"]
    assert found["heads/query-width"]["remainder"] == checks["q_width_mod"]
    groups = finding_of(document, "heads/output-groups")
    assert groups["numbers"]["max_attention_tp"] == checks["max_attention_tp"]
    assert groups["numbers"]["attention_tp"] == checks["attention_tp_on_24_gpus"]
    assert "gcd(128, 16) = 16; on 24 ranks it is 1, 2, 4, 8" in groups["message"]
    for one in document["findings"]:
        if one["rule"].startswith("heads/"):
            assert "tp: 1, 2, 4, 8" in one["remedy"], "what fills 24 GPUs"
    nearest = document["nearest"]
    assert {"tp": nearest[0]["tp"], "dp": nearest[0]["dp"]} == checks["suggested"]
    assert all(one["tp"] in checks["attention_tp_on_24_gpus"] for one in nearest)


def test_valid_tp24_output_groups():
    checks = case_of("valid-tp24-two-blockers")["expected"]["checks"]

    shape = Model(
        name="asked", num_layers=2, hidden=7168, ffn=18432, heads=128, kv_heads=128, head_dim=512,
        vocab=129280, output_groups=16,
    )  # fmt: skip
    found = {
        tp: run_rules(
            JOB_RULES, RuleContext(layout_of(tp=tp, dp=1, framework="torch"), model=shape)
        )
        for tp in (1, 2, 4, 8, 16, 24)
    }
    assert {_TP24[one.rule] for one in found[24] if one.rule in _TP24} == set(
        checks["failing_rules"]
    )
    (groups,) = [one for one in found[24] if one.rule == "heads/output-groups"]
    assert groups.numbers["remainder"] == checks["groups_mod"]
    assert groups.numbers["paddable"] is False
    legal = [
        tp for tp, findings in found.items() if not {one.rule for one in findings} & set(_TP24)
    ]
    assert max(legal) == checks["max_attention_tp"]


def test_valid_ulysses_40q_8kv(check):
    case = case_of("valid-ulysses-40q-8kv")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    shape = model(heads=inputs["q_heads"], kv_heads=inputs["kv_heads"], head_dim=128)
    gpus = inputs["gpus"]
    degrees = [cp for cp in range(1, gpus + 1) if gpus % cp == 0]

    def legal(keys: str) -> list[int]:
        found = []
        for cp in degrees:
            document = check(
                f"{shape}layout: {{cp: {cp}, cp_kind: a2a, world_size: {gpus}, {keys}}}\n"
            )
            if document["valid"]:
                found.append(cp)
            else:
                assert [
                    one["rule"] for one in document["findings"] if one["severity"] == "error"
                ] == ["cp/ulysses-heads"]
        return found

    assert legal("framework: torch, kv_replication: 5") == checks["legal"]
    assert legal("framework: megatron") == checks["legal_without_kv_replication"]
    ignored = check(
        f"{shape}layout: {{cp: 40, cp_kind: a2a, world_size: {gpus}, kv_replication: 5}}\n"
    )
    note = finding_of(ignored, "heads/kv-copies-unread")["message"]
    assert "kv_replication 5 is not read: framework megatron (assumed: the job names none)" in note
    error = finding_of(ignored, "cp/ulysses-heads")
    assert error["numbers"]["legal"] == checks["legal_without_kv_replication"]
    assert "kv_replication is not read with framework megatron" in error["message"]


def test_valid_vocab_padding_rule(check):
    case = case_of("valid-vocab-padding-rule")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    document = check(
        f"{model(vocab=inputs['vocab'])}layout: {{tp: {inputs['tp']}, dp: 1, framework: megatron}}\n"
    )
    numbers = finding_of(document, "vocabulary/padded")["numbers"]
    assert numbers["remainder"] == checks["mod"]
    assert numbers["padded"] == checks["megatron_padded"]
    assert numbers["per_rank"] == checks["per_rank"]
    assert numbers["minimal_padded"] == checks["minimal_padded"]
    assert "checkpoint converter" in finding_of(document, "vocabulary/padded")["message"]


def test_ep8_inside_node_dispatcher(check):
    case = case_of("ep8-inside-node-dispatcher")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    shape = model(experts=inputs["experts"], top_k=inputs["topk"], moe_ffn=1024)
    job = f"{shape}cluster: {{node: {{gpus: 8}}, nodes: {inputs['nodes']}}}\nlayout: {{pp: 2, ep: 4, framework: megatron}}\n"
    numbers = finding_of(check(job), "dispatcher/choice")["numbers"]
    assert numbers["choice"] == checks["choice_any_of"]
    assert numbers["ep_inside_one_host"] is checks["ep_inside_one_host"]
    warned = finding_of(check(f"{job}moe: {{dispatcher: deepep}}\n"), "dispatcher/inside-host")
    assert warned["severity"] == "warning"
    assert "large top-k" in warned["message"]
    quiet = rules_of(check(f"{job}moe: {{dispatcher: {numbers['choice'][0]}}}\n"))
    assert not [rule for rule in quiet if rule.startswith("dispatcher/")]


def test_warmup_interleaved(check):
    """By ``batch``: the closed form. Orders and cool-down are the ``pipeline`` command's, to come."""
    case = case_of("warmup-interleaved")
    inputs = case["inputs"]
    document = check(
        f"layout: {{pp: {inputs['pp']}, vp: {inputs['chunks']}, dp: 1, framework: megatron}}\n"
        f"batch: {{micro_batch: 1, num_microbatches: {inputs['microbatches']}}}\n",
        "batch",
    )
    assert document["warmup"] == case["expected"]["checks"]["warmup"]


def test_stages_first_last_fixed(check):
    case = case_of("stages-first-last-fixed")
    inputs = case["inputs"]
    document = check(
        f"{model(num_layers=inputs['layers'])}layout: {{pp: {inputs['pp']}, dp: 1, "
        f"first_stage_layers: {inputs['first']}, last_stage_layers: {inputs['last']}}}\n"
    )
    assert document["valid"]
    assert document["stages"] == case["expected"]["checks"]["stages"]
    assert "(9 - 2 - 1) / (4 - 2) = 3" in document["stages_from"]


def test_hsdp_shard_over_four_nodes(check):
    """Why an explicit mesh: the groups themselves are asked elsewhere."""
    checks = case_of("hsdp-shard-over-four-nodes")["expected"]["checks"]
    replicate, shard = checks["mesh"]
    document = check(
        "cluster: {node: {gpus: 8}, nodes: 8}\n"
        f"layout: {{sharding: hsdp, shard_degree: {shard}, dp: 64, framework: torch}}\n"
    )
    note = finding_of(document, "sharding/hsdp-mesh")
    assert (note["numbers"]["replicate"], note["numbers"]["shard"]) == (replicate, shard)
    assert note["numbers"]["hosts"] == 4
    assert "HYBRID_SHARD shards over one host, 8 GPUs here) cannot express that" in note["message"]
    assert "an explicit mesh can" in note["message"]


def test_bubble_mbs_vs_m(check):
    case = case_of("bubble-mbs-vs-m")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    within = case["expected"]["tolerance"]["abs"]
    for micro, count, idle in zip(inputs["mbs"], checks["m"], checks["bubble"], strict=True):
        document = check(
            f"layout: {{pp: {inputs['pp']}, dp: {inputs['dp']}}}\n"
            f"batch: {{global_batch: {inputs['global_batch']}, micro_batch: {micro}}}\n"
            "training: {schedule: 1f1b}\n",
            "batch",
        )
        assert document["num_microbatches"] == count
        assert document["formula_bubble_fraction"] == pytest.approx(idle, abs=within)
        rows = {one["micro_batch"]: one for one in document["trade_offs"]}
        assert [rows[one]["num_microbatches"] for one in inputs["mbs"]] == checks["m"]


def test_mfu_sparse_peak():
    case = case_of("mfu-sparse-peak")
    checks, inputs = case["expected"]["checks"], case["inputs"]
    ran = run(
        "model", "--gpu", "H100 SXM", "--tokens-per-s", str(inputs["tok_s"]),
        "--tflop-per-token", str(inputs["tflop_per_token"]), "--peak", str(inputs["peak_listed"]), "--json",
    )  # fmt: skip
    document = ran.document
    within = case["expected"]["tolerance"]["abs"]
    assert document["mfu"] == pytest.approx(checks["mfu"], abs=within)
    dense = document["dense_peak_flops_per_s"] / 1e12
    assert int(dense) == checks["dense_peak_tflops"]
    assert "sparsity" in finding_of(document, "model/sparse-peak")["message"]
