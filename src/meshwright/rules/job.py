"""Rules that need the model or the batch beside the layout."""

from __future__ import annotations

from meshwright.findings import Finding, Severity
from meshwright.job.batch import Batch
from meshwright.job.layout import Layout
from meshwright.job.model import Model
from meshwright.job.stages import layers_by_stage
from meshwright.rules.arithmetic import divisors, nearest_divisors, shown_list
from meshwright.rules.registry import RuleContext

_MOST_STAGES = 64
"""More stages than this are not proposed."""


def check_job_rules(context: RuleContext, model: Model | None, batch: Batch) -> list[Finding]:
    """Return the findings on layers by stage and on the batch."""
    layout = context.layout
    findings: list[Finding] = []
    if model is not None and layout.pp >= 1 and layout.vp >= 1:
        findings += _layers(context, model)
    if model is not None and layout.ep > 1:
        findings += _experts(context, model)
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


def _experts(context: RuleContext, model: Model) -> list[Finding]:
    """Experts are divided evenly over ep; a model without experts has nothing to divide."""
    ep = context.layout.ep
    if model.experts and model.experts % ep == 0:
        return []
    if not model.experts:
        message, remedy = f"ep {ep}, and {model.name} has no experts.", "leave ep out"
    else:
        message = f"{model.experts} experts over ep {ep} leave {model.experts % ep} over."
        remedy = f"ep: {nearest_divisors(model.experts, ep)}"
    return [
        Finding(
            "experts/divide-ep",
            Severity.ERROR,
            context.place("layout.ep"),
            message,
            {"experts": model.experts, "ep": ep},
            remedy,
        )
    ]


def _layers(context: RuleContext, model: Model) -> list[Finding]:
    layout = context.layout
    if layers_by_stage(layout, model.num_layers) is not None:
        return []
    key = "stages" if layout.stages is not None else next(iter(_fixed_ends(layout)), "pp")
    return [
        Finding(
            "pipeline/layers-divide",
            Severity.ERROR,
            context.place(f"layout.{key}"),
            _why_layers(context, model.num_layers),
            {"layers": model.num_layers, "pp": layout.pp, "vp": layout.vp},
            _layers_remedy(context, model.num_layers),
        )
    ]


def _fixed_ends(layout: Layout) -> dict[str, int]:
    """Return the layers of the first and last stage, where they are given."""
    ends = {
        "first_stage_layers": layout.first_stage_layers,
        "last_stage_layers": layout.last_stage_layers,
    }
    return {name: layers for name, layers in ends.items() if layers is not None}


def _why_layers(context: RuleContext, num_layers: int) -> str:
    layout = context.layout
    if layout.stages is not None:
        return (
            f"stages {shown_list(layout.stages)} hold {sum(layout.stages)} layers on {len(layout.stages)} "
            f"stages; the model has {num_layers} layers and pp is {layout.pp}."
        )
    if ends := _fixed_ends(layout):
        listed = " and ".join(f"{name} {layers}" for name, layers in ends.items())
        free = max(layout.pp - len(ends), 0)
        chunks_of = f" into {layout.vp} equal chunks a stage" if layout.vp > 1 else " evenly"
        return (
            f"{listed} of {num_layers} layers leave {num_layers - sum(ends.values())} for {free} of "
            f"{layout.pp} stages, which does not divide{chunks_of}."
        )
    chunks = layout.pp * layout.vp
    interleaved = f" × {layout.vp} chunks" if layout.vp > 1 else ""
    return (
        f"{num_layers} layers over {layout.pp} stages{interleaved} leave {num_layers % chunks} over "
        f"({num_layers} = {chunks} × {num_layers // chunks} + {num_layers % chunks})."
    )


def _layers_remedy(context: RuleContext, num_layers: int) -> str:
    layout = context.layout
    legal = [value for value in divisors(num_layers) if value <= _MOST_STAGES]
    remedy = f"pp {', '.join(map(str, legal))}"
    if layout.pp <= min(_MOST_STAGES, num_layers) and layout.vp == 1:
        even, more = divmod(num_layers, layout.pp)
        uneven = [even] * (layout.pp - more) + [even + 1] * more
        remedy += f", or an uneven stage map: stages: {uneven}"
    return remedy
