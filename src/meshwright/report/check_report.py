"""The answer of ``check``: valid or not, every rule that fails, and legal layouts nearby."""

from __future__ import annotations

from typing import Any

from meshwright.chain.nearest import NearLayout
from meshwright.chain.outline import Outline
from meshwright.findings import Severity, by_severity
from meshwright.origin import Origin
from meshwright.report.map_text import degrees_text
from meshwright.report.text import counted, findings_text, paragraph
from meshwright.units import format_count

SCHEMA = "meshwright/check/1"
_NOT_CHECKED = (
    "heads",
    "vocabulary",
    "sequence length",
    "interleaving by microbatches",
    "dispatchers and kernels",
    "memory",
)


def check_json(outline: Outline, nearest: list[NearLayout]) -> dict[str, Any]:
    """Return the document of ``check --json``."""
    return {
        "schema": SCHEMA,
        "job": outline.job.name,
        "world_size": outline.layout.world_size,
        "valid": outline.is_legal,
        "checked": ["grid", "layers by stage", "experts by ep", "batch"],
        "not_checked": list(_NOT_CHECKED),
        "nearest": [one.degrees for one in nearest],
        "findings": [finding.to_json() for finding in by_severity(outline.findings)],
        "origin": {"valid": Origin.MODELLED.value, "nearest": Origin.MODELLED.value},
    }


def check_text(outline: Outline, nearest: list[NearLayout]) -> str:
    """Return the page of ``check``."""
    layout = outline.layout
    verdict = "this layout forms its groups" if outline.is_legal else "this layout will not run"
    parts = [
        paragraph(f"{counted(outline.findings)}: {verdict} on {layout.framework_version}"),
        paragraph(
            f"{outline.job.name}: {format_count(layout.world_size)} ranks, {degrees_text(layout)}, "
            f"order {'-'.join(layout.order)}"
        ),
    ]
    text = findings_text(outline.findings, *Severity)
    parts += [text] if text else []
    if nearest:
        parts.append(
            paragraph(
                "nearest layouts that pass these rules: " + " · ".join(one.text for one in nearest)
            )
        )
    parts.append(
        paragraph(
            "Checked: the rank grid, layers by stage, experts by ep, batch. Not checked yet: "
            f"{', '.join(_NOT_CHECKED)}."
        )
    )
    return "\n\n".join(parts)
