"""The answer of ``check``: valid or not, every rule that fails, and legal layouts nearby."""

from __future__ import annotations

from typing import Any

from meshwright.chain.judge import Judgement
from meshwright.chain.nearest import NearLayout
from meshwright.chain.outline import Outline
from meshwright.findings import Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.map_text import degrees_text
from meshwright.report.text import counted, findings_text, paragraph
from meshwright.units import format_count

SCHEMA = "meshwright/check/1"
_LISTED_STAGES = 64


def check_json(outline: Outline, judgement: Judgement, nearest: list[NearLayout]) -> dict[str, Any]:
    """Return the document of ``check --json``."""
    return {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": outline.layout.world_size,
        "framework_version": outline.layout.framework_version,
        "valid": outline.is_legal,
        "checked": list(judgement.checked),
        "not_checked": list(judgement.not_checked),
        "stages": None if judgement.stages is None else list(judgement.stages),
        "nearest": [one.degrees for one in nearest],
        "findings": [finding.to_json() for finding in by_severity(outline.findings)],
        "origin": {
            "valid": Origin.MODELLED.value,
            "nearest": Origin.MODELLED.value,
            "stages": Origin.MODELLED.value,
        },
    }


def check_text(outline: Outline, judgement: Judgement, nearest: list[NearLayout]) -> str:
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
        parts.append(paragraph(f"Layers by stage: {', '.join(map(str, judgement.stages))}."))
    if nearest:
        parts.append(
            paragraph(
                "Nearest layouts that pass every rule: " + " · ".join(one.text for one in nearest)
            )
        )
    elif not outline.is_legal:
        parts.append(
            paragraph("No layout with at most two degrees changed passes on as many ranks.")
        )
    checked = f"Checked: {', '.join(judgement.checked)}."
    if judgement.not_checked:
        checked += f" Not checked: {', '.join(judgement.not_checked)}."
    parts.append(paragraph(checked))
    return "\n\n".join(parts)
