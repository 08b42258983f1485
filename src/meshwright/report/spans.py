"""Spans as the interface prints them, and classes of groups with equal spans."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.report.distinct import distinct_rows
from meshwright.routes.axis import AxisRoute
from meshwright.routes.spans import Span

LISTED_GROUPS = 16


def span_json(span: Span) -> dict[str, Any]:
    """Return one tier's span over all groups: each figure as [least, most]."""
    return {
        "domains": _ends(span.domains),
        "members": [int(span.members_min.min()), int(span.members_max.max())],
        "crossings": _ends(span.crossings),
        "groups_crossing": span.groups_crossing,
        "groups_per_domain": span.groups_per_domain,
    }


def _ends(values: Any) -> list[int]:
    return [int(values.min()), int(values.max())]


def span_classes(route: AxisRoute) -> list[dict[str, Any]]:
    """Return groups of equal spans as classes, the largest first.

    Each class lists its groups (up to 16) and its figures by tier, so that outliers stand alone.
    """
    columns = [
        column
        for span in route.spans
        for column in (span.domains, span.members_min, span.members_max, span.crossings)
    ]
    first, where, counts = distinct_rows(columns)
    classes = []
    for index in np.argsort(-counts, kind="stable").tolist():
        groups = np.flatnonzero(where == index)[:LISTED_GROUPS].tolist()
        figures = [int(column[first[index]]) for column in columns]
        by_tier = {
            span.tier: {
                "domains": figures[4 * position],
                "members": figures[4 * position + 1 : 4 * position + 3],
                "crossings": figures[4 * position + 3],
            }
            for position, span in enumerate(route.spans)
        }
        reach = reach_text(by_tier)
        classes.append(
            {"count": int(counts[index]), "groups": groups, "reach": reach, "span": by_tier}
        )
    return sorted(classes, key=lambda one: (-one["count"], one["groups"][0]))


def reach_text(span: dict[str, dict[str, Any]]) -> str:
    """Return how far a group's ring goes: ``gpu``, ``host``, ``nvlink_domain``, ``leaf``, ``spine`` or ``core``.

    ``leaf``: it leaves its NVLink island and stays under its leaves; ``spine``: an edge leaves a
    leaf; ``core``: an edge leaves a pod; ``none``: no path joins its fabrics. ``network`` where the
    switches are unknown.
    """

    def crossings(tier: str) -> int:
        return int(span[tier]["crossings"]) if tier in span else 0

    if span["gpu"]["domains"] == 1:
        return "gpu"
    if span["host"]["domains"] == 1:
        return "host"
    if "nvlink_domain" in span and span["nvlink_domain"]["domains"] == 1:
        return "nvlink_domain"
    if "leaf" not in span:
        return "network"
    if crossings("fabric"):
        return "none"
    if crossings("pod"):
        return "core"
    return "spine" if crossings("leaf") else "leaf"
