"""Random layouts in the words of Megatron-Core, about a third of them wrong in some way.

Nothing here asks Meshwright: degrees are drawn so that they mostly multiply, then one thing may be
spoiled.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

_AXES = ("tp", "cp", "ep", "dp", "pp")
_TP, _CP, _PP = (f"{name}_parallel_size" for name in ("tensor_model", "context", "pipeline_model"))
_EP, _ETP = "expert_model_parallel_size", "expert_tensor_parallel_size"
_VP = "virtual_pipeline_model_parallel_size"
_INSTANCES = "num_distributed_optimizer_instances"
_HIERARCHICAL = "hierarchical_context_parallel_sizes"
Args = dict[str, Any]
Case = dict[str, Any]


def random_cases(count: int, seed: int) -> list[Case]:
    """Return ``{"world", "rank", "args"}`` for each layout."""
    rng = random.Random(seed)
    cases = []
    while len(cases) < count:
        case = _likely(rng)
        if rng.random() < 0.25:
            rng.choice(_SPOILERS)(rng, case)
        case["rank"] = rng.randrange(case["world"])
        cases.append(case)
    return cases


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]


def _likely(rng: random.Random) -> Case:
    while True:
        tp, cp, pp, dp = (rng.choice((1, 1, 2, 2, 3, 4, 6)) for _ in range(4))
        if tp * cp * pp * dp <= 96:
            break
    args: Args = {_TP: tp, _CP: cp, _PP: pp}
    if rng.random() < 0.6:
        order = list(_AXES)
        rng.shuffle(order)
        args["order"] = "-".join(order)
        if rng.random() < 0.5:  # as Megatron wants it
            args["order"] = "-".join([axis for axis in order if axis != "pp"] + ["pp"])
    edp = _experts(rng, args, dp)
    if rng.random() < 0.35:
        args[_INSTANCES] = rng.choice(_divisors(math.gcd(dp * cp, edp)) + _divisors(dp * cp))
    if cp > 1 and rng.random() < 0.4:
        first = rng.choice(_divisors(cp))
        args[_HIERARCHICAL] = rng.choice(([cp], [first, cp // first], [first, 1, cp // first]))
    if rng.random() < 0.15:
        args["hybrid_context_parallel"] = True
    if pp > 1 and rng.random() < 0.2:
        args[_VP] = 2
    return {"world": tp * cp * pp * dp, "args": args}


def _experts(rng: random.Random, args: Args, dp: int) -> int:
    """Add ep and etp; return the data-parallel size of the experts."""
    tp, cp = args[_TP], args[_CP]
    stage, etp = tp * cp * dp, tp
    folds = not args.get("order", "pp").endswith("pp") and rng.random() < 0.7
    if rng.random() < 0.6:
        etp = args[_ETP] = rng.choice(_divisors(tp * cp if folds else stage)[:4])
    if folds and tp * cp % etp == 0:
        args[_EP] = tp * cp // etp
    elif rng.random() < 0.6:
        args[_EP] = rng.choice(_divisors(stage // etp))
    return stage // etp // args.get(_EP, 1)


def _spoil_world(rng: random.Random, case: Case) -> None:
    case["world"] += rng.choice((1, 2, 3, 5))


def _spoil_degree(rng: random.Random, case: Case) -> None:
    name = rng.choice((_TP, _CP, _PP))
    case["args"][name] = rng.choice((0, 5, 7, case["args"][name] * 2, case["world"] * 2))


def _spoil_experts(rng: random.Random, case: Case) -> None:
    case["args"][rng.choice((_EP, _ETP))] = rng.choice((0, 3, 5, 7, 16, case["world"] + 1))


def _spoil_order(rng: random.Random, case: Case) -> None:
    axes = list(_AXES)
    rng.shuffle(axes)
    case["args"]["order"] = "-".join(axes[: rng.choice((3, 4, 4))])


def _spoil_word(rng: random.Random, case: Case) -> None:
    case["args"]["order"] = rng.choice(("tp-cp-ep-dp-pp-xx", "tp-cp-ep-dp-etp-pp", "dp"))


def _spoil_virtual(rng: random.Random, case: Case) -> None:
    case["args"][_VP] = 2


def _spoil_instances(rng: random.Random, case: Case) -> None:
    case["args"][_INSTANCES] = rng.choice((2, 3, 4, 5))


def _spoil_hierarchy(rng: random.Random, case: Case) -> None:
    case["args"][_HIERARCHICAL] = [rng.choice((1, 2, 3)), rng.choice((2, 3))]


_SPOILERS: tuple[Callable[[random.Random, Case], None], ...] = (
    _spoil_world,
    _spoil_degree,
    _spoil_experts,
    _spoil_order,
    _spoil_word,
    _spoil_virtual,
    _spoil_instances,
    _spoil_hierarchy,
)
