"""Rules that need the model or the batch beside the layout."""

from __future__ import annotations

from meshwright.findings import Finding, Severity
from meshwright.job.batch import Batch
from meshwright.job.model import Model
from meshwright.job.stages import layers_by_stage
from meshwright.rules.grid import divisors
from meshwright.rules.registry import RuleContext


def check_job_rules(context: RuleContext, model: Model | None, batch: Batch) -> list[Finding]:
    """Return the findings on layers by stage and on the batch."""
    layout = context.layout
    findings: list[Finding] = []
    if model is not None and layout.pp >= 1 and layout.vp >= 1:
        findings += _layers(context, model)
    if batch.contradiction is not None and layout.dp > 0:
        findings.append(
            Finding(
                "batch/contradiction",
                Severity.ERROR,
                context.place("batch"),
                f"{batch.contradiction} (dp {layout.dp}).",
                {"dp": layout.dp},
                "global_batch = micro_batch × num_microbatches × dp: leave one of them out",
            )
        )
    return findings


def _layers(context: RuleContext, model: Model) -> list[Finding]:
    layout = context.layout
    if layers_by_stage(layout, model.num_layers) is not None:
        return []
    chunks = layout.pp * layout.vp
    if layout.stages is not None:
        key, message = (
            "layout.stages",
            f"stages {list(layout.stages)} hold {sum(layout.stages)} layers on {len(layout.stages)} stages; "
            f"the model has {model.num_layers} layers and pp is {layout.pp}.",
        )
    elif layout.first_stage_layers is not None or layout.last_stage_layers is not None:
        ends = {"first_stage_layers": layout.first_stage_layers}
        ends["last_stage_layers"] = layout.last_stage_layers
        given = {name: layers for name, layers in ends.items() if layers is not None}
        key = f"layout.{next(iter(given))}"
        listed = " and ".join(f"{name} {layers}" for name, layers in given.items())
        message = (
            f"{listed} of {model.num_layers} layers leave {model.num_layers - sum(given.values())} "
            f"for {max(layout.pp - len(given), 0)} of {layout.pp} stages, which does not divide"
            + (f" into {layout.vp} equal chunks a stage." if layout.vp > 1 else " evenly.")
        )
    else:
        key = "layout.pp"
        rest = model.num_layers % chunks
        message = (
            f"{model.num_layers} layers over {layout.pp} stages"
            + (f" × {layout.vp} chunks" if layout.vp > 1 else "")
            + f" leave {rest} over ({model.num_layers} = {chunks} × {model.num_layers // chunks} + {rest})."
        )
    legal = [value for value in divisors(model.num_layers) if value <= 64]
    remedy = f"pp {', '.join(map(str, legal))}"
    if layout.pp <= min(32, model.num_layers) and layout.vp == 1:
        even, more = divmod(model.num_layers, layout.pp)
        uneven = [even] * (layout.pp - more) + [even + 1] * more
        remedy += f", or an uneven stage map: stages: {uneven}"
    return [
        Finding(
            "pipeline/layers-divide",
            Severity.ERROR,
            context.place(key),
            message,
            {"layers": model.num_layers, "pp": layout.pp, "vp": layout.vp},
            remedy,
        )
    ]
