"""What the tests of groups share: layouts from keys, findings of the grid rules, random layouts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from meshwright.findings import Finding, Severity
from meshwright.job.layout import Layout, resolve_layout
from meshwright.job.sections import LayoutSection
from meshwright.rules.grid import check_grid
from meshwright.rules.registry import RuleContext

MEGATRON_ORDERS = (
    "tp-cp-ep-dp-pp",
    "tp-cp-ep-pp-dp",
    "cp-tp-ep-dp-pp",
    "dp-cp-ep-tp-pp",
    "tp-pp-cp-ep-dp",
)


def layout_of(slots: int | None = None, **keys: Any) -> Layout:
    return resolve_layout(LayoutSection(**keys), slots)


def findings_of(layout: Layout, slots: int | None = None) -> list[Finding]:
    return check_grid(RuleContext(layout, slots=slots))


def errors_of(layout: Layout, slots: int | None = None) -> list[Finding]:
    return [one for one in findings_of(layout, slots) if one.severity is Severity.ERROR]


def rule_ids(slots: int | None = None, **keys: Any) -> list[str]:
    return [one.rule for one in findings_of(layout_of(slots, **keys), slots)]


def _order(draw: st.DrawFn) -> str:
    if draw(st.booleans()):
        return draw(st.sampled_from(MEGATRON_ORDERS))
    axes = draw(st.permutations(("tp", "cp", "ep", "dp", "pp")))
    return "-".join(axes[: draw(st.sampled_from((5, 5, 5, 4, 3)))])


@st.composite
def _deepspeed_keys(draw: st.DrawFn, tp: int, cp: int, pp: int, dp: int) -> dict[str, Any]:
    """Keys of the experts, of ZeRO++ and of a topology in another order."""
    convention = draw(st.sampled_from(("consecutive", "mpu", "mp_size")))
    ranks = dp if convention == "mpu" else tp * cp * dp
    keys: dict[str, Any] = {
        "ep": draw(st.sampled_from([v for v in range(1, ranks + 1) if ranks % v == 0]))
    }
    if convention == "mpu":
        keys["etp"] = tp
    if convention == "mp_size":
        keys["mp_mode"] = "tp" if tp > 1 else "sp"
    elif draw(st.booleans()):
        keys["use_data_before_expert_parallel"] = True
    if draw(st.booleans()):
        world = tp * cp * pp * dp
        sizes = [value for value in range(1, world + 1) if world % value == 0]
        keys["zero_hpz_partition_size"] = draw(st.sampled_from([*sizes, world * 2]))
    if keys["ep"] == 1 and draw(st.booleans()):
        keys["order"] = _order(draw)
    return keys


@st.composite
def likely_keys(draw: st.DrawFn, frameworks: tuple[str, ...] = ("megatron",)) -> dict[str, Any]:
    """Keys of a layout whose degrees multiply; most pass the grid rules."""
    small = st.sampled_from((1, 1, 2, 3, 4))
    framework = draw(st.sampled_from(frameworks))
    tp, cp, pp, dp = (draw(small) for _ in range(4))
    if framework == "deepspeed" and max(tp, pp) > 1:
        cp = 1  # Ulysses stands alone
    keys: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "framework": framework}
    per_stage = tp * cp * dp
    divisors = [value for value in range(1, per_stage + 1) if per_stage % value == 0]
    if framework == "megatron":
        keys["order"] = _order(draw)
        keys["etp"] = draw(st.sampled_from([value for value in divisors if value <= 4]))
        rest = per_stage // keys["etp"]
        # etp · ep = tp · cp is what orders that do not end in pp ask for
        folded = [tp * cp // keys["etp"]] if tp * cp % keys["etp"] == 0 else []
        keys["ep"] = draw(
            st.sampled_from([v for v in range(1, rest + 1) if rest % v == 0] + folded * 4)
        )
        keys["distributed_optimizer_instances"] = draw(st.sampled_from((1, 1, 1, 2, 3)))
        if cp == 4 and draw(st.booleans()):
            keys["hierarchical_cp"] = draw(st.sampled_from(((2, 2), (4, 1), (1, 4), (4,))))
        if pp > 1 and draw(st.booleans()):
            keys["vp"] = 2
    elif framework == "deepspeed":
        keys |= draw(_deepspeed_keys(tp, cp, pp, dp))
    elif framework in ("torch", "torchtitan"):
        keys["shard_degree"] = draw(st.sampled_from([v for v in range(1, dp + 1) if dp % v == 0]))
        region = keys["shard_degree"] * cp * tp
        keys["ep"] = draw(st.sampled_from([v for v in range(1, region + 1) if region % v == 0]))
        if framework == "torch":
            keys["order"] = _order(draw)
    if draw(st.booleans()):
        keys["world_size"] = tp * cp * pp * dp
        del keys[draw(st.sampled_from(("tp", "cp", "pp", "dp")))]
    return keys


@st.composite
def any_keys(draw: st.DrawFn) -> dict[str, Any]:
    """Keys of a layout with whatever a user may type, 64-bit integers included."""
    number = st.one_of(
        st.none(),
        st.integers(-2, 9),
        st.sampled_from((16, 24, 64, 2**31, 2**61 - 1, 2**63 - 1, -(2**63))),
    )
    names = (
        *("tp", "cp", "pp", "dp", "ep", "etp", "vp", "world_size"),
        *("shard_degree", "distributed_optimizer_instances"),
    )
    keys: dict[str, Any] = {
        name: draw(number) for name in draw(st.sets(st.sampled_from(names), max_size=5))
    }
    keys["framework"] = draw(
        st.sampled_from(
            (None, "megatron", "torch", "torchtitan", "deepspeed", "nanotron", "maxtext")
        )
    )
    keys["sharding"] = draw(
        st.sampled_from((None, "none", "zero1", "zero3", "fsdp", "hsdp", "HYBRID_SHARD"))
    )
    keys["zero_hpz_partition_size"] = draw(st.none() | st.integers(-1, 9))
    keys["mp_mode"] = draw(st.sampled_from((None, None, "tp", "sp")))
    keys["hybrid_context_parallel"] = draw(st.sampled_from((None, None, True)))
    sizes = st.dictionaries(
        st.sampled_from(("data", "fsdp", "tensor", "stage", "expert", "pipeline", "nothing")),
        st.sampled_from((-1, -1, 0, 1, 2, 3, 4, 2**62)),
        max_size=3,
    )
    keys["ici"], keys["dcn"] = draw(st.none() | sizes), draw(st.none() | sizes)
    keys["num_slices"] = draw(st.sampled_from((None, None, -1, 0, 1, 2, 2**40)))
    tokens = st.sampled_from(("tp", "cp", "ep", "dp", "pp", "pp", "etp", "", " tp ", "×"))
    keys["order"] = draw(st.none() | st.lists(tokens, max_size=6).map("-".join))
    keys["hierarchical_cp"] = draw(st.none() | st.lists(st.integers(-1, 4), max_size=3).map(tuple))
    return keys
