"""Any schedule by name: valid for any size or refused by a rule; figures of the golden runs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import UsageError
from meshwright.schedules.make import MAX_OPERATIONS, make_orders
from meshwright.schedules.make_asked import asked, torch_group
from meshwright.schedules.make_refusals import refusals
from meshwright.schedules.names import (
    MANY_CHUNKS,
    NAMES,
    SCHEDULES,
    TWO_CHUNKS,
    TWO_DIRECTIONS,
    schedule_name,
)
from meshwright.schedules.peaks import peaks
from meshwright.schedules.validity import flaws_of
from schedule_samples import golden, simulated

TORCH = ("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")  # fmt: skip
ROWS = {
    "GPipe": ("gpipe", 30),
    "1F1B": ("1f1b", 30),
    "megatron-1F1B": ("1f1b", 6),
    "megatron-interleaved": ("interleaved", 27),
    "DualPipe": ("dualpipe", 15),
    "DualPipeV": ("dualpipev", 12),
    "torch:DualPipeV": ("dualpipev", 12),
    "torch:Interleaved1F1B": ("interleaved", 33),
    "torch:InterleavedZeroBubble": ("interleaved-zb", 33),
    "torch:LoopedBFS": ("looped-bfs", 36),
    "torch:ZBVZeroBubble": ("zb-v", 18),
    "ZB1P/H1 (max_mem=p)": ("zb-h1", 12),
    "ZB2P/H2 (max_mem=2p)": ("zb-h2", 12),
    "ZBV": ("zb-v", 12),
    "V-half": ("v-half", 12),
    "V-min": ("v-min", 12),
}
INTERLEAVED = "pipeline/interleaved-microbatches"


def made(row):
    """Return the schedule of a golden row and the name of its rows."""
    group = re.fullmatch(r"(megatron-interleaved)\(group=(\d+)\)", row["schedule"])
    rows = group[1] if group else row["schedule"]
    options = {"convention": "torch" if rows.startswith("torch:") else "megatron"}
    if group:
        options["group"] = int(group[2])
    name = ROWS[rows][0]
    if name in MANY_CHUNKS:
        options["chunks"] = int(row["v"])
    return make_orders(name, int(row["p"]), int(row["m"]), **options), rows


@pytest.mark.golden
def test_every_figure_of_the_golden_runs():
    compared = dict.fromkeys(ROWS, 0)
    for row in golden("pipeline_makespan.csv"):
        orders, rows = made(row)
        run = simulated(orders, tuple(float(row[key]) for key in ("tF", "tI", "tW")))
        until_input, until_weight = (
            " ".join(map(str, one.tolist()))
            for one in (run.peak_until_input, run.peak_until_weight)
        )
        found = {
            "makespan": run.makespan_s,
            "busy_rank0": float(run.busy_s[0]),
            "bubble_fraction": round(run.bubble_fraction, 6),
            "max_rank_span": float(run.span_s.max()),
            "bubble_of_max_span": round(run.span_bubble_fraction, 6),
            "peak_inflight_until_I_or_B": until_input,
            "peak_inflight_until_W": until_weight,
        }
        assert {key: str(value) for key, value in found.items()} == {
            key: row[key] for key in found
        }, row
        compared[rows] += 1
    assert compared == {rows: count for rows, (_, count) in ROWS.items()}
    assert sum(compared.values()) == 312


@pytest.mark.golden
def test_what_torch_rejects_is_refused():
    names = {"1F1B": "1f1b", "DualPipeV": "dualpipev"}
    compared = 0
    for row in golden("pipeline_torch_rejected.csv"):
        if "+comms" in row["schedule"]:
            continue  # the drawing tool's stand-in failed there, no rule
        p, m, v = (int(row[key]) for key in ("p", "m", "v"))
        name = names.get(row["schedule"]) or schedule_name(row["schedule"])
        (refusal,) = refusals(name, p, m, chunks=v, convention="torch")
        rule = INTERLEAVED if "rounds" in row["error"] else "pipeline/microbatches-fill-stages"
        assert refusal.rule == rule, row
        if "rounds" in row["error"]:
            rounds = re.search(r"number of rounds \((\d+)\)", row["error"])
            assert refusal.numbers["rounds"] == int(rounds[1])
        with pytest.raises(UsageError, match=rule):
            make_orders(name, p, m, chunks=v, convention="torch")
        compared += 1
    assert compared == 5


@pytest.mark.golden
def test_what_torch_makes_is_not_refused():
    for row in golden("pipeline_torch_compute.csv"):
        p, m, v = (int(row[key]) for key in ("p", "m", "v"))
        assert refusals(row["schedule"], p, m, chunks=v, convention="torch") == [], row


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_size_is_valid_or_refused(schedule):
    made_count = 0
    for p in (1, 2, 3, 5, 6, 12):
        for m in (1, 2, 3, 5, 7, 9, 12, 14, 24, 26):
            for convention in ("megatron", "torch"):
                options = {"convention": convention}
                if schedule in MANY_CHUNKS:
                    options["chunks"] = 2 + m % 2
                refused = refusals(schedule, p, m, **options)
                if refused:
                    assert all(one.rule.startswith("pipeline/") for one in refused)
                    assert all(one.message and one.remedy and one.numbers for one in refused)
                    continue
                orders = make_orders(schedule, p, m, **options)
                assert flaws_of(orders) == [], (p, m, options)
                assert (orders.ranks, orders.microbatches) == (p, m)
                assert orders.chains == (2 if schedule in TWO_DIRECTIONS else 1)
                ask = asked(schedule, p, m, options)
                assert orders.chain_length == p * ask.chunks
                if schedule in ("1f1b", "zb-h1", "zb-v", "v-half", "v-min", "chimera"):
                    assert peaks(orders)[0].max() <= p * ask.chunks
                made_count += 1
    assert made_count >= 12


@given(p=st.integers(1, 12), m=st.integers(1, 60), v=st.integers(2, 4), g=st.integers(1, 20))
def test_megatron_groups(p, m, v, g):
    """A group holds pp microbatches at least, all at most, and a last smaller one pp as well."""
    allowed = p == 1 or (p <= g <= m and not 0 < m % g < p)
    refused = refusals("interleaved", p, m, chunks=v, group=g)
    assert (refused == []) == allowed
    if allowed and g <= m:
        assert flaws_of(make_orders("interleaved", p, m, chunks=v, group=g)) == []
    usual = refusals("interleaved", p, m, chunks=v)
    assert (usual == []) == (m % p == 0)


@given(p=st.integers(1, 12), m=st.integers(1, 60), v=st.integers(2, 4))
def test_torch_rounds(p, m, v):
    for schedule in ("interleaved", "interleaved-zb"):
        refused = refusals(schedule, p, m, chunks=v, convention="torch")
        assert (refused == []) == (m % max(1, m // p) == 0)
        if not refused:
            group = torch_group(p, m)
            same = make_orders(schedule, p, m, chunks=v, convention="torch", group=group)
            usual = make_orders(schedule, p, m, chunks=v, convention="torch")
            assert same.stage.tolist() == usual.stage.tolist()
            (other,) = refusals(schedule, p, m, chunks=v, convention="torch", group=group + 1)
            assert other.rule == INTERLEAVED


@pytest.mark.parametrize(
    ("schedule", "p", "m", "options", "rule", "remedy"),
    [
        ("interleaved", 4, 6, {"chunks": 2}, INTERLEAVED, "num_microbatches: 4 or 8"),
        ("interleaved", 4, 3, {"chunks": 2}, INTERLEAVED, "num_microbatches: 4"),
        ("interleaved", 4, 8, {"chunks": 2, "group": 3}, INTERLEAVED, "group: 4"),
        ("interleaved", 4, 8, {}, "pipeline/schedule-chunks", "vp: 2, or schedule: 1f1b"),
        ("zb-v", 4, 8, {"chunks": 3}, "pipeline/schedule-chunks", "vp: 2"),
        ("gpipe", 4, 8, {"chunks": 2}, "pipeline/schedule-chunks", "leave vp out"),
        ("dualpipe", 3, 12, {}, "pipeline/dualpipe-even", "pp: 2 or 4"),
        ("dualpipe", 4, 9, {}, "pipeline/dualpipe-even", "num_microbatches: 10"),
        ("dualpipe", 4, 6, {}, "pipeline/dualpipe-even", "num_microbatches: 8"),
        ("dualpipev", 4, 7, {}, "pipeline/microbatches-fill-stages", "num_microbatches: 8"),
        ("chimera", 5, 10, {}, "pipeline/chimera-even", "pp: 4 or 6"),
        ("chimera", 4, 5, {}, "pipeline/chimera-even", "num_microbatches: 6"),
        ("1f1b", 4, 3, {"convention": "torch"}, "pipeline/microbatches-fill-stages", "num_microbatches: 4"),
    ],
)  # fmt: skip
def test_refusals_name_rule_and_remedy(schedule, p, m, options, rule, remedy):
    (refusal,) = refusals(schedule, p, m, **options)
    assert (refusal.rule, refusal.remedy) == (rule, remedy)
    assert str(refusal.numbers.get("pp", p)) in refusal.message or rule.endswith("chunks")
    changed = dict(options)
    key, _, value = remedy.partition(": ")
    first = int(re.match(r"\d+", value)[0]) if value else None
    if remedy == "leave vp out":
        changed = {}
    elif key == "vp":
        changed["chunks"] = first
    elif key == "group":
        changed["group"] = first
    elif key == "pp":
        p = first
    else:
        m = first
    assert refusals(schedule, p, m, **changed) == []


def test_names_in_any_spelling():
    assert [schedule_name(name) for name in TORCH] == [
        "gpipe",
        "1f1b",
        "interleaved",
        "looped-bfs",
        "interleaved-zb",
        "zb-v",
        "dualpipev",
    ]
    for name, ours in NAMES.items():
        for spelled in (name, name.upper(), name.replace("-", "_"), name.replace("-", " ")):
            assert schedule_name(f" {spelled} ") == ours
    assert schedule_name(None) == schedule_name("") == "1f1b"
    assert schedule_name("1F1B", vp=2) == "interleaved"
    assert schedule_name("my schedule") is None
    assert set(TWO_CHUNKS) | set(MANY_CHUNKS) | set(TWO_DIRECTIONS) <= set(SCHEDULES)


def test_defaults():
    assert asked("v-min", 4, 8, {}).chunks == 2
    assert asked("1f1b", 4, 8, {}).chunks == 1
    assert asked("1f1b", 4, 8, {"chunks": 2}).schedule == "interleaved"
    assert asked("interleaved", 4, 10, {"chunks": 2}).group == 4
    assert asked("interleaved", 4, 10, {"chunks": 2, "convention": "torch"}).group == 5
    assert make_orders("DualPipeV", 2, 4).schedule == "dualpipev"


@pytest.mark.parametrize(
    ("schedule", "p", "m", "options", "text"),
    [
        ("1f1c", 4, 8, {}, "did you mean 1f1b"),
        ("quux", 4, 8, {}, "known: 1f1b, gpipe"),
        ("1f1b", 0, 8, {}, "pp 0: at least 1"),
        ("1f1b", 4, -1, {}, "microbatches -1: at least 1"),
        ("interleaved", 4, 8, {"chunks": 0}, "chunks 0: at least 1"),
        ("interleaved", 4, 8, {"chunks": 2, "group": 0}, "group 0: at least 1"),
        ("1f1b", 4, 8, {"convention": "jax"}, "megatron or torch"),
        ("1f1b", 64, MAX_OPERATIONS, {}, "at most 20,000,000 are made"),
    ],
)
def test_what_makes_no_sense_is_told(schedule, p, m, options, text):
    with pytest.raises(UsageError, match=re.escape(text)):
        make_orders(schedule, p, m, **options)
