"""Make the memory table of docs/accuracy.md: predicted against measured, row by row.

    python benchmarks/accuracy_memory.py ../shared/data/measured_runs/dev.csv           # print
    python benchmarks/accuracy_memory.py ../shared/data/measured_runs/dev.csv --write   # replace the table

The runs are published measurements of others and are not part of this repository.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meshwright.job.batch import resolve_batch
from meshwright.job.layout import resolve_layout
from meshwright.job.model import Model
from meshwright.job.sections import BatchSection, LayoutSection, MoeSection, TrainingSection
from meshwright.job.stages import layers_by_stage
from meshwright.memory.constants import Constants, constants_with
from meshwright.memory.job import Device, JobMemory, job_memory
from meshwright.traffic.workload import Workload
from meshwright.units import GIB

DOCS = Path(__file__).resolve().parent.parent / "docs" / "accuracy.md"
MARK = "<!-- memory table made by benchmarks/accuracy_memory.py -->"
END = "<!-- end of the memory table -->"
FITTED = ("smx-003", "smx-005", "smx-025", "smx-028", "smx-038")
"""Rows from whose reserved and allocated sizes ``fragmentation_share`` was fitted."""
EXPLAIN_ABOVE = 0.15
TITAN_STAGES = {8: (15, 16, 16, 16, 16, 16, 16, 15)}
"""Layers by stage of 126 layers (torchtitan ``generate_split_points``: the ends get none extra)."""
EXPLAINED: dict[str, str] = {
    "tti-018": "context parallelism grows with cp in the run and not in the model: buffers of ring attention are not counted",
    "tti-011": "vanilla tp took 4.3 GiB more than asynchronous tp (tti-012): the difference is not modelled",
    "tti-013": "7.2 GiB above tti-015 with equal tokens a microbatch: not explained",
}


@dataclass(frozen=True)
class Row:
    """One measured run beside its prediction, GiB."""

    name: str
    source: str
    layout: str
    kind: str
    predicted: float
    measured: float

    @property
    def log_error(self) -> float:
        """Return ln(predicted / measured)."""
        return math.log(self.predicted / self.measured)


def number(row: dict[str, str], key: str, default: int = 1) -> int:
    """Return a column as an int, blank as the default."""
    return int(row[key]) if row[key] else default


def model_of(row: dict[str, str]) -> Model:
    """Return the shape of a row's model."""
    latent = row["attention"].startswith("mla")
    expert = number(row, "experts", 0)
    return Model(
        name=row["model"],
        num_layers=number(row, "layers"),
        hidden=number(row, "hidden"),
        ffn=number(row, "ffn_hidden"),
        heads=number(row, "heads"),
        kv_heads=number(row, "kv_heads"),
        head_dim=192 if latent else number(row, "head_dim"),
        vocab=number(row, "vocab"),
        experts=expert,
        top_k=number(row, "topk", 0),
        moe_ffn=number(row, "moe_ffn_hidden", 0),
        shared_experts=1 if expert else 0,
        shared_ffn_total=number(row, "shared_expert_ffn", 0),
        first_dense_layers=number(row, "dense_first_layers", 0),
        q_lora_rank=1536 if latent else 0,  # as the column ``attention`` prints it
        kv_lora_rank=512 if latent else 0,
        qk_nope_dim=128 if latent else 0,
        qk_rope_dim=64 if latent else 0,
        v_head_dim=128 if latent else 0,
    )


