"""The answer of ``check``: valid or not, every rule that fails, and legal layouts nearby."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshwright.chain.judge import Judgement
from meshwright.chain.nearest import Nearest, NearLayout
from meshwright.chain.outlined import Outline
from meshwright.findings import Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.map_text import degrees_text
from meshwright.report.text import counted, findings_text, if_sensible, paragraph
from meshwright.units import format_count

SCHEMA = "meshwright/check/1"
_LISTED_STAGES = 64


def check_json(outline: Outline, judgement: Judgement, nearest: Nearest) -> dict[str, Any]:
    """Return the document of ``check --json``."""
    return {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": if_sensible(outline.layout.world_size),
        "framework_version": outline.layout.framework_version,
        "valid": outline.is_legal,
        "checked": list(judgement.checked),
        "not_checked": list(judgement.not_checked),
        "stages": None if judgement.stages is None else list(judgement.stages),
        "stages_from": None if judgement.stages is None else _divided(outline, judgement.stages),
        "nearest": [one.degrees for one in nearest.layouts],
        "nearest_warnings": [list(one.warnings) for one in nearest.layouts],
        "not_cured_by_degrees": list(nearest.stays),
        "findings": [finding.to_json() for finding in by_severity(outline.findings)],
        "origin": {
            "valid": Origin.MODELLED.value,
            "nearest": Origin.MODELLED.value,
            "stages": Origin.MODELLED.value,
        },
    }


def check_text(outline: Outline, judgement: Judgement, nearest: Nearest) -> str:
    """Return the page of ``check``."""
    layout = outline.layout
    verdict = "this layout passes" if outline.is_legal else "this layout will not run"
    parts = [
        paragraph(f"{counted(outline.findings)}: {verdict} on {layout.framework_version}"),
        paragraph(
            f"{outline.job.name}: {format_count(layout.world_size)} ranks, {degrees_text(layout)}, "
            f"order {'-'.join(layout.order)}"
        ),
    ]
    text = findings_text(outline.findings, *Severity)
    parts += [text] if text else []
    if judgement.stages is not None and 1 < len(judgement.stages) <= _LISTED_STAGES:
        listed = ", ".join(map(str, judgement.stages))
        parts.append(
            paragraph(f"Layers by stage: {listed}; {_divided(outline, judgement.stages)}.")
        )
    if not outline.is_legal:
        parts += [paragraph(text) for text in _nearest_text(outline, nearest)]
    checked = f"Checked: {', '.join(judgement.checked)}."
    if judgement.not_checked:
        checked += f" Not checked: {', '.join(judgement.not_checked)}."
    parts.append(paragraph(checked))
    return "\n\n".join(parts)


def _divided(outline: Outline, stages: Sequence[int]) -> str:
    """Return the arithmetic by which the layers went to the stages."""
    layout, total = outline.layout, sum(stages)
    if layout.stages is not None:
        entry = "chunk" if len(layout.stages) > layout.pp else "rank"
        return f"as the stage map says, one entry a {entry}"
    ends = [one for one in (layout.first_stage_layers, layout.last_stage_layers) if one is not None]
    if ends and len(stages) > len(ends):
        less = "".join(f" - {one}" for one in ends)
        between = stages[1] if layout.first_stage_layers is not None else stages[0]
        return f"the others ({total}{less}) / ({layout.pp} - {len(ends)}) = {between} each"
    if ends:
        return "the ends as given"
    chunks = layout.pp * layout.vp
    of = f"{layout.pp}" if layout.vp == 1 else f"({layout.pp} × {layout.vp})"
    if layout.framework == "torchtitan" and chunks > 1:
        each, over = divmod(total + 2, chunks)
        rest = f", {over} over, which the first stages take" if over else ""
        return f"torchtitan counts embedding and output as a layer each: ({total} + 2) / {of} = {each}{rest}"
    return f"{total} / {of} = {total // chunks} a {'stage' if layout.vp == 1 else 'chunk'}"


def _nearest_text(outline: Outline, nearest: Nearest) -> list[str]:
    """Return the layouts nearby with their warnings, or why there is none."""
    fewer = 0 < nearest.world_size < outline.layout.world_size
    where = f" on the {format_count(nearest.world_size)} GPUs of the cluster" if fewer else ""
    if nearest.layouts:
        listed = " · ".join(_one_near(one) for one in nearest.layouts)
        return [f"Nearest layouts that pass every rule{where}: {listed}"]
    if nearest.stays:
        listed = ", ".join(nearest.stays)
        what = f"No change of one or two degrees{where} cures {listed}"
        return [f"{what}: the remedy stands with the finding."]
    if nearest.too_large:
        what = f"The {nearest.too_large} nearest layouts that pass every other rule{where}"
        return [f"{what} do not fit the memory."]
    ranks = where or " on as many ranks"
    return [
        f"No layout with at most two degrees changed passes{ranks}; the remedies stand with the findings."
    ]


def _one_near(one: NearLayout) -> str:
    return f"{one.text} (warning: {', '.join(one.warnings)})" if one.warnings else one.text
