"""``topo`` on captures of several hosts: short where they agree, exact where one differs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cli.running import finding_of, rules_of, run
from meshwright.chain.cluster_of_job import load_cluster
from meshwright.cluster.join.all_sources import join_sources
from meshwright.cluster.readers import read_topology
from meshwright.report.cluster_file import cluster_document, write_cluster
from meshwright.report.topo_report import topo_text
from meshwright.report.topo_view import topo_view
from support import FIXTURES

_FIXTURE = FIXTURES / "topology" / "meshwright_capture" / "eight_gpus.json"
Edit = Callable[[dict[str, Any]], None]


def _capture(folder: Path, number: int, edit: Edit | None = None) -> Path:
    """Write the capture of node ``number``: the fixture with its own name, GUIDs and UUIDs."""
    text = _FIXTURE.read_text().replace("node7", f"node{number}")
    document = json.loads(text.replace("a088:c203:00aa", f"a088:c203:{0x100 + number:04x}"))
    for at, gpu in enumerate(document["nvml"]["gpus"]):
        gpu["uuid"] = f"GPU-{number:04d}{at}"
    if edit is not None:
        edit(document)
    path = folder / f"node{number}.json"
    path.write_text(json.dumps(document, indent=1))
    return path


def _half_width(document: dict[str, Any]) -> None:
    pci = document["nvml"]["gpus"][2]["pci"]
    for device in document["pci"]:
        if device["address"] == pci:
            device["width"] = 8


@pytest.fixture
def captures(tmp_path: Path) -> list[Path]:
    return [_capture(tmp_path, number) for number in (7, 8, 9, 10, 11)]


def test_equal_hosts_are_drawn_once_and_their_notes_said_once(
    captures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(captures[0].parent)
    view = topo_view([read_topology(path.name) for path in captures])
    text = topo_text(view)
    assert text.count("NVLink through 4 NVSwitches") == 1
    assert text.index("Together") < text.index("node7.json: meshwright_capture: 8 GPUs")
    assert "5 hosts (node7, node8, node9 …)" in text
    assert len(text.splitlines()) < 100  # 318 with a drawing and the notes of every host
    said = [(one.rule, one.message) for one in view.findings]
    assert len(said) == len(set(said))
    assert {one.numbers["host_count"] for one in view.findings} == {5}


def test_many_files_are_counted_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [_capture(tmp_path, number) for number in range(100, 130)]
    text = topo_text(topo_view([read_topology(path.name) for path in paths]))
    assert "… and 18 more files" in text
    assert text.count(": meshwright_capture:") == 12


def test_one_file_is_shown_as_before(captures: list[Path]) -> None:
    text = topo_text(topo_view([read_topology(captures[0])]))
    assert "Together" not in text
    assert "\n  gpus  " in text


def test_the_commonest_host_is_routed_and_the_odd_one_is_named(tmp_path: Path) -> None:
    """By file name the bad host is the first; its link may not become everybody's."""
    bad = _capture(tmp_path, 18, _half_width)
    sources = [read_topology(path) for path in [bad, *(_capture(tmp_path, i) for i in (7, 8, 9))]]
    write_cluster(sources, str(tmp_path / "cluster.yaml"))
    written = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    assert written["node"]["from"] == [f"node{i}.json" for i in (7, 8, 9, 18)]
    assert written["allocation"] == "node[7-9,18]"
    assert "node18 differs" in (tmp_path / "cluster.yaml").read_text()
    cluster = load_cluster(tmp_path / "cluster.yaml")
    links = cluster.fabric.links
    pcie = {one.capacity_bytes_per_s for one in links.classes if one.kind == "pcie"}
    assert len(pcie) == 1  # no x8 link
    found = next(one for one in cluster.findings if one.rule == "topology/hosts-differ")
    assert found.numbers["hosts"] == ["node18"]
    assert "All hosts are taken to be like node7" in found.message
    assert "GPU2" in found.message
    assert int(np.unique(cluster.fabric.type_of_host).size) == 1


