"""``meshwright pipeline`` without a job: every schedule, the interface's keys, what is refused."""

from __future__ import annotations

import pytest

from cli.pipeline_asking import SCHEDULES, SEVERAL, answer, ask, cells, sizes
from cli.running import rules_of
from meshwright.cli.pipeline_command import command
from support import ROOT

KEYS = {
    "schema", "makespan_s", "bubble_fraction", "span_bubble_fraction", "formula_bubble_fraction",
    "peak_in_flight", "findings", "origin", "schedule", "ranks", "microbatches", "chunks",
}  # fmt: skip


@pytest.mark.parametrize("convention", ["megatron", "torch"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_keeps_the_interface(schedule, convention):
    found = answer("-p", 4, "-m", 8, *sizes(schedule), "--convention", convention)
    assert found.keys() >= KEYS
    assert "orders" not in found
    assert found["schema"] == "meshwright/pipeline/1"
    assert found["findings"] == []
    assert (found["schedule"], found["ranks"], found["microbatches"]) == (schedule, 4, 8)
    assert len(found["peak_in_flight"]) == 4
    # Σ busy: 8 microbatches on 4 ranks, F + I + W of every chunk
    chunks = 2 if schedule in (*SEVERAL, "zb-v", "v-half", "v-min", "dualpipev") else 1
    assert found["chunks"] == chunks
    assert sum(found["busy_s"]) == pytest.approx(8 * 4 * 3 * chunks)
    whole = 4 * found["makespan_s"]
    assert found["bubble_fraction"] == pytest.approx(1 - sum(found["busy_s"]) / whole)
    spans = zip(found["busy_s"], found["span_s"], strict=True)
    assert found["span_bubble_fraction"] == pytest.approx(
        max(1 - b / s for b, s in spans), abs=1e-9
    )
    idle = found["idle"]
    for rank in range(4):
        parts = sum(idle[name][rank] for name in idle if name != "total_s")
        assert parts == pytest.approx(idle["total_s"][rank])
        assert idle["total_s"][rank] + found["busy_s"][rank] == pytest.approx(found["makespan_s"])


def test_the_issues_example():
    found = answer("-p", 4, "-m", 12)
    assert found["bubble_fraction"] == pytest.approx(3 / 15)
    assert found["formula_bubble_fraction"] == pytest.approx(3 / 15)
    assert found["makespan_s"] == pytest.approx(45)
    page = ask("-p", 4, "-m", 12).out
    assert "20.0 % is idle, as the formula says" in page
    assert "(p-1)/(m+p-1) = 3/15" in page


def test_a_slow_stage_and_messages_are_told_apart():
    options = ("-p", 4, "-m", 12, "--stage-times", "1,1,1,1.5", "--send", 0.1)
    found = answer(*options)
    equal, stages, messages = found["changes"]
    assert [equal["step"], stages["step"], messages["step"]] == [
        "equal stages",
        "given stages",
        "messages",
    ]
    # 11 microbatches wait for 4.5 s instead of the mean 3.375 s; 3 messages there, 3 back
    assert equal["makespan_s"] == pytest.approx(15 * 3.375)
    assert stages["change_s"] == pytest.approx(11 * (4.5 - 3.375))
    assert messages["change_s"] == pytest.approx(6 * 0.1)
    assert found["makespan_s"] == pytest.approx(15 * 3.375 + 12.375 + 0.6)
    assert found["formula_bubble_fraction"] == pytest.approx(3 / 15)
    page = ask(*options).out
    assert "stage 3 takes 1.33 × the mean" in page
    assert "as long as 6 messages of 0.100 s" in page


def test_the_page_has_the_numbers_of_the_document():
    options = ("-p", 4, "-m", 12, "--stage-times", "1,1,1,1.5", "--send", 0.1)
    found, page = answer(*options), ask(*options).out
    rows = cells(page, "rank  busy")[1:]
    names = ("warm_up_s", "cool_down_s", "communication_s", "imbalance_s")
    for rank, row in enumerate(rows):
        times = [found["busy_s"][rank], found["idle"]["total_s"][rank]]
        times += [found["idle"][name][rank] for name in names]
        shown = [0.0 if cell == "-" else float(cell) for cell in row[1:7]]
        assert shown == pytest.approx(times, abs=0.005)
        assert [int(row[7]), int(row[8])] == [found["warmup"][rank], found["peak_in_flight"][rank]]
    assert len(rows) == 4
    steps = cells(page, "                step")[1:]
    for row, step in zip(steps, found["changes"], strict=True):
        assert row[0] == step["step"]
        assert float(row[1].split()[0]) == pytest.approx(step["makespan_s"], abs=0.05)
        assert float(row[3].split()[0]) == pytest.approx(100 * step["bubble_fraction"], abs=0.05)
        if row[2] != "-":
            share = 100 * step["change_s"] / found["changes"][0]["makespan_s"]
            assert float(row[2].split()[0]) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize(
    ("options", "warmup", "peak"),
    [
        (("-p", 4, "-m", 8, "-v", 2, "--schedule", "interleaved"), [10, 8, 6, 4], [11, 9, 7, 5]),
        (("-p", 4, "-m", 4, "-v", 2, "--schedule", "interleaved"), [8, 8, 6, 4], [8, 8, 7, 5]),
        (("-p", 4, "-m", 8), [3, 2, 1, 0], [4, 3, 2, 1]),
        (("-p", 4, "-m", 2), [2, 2, 1, 0], [2, 2, 2, 1]),
        (("-p", 2, "-m", 6, "--schedule", "gpipe"), [6, 6], [6, 6]),
    ],
)
def test_warm_up_and_activations(options, warmup, peak):
    found = answer(*options)
    assert found["warmup"] == warmup
    assert found["peak_in_flight"] == peak


def test_where_an_interleaved_warm_up_comes_from():
    page = " ".join(
        ask("-p", 4, "-m", 8, "-v", 2, "--schedule", "interleaved", "--orders").out.split()
    )
    assert "(p-r-1)·2 + (v-1)·g" in page
    assert "at most v·m = 16: 10, 8, 6, 4" in page
    assert "busy in the steady state" in page
    assert "when m was p" in page
    assert "11 on rank 0" in page
    assert "rank 0: 0F0 0F1 0F2 0F3 4F0" in page
    assert "Warm-up of rank r" not in ask("-p", 4, "-m", 8).out


def test_orders_as_torch_writes_them():
    assert answer("-p", 2, "-m", 2, "--orders")["orders"] == [
        ["0F0", "0F1", "0B0", "0B1"],
        ["1F0", "1B0", "1F1", "1B1"],
    ]
    cells_of = [
        cell for rank in answer("-p", 2, "-m", 8, *sizes("dualpipe"), "--orders")["orders"]
        for cell in rank
    ]  # fmt: skip
    assert any(cell.endswith(")OVERLAP_F_B") and ";" in cell for cell in cells_of)
    assert "second copy of stage 0" in ask("-p", 2, "-m", 8, *sizes("dualpipe"), "--orders").out


REFUSED = [
    (("-p", 4, "-m", 6, "-v", 2, "--schedule", "interleaved"), "interleaved-microbatches", "-m"),
    (("-p", 4, "-m", 3, "-v", 2, "--schedule", "interleaved"), "interleaved-microbatches", "-m"),
    (("-p", 4, "-m", 8, "-v", 2, "--schedule", "interleaved", "--group", 3), "interleaved-microbatches", "--group"),
    (("-p", 4, "-m", 11, "-v", 2, "--schedule", "interleaved", "--convention", "torch"), "interleaved-microbatches", "-m"),
    (("-p", 4, "-m", 11, "-v", 2, "--schedule", "interleaved-zb"), "interleaved-microbatches", "-m"),
    (("-p", 4, "-m", 8, "--schedule", "interleaved"), "schedule-chunks", "-v"),
    (("-p", 4, "-m", 8, "-v", 2, "--schedule", "gpipe"), "schedule-chunks", "-v"),
    (("-p", 4, "-m", 8, "-v", 3, "--schedule", "zb-v"), "schedule-chunks", "-v"),
    (("-p", 4, "-m", 3, "--convention", "torch"), "microbatches-fill-stages", "-m"),
    (("-p", 4, "-m", 6, "--schedule", "dualpipev"), "microbatches-fill-stages", "-m"),
    (("-p", 3, "-m", 8, "--schedule", "dualpipe"), "dualpipe-even", "-p"),
    (("-p", 4, "-m", 9, "--schedule", "dualpipe"), "dualpipe-even", "-m"),
    (("-p", 3, "-m", 8, "--schedule", "chimera"), "chimera-even", "-p"),
    (("-p", 4, "-m", 7, "--schedule", "chimera"), "chimera-even", "-m"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "rule", "place"), REFUSED)
def test_what_no_framework_runs_is_refused(options, rule, place):
    found = answer(*options, status=1)
    assert rules_of(found) == [f"pipeline/{rule}"]
    finding = found["findings"][0]
    assert finding["place"] == place
    assert finding["remedy"]
    assert not {"vp:", "num_microbatches:", "pp:", "group:"} & set(finding["remedy"].split())
    assert found["makespan_s"] is None
    assert found["peak_in_flight"] is None
    page = ask(*options)
    assert page.status == 1
    assert f"pipeline/{rule}" in page.out


def test_the_remedy_of_a_refusal_holds():
    for options, _, place in REFUSED:
        remedy = answer(*options, status=1)["findings"][0]["remedy"].split(",")[0]
        if remedy == "leave -v out":
            at = options.index("-v")
            mended = [*options[:at], *options[at + 2 :]]
        else:
            name, value = remedy.split()[:2]
            mended = [*options, name, value]  # the last of two counts
            assert name == place
        assert ask(*mended).status == 0, (options, remedy)


@pytest.mark.parametrize(("convention", "legal"), [("megatron", [8]), ("torch", [3, 6, 8, 10])])
def test_counts_of_microbatches_of_an_interleaved_schedule(convention, legal):
    def options(count):
        return (
            "-p",
            4,
            "-v",
            2,
            "-m",
            count,
            "--schedule",
            "interleaved",
            "--convention",
            convention,
        )

    assert [count for count in (3, 6, 8, 10, 11) if ask(*options(count)).status == 0] == legal


def test_what_is_wrong_usage():
    for options, says in [
        ((), "-p and -m"),
        (("-p", 4), "-p and -m"),
        (("-p", 4, "-m", 8, "--schedule", "zb-h"), "did you mean zb-h"),
        (("-p", 4, "-m", 8, "--forward", "nan"), "--forward nan"),
        (("-p", 4, "-m", 8, "--weight", "inf"), "--weight inf"),
        (("-p", 4, "-m", 8, "--send", -1), "--send -1"),
        (("-p", 4, "-m", 8, "--backward", "1e308"), "--backward 1e+308"),
        (("-p", 4, "-m", 8, "--backward", "1e-320"), "--backward"),
        (("-p", 4, "-m", 8, "--forward", 0, "--backward", 0, "--weight", 0), "all 0"),
        (("-p", 4, "-m", 8, "--stage-times", ""), "write factors"),
        (("-p", 4, "-m", 8, "--stage-times", "1,1,1"), "3 factors: write 4"),
        (("-p", 4, "-m", 8, "--stage-times", "1,1,1,x"), "write factors"),
        (("-p", 4, "-m", 8, "--stage-times", "1,1,1,nan"), "factors are"),
        (("-p", 4, "-m", 8, "--stage-times", "0,0,0,0"), "not all"),
        (("-p", 4, "-m", 8, "--stage-times", "1," * 70_000), "at most"),
        (("-p", 4, "-m", 8, "--efficiency", 0.5), "for a job"),
        (("-p", 4, "-m", 8, "--efficiency", "nan"), "--efficiency nan"),
        (("-p", 4, "-m", 8, "--group", 4), "--group is for interleaved"),
        (("-p", 4, "-m", 8, "--reorder"), "--reorder is for"),
        (("-p", 0, "-m", 8), "-p"),
        (("-p", 5000, "-m", 8), "-p"),
        (("-p", 4, "-m", 1 << 21), "-m"),
    ]:
        ran = ask(*options)
        assert ran.status == 2, options
        assert says in ran.err, (options, ran.err)
        assert ran.out == ""


def test_what_is_too_large_is_refused_before_memory_is_taken():
    ran = ask("-p", 4096, "-m", 1_000_000)
    assert ran.status == 2
    assert "12,288,000,000 operations" in ran.err


def test_a_large_schedule_has_a_short_page():
    page = ask("-p", 64, "-m", 1024, "-v", 4, "--schedule", "interleaved").out
    assert len(page.splitlines()) < 70
    assert "(p-1)/(v·m+p-1) = 63/4159" in page
    assert "48 ranks not shown" in page


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pages_fit_a_terminal(schedule):
    page = ask(
        "-p",
        4,
        "-m",
        8,
        *sizes(schedule),
        "--stage-times",
        "1,1,1,1.37",
        "--send",
        0.123,
        "--compare",
    ).out
    assert max(map(len, page.splitlines())) <= 80


def test_blocking_and_shared_links():
    usual = answer("-p", 4, "-m", 8, "--send", 0.5)
    waits = answer("-p", 4, "-m", 8, "--send", 0.5, "--blocking")
    assert waits["blocking"]
    assert waits["makespan_s"] > usual["makespan_s"]
    assert waits["changes"][-1]["step"] == "blocking sends"
    assert "ranks wait for their sends" in ask("-p", 4, "-m", 8, "--blocking").out
    # ranks 1 and 2 send over one NIC in turn: their two neighbours are on other NICs
    alone = answer("-p", 6, "-m", 8, "--send", 0.5, "--ranks-per-link", 1)
    shared = answer("-p", 6, "-m", 8, "--send", 0.5, "--ranks-per-link", 6)
    free = answer("-p", 6, "-m", 8, "--send", 0.5)
    assert shared["makespan_s"] == free["makespan_s"]  # nothing leaves the one NIC
    assert alone["makespan_s"] >= free["makespan_s"]
    text = ask("-p", 4, "-m", 8, "--send", 0.5, "--ranks-per-link", 2, "--blocking").out
    assert "messages share no links" in " ".join(text.split())


def test_messages_share_the_rate_of_a_link():
    # rank 1 sends the activation to 2 and the gradient to 0 at once: with one link each waits for both
    options = ("-p", 3, "-m", 8, "--schedule", "dualpipev", "--send", 1)
    free, shared = answer(*options), answer(*options, "--ranks-per-link", 1)
    assert shared["makespan_s"] > free["makespan_s"]
    assert shared["changes"][-1]["step"] == "shared links"


def test_a_reordered_schedule_is_never_slower():
    for options in (
        ("-p", 4, "-m", 8, "--forward", 1, "--backward", 2, "--weight", 0.5),
        ("-p", 6, "-m", 12, "--stage-times", "1,1,2,1,1,1.5", "--send", 0.3),
        ("-p", 4, "-m", 12, "--forward", 2, "--backward", 1, "--weight", 3, "--send", 1),
    ):
        for schedule in ("zb-h1", "zb-h2", "zb-v"):
            usual = answer(*options, "--schedule", schedule)
            other = answer(*options, "--schedule", schedule, "--reorder")
            assert usual["reorder"] is None
            assert other["makespan_s"] <= usual["makespan_s"]
            told = other["reorder"]
            assert told["usual_makespan_s"] == usual["makespan_s"]
            assert other["makespan_s"] == min(
                told["usual_makespan_s"], told["reordered_makespan_s"]
            )
            page = ask(*options, "--schedule", schedule, "--reorder").out
            assert "is kept." in " ".join(page.split())


def test_a_page_says_whose_order_it_is():
    for convention, named in (("megatron", "Megatron-Core 0.10 and later"), ("torch", "torch")):
        page = ask("-p", 4, "-m", 8, "--convention", convention).out
        assert f"Order and rules: {named}." in " ".join(page.split())
    assert "Order and rules" not in ask("-p", 4, "-m", 8, "--schedule", "gpipe").out


def test_the_docs_name_every_option():
    text = (ROOT / "docs" / "pipeline.md").read_text()
    for option in command.params:
        names = [*option.opts, *option.secondary_opts]
        assert option.name in ("job", "as_json", "orders") or any(one in text for one in names)


def test_durations_left_out_beside_others_are_told():
    found = answer("-p", 4, "-m", 8, "--forward", 0.01, "--backward", 0.02)
    (told,) = found["findings"]
    assert told["rule"] == "assumed/left-out-durations"
    assert told["numbers"] == {
        "forward_s": 0.01,
        "input_gradient_s": 0.02,
        "weight_gradient_s": 1.0,
    }
    assert found["makespan_s"] == pytest.approx(11 * 1.03)
    page = " ".join(ask("-p", 4, "-m", 8, "--forward", 0.01, "--backward", 0.02).out.split())
    assert "A stage takes F 0.0100 s, I 0.0200 s, W 1.00 s (B = I + W)." in page
    for whole in ((), ("--forward", 0.01, "--backward", 0.02, "--weight", 0.01)):
        assert answer("-p", 4, "-m", 8, *whole)["findings"] == []
        assert "A stage takes F" in ask("-p", 4, "-m", 8, *whole).out
    split = " ".join(ask("-p", 4, "-m", 8, "--schedule", "zb-h1").out.split())
    assert "W 1.00 s. " in split


def test_a_refused_question_has_all_keys_of_the_document():
    ran = answer("-p", 4, "-m", 8)
    refused = answer("-p", 3, "-m", 8, "--schedule", "dualpipe", status=1)
    assert refused.keys() == ran.keys()
    assert refused["idle"] is None
    assert refused["changes"] is None


@pytest.mark.parametrize(
    "options",
    [
        ("--ranks-per-link", 10**20),
        ("--group", 10**20, "--schedule", "interleaved", "-v", 2),
        ("--ranks-per-link", 0),
    ],
)
def test_numbers_that_are_too_large(options):
    ran = ask("-p", 4, "-m", 8, *options)
    assert ran.status == 2
    assert "is not in the range" in ran.err


def test_blocking_interleaved_ranks_exchange_once_a_turn():
    usual = ("-m", 8, "-v", 2, "--schedule", "interleaved")
    assert answer("-p", 4, *usual, "--blocking")["makespan_s"] == 57
    assert answer("-p", 4, *usual)["makespan_s"] == 57
    found = answer(
        "-p", 4, "-m", 32, "-v", 5, "--schedule", "interleaved", "--send", 0.25, "--blocking"
    )
    # 182 slots of Megatron's calls, a message after each but the last
    assert found["makespan_s"] == pytest.approx(489 + 181 * 0.25)


def test_blocking_interleaved_ranks_are_more_than_two():
    usual = ("-p", 2, "-m", 8, "-v", 2, "--schedule", "interleaved")
    assert answer(*usual)["makespan_s"] == 51
    (found,) = answer(*usual, "--blocking", status=1)["findings"]
    assert found["rule"] == "pipeline/interleaved-pp2"
    assert answer(*usual, "--blocking", "--convention", "torch")["findings"] == []


def test_both_peaks_where_the_backward_is_split():
    found = answer("-p", 4, "-m", 32, "--schedule", "zb-h2")
    assert found["peak_until_input_gradient"] == [7, 5, 3, 1]
    page = ask("-p", 4, "-m", 32, "--schedule", "zb-h2").out
    rows = cells(page, "rank  busy")[1:]
    both = zip(found["peak_in_flight"], found["peak_until_input_gradient"], strict=True)
    assert [row[-1] for row in rows] == [f"{peak}/{until}" for peak, until in both]
    assert "counts a microbatch half from I to W" in " ".join(page.split())
    assert "/" not in cells(ask("-p", 4, "-m", 8).out, "rank  busy")[1][-1]
