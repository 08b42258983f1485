"""``meshwright rules``: every rule there is, and what one means."""

from __future__ import annotations

import click

from meshwright.cli.output import json_option, print_json, print_text


@click.command(
    "rules",
    short_help="Every rule with its source; what one means.",
    epilog="""\b
Examples:
  $ meshwright rules                     every rule, by room
  $ meshwright rules heads               those of heads
  $ meshwright rules heads/divide-tp     one, with a job that breaks it
  heads/divide-tp (error)
    Tp divides the attention heads.""",
)
@click.argument("rule_id", metavar="[ID]", required=False)
@json_option
def command(rule_id: str | None, *, as_json: bool) -> None:
    """List every rule with id, source, framework and versions, or explain ID."""
    from meshwright.errors import UsageError
    from meshwright.report.rules_report import rules_json, rules_text
    from meshwright.rules.catalogue import find_rule, known_rules, near_rules, rules_like

    if rule_id is None:
        rules = list(known_rules())
    else:
        one = find_rule(rule_id)
        rules = [one] if one is not None else rules_like(rule_id)
    if not rules:
        near = near_rules(rule_id or "")
        hint = f": did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(f"no rule {(rule_id or '')[:80]!r}{hint}")
    if as_json:
        print_json(rules_json(rules))
    else:
        print_text(rules_text(rules))
