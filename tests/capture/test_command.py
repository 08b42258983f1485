"""The real command on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.running import run

pytestmark = pytest.mark.process


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def no_tools(monkeypatch, tmp_path_factory):
    """Leave only an empty folder in the PATH: no tool is installed then."""
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("bin")))


def test_capture_of_this_machine_is_read_by_topo(tmp_path):
    ran = run("capture", cwd=tmp_path)
    assert ran.status == 0
    document = ran.document
    assert document["schema"] == "meshwright/capture/1"
    assert document["host"]["name"]
    if Path("/sys/devices/system/node/node0").exists():
        assert document["cpus"]["numa_nodes"][0]["cpus"]
    assert _tree(tmp_path) == {}, "nothing but standard output"
    (tmp_path / "here.json").write_text(ran.out)
    read = run("topo", "here.json", "--json", cwd=tmp_path)
    assert read.status == 0
    assert read.document["files"] == [{"path": "here.json", "format": "meshwright_capture"}]
    assert [one["place"].split(":")[0] for one in read.document["findings"]] == ["here.json"] * len(
        read.document["findings"]
    )
    said = {one["what"] for one in document.get("missing", ())}
    assert {line.split(": ")[1].removeprefix("no ") for line in ran.err.splitlines()} == said


def test_without_tools_it_says_what_is_missing(tmp_path, no_tools):
    ran = run("capture", "--json", cwd=tmp_path)
    assert ran.status == 0
    told = {one["what"]: one for one in ran.document["missing"]}
    assert "install hwloc" in told["lstopo --of xml"]["remedy"]
    assert "no lstopo --of xml: it is not installed; install hwloc" in ran.err


def test_new_file_and_folder(tmp_path, no_tools, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-0042")
    (tmp_path / "captures").mkdir()
    ran = run("capture", "-o", "captures/", cwd=tmp_path)
    assert (ran.status, ran.out) == (0, "")
    written = tmp_path / "captures" / "gpu-0042.json"
    assert json.loads(written.read_text())["host"]["name"] == "gpu-0042"
    assert list(_tree(tmp_path)) == [str(tmp_path / "captures"), str(written)]
    before = _tree(tmp_path)
    again = run("capture", "-o", "captures", cwd=tmp_path)
    assert again.status == 2
    assert "exists; give a new name" in again.err
    assert _tree(tmp_path) == before
    assert run("capture", "-o", "one.json", cwd=tmp_path).status == 0
    assert run("capture", "-o", "one.json", cwd=tmp_path).status == 2
    nowhere = run("capture", "-o", "nowhere/", cwd=tmp_path)
    assert nowhere.status == 2
    assert "mkdir nowhere/" in nowhere.err
    assert not (tmp_path / "nowhere").exists()


def test_host_name_that_is_no_file_name(tmp_path, no_tools, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "a/../../b")
    assert run("capture", "-o", tmp_path).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["host.json"]


def test_help_has_an_example_with_srun():
    ran = run("capture", "--help")
    assert ran.status == 0
    assert "srun --ntasks-per-node=1 meshwright capture -o captures/" in ran.out


def test_capture_needs_no_numpy(tmp_path, no_tools):
    script = (
        "import sys; sys.modules['numpy'] = None; sys.argv = ['meshwright', 'capture'];"
        "from meshwright.cli.main import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["host"]


@pytest.mark.skipif(os.geteuid() != 0, reason="already runs without rights")
def test_works_without_rights():
    script = (
        "import os; from meshwright.capture.collect import collect;"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "d = collect(); print(d['schema'], 'numa_nodes' in d['cpus'])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd="/"
    )
    assert ran.returncode == 0, ran.stderr
    has_nodes = Path("/sys/devices/system/node/node0").exists()
    assert ran.stdout.split() == ["meshwright/capture/1", str(has_nodes)]
