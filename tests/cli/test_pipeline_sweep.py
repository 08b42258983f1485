"""Many options of ``meshwright pipeline`` at random: an answer, a refusal or one clear message."""

from __future__ import annotations

import random

import pytest

from cli.pipeline_asking import SCHEDULES, answer, ask, job_file

ODD = ("nan", "inf", "-inf", "-1", "0", "1e308", "1e-320", "1e9", "1e-12", "x", "", "0x1", "1_0")
PLAIN = ("0", "0.1", "0.5", "1", "2", "3.3")


def options_of(rng, job):
    """Return random options, a third of them with values nobody means."""
    ranks = rng.choice([1, 2, 3, 4, 5, 6, 8, 12])
    values = ODD if rng.random() < 0.3 else PLAIN
    options = [job] if job else ["-p", ranks, "-m", rng.choice([1, 2, 3, 6, 8, 11, 12, 16, 24])]
    for name, choices, share in (
        ("-v", (1, 2, 3, 64), 0.3),
        ("--schedule", (*SCHEDULES, "nonsense", ""), 0.75),
        ("--convention", ("megatron", "torch"), 0.3),
        ("--group", (1, 2, 4, 5, 8, 100), 0.15),
        ("--forward", values, 0.3),
        ("--backward", values, 0.3),
        ("--weight", values, 0.3),
        ("--send", values, 0.3),
        ("--ranks-per-link", (1, 2, 3, 100), 0.2),
        ("--efficiency", values, 0.1),
    ):
        if rng.random() < share:
            options += [name, rng.choice(choices)]
    if rng.random() < 0.3:
        count = rng.choice([ranks, ranks, 2 * ranks, 1])
        options += ["--stage-times", ",".join(rng.choice(values) for _ in range(count))]
    flags = ("--blocking", "--asynchronous", "--reorder", "--compare", "--orders")
    return options + [flag for flag in flags if rng.random() < 0.2]


@pytest.mark.parametrize("seed", range(6))
def test_random_options(tmp_path, seed):
    rng = random.Random(seed)
    ended = {0: 0, 1: 0, 2: 0}
    for _ in range(60):
        job = job_file(tmp_path) if rng.random() < 0.2 else None
        options = options_of(rng, job)
        ran = ask(*options)
        ended[ran.status] += 1
        if ran.status == 2:
            assert not ran.out
            assert ran.err.startswith(("error: ", "Usage: ")), options
            continue
        assert "nan" not in ran.out.replace("nan_", ""), options
        assert " inf" not in ran.out.replace(" in flight", ""), options
        assert (answer(*options, status=ran.status)["makespan_s"] is None) == (ran.status == 1)
    assert all(ended.values())


def test_stages_messages_and_waiting_only_ever_add_time():
    rng = random.Random(7)
    for _ in range(40):
        ranks, count = rng.randint(2, 6), rng.randint(1, 12)
        base = ["-p", ranks, "-m", count]
        factors = [rng.choice([0.5, 1, 1.5, 2]) for _ in range(ranks)]
        slower = [factor * rng.choice([1, 1.25]) for factor in factors]
        times = ["--stage-times", ",".join(map(str, factors))]
        more = ["--stage-times", ",".join(map(str, slower))]
        one = answer(*base, *times)["makespan_s"]
        assert answer(*base, *more)["makespan_s"] >= one
        sent = answer(*base, *times, "--send", 0.3)["makespan_s"]
        assert sent >= one
        assert answer(*base, *times, "--send", 0.3, "--blocking")["makespan_s"] >= sent
        shared = answer(*base, *times, "--send", 0.3, "--ranks-per-link", 1)["makespan_s"]
        assert shared >= sent * (1 - 1e-12)
        # a rank does all its work, and one microbatch passes all stages there and back
        assert one >= 3 * max(count * max(factors), sum(factors)) * (1 - 1e-12)
