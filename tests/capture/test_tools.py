"""Running tools: bounds of time and output, and failures."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from meshwright.capture import tools
from meshwright.capture.tools import Ran, ask_tools, run_tool

pytestmark = pytest.mark.process


def _script(folder: Path, body: str) -> str:
    path = folder / "made-up-tool"
    path.write_text(f"#!{sys.executable}\nimport os, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_output_is_kept_and_errors_are_apart(tmp_path):
    tool = _script(tmp_path, "print('a', sys.argv[1:]); print('warning', file=sys.stderr)")
    ran = run_tool([tool, "topo", "-m; echo x"])
    assert (ran.output, ran.failure) == ("a ['topo', '-m; echo x']\n", None)


def test_environment_is_passed_on(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    tool = _script(tmp_path, "print(os.environ['CUDA_VISIBLE_DEVICES'], sys.stdin.read())")
    assert run_tool([tool]).output == "3 \n"


def test_not_installed_and_not_executable(tmp_path):
    assert not run_tool(["no-such-tool-of-anybody"]).installed
    path = tmp_path / "broken"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    assert "cannot be run" in (run_tool([str(path)]).failure or "")


def test_failure_says_what_the_tool_said(tmp_path):
    tool = _script(
        tmp_path, "print('Driver/library version mismatch', file=sys.stderr); sys.exit(18)"
    )
    assert run_tool([tool]).failure == "ended with status 18: Driver/library version mismatch"


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_tool_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "TIME_LIMIT_S", 3.0)
    body = "pid = os.fork()\nif pid: open('child', 'w').write(str(pid))\ntime.sleep(600)"
    monkeypatch.chdir(tmp_path)
    assert "took over 3 s" in (run_tool([_script(tmp_path, body)]).failure or "")
    child = int(Path("child").read_text())
    while _is_alive(child):  # one that was not ended hangs the test, which is stopped then
        time.sleep(0.01)


def test_tools_that_hang_do_not_add_up():
    now_s, asked = 0.0, []

    def hang(command):
        nonlocal now_s
        now_s += tools.TIME_LIMIT_S
        asked.append(command[0])
        return Ran(failure="took over 10 s and was ended")

    kept, missing = ask_tools(hang, frozenset({"nvidia", "amd"}), clock=lambda: now_s)
    assert kept == ()
    assert asked == ["nvidia-smi", "nvidia-smi", "rocm-smi"]
    assert now_s <= tools.START_LIMIT_S + tools.TIME_LIMIT_S
    why = {one.what: one.why for one in missing}
    assert len(why) == len(tools.ASKED)
    assert why["nvidia-smi topo -m"] == "took over 10 s and was ended"
    assert why["lstopo --of xml"] == "not run: the tools before it took 30 s"


def test_tools_in_time_are_all_asked():
    clock = iter(range(0, 100, 4)).__next__
    kept, missing = ask_tools(lambda _: Ran("text"), frozenset({"nvidia"}), clock=clock)
    assert [one.name for one in kept] == [one.name for one in tools.ASKED]
    assert missing == ()


def test_tool_that_prints_without_end(tmp_path):
    ran = run_tool([_script(tmp_path, "while True: os.write(1, b'x' * 65536)")])
    assert "printed over 2,000,000 bytes" in (ran.failure or "")
    assert ran.output == ""


def test_bytes_that_are_no_text(tmp_path):
    ran = run_tool([_script(tmp_path, "os.write(1, b'\\xff\\x00a')")])
    assert ran.output == "\ufffd\x00a"
    assert tools._text(ran.output) == "\ufffd\ufffda"


def test_pipes_are_closed(tmp_path):
    tool = _script(tmp_path, "print(1)")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        run_tool([tool])
    assert len(list(Path("/proc/self/fd").iterdir())) == before
