"""``meshwright memory``: will it fit, and what would make it fit?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from meshwright.cli.output import finish, json_option, print_json, print_text

if TYPE_CHECKING:
    from meshwright.chain.outlined import Outline
    from meshwright.memory.constants import Constants
    from meshwright.report.memory_report import MemoryPage


@click.command(
    "memory",
    short_help="Memory by stage: what dominates, does it fit, cheapest fix.",
    epilog="""\b
Example: Llama-3-8B with TP 4 x DP 4 on two DGX H100 (examples/ of the repository):
  $ meshwright memory examples/llama3-8b-16gpu.yaml
  Worst rank: stage 0, 31.97 GiB of 79.65 GiB (H100 SXM 80G): it fits.

\b
Measured sizes without a job:
  $ meshwright memory --live "73.15 GiB" --part "state=17.5 GB" \\
      --part "activations=52 GB" --capacity "79.11 GiB" --micro-batch 4
  $ meshwright memory --schedule 1f1b --peak "8=35.9 GiB" \\
      --peak "16=45.2 GiB" --peak 32=OOM""",
)
@click.argument("job", type=click.Path(path_type=str), required=False)
@json_option
@click.option(
    "--like",
    type=click.Choice(["megatron-estimator", "korthikanti"]),
    help="Also what Megatron-LM's own estimator prints, or the paper behind it, gaps included.",
)
@click.option("--gpu", help="The GPU it must fit, by name, instead of the cluster's.")
@click.option("--capacity", help="Memory of the GPU, such as '79.11 GiB'.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Set a constant.")
@click.option("--live", help="A measured live size; its parts with --part.")
@click.option("--part", "parts", multiple=True, metavar="NAME=SIZE", help="A part of --live.")
@click.option("--micro-batch", type=click.IntRange(min=1), help="Micro-batch of the measured run.")
@click.option(
    "--peak",
    "peaks",
    multiple=True,
    metavar="M=SIZE",
    help="A measured peak with M microbatches (SIZE may be OOM), the global batch fixed.",
)
@click.option("--schedule", help="Pipeline schedule of the measured peaks.")
@click.option(
    "--first-collective",
    nargs=2,
    metavar="BEFORE AFTER",
    help="What the device shows before and after the first all-to-all.",
)
def command(job: str | None, *, as_json: bool, **options: Any) -> None:
    """Count the memory of every pipeline stage of JOB and compare the worst rank with its GPU.

    JOB is a YAML, JSON or TOML file. Weights, gradients, optimizer, activations at their peak,
    communicators, context and fragmentation; every constant is named and can be set.
    """
    from meshwright.cli.memory_measured import measured_page
    from meshwright.report.memory_report import memory_json, memory_text

    page = measured_page(options) if job is None else _page_of_job(job, options)
    if as_json:
        print_json(memory_json(page))
    else:
        print_text(memory_text(page))
    finish(page.findings)


def _page_of_job(path: str, options: dict[str, Any]) -> MemoryPage:
    from meshwright.chain.jobfile import load_job
    from meshwright.chain.kinds_of_job import add_training_kinds
    from meshwright.chain.outline import outline_job
    from meshwright.cli.memory_measured import pairs_of, size_of
    from meshwright.memory.constants import constants_with
    from meshwright.report.memory_report import MemoryPage
    from meshwright.rules.told import unused_notes

    constants = constants_with(dict(pairs_of("--set", options["changes"])))
    outline = outline_job(load_job(path))
    add_training_kinds(outline)
    if outline.is_legal and outline.job.file.groups is None:
        outline.findings += unused_notes(outline.layout, outline.num_gpus, outline.job.place)
    capacity = None if options["capacity"] is None else size_of("--capacity", options["capacity"])
    if not _is_countable(outline):
        return MemoryPage(outline.job.name, None, outline.findings, capacity_bytes=capacity)
    return _counted_page(outline, options, constants, capacity)


def _is_countable(outline: Outline) -> bool:
    """Tell whether stages and degrees are known; raises ``InputError`` without a model."""
    from meshwright.chain.plan import workload_of
    from meshwright.errors import InputError, Problem
    from meshwright.findings import has_errors

    if outline.model is None:
        message = "the job names no model, so there is nothing to count"
        raise InputError(Problem(outline.job.place("model"), message, remedy="model: llama3-8b"))
    layout = outline.layout
    degrees = (layout.tp, layout.cp, layout.pp, layout.dp, layout.ep, layout.etp, layout.edp)
    return (
        min(degrees) > 0 and not has_errors(outline.findings) and workload_of(outline) is not None
    )


def _counted_page(
    outline: Outline, options: dict[str, Any], constants: Constants, capacity: float | None
) -> MemoryPage:
    from meshwright.chain.context import trying
    from meshwright.chain.plan import workload_of
    from meshwright.cli.memory_measured import measured_beside
    from meshwright.errors import UsageError
    from meshwright.memory.communicators import communicators
    from meshwright.memory.device import device_of, domain_gpus
    from meshwright.memory.fixes import fixes
    from meshwright.memory.job import job_memory
    from meshwright.memory.korthikanti import paper_rows
    from meshwright.memory.megatron_estimator import megatron_estimate
    from meshwright.report.memory_report import MemoryPage
    from meshwright.rules.memory import check_memory, lawful_fixes
    from meshwright.rules.told_defaults import narrow_format_notes
    from meshwright.traffic.job import modelled_collectives

    work = workload_of(outline)
    assert work is not None
    fabric = outline.fabric
    said = modelled_collectives(work) if outline.kinds else []
    held = communicators(outline.kinds, said, domain_gpus(fabric), constants)
    device = device_of(fabric, options["gpu"], capacity)
    memory = job_memory(work, device, constants, held)
    context = trying(outline)
    better = lawful_fixes(fixes(memory), context)
    findings = [*outline.findings, *check_memory(memory, better, context)]
    findings += narrow_format_notes(outline.job.file.training, outline.job.place)
    like = options["like"]
    if like is not None and memory.peak is None:
        needs = ", ".join(memory.missing) or "layers of attention alone"
        raise UsageError(f"--like {like} needs {needs} in the job")
    measured, more = measured_beside(options, held)
    return MemoryPage(
        outline.job.name,
        memory,
        [*findings, *more],
        better,
        megatron_estimate(work) if like == "megatron-estimator" else None,
        measured,
        paper=paper_rows(work) if like == "korthikanti" else (),
    )
