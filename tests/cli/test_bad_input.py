"""Bad input: one clear message with its place, the right exit status, never a traceback."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from cli.running import finding_of, rules_of, run

pytestmark = pytest.mark.process
GOOD = "cluster: dgx-h100 x 2\nlayout: {tp: 4, dp: 4}\n"


@pytest.fixture
def job(tmp_path):
    def write(text: str | bytes, name: str = "job.yaml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refused(ran, *texts: str) -> None:
    assert ran.status == 2
    assert ran.out == ""
    for text in texts:
        assert text in ran.err


@pytest.mark.parametrize("command", ["map", "groups", "check"])
def test_empty_file(job, command):
    refused(run(command, job("")), "job.yaml", "empty")


@pytest.mark.parametrize("command", ["map", "groups", "check", "topo"])
def test_binary_file(job, command):
    refused(run(command, job(b"\x7fELF\x00\x01\x02\xff")), "job.yaml:1", "binary")


def test_empty_topology(job):
    refused(run("topo", job("")), "job.yaml:1", "empty")


def test_missing_file(tmp_path):
    refused(run("map", tmp_path / "none.yaml"), "none.yaml")
    refused(run("topo", tmp_path / "none.txt"), "none.txt")


def test_truncated_matrix(job):
    matrix = job("\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\n", "topo.txt")
    refused(run("topo", matrix), "topo.txt:3", "cells")
    text = "cluster: {node: {from: topo.txt, gpu: H100}, nodes: 2}\nlayout: {tp: 2}\n"
    refused(run("map", job(text)), "topo.txt:3")


@pytest.mark.parametrize(
    "text", ["a: " + "[" * 300 + "]" * 300, "\n".join("  " * n + "a:" for n in range(300))]
)
def test_deep_nesting(job, text):
    refused(run("map", job(text)), "job.yaml:", "nest")


def test_missing_host_file(job):
    text = "cluster: dgx-h100 x 2\nlayout: {tp: 4}\nplacement: {ranks: hosts.txt}\n"
    refused(run("map", job(text)), "job.yaml:3:", "hosts.txt")


def test_missing_fabric_file(job):
    text = "cluster: {node: dgx-h100, fabric: {from: nowhere.conf}}\nlayout: {tp: 4}\n"
    refused(run("map", job(text)), "job.yaml:1:", "nowhere.conf")


def test_host_not_in_fabric(job):
    job("SwitchName=s1 Nodes=n[1-4]\n", "topology.conf")
    text = "cluster: {node: dgx-h100, fabric: {from: topology.conf}, allocation: 'n[3-6]'}\nlayout: {tp: 4}\n"
    refused(run("map", job(text)), "job.yaml:1:", "n5, n6")


def test_unknown_gpu(job):
    job("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n", "topo.txt")
    text = "cluster: {node: {from: topo.txt, gpu: H1000}, nodes: 2}\nlayout: {tp: 2}\n"
    refused(run("map", job(text)), "job.yaml:1:", "H1000", "did you mean")


def test_unknown_model(job):
    refused(run("map", job(GOOD + "model: lama3-8b\n")), "job.yaml:3:", "did you mean")


def test_unknown_preset(job):
    refused(
        run("map", job("cluster: dgx-h10 x 2\nlayout: {tp: 4}\n")),
        "job.yaml:1:10",
        "did you mean dgx-h100",
    )


def test_world_size_that_does_not_factor(job):
    ran = run("map", job("cluster: dgx-h100 x 2\nlayout: {tp: 3}\n"), "--json")
    assert ran.status == 1
    finding = finding_of(ran.document, "grid/world-divides")
    assert finding["severity"] == "error"
    assert finding["place"].endswith("job.yaml:2:14")
    assert finding["numbers"]["world_size"] == 16
    assert finding["numbers"]["tp"] == 3
    assert finding["remedy"]
    text = run("map", job("cluster: dgx-h100 x 2\nlayout: {tp: 3}\n"))
    assert text.status == 1
    assert "16 = 5 × 3 + 1" in text.out


@pytest.mark.parametrize("command", ["map", "groups", "check"])
def test_tp_zero(job, command):
    ran = run(command, job("cluster: dgx-h100 x 2\nlayout: {tp: 0}\n"), "--json")
    assert ran.status == 1
    finding = finding_of(ran.document, "layout/degree-positive")
    assert finding["place"].endswith("job.yaml:2:14")


def test_all_problems_of_a_file_at_once(job):
    text = "layot: {tp: 4}\nmodel: [1]\nbatch: {micro_batch: no}\nlayout: {tpp: 4, dp: x}\n"
    ran = run("map", job(text))
    refused(
        ran,
        "job.yaml:1:1",
        "did you mean 'layout'",
        "job.yaml:2:8",
        "job.yaml:3:22",
        "job.yaml:4:10",
        "job.yaml:4:22",
    )


def test_no_yaml_surprises(job):
    ran = run("check", job("layout: {tp: 4, world_size: 16}\nmodel: no\n"))
    refused(ran, "'no' is no model")


def test_json_and_toml_jobs(job):
    for name, text in (
        ("job.json", '{"cluster": "dgx-h100 x 2",\t"layout": {"tp": 4}}'),
        ("job.toml", 'cluster = "dgx-h100 x 2"\n[layout]\ntp = 4\n'),
    ):
        ran = run("map", job(text, name), "--json")
        assert ran.status == 0
        assert ran.document["layout"]["dp"] == 4


def test_map_without_cluster(job):
    refused(run("map", job("layout: {tp: 4, dp: 4}\n")), "names no cluster", "dgx-h100")


def test_unknown_axis_of_given_traffic(job):
    text = GOOD + "traffic: [{axis: tq, op: all_reduce, bytes: 1e9}]\n"
    refused(run("map", job(text)), "job.yaml:3:", "tq")


def test_given_traffic_is_used(job):
    text = GOOD + "traffic: [{axis: dp, op: all_reduce, bytes: 4 GB, count: 2}]\n"
    document = run("map", job(text), "--json").document
    dp = next(one for one in document["axes"] if one["axis"] == "dp")
    assert dp["collectives"][0]["bytes"] == 4e9
    assert dp["sent_bytes"] == pytest.approx(2 * 4e9 * 1.5)
    assert dp["bound_s"] == pytest.approx(2 * 4e9 * 1.5 / 2 / 50e9)


@pytest.mark.parametrize("command", ["map", "groups", "check", "topo"])
def test_help_has_an_example(command):
    ran = run(command, "--help")
    assert ran.status == 0
    assert "Example" in ran.out
    assert f"$ meshwright {command}" in ran.out or "nvidia-smi" in ran.out


def test_rank_outside_the_job(job):
    refused(run("groups", job(GOOD), "--rank", "16"), "0 … 15")


def test_check_proposes_legal_layouts(job):
    ran = run(
        "check",
        job("layout: {tp: 4, pp: 2, cp: 2, world_size: 32, order: tp-cp-ep-pp-dp}\n"),
        "--json",
    )
    assert ran.status == 1
    document = ran.document
    assert document["valid"] is False
    assert rules_of(document)[0] == "grid/expert-dp-equals-dp-unless-pp-last"
    assert 1 <= len(document["nearest"]) <= 5
    for near in document["nearest"]:
        degrees = ", ".join(f"{name}: {value}" for name, value in near.items())
        again = run(
            "check",
            job(f"layout: {{{degrees}, world_size: 32, order: tp-cp-ep-pp-dp}}\n", "near.yaml"),
            "--json",
        )
        assert again.document["valid"], near


def test_check_of_a_legal_layout(job):
    ran = run("check", job(GOOD), "--json")
    assert ran.status == 0
    assert ran.document["valid"] is True
    assert ran.document["nearest"] == []


@pytest.mark.parametrize(
    "layout",
    [
        "cp: 2, pp: -2, etp: -64, ep: 4, world_size: 16",
        "pp: -1, etp: -9223372036854775808, world_size: 1",
        "tp: 9223372036854775807, pp: 9223372036854775807, dp: 9223372036854775807",
        "world_size: 1099511627776",
        "tp: 7919, world_size: 9316358251200",
    ],
)
def test_numbers_that_are_no_degrees(job, layout):
    """Products of two negatives, and worlds beyond any cluster: findings, on every command."""
    for text in (f"layout: {{{layout}}}\n", f"cluster: dgx-h100 x 2\nlayout: {{{layout}}}\n"):
        for command in ("check", "groups", *(["map"] if "cluster" in text else [])):
            ran = run(command, job(text), "--json")
            assert ran.status == 1, (command, ran.err)
            assert any(one["severity"] == "error" for one in ran.document["findings"])


def test_a_device_is_no_file(job):
    for key in ("node", "fabric"):
        text = f"cluster: {{node: dgx-h100, nodes: 2, {key}: /dev/zero}}\nlayout: {{tp: 4}}\n"
        if key == "node":
            text = "cluster: {node: /dev/zero, nodes: 2}\nlayout: {tp: 4}\n"
        refused(run("map", job(text)), "no regular file")
    refused(run("topo", "/dev/zero"), "no regular file")
    text = "layout: {tp: 2}\nplacement: {ranks: /dev/zero}\n"
    refused(run("map", job(text)), "no file")


def test_a_table_of_too_few_ranks(job):
    text = "layout: {tp: 4, dp: 2}\nplacement: {ranks: [[a, 0], [a, 1]]}\n"
    ran = run("map", job(text), "--json")
    assert ran.status == 1
    assert finding_of(ran.document, "placement/ranks-count")["numbers"] == {
        "ranks": 2,
        "world_size": 8,
    }


def test_a_tree_that_names_no_host_of_a_switch(job):
    for tree in (
        "SwitchName=a Switches=b,c\n",
        "SwitchName=a Nodes=n[1-4]\nSwitchName=b\nSwitchName=t Switches=a,b\n",
    ):
        job(tree, "topology.conf")
        for node in ("dgx-h100", "{gpus: 4}"):
            text = (
                f"cluster: {{node: {node}, nodes: 2, fabric: topology.conf}}\nlayout: {{tp: 4}}\n"
            )
            assert run("map", job(text), "--json").status in (0, 2)


def test_an_all_to_all_beyond_reason_is_refused(job):
    text = (
        "cluster: dgx-h100 x 10000\nlayout: {dp: 80000}\n"
        "traffic: [{axis: dp, op: all_to_all, bytes: 1 GB}]\n"
    )
    refused(run("map", job(text)), "too many to route")


def test_lists_longer_than_any_pipeline(job):
    text = f"layout: {{world_size: 16, stages: [{','.join(['1'] * 70_000)}]}}\n"
    refused(run("check", job(text)), "job.yaml:1:", "too long")


def test_check_knows_hosts_that_are_not_there(job):
    text = "cluster: dgx-h100 x 2\nlayout: {tp: 4}\nplacement: {hosts: nowhere}\n"
    refused(run("check", job(text)), "job.yaml:3:", "nowhere")


def test_endless_hostlists_are_refused_by_their_number(job):
    lists = ", ".join(['"n[0-1999999]"'] * 50)
    text = f"cluster: dgx-h100 x 2\nlayout: {{tp: 4}}\nplacement: {{hosts: [{lists}]}}\n"
    refused(run("map", job(text)), "job.yaml:3:", "more than 2,097,152 names together")
    text = f"cluster: {{node: dgx-h100, hosts: [{lists}]}}\nlayout: {{tp: 4}}\n"
    refused(run("map", job(text)), "job.yaml:1:", "more than 2,097,152 names together")


def test_clusters_beyond_reason_are_refused_by_their_number(job):
    layout = "layout: {tp: 4}\n"
    refused(run("map", job("cluster: dgx-h100 x 131073\n" + layout)), "at most 1,048,576")
    fabric = "{hosts_per_unit: 1000000, full_units: true, planes: 8}"
    text = f"cluster:\n  node: dgx-h100\n  nodes: 2\n  fabric: {fabric}\n{layout}"
    refused(run("map", job(text)), "job.yaml:4:", "64,000,000 cables")


def test_the_remedy_of_a_rack_names_a_world_size(job):
    ran = run("check", job("cluster: gb200-nvl72\nlayout: {ep: 32}\n"), "--json")
    assert ran.status == 1
    remedy = finding_of(ran.document, "grid/world-divides-expert")["remedy"]
    assert "world_size: 64 of the 72 GPUs" in remedy


def test_explicit_groups_name_their_own_gpus(job):
    text = (
        "cluster: dgx-h100 x 3\nplacement: {hosts: 'host2,host1,host0'}\n"
        "groups: [{name: a, members: [[host0, 0], [host1, 0]]}]\n"
        "traffic: [{axis: a, op: all_reduce, bytes: 1 GB}]\n"
    )
    document = run("map", job(text), "--json").document
    nics = {
        one["tail"]
        for one in document["links"]["all"]
        if one["kind"] == "nic" and one["load_bytes"]
    }
    assert {"host0 nic0", "host1 nic0"} <= nics
    assert not any("host2" in name for name in nics)
    twice = text.replace("]]}]", "]]}, {name: a, members: [[host0, 0]]}]")
    refused(run("map", job(twice)), "two groups are called 'a'")


def test_output_files_that_cannot_be_written(job, tmp_path):
    path = job(GOOD)
    refused(run("map", path, "--links", tmp_path / ("x" * 300 + ".npz")), "cannot be written")
    (tmp_path / "dangling.npz").symlink_to(tmp_path / "nowhere")
    refused(run("map", path, "--links", tmp_path / "dangling.npz"), "exists")


def test_numbers_beyond_printing(job):
    sizes = ",".join(["9223372036854775807"] * 240)
    ran = run("check", job(f"layout: {{cp: 2, hierarchical_cp: [{sizes},1]}}\n"), "--json")
    assert ran.status == 1
    assert finding_of(ran.document, "cp/hierarchical-sizes")
    refused(
        run("map", job(GOOD + "traffic: [{axis: dp, op: all_reduce, bytes: 1, count: 1e308}]\n")),
        "too large",
    )
    matrix = job("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n", "topo.txt")
    refused(run("topo", matrix, "--pick", "1", "--among", "²"), "no list of GPU numbers")


@pytest.mark.parametrize(
    "cluster",
    [
        '{node: {from: "\\0"}}',
        '{node: {from: ["a\\0"]}}',
        '{node: dgx-h100, fabric: {from: "\\0"}}',
        '{node: dgx-h100, fabric: {from: ["net.txt", "\\0"]}}',
        '{node: dgx-h100, nodes: 2, nvlink_domains: {from: "\\0"}}',
        '"\\0"',
    ],
)
def test_a_nul_in_a_path(job, cluster):
    ran = run("map", job(f"layout: {{tp: 4}}\ncluster: {cluster}\n"))
    refused(ran, "job.yaml:2:", "NUL")


@pytest.mark.parametrize(
    "text", ["cluster: /", "model: .", "cluster: /dev/null", "placement: {ranks: /}"]
)
def test_a_directory_or_device_is_no_file_of_a_job(job, text):
    more = "" if text.startswith("cluster") else "\ncluster: dgx-h100 x 1"
    refused(run("map", job(f"layout: {{tp: 4}}\n{text}{more}\n")), "job.yaml:2:", "is no file")


@pytest.mark.parametrize("command", ["map", "groups", "check", "memory", "batch"])
def test_an_empty_name_of_a_job(command):
    refused(run(command, ""), "the name of the file is empty")


def test_a_long_integer_in_toml(job):
    ran = run("map", job(f"x = 1\n[layout]\ntp = {'7' * 5000}\n", "job.toml"))
    refused(ran, "job.toml:3:6", "does not fit 64 bits")
    assert "set_int_max" not in ran.err


def test_long_texts_are_not_repeated_whole(job):
    ran = run("map", job(f"model: {'x' * 200_000}\ncluster: dgx-h100 x 1\nlayout: {{tp: 4}}\n"))
    refused(ran, "no model of the catalogue")
    assert len(ran.err) < 1000
    text = f"cluster: dgx-h100 x 1\ngroups: [{{name: {'g' * 300}, members: [[0, 0]]}}]\n"
    refused(run("map", job(text)), "job.yaml:2:", "at most 256")


@pytest.mark.parametrize("key", ["global_batch", "micro_batch", "seq_len"])
def test_absurd_batches(job, key):
    refused(run("batch", job(f"batch: {{{key}: 4294967296}}\n")), "job.yaml:1:", "too large")


def test_absurd_traffic(job):
    text = GOOD + "traffic: [{axis: dp, op: all_reduce, bytes: 5e18}]\n"
    refused(run("map", job(text)), "job.yaml:3:", "too large")


@pytest.mark.parametrize("command", ["map", "groups", "batch"])
def test_numbers_that_follow_fit_64_bits(job, command):
    degree = 2**62
    text = f"cluster: dgx-h100 x 2\nlayout: {{tp: {degree}, pp: {degree}, dp: {degree}}}\n"
    document = run(command, job(text), "--json").document
    assert document["world_size"] is None
    sizes = [value for one in document["findings"] for value in one["numbers"].values()]
    assert any(isinstance(value, float) and value > 2**63 for value in sizes)
    assert all(abs(value) < 2**63 for value in sizes if isinstance(value, int))


@pytest.mark.parametrize("arguments", [("map",), ("map", "--json"), ("groups", "--format", "csv")])
def test_a_closed_output(job, arguments):
    command = [sys.executable, "-m", "meshwright", *arguments, str(job(GOOD))]
    text = " ".join(map(shlex.quote, command)) + " >&-"
    ran = subprocess.run(
        ["sh", "-c", text], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: standard output is closed\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("groups",),
        ("groups", "--format", "csv"),
        ("groups", "--axis", "a\x1b[31m\rb\x9bc"),
        ("map",),
    ],
)
def test_a_terminal_obeys_no_name(job, arguments):
    text = (
        'cluster: dgx-h100 x 1\ngroups: [{name: "a\\e[31m\\rb\\x9bc", members: [[0, 0], [0, 1]]}]\n'
        'traffic: [{axis: "a\\e[31m\\rb\\x9bc", op: all_reduce, bytes: 1 GB}]\n'
    )
    ran = run(arguments[0], job(text), *arguments[1:])
    assert ran.status == 0
    assert "a [31m" in ran.out
    assert not set(ran.out) & {"\x1b", "\r", "\x9b"}


@pytest.mark.parametrize("keys", ["tp: -1", "tp: 2, pp: -1", "framework: torchtitan, tp: -1"])
def test_figures_that_follow_from_a_negative_degree_are_null(job, keys):
    path = job(f"cluster: dgx-h100 x 2\nlayout: {{{keys}, dp: 4}}\n")
    for command in ("map", "groups", "batch"):
        ran = run(command, path, "--json")
        assert ran.status == 1
        assert ran.document["world_size"] is None
