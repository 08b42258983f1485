"""Multiples of 8- and 4-bit formats, after sharding: each legal layout beside an illegal one.

The multiples: megatron-core 0.16.1 ``get_fp8_align_size`` (16, MXFP8 32), ``get_fp4_align_size``
(32 values are the 16 bytes a load is aligned to; tokens of experts are padded to 128).
"""

from __future__ import annotations

import msgspec
import pytest

from groups.building import layout_of
from meshwright.findings import Severity
from meshwright.job.batch import resolve_batch
from meshwright.job.catalogue import find_model
from meshwright.job.model import Model
from meshwright.job.sections import BatchSection, TrainingSection
from meshwright.rules.precision import EXPERT_MULTIPLES, MULTIPLES, PRECISION_RULES
from meshwright.rules.registry import RuleContext, run_rules

BLOCKS = [("fp8", 16), ("mxfp8", 32), ("nvfp4", 32)]
DENSE = Model(
    name="dense", num_layers=2, hidden=1024, ffn=1536, heads=16, kv_heads=16, head_dim=64, vocab=8192
)  # fmt: skip
MOE = msgspec.structs.replace(DENSE, name="moe", experts=8, top_k=2, moe_ffn=768)


def _found(model=DENSE, precision="fp8", batch=None, **keys):
    layout = layout_of(**({"dp": 1, "framework": "megatron"} | keys))
    context = RuleContext(
        layout,
        model=model,
        batch=resolve_batch(BatchSection(**(batch or {})), layout.dp),
        training=TrainingSection(precision=precision),
    )
    return run_rules(PRECISION_RULES, context)


def _errors(*args, **keys):
    return [one for one in _found(*args, **keys) if one.severity is Severity.ERROR]


def test_the_multiples_are_those_of_the_formats():
    assert sorted(MULTIPLES.items()) == sorted(BLOCKS)
    assert EXPERT_MULTIPLES["megatron"] == {"fp8": 16, "mxfp8": 32, "nvfp4": 128}


@pytest.mark.parametrize(("precision", "multiple"), BLOCKS)
def test_a_width_is_legal_up_to_the_tp_that_leaves_whole_blocks(precision, multiple):
    # ffn 1536 = 16 × 96 = 32 × 48: over tp 32 a rank has 48 = 3 × 16 columns, over tp 64 24
    model = msgspec.structs.replace(DENSE, heads=64, kv_heads=64, hidden=4096)
    legal = [tp for tp in (1, 2, 4, 8, 16, 32, 64) if not _errors(model, precision, tp=tp)]
    most = {16: 32, 32: 16}[multiple]
    assert legal == [tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp <= most]
    [finding] = _errors(model, precision, tp=most * 2)
    assert finding.rule == "precision/shape-multiple"
    assert str(finding.place) == "layout.tp"
    assert finding.numbers == {
        "dimension": "ffn",
        "size": 1536 // (most * 2),
        "multiple": multiple,
        "remainder": 1536 // (most * 2) % multiple,
    }
    assert f"1536 / {most * 2} = {1536 // (most * 2)}" in finding.message
    proposed = [
        int(word) for word in finding.remedy.split(" (")[0].removeprefix("tp: ").split(", ")
    ]
    for tp in proposed:
        assert 1536 % tp == 0
        assert 1536 // tp % multiple == 0
    assert max(proposed) >= most
    assert f"ffn of 1024 or 2048 for {most * 2}" in finding.remedy


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32", None])
def test_wide_formats_have_no_multiple(precision):
    odd = msgspec.structs.replace(DENSE, hidden=1023, ffn=1001, head_dim=63)
    assert _found(odd, precision, batch={"micro_batch": 1, "seq_len": 4097}) == []


@pytest.mark.parametrize(
    ("precision", "legal", "illegal"), [("fp8", 528, 520), ("mxfp8", 544, 528), ("nvfp4", 544, 528)]
)
def test_an_unsharded_width_is_padded_not_cut(precision, legal, illegal):
    assert not _errors(msgspec.structs.replace(DENSE, hidden=legal), precision)
    [finding] = _errors(msgspec.structs.replace(DENSE, hidden=illegal), precision, tp=2)
    assert finding.numbers["dimension"] == "hidden"
    assert str(finding.place) == "model"
    assert finding.remedy.startswith("pad hidden"), "another tp would not help"


@pytest.mark.parametrize(("precision", "multiple"), BLOCKS)
def test_queries_keys_and_values_are_cut_by_tp(precision, multiple):
    # 4 heads of 24: query 96 and qkv 288 columns; over 2 ranks 48 and 144, over 4 ranks 24 and 72
    model = msgspec.structs.replace(DENSE, heads=4, kv_heads=4, head_dim=24)
    wrong = {
        tp: {one.numbers["dimension"] for one in _errors(model, precision, tp=tp)}
        for tp in (1, 2, 4)
    }
    expected = {
        tp: {
            name
            for name, size in (("query_width", 96), ("qkv_width", 288))
            if size // tp % multiple
        }
        for tp in (1, 2, 4)
    }
    assert wrong == expected
    assert wrong[4] == {"query_width", "qkv_width"}


