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
    assert all(group["ranks"][group["group_rank"]] == 77 for group in document["groups"])
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
