"""``groups --name`` and what was verified, as a process."""

from __future__ import annotations

import pytest

from cli.running import rules_of, run

pytestmark = pytest.mark.process


@pytest.fixture
def job(tmp_path):
    def one(text):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return path

    return one


def test_a_twin_has_the_ranks_of_its_kind(job):
    path = job("layout: {tp: 2, dp: 4, framework: megatron}\n")
    document = run("groups", path, "--name", "DATA_PARALLEL_GROUP_GLOO", "--json").document
    [match] = document["lookup"]["matches"]
    assert match["same_ranks_as"] == "DATA_PARALLEL_GROUP"
    assert {group["name"] for group in document["groups"]} == {"DATA_PARALLEL_GROUP"}
    page = run("groups", path, "--name", "DATA_PARALLEL_GROUP_GLOO").out
    assert "another communicator with the ranks of DATA_PARALLEL_GROUP" in " ".join(page.split())


def test_a_number_gives_one_group_a_setting(job):
    path = job("layout: {tp: 2, pp: 2, dp: 4, framework: megatron}\n")
    document = run("groups", path, "--name", "3", "--json").document
    rows = [(one["name"], one["ranks"]) for one in document["lookup"]["matches"]]
    assert rows == [
        ("DATA_PARALLEL_GROUP_WITH_CP", [1, 3, 5, 7]),
        ("DATA_PARALLEL_GROUP_WITH_CP", [8, 10, 12, 14]),
    ]
    assert all("create_gloo" in one["condition"] for one in document["lookup"]["matches"])
    assert [group["index"] for group in document["groups"]] == [1, 2]


@pytest.mark.parametrize(
    ("name", "says"),
    [("nope", "no group is called"), ("99999", "has the number"), ("", "characters")],
)
def test_what_is_not_found_says_why(job, name, says):
    path = job("layout: {tp: 2, dp: 4, framework: megatron}\n")
    ran = run("groups", path, "--name", name)
    assert ran.status == 2
    assert says in " ".join(ran.err.split())


def test_a_log_line_of_an_instance_means_the_rank_it_names(job):
    """The line's rank in the group and its global rank agree: torch sorts what Megatron passes."""
    path = job("layout: {tp: 8, pp: 4, dp: 2, framework: megatron}\n")
    line = "[rank37]: [PG ID 47 PG GUID 300(INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP) Rank 37] x"
    document = run("groups", path, "--name", line, "--json").document
    [match] = document["lookup"]["matches"]
    assert match["rank_of_group_rank"] == 37
    [group] = document["groups"]
    assert (group["group_rank"], group["position"]) == (37, 21)


def test_name_and_axis_do_not_stand_together(job):
    path = job("layout: {tp: 2, dp: 4, framework: megatron}\n")
    assert run("groups", path, "--name", "tp", "--axis", "tp").status == 2


def test_a_rank_beyond_the_world_in_a_line_is_refused(job):
    path = job("layout: {tp: 2, dp: 4, framework: megatron}\n")
    line = "[rank64]: [PG ID 1 PG GUID 3(TENSOR_MODEL_PARALLEL_GROUP) Rank 0]"
    assert run("groups", path, "--name", line).status == 2


def test_csv_of_a_name(job):
    path = job("layout: {tp: 2, dp: 4, framework: megatron}\n")
    ran = run("groups", path, "--name", "mesh_tp", "--format", "csv")
    assert ran.status == 2  # Megatron has no such description
    ran = run("groups", path, "--name", "tp", "--format", "csv")
    assert len(ran.out.splitlines()) == 5


def test_what_no_oracle_has_seen_is_marked(job):
    path = job("layout: {framework: nanotron, tp: 2, dp: 4}\n")
    document = run("groups", path, "--json").document
    unverified = [one["name"] for one in document["axes"] if not one["verified"]]
    assert unverified == ["ep", "tp_and_ep"]
    assert all((one["oracle"] is None) != one["verified"] for one in document["axes"])
    page = " ".join(run("groups", path).out.split())
    assert "Not verified (from reading the code, compared with nothing): ep, tp_and_ep." in page


def test_a_mesh_of_jax_is_not_verified_without_the_order_of_devices(job):
    text = "layout: {framework: maxtext, ici: {tensor: 4, fsdp: -1}, world_size: 8"
    open_document = run("groups", job(text + "}\n"), "--json").document
    assert not any(one["verified"] for one in open_document["axes"])
    assert "maxtext/device-order-assumed" in rules_of(open_document)
    path = job(text + ", device_order: [0, 1, 3, 2, 6, 7, 5, 4]}\n")
    document = run("groups", path, "--rank", "2", "--json").document
    assert all(one["verified"] for one in document["axes"])
    [tensor] = [group for group in document["groups"] if group["axis"] == "tp"]
    assert tensor["ranks"] == [0, 1, 3, 2]
    assert document["rank"]["coordinates"] == {"tensor": 3, "fsdp": 0}


def test_an_axis_that_is_none_is_refused_at_its_place(job):
    ran = run(
        "groups", job("layout: {framework: maxtext, ici: {tensr: 4}, world_size: 8}\n"), "--json"
    )
    assert ran.status == 1
    assert "maxtext/unknown-axis" in rules_of(ran.document)
