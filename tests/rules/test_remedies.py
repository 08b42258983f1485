"""Every remedy that can be pasted works: its finding goes, and with one mistake the job then passes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from meshwright.chain.jobfile import Job, load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.chain.outlined import Outline
from meshwright.chain.plan import place_ranks
from meshwright.errors import InputError
from meshwright.findings import Finding, Severity
from remedies import alternatives, applied

Section = dict[str, object]
_LONG = {"micro_batch": 1, "seq_len": 8192}
_SHORT = {"global_batch": 64, "micro_batch": 1, "seq_len": 4096}
_MEGATRON = {"framework": "megatron", "sharding": "zero1"}
BASES: list[tuple[str, str | None, Section, Section, Section, Section]] = [
    ("llama3-8b", "dgx-h100 x 8", _MEGATRON | {"tp": 4, "pp": 2, "sequence_parallel": "true"},
     _LONG | {"global_batch": 64}, {"precision": "bf16"}, {}),
    ("llama3-70b", "dgx-h100 x 8", _MEGATRON | {"tp": 8, "pp": 4, "vp": 5, "dp": 2, "sequence_parallel": "true"},
     _LONG | {"global_batch": 64}, {"precision": "fp8", "recompute": "full"}, {}),
    ("mixtral-8x7b", "dgx-h100 x 4", _MEGATRON | {"tp": 2, "pp": 2, "ep": 4, "etp": 1}, _SHORT,
     {"recompute": "full"}, {"dispatcher": "alltoall"}),
    ("deepseek-v3", "gb200-nvl72 x 36",
     _MEGATRON | {"pp": 4, "ep": 4, "dp": 36, "stages": "[16, 15, 15, 15]"},
     _SHORT | {"global_batch": 1152}, {"precision": "mxfp8", "recompute": "full"}, {"dispatcher": "hybridep"}),
    ("llama3-8b", None, {"tp": 2, "cp": 2, "dp": 4, "sharding": "hsdp", "shard_degree": 2, "framework": "torchtitan"},
     {"local_batch": 2, "global_batch": 16, "seq_len": 8192}, {}, {}),
    ("llama3-8b", "dgx-h100 x 2", {"dp": 4, "pp": 4, "sharding": "fsdp", "framework": "torch"},
     _LONG | {"local_batch": 8, "global_batch": 64}, {"schedule": "1f1b"}, {}),
    ("llama3-8b", "dgx-h100 x 2", {"tp": 2, "pp": 2, "sharding": "zero1", "framework": "deepspeed"}, _SHORT, {}, {}),
    ("mixtral-8x7b", "dgx-h100 x 4", {"tp": 2, "ep": 4, "sharding": "zero2", "framework": "deepspeed"}, _SHORT, {}, {}),
    ("llama3-8b", "dgx-h100 x 2", {"tp": 2, "pp": 2, "dp": 4, "framework": "nanotron"}, _SHORT, {}, {}),
    ("llama3-8b", "dgx-h100 x 2", {"tp": 2, "num_slices": 2, "framework": "maxtext"}, _SHORT, {}, {}),
]  # fmt: skip
"""Legal jobs: model, cluster, layout, batch, training, moe."""
_VALUES: dict[str, list[object]] = {
    **{f"layout.{key}": [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64]
       for key in ("tp", "pp", "cp", "dp", "ep", "etp", "vp")},
    "layout.sharding": ["none", "zero1", "zero2", "zero3", "fsdp", "hsdp", "HYBRID_SHARD"],
    "layout.order": ["tp-foo-pp", "dp-tp-pp", "pp-tp-dp", "tp-cp-ep-pp-dp", "tp-dp", "ep-tp-cp-dp-pp"],
    "layout.shard_degree": [2, 3, 5, 16],
    "layout.world_size": [16, 24, 30, 36, 48, 65, 512],
    "layout.distributed_optimizer_instances": [2, 3, 5],
    "layout.first_stage_layers": [1, 5, 9, 40],
    "layout.stages": ["[8, 8, 8]"],
    "layout.cp_kind": ["a2a"],
    "layout.zero_hpz_partition_size": [3, 8],
    "layout.mp_mode": ["tp", "sp"],
    "layout.hierarchical_cp": ["[2, 3]"],
    "layout.num_slices": [3],
    **{f"batch.{key}": [1, 2, 3, 5, 6, 7, 8, 12, 20, 63, 64, 100]
       for key in ("global_batch", "micro_batch", "num_microbatches", "local_batch", "grad_accum")},
    "batch.seq_len": [1000, 4104, 8191, 8200, 8224],
    "training.precision": ["fp8", "mxfp8", "nvfp4"],
    "training.schedule": ["interleaved", "zb-v", "dualpipe", "dualpipev", "gpipe", "zb-h1", "looped-bfs"],
    "training.overlap_p2p": ["false"],
    "moe.dispatcher": ["deepep", "hybridep", "allgather"],
    "moe.pad_to_capacity": ["true"],
    "moe.overlap": ["shared_expert"],
}  # fmt: skip
MISTAKES = [(key, value) for key, values in _VALUES.items() for value in values]
_EACH, _TWICE = 18, 6
"""Jobs of each base with one mistake, and with two."""


def _judged(job: Job) -> Outline:
    outline = outline_job(job)
    placement = None
    if outline.is_legal and outline.fabric is not None:
        placement = place_ranks(outline, outline.fabric)
    judge(outline, placement)
    return outline


def _errors(outline: Outline) -> set[str]:
    """Return the errors but those of memory, which are counted only where nothing else is wrong."""
    return {
        one.rule
        for one in outline.findings
        if one.severity is Severity.ERROR and not one.rule.startswith("memory/")
    }


def _count(outline: Outline, rule: str) -> int:
    return sum(one.rule == rule for one in outline.findings)


def _flow(keys: Section) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in keys.items()) + "}"


def _text(base: int, mistakes: list[tuple[str, object]]) -> str:
    model, cluster, *sections = BASES[base]
    names = ("layout", "batch", "training", "moe")
    keys = {name: dict(section) for name, section in zip(names, sections, strict=True)}
    for key, value in mistakes:
        name, _, one = key.partition(".")
        keys[name][one] = value
    lines = [f"model: {model}", *([f"cluster: {cluster}"] if cluster else [])]
    return "\n".join(lines + [f"{name}: {_flow(section)}" for name, section in keys.items()]) + "\n"


def _try_all(job: Job, before: Outline, finding: Finding) -> list[set[str]]:
    """Apply every alternative; return the new errors of each. The finding must be gone each time."""
    found = []
    for changes in alternatives(finding.remedy or ""):
        after = _judged(applied(job, changes))
        assert _count(after, finding.rule) < _count(before, finding.rule), (finding, changes)
        found.append(_errors(after) - _errors(before))
    return found


@pytest.mark.parametrize("base", range(len(BASES)))
def test_the_bases_are_legal(tmp_path: Path, base: int):
    path = tmp_path / "job.yaml"
    path.write_text(_text(base, []))
    assert _errors(_judged(load_job(path))) == set()


@pytest.mark.parametrize("base", range(len(BASES)))
def test_what_a_remedy_says_works(tmp_path: Path, base: int):
    chosen = random.Random(base)
    mistakes = [[one] for one in chosen.sample(MISTAKES, _EACH)]
    mistakes += [chosen.sample(MISTAKES, 2) for _ in range(_TWICE)]
    path, tried = tmp_path / "job.yaml", 0
    for both in mistakes:
        path.write_text(_text(base, both))
        try:
            job = load_job(path)
            before = _judged(job)
        except InputError:
            continue
        for finding in before.findings:
            if finding.severity is Severity.NOTE or finding.rule.startswith("memory/"):
                continue
            new = _try_all(job, before, finding)
            tried += len(new)
            alone = len(both) == 1 and _errors(before) == {finding.rule}
            if alone and new:
                assert any(not one for one in new), (both, finding.message, finding.remedy, new)
    assert tried > 10, "too few remedies were tried to say anything"


@pytest.fixture
def found(tmp_path: Path):
    """Return the first finding of a rule in a job."""

    def one(text: str, rule: str) -> Finding:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        job = load_job(path)
        outline = _judged(job)
        finding = next(one for one in outline.findings if one.rule == rule)
        assert all(not new for new in _try_all(job, outline, finding))
        return finding

    return one


B1 = "{global_batch: 64, micro_batch: 2, num_microbatches: 20}\n"
M70 = "model: llama3-70b\ncluster: dgx-h100 x 8\n"
V3 = "model: deepseek-v3\n"


@pytest.mark.parametrize(
    ("text", "rule", "remedy"),
    [
        ("layout: {tp: 2, dp: 8, pp: 2, framework: megatron}\nbatch: " + B1,
         "batch/contradiction", "global_batch: 320, or num_microbatches: 4"),
        (M70 + "layout: {tp: 8, pp: 4, vp: 3, framework: megatron}\nbatch: {global_batch: 64, micro_batch: 1}\n",
         "pipeline/layers-divide", "vp: 1, 2, 4, 5, 10, 20"),
        (V3 + "layout: {world_size: 144, pp: 4, ep: 32, stages: [16, 15, 15, 15], framework: megatron}\n",
         "grid/world-divides-expert", "ep: 1, 2, 4"),
        (V3 + "cluster: dgx-h100 x 32\nlayout: {pp: 16, framework: megatron}\n",
         "pipeline/layers-divide",
         "pp: 1, or an uneven stage map: stages: [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3]"),
        ("layout: {tp: 8, dp: 2, pp: 2, order: tp-foo-pp, framework: megatron}\n",
         "grid/order-missing-axis", "order: tp-dp-pp, or the place where dp belongs"),
        (M70 + "layout: {tp: 8, pp: 4, vp: 5, framework: megatron}\nbatch: {global_batch: 12, micro_batch: 1}\n",
         "pipeline/interleaved-microbatches", "global_batch: 8 or 16"),
        ("cluster: dgx-h100 x 2\nlayout: {tp: 4, dp: 6, framework: megatron}\n",
         "grid/world-fits-cluster", "dp: 4, or cluster: dgx-h100 x 3"),
        ("cluster: dgx-h100 x 8\nlayout: {ici: {fsdp: 4, tensor: 2}, dcn: {data: -1}, framework: maxtext}\n",
         "maxtext/mesh-product",
         "num_slices: 8 (on GPUs a slice is what NVLink joins: here a host of 8), or sizes with a product of 64"),
        (M70 + "layout: {tp: 8, pp: 2, dp: 4, sharding: zero3, framework: deepspeed}\n",
         "deepspeed/zero-with-pipeline", "sharding: zero1; or pp: 1 and dp: 8"),
        (V3 + "layout: {ep: 15, dp: 120, framework: megatron}\nmoe: {dispatcher: deepep}\n",
         "dispatcher/deepep-whole-hosts", "ep: 8, 24"),
    ],
)  # fmt: skip
def test_remedies_seen_wrong_before(found, text, rule, remedy):
    assert found(text, rule).remedy == remedy


def test_a_remedy_is_read_as_a_user_reads_it():
    assert alternatives("tp: 1, 2; or world_size: 6 or 9") == [
        {"layout.tp": 1},
        {"layout.tp": 2},
        {"layout.world_size": 6},
        {"layout.world_size": 9},
    ]
    assert alternatives("sharding: zero1; or pp: 1 and dp: 8") == [
        {"layout.sharding": "zero1"},
        {"layout.pp": 1, "layout.dp": 8},
    ]
    assert alternatives("moe: {capacity_factor: 1.0}") == [{"moe.capacity_factor": 1.0}]
    assert alternatives("vp: 2, or schedule: 1f1b") == [
        {"layout.vp": 2},
        {"training.schedule": "1f1b"},
    ]
    assert alternatives("leave dp and world_size out") == [
        {"layout.dp": None, "layout.world_size": None}
    ]
    assert alternatives("a smaller layout, or cluster: dgx-h100 x 27") == [
        {"cluster": "dgx-h100 x 27"}
    ]
