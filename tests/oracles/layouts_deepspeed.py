"""Random layouts in the words of DeepSpeed, about a third of them wrong in some way.

Each is what ``deepspeed_groups.py`` reads, with ``"keys"``: the same in the words of a job file.
"""

from __future__ import annotations

import random
from typing import Any

Case = dict[str, Any]
_OURS = {"pipe": "pp", "data": "dp", "model": "tp"}


def random_cases(count: int, seed: int) -> list[Case]:
    """Return ``{"world", "rank", "keys", …}`` for each layout."""
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        case = _sequence(rng) if rng.random() < 0.25 else _grid(rng)
        if rng.random() < 0.3:
            _add_hpz(rng, case)
        if rng.random() < 0.1:
            case["world"] += rng.choice((1, 2, 3))
        case["rank"] = rng.randrange(case["world"])
        case["keys"] |= {"framework": "deepspeed", "world_size": case["world"]}
        cases.append(case)
    return cases


def _grid(rng: random.Random) -> Case:
    """Return a topology, its axes in any order where there are no experts."""
    while True:
        pp, dp, tp = (
            rng.choice((1, 1, 2, 3, 4)),
            rng.choice((1, 2, 3, 4, 8)),
            rng.choice((1, 2, 3, 4)),
        )
        if pp * dp * tp <= 96:
            break
    world = pp * dp * tp
    if rng.random() < 0.08:
        dp = rng.choice((0, dp + 1))
    sizes = {"pipe": pp, "data": dp, "model": tp}
    kind, axes = "PipeModelDataParallelTopology", ["pipe", "data", "model"]
    experts = rng.random() < 0.55
    if tp == 1 and rng.random() < 0.5:
        kind, axes = "PipeDataParallelTopology", ["pipe", "data"]
    elif not experts and rng.random() < 0.6:
        kind = "ProcessTopology"
        rng.shuffle(axes)
    keys: dict[str, Any] = {"cp": 1} | {_OURS[axis]: sizes[axis] for axis in sizes}
    if kind == "ProcessTopology":
        keys["order"] = "-".join(_OURS[axis] for axis in reversed(axes))
    topology = {"class": kind, "axes": axes, "dims": [sizes[axis] for axis in axes]}
    case = {"world": world, "topology": topology, "keys": keys}
    if experts:
        convention = rng.choice(("consecutive", "mpu", "mp_size") if tp > 1 else ("consecutive",))
        _add_experts(rng, case, (convention, tp, pp), dp if convention == "mpu" else dp * tp)
    return case


def _sequence(rng: random.Random) -> Case:
    """Return Ulysses: sequence and data parallelism alone."""
    size, dp = rng.choice((2, 2, 3, 4, 8)), rng.choice((1, 2, 3, 4, 8))
    world = size * dp
    if rng.random() < 0.15:
        size = rng.choice((5, 6, 7, world * 2))
    case: Case = {"world": world, "sequence": size, "keys": {"cp": size}}
    if rng.random() < 0.5:
        convention = rng.choice(("consecutive", "mp_size"))
        _add_experts(rng, case, (convention, size, 1), world)
    return case


def _add_experts(rng: random.Random, case: Case, how: tuple[str, int, int], ranks: int) -> None:
    """Add experts, mostly in a number that divides the ranks they are cut from."""
    convention, mp_size, pp = how
    sizes = [value for value in range(2, ranks + 1) if ranks % value == 0]
    wrong = [value for value in (3, 5, 7, ranks * 2 + 1) if value > 1 and value not in sizes]
    ep = rng.choice(wrong if not sizes or rng.random() < 0.2 else sizes)
    before = rng.random() < (0.1 if convention == "mp_size" else 0.4)
    mode = "sp" if "sequence" in case else "tp"
    keys: dict[str, Any] = {"ep": ep, "use_data_before_expert_parallel": before}
    if convention == "mp_size":
        keys["mp_mode"] = mode
    if convention == "mpu":
        keys["etp"] = mp_size
    case["keys"] |= keys
    case["experts"] = {
        "convention": convention,
        "ep": ep,
        "mp_size": mp_size,
        "mp_mode": mode,
        "pp": pp,
        "before": before,
    }


def _add_hpz(rng: random.Random, case: Case) -> None:
    world = case["world"]
    sizes = [value for value in range(1, world + 1) if world % value == 0]
    case["hpz"] = rng.choice((*sizes, 3, 5, world * 2))
    case["keys"] |= {"zero_hpz_partition_size": case["hpz"], "sharding": "zero3"}
