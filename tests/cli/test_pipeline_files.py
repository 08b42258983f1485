"""Files of ``meshwright pipeline``: torch's CSV both ways, traces, pictures; nothing is overwritten."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from click.testing import CliRunner

from cli.pipeline_asking import SCHEDULES, answer, ask, job_file, sizes
from cli.running import finding_of, rules_of
from meshwright.cli.main import cli
from meshwright.timeline.trace.check import check_trace

ONE_COPY = [name for name in SCHEDULES if name not in ("dualpipe", "chimera")]
TIMES = ("--forward", 1, "--backward", 1.3, "--weight", 0.7, "--send", 0.2)


@pytest.mark.parametrize("schedule", ONE_COPY)
def test_a_schedule_written_and_read_is_the_same(tmp_path, schedule):
    path = tmp_path / "schedule.csv"
    made = answer("-p", 4, "-m", 8, *sizes(schedule), *TIMES, "--csv", path, "--orders")
    read = answer("--schedule-file", path, *TIMES, "--orders")
    for key in (
        "makespan_s",
        "bubble_fraction",
        "peak_in_flight",
        "orders",
        "rank_of_stage",
        "idle",
    ):
        assert read[key] == made[key]
    assert read["schedule"] == str(path)
    assert read["formula_bubble_fraction"] is None


@pytest.mark.parametrize("schedule", ["dualpipe", "chimera"])
def test_torch_has_no_second_copy_of_a_stage(tmp_path, schedule):
    ran = ask("-p", 4, "-m", 8, "--schedule", schedule, "--csv", tmp_path / "schedule.csv")
    assert ran.status == 2
    assert "one copy of every stage" in ran.err
    assert not (tmp_path / "schedule.csv").exists()


def written(tmp_path, *ranks):
    path = tmp_path / "given.csv"
    path.write_text("\n".join(ranks) + "\n")
    return path


def test_a_schedule_that_deadlocks_names_the_circle(tmp_path):
    path = written(tmp_path, "0F0,0B0,0F1,0B1", "1F1,1B1,1F0,1B0")
    found = answer("--schedule-file", path, status=1)
    finding = finding_of(found, "schedule/deadlock")
    assert finding["place"] == f"{path}:1"  # the line of rank 0
    assert sorted(finding["numbers"]["ranks"]) == [0, 1]
    assert "1F1" in finding["message"]
    assert "0B0" in finding["message"]
    assert found["makespan_s"] is None
    assert ask("--schedule-file", path).status == 1


@pytest.mark.parametrize(
    ("ranks", "rule"),
    [
        (("0F0,0B0", "1F0"), "missing"),
        (("0F0,0B0", "1B0,1F0"), "order"),
        (("0F0,0B0,0B0", "1F0,1B0"), "twice"),
        (("0F0,0B0", "1F0,0B1,1B0"), "rank"),
        (("0F0,0B0", "2F0,2B0"), "missing-stage"),
        (("0F0,0B0", "", "1F0,1B0"), "idle-rank"),
        (("0F0,0B0,0F2,0B2", "1F0,1B0,1F2,1B2"), "missing-microbatch"),
        (("0F0,(0F1;1B0)OVERLAP_F_B,0B0,0B1", "1F0,1F1,1B1"), "rank"),
    ],
)
def test_flaws_of_a_schedule_file(tmp_path, ranks, rule):
    path = written(tmp_path, *ranks)
    found = answer("--schedule-file", path, status=1)
    assert f"schedule/{rule}" in rules_of(found)
    for one in found["findings"]:
        rank = one["numbers"].get("rank")
        assert one["place"] == (str(path) if rank is None else f"{path}:{rank + 1}")
    assert all(one["remedy"] for one in found["findings"])


def test_what_does_not_go_with_a_schedule_file(tmp_path):
    path = written(tmp_path, "0F0,0B0", "1F0,1B0")
    for options, says in [
        (("-p", 3), "2 ranks"),
        (("-m", 2), "has 1 microbatch, "),
        (("--schedule", "gpipe"), "--schedule"),
        (("-v", 2), "--chunks"),
        (("--group", 2), "--group"),
        (("--reorder",), "--reorder"),
        (("--stage-times", "1,1,1"), "3 factors"),
    ]:
        ran = ask("--schedule-file", path, *options)
        assert ran.status == 2, options
        assert says in ran.err, (options, ran.err)
    assert answer("--schedule-file", path, "-p", 2, "-m", 1)["makespan_s"] == 6


@pytest.mark.parametrize(
    "text",
    [
        "", "\n\n\n", "0F0,0B0,x", "0F99999999999", '"0F0', "(0F0;0F1)OVERLAP_F_B", "0F0;0B0",
        "0F1048575", "65535F0,65535B0", "-1F0", "0F", "0W0", "0F0,0B0\n" * 3, "0F0," * 5000, "\x00", "é0F0",
    ],
)  # fmt: skip
def test_hostile_schedule_files(tmp_path, text):
    path = tmp_path / "hostile.csv"
    path.write_text(text)
    ran = ask("--schedule-file", path)
    assert ran.status in (1, 2)
    assert ran.out or ran.err


def test_unreadable_schedule_files(tmp_path):
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\xff\xfe0F0")
    assert ask("--schedule-file", path).status == 2
    assert ask("--schedule-file", tmp_path).status == 2
    assert ask("--schedule-file", tmp_path / "none.csv").status == 2


def test_a_file_of_any_stage_map(tmp_path):
    # three stages on two ranks: rank 0 has the first and the last
    path = written(tmp_path, "0F0,2F0,2B0,0B0", "1F0,1B0")
    found = answer("--schedule-file", path, "--stage-times", "1,2,3", "--send", 0.5)
    assert found["rank_of_stage"] == [0, 1, 0]
    assert found["makespan_s"] == pytest.approx(3 * (1 + 2 + 3) + 4 * 0.5)
    by_rank = answer("--schedule-file", path, "--stage-times", "1,2")
    assert by_rank["makespan_s"] == pytest.approx(3 * (1 + 2 + 1))
    work = answer(
        job_file(tmp_path, cluster="dgx-h100 x 2", layout={"pp": 2}), "--schedule-file", path
    )
    assert work["layers"] == [20, 40, 20]
    assert len(work["send_s"]) == 2
    apart = ask(job_file(tmp_path), "--schedule-file", path)
    assert apart.status == 2
    assert "the schedule has 2 ranks, the job pp 4" in apart.err


def test_messages_of_a_job_between_any_ranks(tmp_path):
    # stages 0, 1, 2, 3 on the ranks 0, 2, 1, 3: each message goes where the map says
    path = written(tmp_path, "0F0,0B0", "2F0,2B0", "1F0,1B0", "3F0,3B0")
    found = answer(job_file(tmp_path), "--schedule-file", path)
    assert {(one["from"], one["to"]) for one in found["send_s"]} == {
        (0, 2), (2, 0), (2, 1), (1, 2), (1, 3), (3, 1),
    }  # fmt: skip


def test_comparing_a_schedule_file_with_the_known_ones(tmp_path):
    path = tmp_path / "gpipe.csv"
    assert ask("-p", 4, "-m", 8, "--schedule", "gpipe", "--csv", path).status == 0
    rows = answer("--schedule-file", path, "--compare")["alternatives"]
    assert rows[0]["schedule"] == str(path)
    by_name = {row["schedule"]: row for row in rows[1:] if row["makespan_s"] is not None}
    assert by_name["1f1b"]["makespan_s"] == rows[0]["makespan_s"]
    assert by_name["zb-h1"]["makespan_s"] < rows[0]["makespan_s"]


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
@pytest.mark.parametrize("blocking", [(), ("--blocking",)])
def test_a_trace_is_sound_and_has_the_makespan(tmp_path, name, blocking):
    path = tmp_path / name
    found = answer("-p", 4, "-m", 6, "--send", 0.25, *blocking, "--trace", path)
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if name.endswith("gz") else data)
    assert check_trace(str(path)) == []
    spans = [one for one in document["traceEvents"] if one["ph"] == "X"]
    assert max(one["ts"] + one["dur"] for one in spans) == pytest.approx(1e6 * found["makespan_s"])


def test_a_picture(tmp_path):
    path = tmp_path / "step.svg"
    assert ask("-p", 4, "-m", 6, "--svg", path).status == 0
    text = path.read_text()
    assert text.startswith("<svg")
    assert "1f1b" in text


def test_nothing_is_overwritten(tmp_path):
    for option, name in (("--csv", "a.csv"), ("--trace", "a.json"), ("--svg", "a.svg")):
        path = tmp_path / name
        path.write_text("mine")
        ran = ask("-p", 4, "-m", 6, option, path)
        assert ran.status == 2
        assert "exists" in ran.err
        assert path.read_text() == "mine"
        assert ask("-p", 4, "-m", 6, option, tmp_path / "no" / name).status == 2
        assert ask("-p", 4, "-m", 6, option, "").status == 2


def test_outputs_have_names_of_their_own(tmp_path):
    same = tmp_path / "one.json"
    ran = ask("-p", 4, "-m", 6, "--trace", same, "--svg", tmp_path / "." / "one.json")
    assert ran.status == 2
    assert "same name" in ran.err
    assert ask("-p", 4, "-m", 6, "--trace", tmp_path / "step.txt").status == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_of_a_schedule_that_is_refused(tmp_path):
    path = tmp_path / "step.svg"
    assert ask("-p", 3, "-m", 8, "--schedule", "dualpipe", "--svg", path).status == 1
    assert not path.exists()


def test_a_pipe_is_not_read(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    ran = ask("--schedule-file", pipe)
    assert ran.status == 2
    assert "no file" in ran.err


def test_ranks_of_a_file_are_bounded(tmp_path):
    ran = ask("--schedule-file", written(tmp_path, *["0F0,0B0"] * 4097))
    assert ran.status == 2
    assert "over 4,096" in ran.err


def test_a_trace_that_could_not_be_read_back_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.timeline.trace.text.MAX_TEXT_BYTES", 95 * 1024)
    path = tmp_path / "step.json"
    ran = ask("-p", 4, "-m", 12, "--trace", path)  # 96 operations
    assert ran.status == 2
    assert "96 operations are over the 95" in ran.err
    assert not path.exists()
    assert ask("-p", 4, "-m", 11, "--trace", path).status == 0


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "dualpipe"])
def test_no_operation_takes_more_of_a_trace_than_is_reckoned(tmp_path, schedule):
    path = tmp_path / "step.json"
    found = answer(job_file(tmp_path), "--schedule", schedule, "--trace", path, "--orders")
    operations = sum(map(len, found["orders"]))
    assert path.stat().st_size <= 4096 + operations * 1024


def test_a_trace_with_another_makespan_is_refused(tmp_path):
    path = tmp_path / "step.json"
    assert ask("-p", 2, "-m", 3, "--trace", path).status == 0
    whole = path.read_text()
    assert CliRunner().invoke(cli, ["timeline", str(path)]).exit_code == 0
    for said in ("-12.0", "11.5", "1e300"):
        path.write_text(whole.replace('"makespan_s":12.0', f'"makespan_s":{said}'))
        ran = CliRunner().invoke(cli, ["timeline", str(path)])
        assert ran.exit_code != 0
        assert "makespan_s" in str(ran.exception), said
