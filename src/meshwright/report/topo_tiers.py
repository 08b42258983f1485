"""What a source says of the network, tier by tier: switches, hosts under them, cables, domains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from meshwright.cluster.facts import Facts, TreeSwitch
from meshwright.cluster.switches.switch_levels import SwitchLevels, derive_levels
from meshwright.report.text import table
from meshwright.units import format_count, format_rate, plural

_LEVELS = ("leaf", "spine", "core")
_NAMED = 6


def tiers_text(facts: Facts, levels: SwitchLevels | None = None) -> str:
    """Return the tables of a source; empty where it says nothing of a network.

    ``levels``: those of the same facts, where they are known already.
    """
    parts = [_cables(facts, levels), _tree(facts.tree or ()), _blocks(facts), _places(facts)]
    return "\n\n".join(part for part in parts if part)


def nvlink_domains(sources: Sequence[Facts]) -> dict[str, list[str]] | None:
    """Return the hosts of each NVLink domain that labels or drivers name, all sources together.

    The name is the key: cluster UUID and clique id, or a label's value. ``None`` where no source
    tells of domains.
    """
    told = False
    domains: dict[str, dict[str, None]] = {}
    for facts in sources:
        told = told or "nvlink_domains" in facts.counts
        for place in facts.places or ():
            if place.nvlink_domain is not None:
                domains.setdefault(place.nvlink_domain, {})[place.host] = None
    if not domains and not told:
        return None
    return {name: [*hosts] for name, hosts in domains.items()}


def domains_text(domains: dict[str, list[str]] | None) -> str:
    """Return a table of NVLink domains and their hosts."""
    if not domains:
        return ""
    rows = [
        (name, format_count(len(hosts)), _first(hosts))
        for name, hosts in [*domains.items()][: _NAMED * 4]
    ]
    more = len(domains) - len(rows)
    text = f"{plural(len(domains), 'NVLink domain')}\n" + table(("domain", "hosts", ""), rows)
    return text + (f"\n… and {format_count(more)} more" if more else "")


def _first(names: Sequence[str]) -> str:
    return " ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")


def _spread(counts: Iterable[int]) -> str:
    """Return ``17`` or ``2 to 17``."""
    sizes = sorted(set(counts))
    if not sizes:
        return "-"
    return format_count(sizes[0]) + (f" to {format_count(sizes[-1])}" if len(sizes) > 1 else "")


def _each(counts: Iterable[int], noun: str, many: str | None = None) -> str:
    """Return ``1 host`` or ``2 to 17 hosts``."""
    sizes = set(counts)
    if sizes == {1}:
        return plural(1, noun)
    return f"{_spread(sizes)} {many or noun + 's'}"


def _level_name(level: int | None) -> str:
    if level is None:
        return "switch"
    return _LEVELS[level] if level < len(_LEVELS) else f"level {level}"


def _cables(facts: Facts, levels: SwitchLevels | None) -> str:
    """Return switches by level, and cables by the levels of their ends."""
    if not facts.cables:
        return ""
    levels = derive_levels(facts) if levels is None else levels
    hosts = _hosts_by_leaf(facts, levels)
    counts = Counter(levels.level_by_switch.values())
    lost = len(facts.switches or ()) - sum(counts.values())
    units = len(set(levels.unit_of_leaf.values()))
    named = len({host for found in hosts.values() for host in found})
    rows = [("hosts with a name", format_count(named), "")]
    if counts[0]:
        rails = _each(Counter(levels.unit_of_leaf.values()).values(), "leaf", "leaves (rails)")
        note = f"{rails} a unit" if units else ""
        rows.append(("units", format_count(units), note))
    for level in sorted(counts):
        under = f"{_each(map(len, hosts.values()), 'host')} a leaf" if level == 0 else ""
        rows.append((_plural(_level_name(level)), format_count(counts[level]), under))
    if lost > 0:
        rows.append(("switches of no known tier", format_count(lost), ""))
    return "\n".join(
        [
            table(("tier", "count", ""), rows),
            "",
            table(("cables", "count", "rates"), _by_tier(facts, levels)),
        ]
    )


def _plural(name: str) -> str:
    return {"leaf": "leaves", "spine": "spines", "core": "cores"}.get(name, f"switches of {name}")


def _hosts_by_leaf(facts: Facts, levels: SwitchLevels) -> dict[str, set[str]]:
    hosts: dict[str, set[str]] = {leaf: set() for leaf in levels.unit_of_leaf}
    for nic in facts.nics or ():
        leaf = levels.leaf_of_nic.get(nic.guid or "")
        if leaf is not None and nic.host is not None:
            hosts.setdefault(leaf, set()).add(nic.host)
    return hosts


def _by_tier(facts: Facts, levels: SwitchLevels) -> list[tuple[str, str, str]]:
    """Return rows of cables: what they join, how many, at which rates."""
    switches = {switch.id for switch in facts.switches or ()}
    others = {device.id: device.kind for device in facts.other_devices or ()}
    found: dict[str, Counter[float | None]] = {}
    for cable in facts.cables or ():
        ends = []
        for end in (cable.a, cable.b):
            if end in switches:
                level = levels.level_by_switch.get(end)
                ends.append((1 + (level if level is not None else 99), _level_name(level)))
            else:
                ends.append((0, others.get(end, "adapter")))
        kind = " – ".join(name for _, name in sorted(ends))
        found.setdefault(kind, Counter())[cable.rate_bytes_per_s] += 1
    return [
        (kind, format_count(sum(rates.values())), _rates(rates))
        for kind, rates in sorted(found.items(), key=lambda one: -sum(one[1].values()))
    ]


def _rates(rates: Counter[float | None]) -> str:
    """Return ``50.0 GB/s``, with counts where there are several."""
    parts = []
    for rate, count in rates.most_common(_NAMED):
        text = format_rate(rate) if rate else "unknown"
        parts.append(text if len(rates) == 1 else f"{text} ({format_count(count)})")
    return ", ".join(parts)


def _tree(tree: Sequence[TreeSwitch]) -> str:
    """Return the levels of a scheduler's tree: level 0 has hosts only."""
    if not tree:
        return ""
    level = _tree_levels(tree)
    by_level: dict[int, list[TreeSwitch]] = {}
    for switch in tree:
        by_level.setdefault(level[switch.name], []).append(switch)
    children = {child for switch in tree for child in switch.switches}
    roots = [switch.comment or switch.name for switch in tree if switch.name not in children]
    rows = []
    for number in sorted(by_level):
        switches = by_level[number]
        below = _each((len(one.switches) for one in switches), "switch", "switches")
        if number == 0:
            below = _each((len(one.hosts) for one in switches), "host")
        name = _plural("leaf") if number == 0 else f"level {number}"
        rows.append((name, format_count(len(switches)), below))
    rows.append((f"root{'s' if len(roots) > 1 else ''}", format_count(len(roots)), _first(roots)))
    return table(("tree", "count", "each with"), rows)


