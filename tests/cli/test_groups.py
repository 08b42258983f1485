"""``groups`` as a process."""

from __future__ import annotations

import csv
import io

import pytest

from cli.running import groups_of, run

pytestmark = pytest.mark.process
FIVE_AXES = (
    "layout: {tp: 8, cp: 2, pp: 4, dp: 64, ep: 16, etp: 1, framework: megatron, world_size: 4096}\n"
)


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "five.yaml"
    path.write_text(FIVE_AXES)
    return path


def test_every_group_of_one_rank(job):
    """4,096 ranks on five axes: each kind once, rank 77 in each."""
    document = run("groups", job, "--rank", "77", "--json").document
    assert document["schema"] == "meshwright/groups/1"
    assert document["world_size"] == 4096
    assert all(77 in group["ranks"] for group in document["groups"])
    assert all(group["ranks"][group["position"]] == 77 for group in document["groups"])
    # torch's new_group sorts: the rank inside a group is by number, not by place in the list
    assert all(sorted(group["ranks"])[group["group_rank"]] == 77 for group in document["groups"])
    kinds = [one["name"] for one in document["axes"]]
    # Rank 77 = tp 5, cp 1, dp 4, pp 0: on the first stage, so in an embedding group too.
    assert [group["name"] for group in document["groups"]] == kinds
    assert groups_of(document, "tp") == [list(range(72, 80))]
    assert groups_of(document, "cp") == [[69, 77]]
    assert groups_of(document, "dp") == [list(range(13, 1024, 16))]
    assert groups_of(document, "pp") == [[77, 1101, 2125, 3149]]
    assert groups_of(document, "ep") == [list(range(64, 80))]
    assert document["rank"]["coordinates"]["tp"] == 5


def test_every_rank_is_in_one_group_of_each_axis(job):
    document = run("groups", job, "--json").document
    for axis in document["axes"]:
        members = [
            rank for g in document["groups"] if g["name"] == axis["name"] for rank in g["ranks"]
        ]
        if axis["axis"] not in ("embedding", "position_embedding"):
            assert sorted(members) == list(range(4096)), axis


def test_axis_by_either_name(job):
    ours = run("groups", job, "--axis", "tp", "--json").document["groups"]
    theirs = run("groups", job, "--axis", "tensor_model_parallel_group", "--json").document[
        "groups"
    ]
    assert ours == theirs
    assert len(ours) == 512
    refused = run("groups", job, "--axis", "nope")
    assert refused.status == 2
    assert "dp-cp" in refused.err


def test_csv_is_the_json(job):
    document = run("groups", job, "--axis", "cp", "--json").document
    rows = list(
        csv.DictReader(io.StringIO(run("groups", job, "--axis", "cp", "--format", "csv").out))
    )
    assert [list(map(int, row["ranks"].split())) for row in rows] == groups_of(document, "cp")
    one = list(
        csv.DictReader(io.StringIO(run("groups", job, "--rank", "77", "--format", "csv").out))
    )
    assert all("77" in row["ranks"].split() for row in one)


def test_text_summarises_and_lists(job):
    page = run("groups", job).out
    assert "TENSOR_MODEL_PARALLEL_GROUP" in page
    assert "--format csv" in page
    listed = run("groups", job, "--axis", "tp").out
    assert "448 more" in listed


def test_many_groups_are_written_piece_by_piece(tmp_path):
    """A document of several parts reads as one list, in order."""
    path = tmp_path / "wide.yaml"
    path.write_text("layout: {tp: 2, dp: 300000}\n")
    document = run("groups", path, "--axis", "tp", "--json").document
    groups = document["groups"]
    assert [group["index"] for group in groups] == list(range(300_000))
    assert groups[-1]["ranks"] == [599_998, 599_999]
    assert all(one["severity"] == "note" for one in document["findings"])
    table = run("groups", path, "--axis", "tp", "--format", "csv").out.splitlines()
    assert len(table) == 300_001
    assert table[-1].endswith(",299999,599998 599999")
    page = run("groups", path, "--axis", "tp").out
    assert "… 299,936 more" in page


def test_a_document_of_too_many_ranks_is_refused(tmp_path):
    path = tmp_path / "huge.yaml"
    path.write_text("layout: {dp: 10000000}\n")
    ran = run("groups", path, "--json")
    assert ran.status == 2
    assert ran.out == ""
    assert all(word in ran.err for word in ("--axis", "--rank", "--format csv"))


def test_groups_of_a_schedule_are_listed(tmp_path):
    path = tmp_path / "opposed.yaml"
    path.write_text("layout: {tp: 2, pp: 4}\ntraining: {schedule: DualPipe}\n")
    document = run("groups", path, "--axis", "pp_mirror", "--json").document
    assert groups_of(document, "pp_mirror") == [[0, 6], [2, 4], [1, 7], [3, 5]]
    assert document["axes"][0]["verified"] is False


@pytest.mark.parametrize("ep", [2, 4])
def test_deepspeed_lists_experts_as_it_makes_them(tmp_path, ep):
    path = tmp_path / "deepspeed.yaml"
    path.write_text(f"layout: {{framework: deepspeed, dp: 16, ep: {ep}}}\n")
    kinds = [one["name"] for one in run("groups", path, "--json").document["axes"]]
    assert kinds[-2:] == ["expert_data_parallel", "expert_parallel"]