def test_hosts_of_which_none_is_usual_are_left_to_the_user(tmp_path: Path) -> None:
    sources = [
        read_topology(_capture(tmp_path, 18, _half_width)),
        read_topology(_capture(tmp_path, 7)),
    ]
    document, comments = cluster_document(sources, tmp_path)
    assert document["node"]["from"] == "node7.json"
    assert any("which node type is meant" in text for text in comments)


def test_the_notes_of_equal_captures_are_one_in_a_cluster_file_too(captures: list[Path]) -> None:
    folder = captures[0].parent
    write_cluster([read_topology(path) for path in captures], str(folder / "cluster.yaml"))
    findings = load_cluster(folder / "cluster.yaml").findings
    idle = [one for one in findings if one.rule == "topology/gpu-link-idle"]
    assert [one.numbers["host_count"] for one in idle] == [5]


def test_a_listing_and_captures_place_nameless_adapters(tmp_path: Path) -> None:
    path = _capture(tmp_path, 7)
    guids = [
        one["node_guid"].replace(":", "") for one in json.loads(path.read_text())["infiniband"]
    ]
    (tmp_path / "ib.txt").write_text(_listing(guids))
    alone = run("topo", "ib.txt", "--json", cwd=tmp_path).document
    assert finding_of(alone, "topology/nic-without-host")["numbers"]["count"] == 8
    both = run("topo", "ib.txt", "node7.json", "--json", cwd=tmp_path).document
    assert "topology/nic-without-host" not in rules_of(both)
    (tmp_path / "ib.txt").write_text(_listing([*guids, "00000000deadbeef"]))
    both = run("topo", "ib.txt", "node7.json", "--json", cwd=tmp_path).document
    found = finding_of(both, "topology/nic-without-host")
    assert found["numbers"]["guids"] == ["00000000deadbeef"]
    (tmp_path / "cluster.yaml").write_text("node: {from: node7.json}\nfabric: {from: ib.txt}\n")
    found_in_job = load_cluster(tmp_path / "cluster.yaml").findings
    unplaced = [one for one in found_in_job if one.rule == "topology/nic-without-host"]
    assert [one.numbers["count"] for one in unplaced] == [1]


def _listing(guids: list[str]) -> str:
    """Return a leaf with adapters that are all called localhost."""
    leaf = "00000000000000c0"
    lines = ["#", "# Topology file: generated on Wed Aug  6 16:11:23 2025", "#", ""]
    lines += [
        "vendid=0x2c9",
        "devid=0xd2f2",
        f"sysimgguid=0x{leaf}",
        f"switchguid=0x{leaf}({leaf})",
    ]
    lines += [f'Switch\t65 "S-{leaf}"\t\t# "leaf" enhanced port 0 lid 1 lmc 0']
    for port, guid in enumerate(guids, 1):
        lines.append(
            f'[{port}]\t"H-{guid}"[1]({guid}) \t\t# "localhost mlx5_0" lid {port + 9} 4xNDR'
        )
    for port, guid in enumerate(guids, 1):
        lines += ["", "vendid=0x2c9", "devid=0x1021", f"sysimgguid=0x{guid}", f"caguid=0x{guid}"]
        lines += [f'Ca\t1 "H-{guid}"\t\t# "localhost mlx5_0"']
        lines += [f'[1]({guid}) \t"S-{leaf}"[{port}]\t\t# lid {port + 9} lmc 0 "leaf" lid 1 4xNDR']
    return "\n".join(lines) + "\n"


def test_two_machines_of_one_name_are_said_on_the_page(tmp_path: Path) -> None:
    first = _capture(tmp_path, 20)
    second = _capture(tmp_path, 21)
    second.write_text(second.read_text().replace("node21", "node20"))
    joined = join_sources([read_topology(first), read_topology(second)])
    assert [one.rule for one in joined.findings] == ["topology/host-name-twice"]
    ran = run("topo", first, second)
    assert "two machines are called node20" in ran.out
    assert ran.status == 0