def test_latent_attention_has_dimensions_of_its_own():
    model = find_model("deepseek-v3")
    assert not _errors(model, "mxfp8", tp=8)
    # kv_lora_rank 512 + rope 64 = 576 = 18 × 32; 40 instead of 64 leaves 8 over
    odd = msgspec.structs.replace(
        model, qk_rope_dim=40, qk_nope_dim=128, head_dim=168, q_lora_rank=1500
    )
    found = {one.numbers["dimension"]: one.numbers["size"] for one in _errors(odd, "mxfp8")}
    assert found == {"kv_down_width": 552, "q_lora_rank": 1500}


def test_experts_are_cut_by_etp_and_its_key_is_named():
    # moe_ffn 768 = 32 × 24: whole over etp 8 (96), not over etp 16 (48 = 32 + 16)
    keys = {"tp": 16, "dp": 1, "ep": 1}
    assert not _errors(MOE, "mxfp8", **keys, etp=8)
    assert not _errors(MOE, "fp8", **keys, etp=16)
    [finding] = _errors(MOE, "mxfp8", **keys, etp=16)
    assert (finding.numbers["dimension"], finding.numbers["size"]) == ("moe_ffn", 48)
    assert str(finding.place) == "layout.etp"
    assert finding.remedy.startswith("etp: ")


@pytest.mark.parametrize(("precision", "multiple"), BLOCKS)
def test_tokens_are_cut_by_cp_and_not_by_sequence_parallelism(precision, multiple):
    legal, illegal = 4 * multiple, 4 * multiple + 4
    batch = {"micro_batch": 1, "num_microbatches": 1}
    assert not _errors(DENSE, precision, batch | {"seq_len": legal}, cp=4)
    # under sequence parallelism a rank's shard is half a block, and the GEMM sees it gathered
    keys = {"cp": 4, "tp": 2, "sequence_parallel": True}
    assert not _errors(DENSE, precision, batch | {"seq_len": legal}, **keys)
    [finding] = _errors(DENSE, precision, batch | {"seq_len": illegal}, cp=4)
    assert finding.rule == "precision/tokens-multiple"
    assert finding.numbers["size"] == multiple + 1
    assert finding.numbers["remainder"] == 1
    assert finding.remedy.startswith(f"seq_len: {8 * multiple},")
    # two sequences a microbatch have twice the tokens: half the block in each is enough
    half = {"micro_batch": 2, "num_microbatches": 1, "seq_len": 4 * multiple // 2}
    assert not _errors(DENSE, precision, half, cp=4)


def _padding(precision, seq_len, framework="megatron", **keys):
    batch = {"micro_batch": 1, "num_microbatches": 1, "seq_len": seq_len}
    found = _found(MOE, precision, batch, framework=framework, dp=8, ep=8, **keys)
    return [one for one in found if one.rule == "precision/expert-tokens-padded"]


@pytest.mark.parametrize(("precision", "multiple"), [("fp8", 16), ("mxfp8", 32), ("nvfp4", 128)])
def test_tokens_of_experts_are_padded_and_never_an_error(precision, multiple):
    # 8 ranks × seq_len tokens × top-2 / 8 experts = 2 seq_len tokens an expert
    [finding] = _padding(precision, 64)
    assert finding.severity is Severity.NOTE
    rows = (multiple - 1) / 2
    assert finding.numbers["multiple"] == multiple
    assert finding.numbers["tokens_per_expert"] == 128
    assert finding.numbers["share"] == pytest.approx(rows / 128, abs=1e-4)
    assert _padding(precision, 8192) == [], "few rows beside many tokens"


def test_other_frameworks_and_formats_pad_no_experts_here():
    assert _padding("bf16", 64) == []
    assert _padding("mxfp8", 64, "torchtitan", sharding="fsdp")
    assert _padding("nvfp4", 64, "torchtitan", sharding="fsdp") == []
    assert _padding("fp8", 64, "deepspeed") == []


@pytest.mark.parametrize(("precision", "multiple"), BLOCKS)
def test_rows_of_the_output_layer(precision, multiple):
    keys = {"framework": "torchtitan", "tp": 4}

    def rules(vocab):
        model = msgspec.structs.replace(DENSE, vocab=vocab)
        return [(one.rule, one.numbers) for one in _found(model, precision, **keys)]

    assert rules(4 * multiple) == []
    [(rule, numbers)] = rules(6 * multiple)
    assert rule == "precision/output-layer-multiple"
    assert numbers["nearest_vocab"] == 8 * multiple
    assert rules(numbers["nearest_vocab"]) == []
    # no multiple at all: the converter's filter leaves the layer alone
    assert [rule for rule, _ in rules(4 * multiple + 8)] == ["precision/output-layer-skipped"]
