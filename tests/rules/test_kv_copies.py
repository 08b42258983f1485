"""Copies of KV heads: how many fill the ranks, who reads the key, who copies by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.rules.heads import kv_heads_break

MODEL = "{name: u, num_layers: 24, hidden: 4096, ffn: 16384, heads: 32, kv_heads: 4, head_dim: 128, vocab: 32000}"


@pytest.fixture
def found(tmp_path: Path):
    def one(layout: str):
        path = tmp_path / "job.yaml"
        path.write_text(f"model: {MODEL}\nlayout: {{dp: 1, {layout}}}\n")
        outline = outline_job(load_job(path))
        judge(outline)
        return {f.rule: f for f in outline.findings}

    return one


@pytest.mark.parametrize(
    ("tp", "copies", "legal"),
    [
        (4, 1, True),
        (8, 1, False),
        (8, 2, True),
        (8, 3, False),  # 12 heads over 8 ranks
        (8, 4, True),  # two copies of one head on a rank
        (16, 2, False),  # 8 heads over 16 ranks
        (16, 4, True),
        (2, 3, True),
    ],
)
@pytest.mark.parametrize("framework", ["torch", "torchtitan"])
def test_copies_fill_the_ranks_evenly(found, framework, tp, copies, legal):
    findings = found(f"tp: {tp}, kv_replication: {copies}, framework: {framework}")
    assert ("heads/kv-divide-tp" not in findings) == legal
    if not legal and copies > 1:
        assert f"4 × {copies} = {4 * copies} KV heads" in findings["heads/kv-divide-tp"].message


def test_the_rule_itself_for_every_size():
    for keys in range(1, 13):
        for ranks in range(1, 49):
            for copies in range(1, 13):
                # heads of a rank as (which, how many of its copies): whole ones, or one alone
                whole = keys % ranks == 0
                several = ranks % keys == 0 and (keys * copies) % ranks == 0
                assert kv_heads_break(keys, ranks, copies) != (whole or several), (
                    keys,
                    ranks,
                    copies,
                )


@pytest.mark.parametrize(
    "framework", ["framework: megatron", "framework: nanotron", "sequence_parallel: false"]
)
def test_who_does_not_read_the_key_is_said(found, framework):
    findings = found(f"tp: 4, kv_replication: 2, {framework}")
    note = findings["heads/kv-copies-unread"]
    assert "kv_replication 2 is not read" in note.message
    assert ("the job names none" in note.message) == ("framework:" not in framework)
    assert "heads/kv-copies-unread" not in found(f"tp: 4, kv_replication: 1, {framework}")


def test_megatron_says_that_it_copies(found):
    note = found("tp: 8, framework: megatron")["heads/kv-copied"]
    assert note.numbers == {"kv_heads": 4, "tp": 8, "ranks_of_a_head": 2}
    assert "before 0.16" in note.message
    assert "heads/kv-copied" not in found("tp: 4, framework: megatron")
    old = found("tp: 8, framework: megatron, framework_version: megatron-core 0.15.0")
    assert "heads/kv-copied" not in old
    assert "0.16 on copies KV heads itself" in old["heads/kv-divide-tp"].message
