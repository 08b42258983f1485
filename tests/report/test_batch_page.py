"""``batch``: words and origins of what follows."""

from __future__ import annotations

import pytest

from meshwright.chain.batch_of_job import BatchPage, batch_page
from meshwright.chain.jobfile import load_job
from meshwright.report.batch_report import batch_json, batch_text


@pytest.fixture
def page(tmp_path):
    def one(layout: str, batch: str, training: str = "") -> BatchPage:
        path = tmp_path / "job.yaml"
        path.write_text(
            f"model: llama3-8b\nlayout: {{{layout}}}\nbatch: {{{batch}, seq_len: 4096}}\n"
            f"training: {{{training}}}\n"
        )
        return batch_page(load_job(str(path)))

    return one


@pytest.mark.parametrize(
    ("layout", "batch", "warmup", "first"),
    [
        ("pp: 4, dp: 2", "micro_batch: 1, num_microbatches: 16", [3, 2, 1, 0], [4, 3, 2, 1]),
        # two microbatches are all there are
        ("pp: 4, dp: 2", "micro_batch: 1, num_microbatches: 2", [2, 2, 1, 0], [2, 2, 2, 1]),
        # interleaved: 2 (p - 1 - r) + (v - 1) p, one forward more before a backward
        ("pp: 2, vp: 2, dp: 2", "micro_batch: 1, num_microbatches: 8", [4, 2], [5, 3]),
    ],
)
def test_warm_up_and_forwards_before_the_first_backward(page, layout, batch, warmup, first):
    made = page(layout, batch)
    document = batch_json(made)
    assert document["warmup"] == warmup
    assert document["forwards_before_first_backward"] == first
    text = " ".join(batch_text(made).split())
    assert f"warm-up forwards {', '.join(map(str, warmup))};" in text
    assert f"the first backward {', '.join(map(str, first))}." in text


def test_what_is_given_is_printed_as_given(page):
    made = page("dp: 8, framework: deepspeed", "micro_batch: 2, grad_accum: 16")
    document = batch_json(made)
    assert (document["grad_accum"], document["origin"]["grad_accum"]) == (16, "stated")
    assert (document["num_microbatches"], document["origin"]["num_microbatches"]) == (
        16,
        "modelled",
    )
    assert document["global_batch"] == 256
    assert "microbatches of a replica in a step" in batch_text(made)


def test_a_pipeline_of_given_accumulation_has_other_micro_batches(page):
    made = page("pp: 2, dp: 8", "micro_batch: 2, grad_accum: 16")
    assert {one.micro_batch: one.num_microbatches for one in made.trade_offs} == {
        1: 32, 2: 16, 4: 8, 8: 4, 16: 2, 32: 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "origins"),
    [
        ("dp: 8, framework: torchtitan", {"micro_batch": "modelled", "grad_accum": "modelled"}),
        ("dp: 8, pp: 2, framework: torchtitan", {"micro_batch": "assumed", "grad_accum": "modelled"}),
        ("dp: 8, framework: torch", {"micro_batch": "assumed", "grad_accum": "modelled"}),
    ],
)  # fmt: skip
def test_defaults_of_a_framework_are_assumed(page, layout, origins):
    document = batch_json(page(layout, "local_batch: 4, global_batch: 64"))
    assert document["grad_accum"] == 2
    assert {name: document["origin"][name] for name in origins} == origins


def test_the_table_says_what_the_factor_is_of(page):
    text = batch_text(page("tp: 2, cp: 2, dp: 2, sequence_parallel: true", "global_batch: 8"))
    [row] = [line for line in text.splitlines() if line.startswith("seq_len factor")]
    assert "seq_len must be a multiple of it" in row
    assert row.split()[2] == "4"  # 2 cp pieces, each over tp
