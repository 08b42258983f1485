"""``meshwright pipeline --compare``: the same work with other microbatches, schedules and splits."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cli.pipeline_asking import SCHEDULES, answer, ask, cells, job_file
from meshwright.cli.main import cli


def rows_of(*options):
    return answer(*options, "--compare")["alternatives"]


def ran(rows):
    return [row for row in rows if row["makespan_s"] is not None]


def test_every_row_does_the_same_work(tmp_path):
    for options in (
        ("-p", 4, "-m", 8, "--stage-times", "1,1,1,1.5", "--send", 0.1),
        (job_file(tmp_path),),
    ):
        found = answer(*options)
        work = sum(found["busy_s"])
        for row in ran(rows_of(*options)):
            whole = found["ranks"] * row["makespan_s"]
            assert whole * (1 - row["bubble_fraction"]) == pytest.approx(work), row


def test_rows_of_microbatches():
    rows = rows_of("-p", 4, "-m", 8)
    given, *others = rows
    assert given["change"] == "given"
    assert given["makespan_s"] == answer("-p", 4, "-m", 8)["makespan_s"]
    by_count = {row["microbatches"]: row for row in others if row["change"] == "microbatches"}
    assert sorted(by_count) == [4, 16, 32]
    for count, row in by_count.items():
        assert row["bubble_fraction"] == pytest.approx(3 / (count + 3))
        # 1F1B keeps p of them on rank 0, each m / count as large
        assert row["peak_microbatches"] == pytest.approx(4 * 8 / count)


def test_all_schedules_have_a_row_or_a_reason():
    rows = rows_of("-p", 3, "-m", 4)
    named = {row["schedule"] for row in rows}
    assert named == set(SCHEDULES)
    refused = {row["schedule"]: row["refused"] for row in rows if row["makespan_s"] is None}
    assert {"dualpipe", "chimera", "interleaved", "dualpipev"} <= refused.keys()
    assert "pp is even" in refused["dualpipe"]
    page = ask("-p", 3, "-m", 4, "--compare").out
    assert "not dualpipe, m 4:" in page
    assert all(row["refused"] is None for row in ran(rows))


def test_kept_activations_and_copies():
    by_name = {
        (row["schedule"], row["chunks"]): row
        for row in rows_of("-p", 4, "-m", 8)
        if row["change"] != "microbatches"
    }
    assert by_name["gpipe", 1]["peak_microbatches"] == 8
    assert by_name["interleaved", 2]["peak_microbatches"] == 11 / 2
    assert by_name["interleaved", 4]["peak_microbatches"] == (3 * 4 + 2 * 3 + 1) / 4
    assert by_name["zb-v", 2]["peak_microbatches"] == 4
    assert by_name["dualpipe", 1]["peak_microbatches"] == 5
    assert {name for (name, _), row in by_name.items() if row["copies"] == 2} == {
        "dualpipe",
        "chimera",
    }


def test_bytes_are_those_of_the_schedule_asked_for(tmp_path):
    path = job_file(tmp_path)
    for row in ran(rows_of(path)):
        if row["change"] != "schedule":
            continue
        chunks = (
            ["-v", row["chunks"]]
            if "interleaved" in row["schedule"] or row["schedule"] == "looped-bfs"
            else []
        )
        alone = answer(path, "--schedule", row["schedule"], *chunks)
        assert row["peak_activation_bytes"] == pytest.approx(max(alone["peak_activation_bytes"]))
        assert row["makespan_s"] == pytest.approx(alone["makespan_s"]), row["schedule"]


def test_the_most_even_split_is_faster(tmp_path):
    path = job_file(tmp_path, layout={"stages": [24, 16, 20, 20]})
    rows = rows_of(path)
    split = next(row for row in rows if row["change"] == "split")
    assert split["makespan_s"] < rows[0]["makespan_s"]
    assert split["stages"] == answer(path)["best_split"]["layers"]
    job = json.loads(path.read_text())
    job["layout"]["stages"] = split["stages"]
    path.write_text(json.dumps(job))
    assert answer(path)["makespan_s"] == pytest.approx(split["makespan_s"])
    assert [row for row in rows_of(path) if row["change"] == "split"] == []
    assert "most even split" not in ask(path).out


def test_a_stage_that_is_slow_goes_with_its_part_of_the_model():
    # the last quarter of the layers takes 1.5: two ranks share it where ranks hold two stages
    found = answer("-p", 4, "-m", 8, "--stage-times", "1,1,1,1.5")
    rows = rows_of("-p", 4, "-m", 8, "--stage-times", "1,1,1,1.5")
    looped = next(row for row in rows if (row["schedule"], row["chunks"]) == ("interleaved", 2))
    asked = answer(
        "-p", 4, "-m", 8, "-v", 2, "--schedule", "interleaved",
        "--stage-times", "1,1,1,1,1,1,1.5,1.5", "--forward", 0.5, "--backward", 0.5, "--weight", 0.5,
    )  # fmt: skip
    assert looped["makespan_s"] == pytest.approx(asked["makespan_s"])
    assert looped["makespan_s"] < found["makespan_s"]
    # said of ranks, it stays on the rank
    by_rank = ("-p", 4, "-m", 8, "-v", 2, "--schedule", "interleaved", "--stage-times", "1,1,1,1.5")
    slow = rows_of(*by_rank)
    plain = next(row for row in slow if row["schedule"] == "1f1b")
    assert plain["makespan_s"] == pytest.approx(2 * found["makespan_s"])


def test_the_table_has_the_numbers_of_the_document(tmp_path):
    path = job_file(tmp_path)
    rows, page = rows_of(path), ask(path, "--compare").out
    lines = cells(page, "schedule  ")[1:]
    shown = ran(rows)
    assert len(lines) == len(shown)
    for line, row in zip(lines, shown, strict=True):
        name = row["schedule"] + (f" v{row['chunks']}" if row["chunks"] > 1 else "")
        assert line[0].removesuffix("!").removesuffix("*").split(",")[0] == name
        assert line[0].endswith("!") == (row["framework_runs"] is False)
        assert line[7] == {True: "yes", False: "no"}[row["fits"]]
        assert int(line[1]) == row["microbatches"]
        assert float(line[2].split()[0]) == pytest.approx(row["makespan_s"], abs=0.005)
        if row is not shown[0]:
            change = 0.0 if line[3] == "same" else float(line[3].split()[0])
            ratio = row["makespan_s"] / shown[0]["makespan_s"]
            assert change == pytest.approx(100 * (ratio - 1), abs=0.051)
        assert float(line[4].split()[0]) == pytest.approx(100 * row["bubble_fraction"], abs=0.051)
        assert float(line[5]) == pytest.approx(row["peak_microbatches"], rel=1e-3)
        assert float(line[6].split()[0]) == pytest.approx(
            row["peak_activation_bytes"] / 2**30, abs=0.0051
        )
    assert max(map(len, page.replace(str(tmp_path), "").splitlines())) <= 80


def test_no_part_of_a_sequence_is_a_microbatch(tmp_path):
    one = {
        row["microbatches"]: row
        for row in rows_of(job_file(tmp_path))
        if row["change"] == "microbatches"
    }
    assert one[8]["makespan_s"] is not None
    assert "0.5 sequences; micro_batch is 1" in one[32]["refused"]
    assert one[64]["makespan_s"] is None
    two = {
        row["microbatches"]: row
        for row in rows_of(job_file(tmp_path, batch={"micro_batch": 2}))
        if row["change"] == "microbatches"
    }
    assert two[32]["makespan_s"] is not None
    assert "0.5 sequences" in two[64]["refused"]
    # without a job nobody says what a microbatch is
    assert all(
        row["refused"] is None
        for row in rows_of("-p", 4, "-m", 8)
        if row["change"] == "microbatches"
    )


def total_of(path):
    ran = CliRunner().invoke(cli, ["memory", str(path), "--json"])
    stages = json.loads(ran.stdout)["stages"]
    return max(stage["total_bytes"] for stage in stages)


def test_what_fits_is_what_memory_counts(tmp_path):
    rows = rows_of(job_file(tmp_path))
    assert rows[0]["total_bytes"] == pytest.approx(total_of(job_file(tmp_path)))
    for row in ran(rows):
        assert row["fits"] == (row["total_bytes"] <= 85520809984)  # 79.65 GiB of an H100
    by_name = {row["schedule"]: row for row in ran(rows) if row["change"] == "schedule"}
    for name in ("gpipe", "zb-h1", "dualpipe", "chimera"):
        path = job_file(tmp_path, training={"schedule": name})
        assert by_name[name]["total_bytes"] == pytest.approx(total_of(path)), name
    halved = next(row for row in rows if row["microbatches"] == 8)
    path = job_file(tmp_path, batch={"micro_batch": 2, "num_microbatches": 8})
    assert halved["total_bytes"] == pytest.approx(total_of(path))
    # two copies of the weights
    assert by_name["dualpipe"]["total_bytes"] > by_name["zb-h1"]["total_bytes"]
    assert all(row["fits"] is None for row in rows_of("-p", 4, "-m", 8))


def test_rows_that_would_take_long_are_left_out():
    rows = rows_of("-p", 64, "-m", 1024)
    assert rows[0]["makespan_s"] is not None
    assert all(
        "operations are over" in row["refused"] for row in rows if row["schedule"] == "zb-h1"
    )


def test_layers_that_do_not_suffice_for_chunks(tmp_path):
    model = {
        "name": "four", "num_layers": 4, "hidden": 512, "ffn": 2048, "heads": 8, "kv_heads": 8,
        "head_dim": 64, "vocab": 1024,
    }  # fmt: skip
    path = job_file(
        tmp_path, model=model, cluster=None, layout={"tp": 1, "sequence_parallel": None}
    )
    by_name = {row["schedule"]: row for row in rows_of(path)}
    assert "rank 0 has 1" in by_name["interleaved"]["refused"]
    assert by_name["zb-v"]["makespan_s"] is None
    assert by_name["zb-h1"]["makespan_s"] is not None
