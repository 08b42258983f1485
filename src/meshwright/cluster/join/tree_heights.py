"""The order of a tree's switches from below, and how high each stands. Linear in switches and edges."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.cluster.facts import TreeSwitch


def upwards(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the switches, each after all below it; ``pairs``: (lower, upper).

    Switches of a circle (no reader gives one) stand last.
    """
    above: dict[int, list[int]] = {}
    waiting = [0] * count
    for low, high in pairs:
        above.setdefault(low, []).append(high)
        waiting[high] += 1
    order = [index for index in range(count) if not waiting[index]]
    for low in order:
        for high in above.get(low, ()):
            waiting[high] -= 1
            if not waiting[high]:
                order.append(high)
    done = set(order)
    return order + [index for index in range(count) if index not in done]


def heights(count: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return each switch's height above the lowest switch under it (one without child is 0)."""
    height = [0] * count
    above: dict[int, list[int]] = {}
    for low, high in pairs:
        above.setdefault(low, []).append(high)
    for low in upwards(count, pairs):
        for high in above.get(low, ()):
            height[high] = max(height[high], height[low] + 1)
    return height


def hosts_below(count: int, pairs: Sequence[tuple[int, int]], own: dict[int, int]) -> list[int]:
    """Return the hosts under each switch; ``own``: hosts directly under one.

    A switch with two parents counts for the last one.
    """
    total = [own.get(index, 0) for index in range(count)]
    parent = dict(pairs)
    for low in upwards(count, list(parent.items())):
        if low in parent:
            total[parent[low]] += total[low]
    return total


def edges_of(tree: Sequence[TreeSwitch]) -> list[tuple[int, int]]:
    """Return (lower, upper) by position; children that are not defined are passed over."""
    number = {switch.name: index for index, switch in enumerate(tree)}
    return [
        (number[child], parent)
        for parent, switch in enumerate(tree)
        for child in switch.switches
        if child in number
    ]
