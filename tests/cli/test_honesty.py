"""What is unknown, assumed, replaced or without effect is said; nothing is swallowed."""

from __future__ import annotations

import pytest

from cli.running import axis_of, finding_of, groups_of, rules_of, run

pytestmark = pytest.mark.process


@pytest.fixture
def job(tmp_path):
    def write(text: str, name: str = "job.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def mapped(path):
    ran = run("map", path, "--json")
    return ran.document, ran.status


def test_hosts_that_nothing_joins_are_a_warning(job):
    text = (
        "cluster: {node: dgx-h100, nodes: 2, fabric: {preset: none}}\n"
        "layout: {tp: 16}\ntraffic: [{axis: tp, op: all_reduce, bytes: 1 GB}]\n"
    )
    document, status = mapped(job(text))
    assert status == 0
    assert finding_of(document, "routes/network-unknown")["severity"] == "warning"
    tp = axis_of(document, "tp")
    assert tp["bound_s"] is None
    assert tp["lost_bytes"] > 0
    assert "Nothing crosses the network" not in " ".join(run("map", job(text)).out.split())


def test_unknown_loads_are_not_called_none(job):
    text = (
        "cluster: dgx-h100 x 2\nmodel: llama3-8b\n"
        "layout: {tp: 8, sharding: zero2}\nbatch: {micro_batch: 1, global_batch: 16, seq_len: 4096}\n"
    )
    page = " ".join(run("map", job(text)).out.split())
    assert "DP crosses the network, load not known." in page
    assert "Nothing crosses the network" not in page


def test_allocation_keeps_the_geometry_of_the_cluster(job):
    """Hosts of two units are in two units, whether allocated or placed."""
    cluster = (
        "node: dgx-h100, hosts: 'n[01-64]', fabric: {preset: rail-optimized, hosts_per_unit: 32}"
    )
    by_allocation, _ = mapped(
        job(f"cluster: {{{cluster}, allocation: 'n[01-02,33-34]'}}\nlayout: {{tp: 8}}\n")
    )
    by_placement, _ = mapped(
        job(
            f"cluster: {{{cluster}}}\nlayout: {{tp: 8, dp: 4}}\n"
            "placement: {hosts: 'n[01-02,33-34]'}\n",
            "placed.yaml",
        )
    )
    for document in (by_allocation, by_placement):
        dp = axis_of(document, "dp")
        assert dp["degree"] == 4
        assert dp["span"]["unit"]["domains"] == [2, 2]
        assert dp["span_classes"][0]["reach"] == "spine"
    assert by_allocation["placement"]["slot_by_rank"] == by_placement["placement"]["slot_by_rank"]


def test_allocation_does_not_move_hosts_between_racks(job):
    document, _ = mapped(
        job(
            "cluster: {node: gb200-nvl72, hosts: 'h[0-35]', allocation: 'h[0-15,18-33]'}\n"
            "layout: {tp: 4}\n"
        )
    )
    dp = axis_of(document, "dp")
    assert dp["span"]["nvlink_domain"]["members"] == [16, 16]


def test_keys_without_effect_are_listed(job):
    document, _ = mapped(
        job(
            "cluster: dgx-h100 x 2\nlayout: {tp: 8, shard_degree: 2, sharding: zero1}\n"
            "placement: {launcher: torchrun}\ntraining: {tp_comm_overlap: true}\n"
        )
    )
    keys = finding_of(document, "job/keys-without-effect")["numbers"]["keys"]
    assert keys == [
        "placement.launcher",
        "layout.shard_degree",
    ]


def test_traffic_by_hand_says_what_it_replaces(job):
    document, _ = mapped(
        job(
            "cluster: dgx-h100 x 2\nmodel: llama3-8b\nlayout: {tp: 8}\n"
            "batch: {micro_batch: 1, global_batch: 16, seq_len: 4096}\n"
            "traffic: [{axis: tp, op: all_reduce, bytes: 1 MB}, {axis: cp, op: send, bytes: 1 MB}]\n"
        )
    )
    assert "replaces all" in finding_of(document, "traffic/given-replaces")["message"]
    assert finding_of(document, "traffic/axis-of-one")["severity"] == "warning"


def test_missing_batch_is_named(job):
    document, _ = mapped(job("cluster: dgx-h100 x 2\nmodel: llama3-8b\nlayout: {tp: 8}\n"))
    assert finding_of(document, "batch/incomplete")["numbers"]["missing"] == [
        "micro_batch",
        "num_microbatches (or global_batch)",
        "seq_len",
    ]


def test_another_version_is_not_claimed(job):
    text = "layout: {{tp: 8, world_size: 16, framework: megatron, framework_version: {}}}\n"
    other = run("check", job(text.format("megatron-core 0.5.0")), "--json").document
    assert "0.16.1 are applied" in finding_of(other, "framework/version-not-pinned")["message"]
    for same in ("0.16.1", "megatron-core 0.16.1"):
        document = run("check", job(text.format(same)), "--json").document
        assert "framework/version-not-pinned" not in rules_of(document)


def test_explicit_groups_in_every_command(job):
    text = (
        "cluster: dgx-h100 x 2\ngroups: [{name: g1, members: [[host0, 1], [1, 1]]}]\n"
        "traffic: [{axis: g1, op: all_reduce, bytes: 1 GB}]\n"
    )
    assert groups_of(run("groups", job(text), "--json").document, "g1") == [[1, 9]]
    document, _ = mapped(job(text))
    (g1,) = document["axes"]
    assert g1["axis"] == "g1"
    assert g1["bound_s"] == pytest.approx(1e9 / 50e9)
    both = run("map", job(text + "layout: {tp: 8}\n"))
    assert both.status == 2
    assert "job.yaml:2:" in both.err


def test_rank_table_as_json(job):
    job("[[0, A, 0], [1, B, 0]]", "ranks.json")
    refused = run("map", job("layout: {dp: 2}\nplacement: {ranks: ranks.json}\n"))
    assert refused.status == 2  # no JSON: names without quotes
    assert "ranks.json:1:" in refused.err
    job('[["A", 0], ["B", 0]]', "ranks.json")
    document, status = mapped(job("layout: {dp: 2}\nplacement: {ranks: ranks.json}\n"))
    assert status == 0
    assert document["placement"]["slot_by_rank"] == [["A", 0], ["B", 0]]


def test_idle_gpus_are_said(job):
    document, _ = mapped(job("cluster: dgx-h100 x 2\nlayout: {tp: 4, dp: 2}\n"))
    assert finding_of(document, "layout/gpus-unused")["numbers"]["idle"] == 8


@pytest.mark.parametrize(("keys", "status"), [("ep: 2", 1), ("ep: 1", 0)])
def test_experts_of_a_dense_model(job, keys, status):
    ran = run("check", job(f"model: llama3-8b\nlayout: {{world_size: 16, {keys}}}\n"), "--json")
    assert ran.status == status
    assert ("experts/divide-ep" in rules_of(ran.document)) == bool(status)


def test_pages_fit_80_columns_at_scale(job):
    text = (
        "model: gpt3-175b\ncluster: {node: dgx-h100, nodes: 2048, fabric: {preset: rail-optimized}}\n"
        "layout: {tp: 8, cp: 2, pp: 16, dp: 64, framework: megatron, sequence_parallel: true}\n"
        "batch: {global_batch: 512, micro_batch: 1, seq_len: 2048}\n"
    )
    for command in ("map", "groups", "check"):
        path = job(text)
        lines = run(command, path).out.splitlines()
        # A path is printed whole, on a line of its own.
        assert not [line for line in lines if len(line) > 80 and str(path) not in line], command


def test_nvlink_domains_from_labels(job):
    """Two cliques of two hosts each: a group of two hosts stays inside one or not."""
    items = ",".join(
        f'{{"kind": "Node", "metadata": {{"name": "h{n}", "labels": {{"nvidia.com/gpu.clique": '
        f'"5e1c4f0a-0000-4000-8000-00000000000{n // 2}.0"}}}}}}'
        for n in range(4)
    )
    job(f'{{"kind": "List", "apiVersion": "v1", "items": [{items}]}}', "labels.json")
    document, status = mapped(
        job(
            "cluster: {node: gb200, hosts: [h0, h1, h2, h3], nvlink_domains: {from: labels.json}}\n"
            "layout: {tp: 8}\n"
        )
    )
    assert status == 0
    assert document["cluster"]["nvlink_domain_gpus"] == [8, 8]
    tp = axis_of(document, "tp")
    assert tp["span"]["nvlink_domain"]["domains"] == [1, 1]
    assert tp["span"]["host"]["domains"] == [2, 2]
