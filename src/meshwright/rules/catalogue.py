"""Every rule id the program can give: registered rules, and findings that arise elsewhere.

``data/rules.json`` holds what the code of a rule does not say: an example of each, and summary,
severity and remedy of findings that no registered rule makes (readers, joins, notes).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import msgspec

from meshwright.data.load import load_records
from meshwright.data.names import near_names
from meshwright.job.layout import ASSUMED_VERSION
from meshwright.rules.grid import GRID_RULES
from meshwright.rules.job import JOB_RULES
from meshwright.rules.registry import Rule

_FILE = "rules.json"
REGISTERED: tuple[Rule, ...] = (*GRID_RULES, *JOB_RULES)
"""Rules that are functions over a layout; those of memory need a job's memory and stand in the file."""


class Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of the file: a finding that no registered rule makes.

    An id that ends in ``*`` stands for a family (``topology/conflict-*``).
    """

    id: str
    severity: str
    summary: str
    remedy: str
    source: str = "meshwright"
    """Where it was seen or read: repo and path, or the thread; else our own judgement."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prefixes: Mapping[str, str]
    findings: tuple[Told, ...]
    examples: Mapping[str, str]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one rule id. ``versions``: the release, or range, the rule was read in."""

    id: str
    severity: str
    summary: str
    source: str
    frameworks: tuple[str, ...]
    """Empty: all."""
    versions: str
    arises: str
    remedy: str | None
    """``None``: made from the numbers of each finding."""
    example: str | None
    """A job that breaks the rule."""


@functools.cache
def _file() -> _File:
    return load_records(_FILE, _File)


@functools.cache
def known_rules() -> tuple[Known, ...]:
    """Return every rule id, sorted."""
    file = _file()
    found = [_of_rule(one, file) for one in REGISTERED]
    found += [_of_finding(one, file) for one in file.findings]
    return tuple(sorted(found, key=lambda one: one.id))


def find_rule(rule_id: str) -> Known | None:
    """Return what is known of an id; a member of a family gives the family."""
    for one in known_rules():
        if one.id == rule_id or (one.id.endswith("*") and rule_id.startswith(one.id[:-1])):
            return one
    return None


def rules_like(text: str) -> list[Known]:
    """Return the rules of a prefix (``grid``, ``heads/``)."""
    prefix = text.rstrip("/") + "/"
    return [one for one in known_rules() if one.id.startswith(prefix)]


def near_rules(text: str) -> list[str]:
    """Return ids that look like a text."""
    return near_names(text, [one.id for one in known_rules()])


def _of_rule(one: Rule, file: _File) -> Known:
    pinned = ", ".join(ASSUMED_VERSION[name] for name in one.frameworks)
    return Known(
        id=one.id,
        severity=one.severity.value,
        summary=one.summary,
        source=one.source,
        frameworks=one.frameworks,
        versions=one.versions or pinned or "all",
        arises=file.prefixes[one.id.split("/")[0]],
        remedy=None,
        example=file.examples.get(one.id),
    )


def _of_finding(one: Told, file: _File) -> Known:
    return Known(
        id=one.id,
        severity=one.severity,
        summary=one.summary,
        source=one.source,
        frameworks=(),
        versions="all",
        arises=file.prefixes[one.id.split("/")[0]],
        remedy=None if one.remedy == "none" else one.remedy,
        example=file.examples.get(one.id),
    )