def _tree_levels(tree: Sequence[TreeSwitch]) -> dict[str, int]:
    """Return the height of every switch over its lowest leaf; no switch is its own ancestor."""
    below = {switch.name: switch.switches for switch in tree}
    level: dict[str, int] = {}
    for start in below:
        stack = [start]
        while stack:
            name = stack[-1]
            waiting = [one for one in below.get(name, ()) if one in below and one not in level]
            if name in level or not waiting:
                known = [level[one] for one in below.get(name, ()) if one in level]
                level.setdefault(name, 1 + max(known) if known else 0)
                stack.pop()
            else:
                stack += waiting
    return level


def _blocks(facts: Facts) -> str:
    if not facts.blocks:
        return ""
    full = [block for block in facts.blocks if block.hosts]
    text = f"{plural(len(full), 'block')} of {_each((len(one.hosts) for one in full), 'host')}"
    empty = len(facts.blocks) - len(full)
    text += f", {format_count(empty)} empty" if empty else ""
    if facts.block_sizes:
        text += f"; block sizes {', '.join(map(str, facts.block_sizes))}"
    return text


def _places(facts: Facts) -> str:
    """Return the tiers that places of hosts name, nearest first."""
    if not facts.places:
        return ""
    tiers: dict[int, Counter[str]] = {}
    for place in facts.places:
        for number, name in enumerate(place.tiers, 1):
            tiers.setdefault(number, Counter())[name] += 1
    rows = [
        (
            f"tier {number}" + (" (nearest)" if number == 1 else ""),
            format_count(len(names)),
            _each(names.values(), "host"),
        )
        for number, names in sorted(tiers.items())
    ]
    return table(("places", "count", "each with"), rows) if rows else ""
