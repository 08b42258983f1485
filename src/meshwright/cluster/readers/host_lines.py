"""One text with the output of several hosts: which host each line is of.

Parallel shells either put the host before every line (``pdsh``: ``h0: text``) or before its whole
output (``dshbak``, ``clush -b``: a name or a hostlist between two lines of dashes). A text with
neither is of one host, whose name it does not say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from meshwright.cluster.hostlist import Hostlists, TooManyNamesError
from meshwright.errors import InputError, Problem
from meshwright.findings import Place

_PREFIX = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9_.-]{0,254}):(?: |\Z)")
_RULE = re.compile(r"-{3,}\s*\Z")
_MAX_HOSTS = 100_000
"""Hosts that the headings of one text may stand for together."""


class HostLine(msgspec.Struct, frozen=True):
    """A line of one host: its text without the host, and its number (from 1)."""

    number: int
    text: str


class HostText(msgspec.Struct, frozen=True):
    """Lines of one output, and the hosts that printed it (none named: an empty tuple)."""

    hosts: tuple[str, ...]
    lines: tuple[HostLine, ...]


def split_hosts(lines: Sequence[str], path: str | None = None) -> list[HostText]:
    """Return the lines by host, in the order in which hosts first appear.

    Lines without a prefix stand under the last heading, or under no host. Raises ``InputError``,
    with its place in the file ``path``, where headings stand for too many hosts.
    """
    hostlists = Hostlists(_MAX_HOSTS)
    found: dict[tuple[str, ...], list[HostLine]] = {}
    heading: tuple[str, ...] = ()
    at = 0
    while at < len(lines):
        line = lines[at]
        try:
            named = _heading(lines, at, hostlists)
        except TooManyNamesError as error:
            message = f"the heading {error}"
            raise InputError(Problem(Place(path, at + 2, 1), message)) from None
        if named is not None:
            heading = named
            at += 3
            continue
        prefix = _PREFIX.match(line)
        hosts = (prefix["host"],) if prefix else heading
        text = line[prefix.end() :] if prefix else line
        found.setdefault(hosts, []).append(HostLine(at + 1, text))
        at += 1
    return [HostText(hosts, tuple(texts)) for hosts, texts in found.items()]


def _heading(lines: Sequence[str], at: int, hostlists: Hostlists) -> tuple[str, ...] | None:
    """Return the hosts of a heading that begins here: a rule, a hostlist, a rule."""
    if at + 2 >= len(lines) or not (_RULE.match(lines[at]) and _RULE.match(lines[at + 2])):
        return None
    name = re.sub(r" \([0-9]{1,7}\)\Z", "", lines[at + 1].strip())
    try:
        hosts = hostlists.expand(name)
    except TooManyNamesError:
        raise
    except ValueError:
        return None
    return tuple(hosts) or None