def workload_of(row: dict[str, str]) -> Workload:
    """Return the job of a row, from its columns, flags and the framework's defaults."""
    titan = row["source"] == "torchtitan-bench"
    pp = number(row, "pp")
    interleaved = titan and "interleaved" in row["pp_schedule"]
    section = LayoutSection(
        tp=number(row, "tp"),
        pp=pp,
        cp=number(row, "cp"),
        dp=number(row, "dp"),
        ep=number(row, "ep"),
        etp=number(row, "etp") if row["etp"] else None,
        vp=2 if interleaved else number(row, "vp"),
        cp_kind="a2a" if "all-to-all" in row["other_flags"] else None,
        framework="torchtitan" if titan else "megatron",
        sequence_parallel=row["sequence_parallel"] == "yes",
        sharding="fsdp" if titan else "zero1",
    )
    layout = resolve_layout(section, number(row, "num_gpus"))
    batch = BatchSection(
        micro_batch=number(row, "micro_batch"),
        global_batch=number(row, "global_batch"),
        seq_len=number(row, "seq_len"),
    )
    if titan:  # a step is one local batch, cut into as many microbatches as there are stages
        local = number(row, "global_batch") // number(row, "dp")
        count = pp * layout.vp if pp > 1 else 1
        count = min(count, local)
        batch = BatchSection(
            micro_batch=local // count, num_microbatches=count, seq_len=number(row, "seq_len")
        )
    model = model_of(row)
    layers = layers_by_stage(layout, model.num_layers)
    if layers is None:
        raise ValueError(f"{row['row_id']}: {model.num_layers} layers do not divide over {pp}")
    recompute = row["recompute"] or ("selective" if titan else "none")
    return Workload(
        model=model,
        layout=layout,
        batch=resolve_batch(batch, layout.dp),
        training=TrainingSection(
            precision="bf16",
            recompute=recompute,  # type: ignore[arg-type]
            schedule="interleaved" if interleaved else "1f1b",
        ),
        moe=MoeSection(capacity_factor=1.0, pad_to_capacity=True),  # as the launchers say
        section=section,
        stage_layers=tuple(layers),
    )


def constants_of(row: dict[str, str]) -> Constants:
    """Return the constants that a row's own flags and release decide."""
    changes = {}
    if "cross-entropy fusion" in row["other_flags"]:
        changes["logit_bytes_megatron"] = "2"
    if "202506" in row["source_detail"]:  # torchtitan compiles the loss since early 2025
        changes["logit_bytes_torch"] = "4"
    return constants_with(changes)


def memory_of(row: dict[str, str]) -> JobMemory:
    """Return the predicted memory of a row."""
    return job_memory(workload_of(row), Device(), constants_of(row))


def predicted(row: dict[str, str]) -> Row:
    """Return a row with its prediction of the term it reports."""
    memory = memory_of(row)
    allocated = "max_allocated" in row["memory_kind"]
    size = float(np.max(memory.allocated if allocated else memory.reserved))
    layout = memory.work.layout
    degrees = {"tp": layout.tp, "cp": layout.cp, "pp": layout.pp, "ep": layout.ep, "dp": layout.dp}
    text = " ".join(f"{name} {value}" for name, value in degrees.items() if value > 1)
    count, seq = memory.work.batch.num_microbatches, memory.work.batch.seq_len
    return Row(
        name=row["row_id"],
        source=row["source"],
        layout=f"{row['model']}, {text}, s {seq:,}, m {count}",
        kind="allocated" if allocated else "reserved",
        predicted=size / GIB,
        measured=float(row["memory_gib_per_gpu"]),
    )


def rows(path: Path) -> list[Row]:
    """Return every row that reports memory, but those constants were fitted on."""
    with path.open() as file:
        found = [row for row in csv.DictReader(file) if row["memory_gib_per_gpu"]]
    return [predicted(row) for row in found if row["row_id"] not in FITTED]


def medians(found: list[Row]) -> dict[str, float]:
    """Return the median of abs(log error) by source."""
    sources = dict.fromkeys(row.source for row in found)
    return {
        source: statistics.median(abs(row.log_error) for row in found if row.source == source)
        for source in sources
    }


def table(found: list[Row]) -> str:
    """Return the summary and the table as Markdown."""
    lines = [
        "| source | rows | distinct sizes | median abs(log error) | largest |",
        "|---|---|---|---|---|",
    ]
    for source, middle in medians(found).items():
        mine = [row for row in found if row.source == source]
        largest = max(abs(row.log_error) for row in mine)
        sizes = len({row.measured for row in mine})
        lines.append(f"| {source} | {len(mine)} | {sizes} | {middle:.1%} | {largest:.1%} |")
    lines += ["", "| row | run | term | predicted GiB | measured GiB | log error | remark |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [
        f"| {row.name} | {row.layout} | {row.kind} | {row.predicted:.2f} | {row.measured:.2f} | "
        f"{row.log_error:+.1%} | {EXPLAINED.get(row.name, '')} |"
        for row in found
    ]
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """Return the page with the table replaced."""
    before, _, rest = page.partition(MARK)
    _, _, after = rest.partition(END)
    return f"{before}{MARK}\n\n{text}\n\n{END}{after}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table(rows(options.runs))
    print(text)
    if options.write:
        DOCS.write_text(written(DOCS.read_text(), text))


if __name__ == "__main__":
    main()
