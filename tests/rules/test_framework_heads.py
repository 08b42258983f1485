"""What each framework says of heads, widths and the vocabulary: refuses, cuts unevenly, or pads."""

from __future__ import annotations

import msgspec
import pytest

from groups.building import layout_of
from meshwright.findings import Severity
from meshwright.job.catalogue import find_model
from meshwright.job.sections import LayoutSection
from meshwright.rules.job import JOB_RULES
from meshwright.rules.registry import RuleContext, run_rules

LLAMA = find_model("llama-3-8b")  # 32 heads, 8 KV heads, ffn 14336, vocabulary 128256
ALL = ("megatron", "torch", "torchtitan", "nanotron", "maxtext", "deepspeed")


def _found(model=LLAMA, **keys):
    section = LayoutSection(**({"dp": 1} | keys))
    context = RuleContext(layout_of(**({"dp": 1} | keys)), model=model, section=section)
    return {one.rule: one for one in run_rules(JOB_RULES, context)}


def _errors(model=LLAMA, **keys):
    return {rule for rule, one in _found(model, **keys).items() if one.severity is Severity.ERROR}


@pytest.mark.parametrize("framework", ALL)
def test_what_divides_is_legal_everywhere(framework):
    for tp in (1, 2, 4, 8):
        assert not _errors(framework=framework, tp=tp)


@pytest.mark.parametrize("framework", [one for one in ALL if one != "deepspeed"])
def test_heads_that_leave_a_rest_are_refused(framework):
    found = _errors(framework=framework, tp=6)
    assert {"heads/divide-tp", "heads/kv-divide-tp", "heads/query-width"} <= found
    evenly = framework in ("megatron", "nanotron", "maxtext")
    assert ("width/ffn-divide-tp" in found) == evenly


def test_only_megatron_takes_more_ranks_than_key_value_heads_by_itself():
    refused = {one for one in ALL if _errors(framework=one, tp=16)}
    assert refused == set(ALL) - {"megatron"}
    copies = {one for one in ALL if not _errors(framework=one, tp=16, kv_replication=2)}
    assert copies == {"megatron", "torch", "torchtitan"}, "a key that nanotron and MaxText lack"


def test_deepspeed_cuts_key_value_heads_unevenly():
    # get_shard_size of DeepSpeed 0.19.8: 8 KV heads over 6 ranks give 2, 2, 1, 1, 1, 1
    found = _found(framework="deepspeed", tp=6)
    uneven = found["deepspeed/heads-uneven"]
    assert uneven.severity is Severity.WARNING
    assert uneven.numbers == {"kv_heads": 8, "heads": 32, "tp": 6, "most": 2, "ranks": 2}
    assert found["width/ffn-uneven"].severity is Severity.WARNING
    assert not _errors(framework="deepspeed", tp=6)
    [missing] = [
        one
        for one in _found(framework="deepspeed", tp=10).values()
        if one.severity is Severity.ERROR
    ]
    assert missing.rule == "deepspeed/heads-fewer-than-tp"
    assert missing.numbers["without"] == 2
    assert "deepspeed/heads-uneven" not in _found(framework="deepspeed", tp=8)


def test_vocabulary_by_framework():
    odd = msgspec.structs.replace(LLAMA, vocab=50257)

    def said(framework, **keys):
        found = _found(odd, framework=framework, tp=4, **keys)
        return {rule: one for rule, one in found.items() if "vocabulary" in rule}

    megatron, nanotron = said("megatron"), said("nanotron")
    assert megatron["vocabulary/padded"].numbers["padded"] == 50688  # 99 × 128 × 4
    assert nanotron["vocabulary/padded"].numbers["padded"] == 50260  # 12565 × 4: the multiple is 1
    larger = said("nanotron", vocab_divisible_by=64)
    assert larger["vocabulary/padded"].numbers["padded"] == 50432  # 197 × 64 × 4
    for framework in ("torch", "torchtitan", "deepspeed"):
        assert said(framework)["vocabulary/divide-tp"].severity is Severity.WARNING
    refused = said("maxtext")
    assert set(refused) == {"maxtext/vocabulary-divides"}
    assert refused["maxtext/vocabulary-divides"].severity is Severity.ERROR
    assert refused["maxtext/vocabulary-divides"].numbers["minimal_padded"] == 50260
    padded = msgspec.structs.replace(LLAMA, vocab=50260)
    assert not _errors(padded, framework="maxtext", tp=4)


def test_maxtext_cuts_the_hidden_width_by_fsdp():
    def errors(fsdp):
        keys = {"ici": {"fsdp": fsdp}, "world_size": fsdp, "dp": None, "framework": "maxtext"}
        return _errors(**keys)

    assert not errors(64)
    assert errors(24) == {"maxtext/hidden-divides"}
    keys = {"ici": {"fsdp": 8, "data": 3}, "world_size": 24, "dp": None, "framework": "maxtext"}
    assert not _errors(**keys), "the other ranks along data"


@pytest.mark.parametrize("framework", ALL)
def test_output_groups_limit_tp(framework):
    # DeepSeek-V4: 128 heads of 512 in 16 groups
    grouped = msgspec.structs.replace(
        LLAMA, heads=128, kv_heads=128, head_dim=512, output_groups=16, ffn=18432
    )
    for tp in (8, 16):
        assert "heads/output-groups" not in _errors(grouped, framework=framework, tp=tp)
    finding = _found(grouped, framework=framework, tp=32)["heads/output-groups"]
    assert finding.numbers == {
        "output_groups": 16,
        "tp": 32,
        "remainder": 16,
        "paddable": False,
        "max_attention_tp": 16,
        "attention_tp": [1, 2, 4, 8, 16],
    }
    assert "gcd(128, 16) = 16" in finding.message
    assert "16" in finding.remedy
    assert "heads/output-groups" not in _errors(framework=framework, tp=32), "a single projection"
