"""How many copies of a token leave a rank when no destination gets two: DeepEP's dispatch.

A token picks k of E experts. With uniform choice it hits a set of ranks that holds the share x of
all experts with probability ``1 - C(E - xE, k) / C(E, k)``. Node-limited routing (Megatron-Core
``moe_utils.py group_limited_topk``; DeepSeek-V3: 8 groups, 4 chosen) first picks M of G groups of
experts, then k experts inside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_STEPS = 1024
"""Chosen experts that are multiplied out, and groups that are counted (more: no limit is assumed)."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Routing of one MoE layer over ``ranks`` that hold the experts evenly.

    ``ranks`` is the expert-parallel degree (each rank's experts are distinct); ``groups`` and
    ``chosen_groups`` are 1 where routing has no limit. ``etp``: ranks that share one set of experts
    and all get the token.
    """

    experts: int
    top_k: int
    ranks: int
    groups: int = 1
    chosen_groups: int = 1
    etp: int = 1

    def hit(self, ranks: float) -> float:
        """Return the chance that a token goes to a set of ``ranks`` neighbouring ranks.

        ``ranks`` counts expert-parallel positions from 0 (no chance) to all (certain).
        """
        held = self.experts * min(max(ranks, 0.0), self.ranks) / self.ranks
        size = self.experts / self.groups
        if self.groups <= self.chosen_groups or self.groups > MOST_STEPS:
            return 1 - _none_of(self.experts, held, self.top_k)
        # The set covers whole groups, or a part of one: what of it is among the chosen groups?
        whole, part = divmod(held, size)
        missed = 0.0
        for chosen_whole in range(int(whole) + 1):
            for chosen_part in (0, 1):
                chance = self._chance(int(whole), chosen_whole, chosen_part, part > 0)
                if chance > 0:
                    reach = chosen_whole * size + chosen_part * part
                    missed += chance * _none_of(self.chosen_groups * size, reach, self.top_k)
        return 1 - missed

    def _chance(self, whole: int, chosen_whole: int, chosen_part: int, has_part: bool) -> float:
        """Return the chance that so many of the covered groups are among the chosen ones."""
        if not has_part and chosen_part:
            return 0.0
        others = self.groups - whole - (1 if has_part else 0)
        left = self.chosen_groups - chosen_whole - chosen_part
        if left < 0 or left > others:
            return 0.0
        ways = math.comb(whole, chosen_whole) * math.comb(others, left)
        return ways / math.comb(self.groups, self.chosen_groups)

    @property
    def per_token(self) -> float:
        """Copies of a token that leave a rank, its own included: one to each rank that is hit."""
        return self.etp * self.ranks * self.hit(1)

    def domains_hit(self, ranks_per_domain: int) -> float:
        """Return how many domains (hosts, NVLink domains) of so many ranks a token goes to."""
        return (
            self.ranks * self.etp / ranks_per_domain * self.hit(max(ranks_per_domain / self.etp, 1))
        )


def _none_of(experts: float, held: float, top_k: int) -> float:
    """Return the chance that none of ``top_k`` distinct experts is among the ``held``.

    ``C(E - held, k) / C(E, k)`` as a product, which also holds for a share of an expert.
    """
    if experts - held < top_k:
        return 0.0
    if top_k > MOST_STEPS:
        return math.exp(_log_ways(experts - held, top_k) - _log_ways(experts, top_k))
    chance = 1.0
    for taken in range(top_k):
        chance *= (experts - held - taken) / (experts - taken)
    return chance


def _log_ways(experts: float, top_k: int) -> float:
    return math.lgamma(experts + 1) - math.lgamma(experts - top_k + 1)
