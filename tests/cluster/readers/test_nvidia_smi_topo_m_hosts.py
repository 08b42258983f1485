"""Matrices of several hosts in one text, as parallel shells print them: one is read, all are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.cluster.facts import Facts
from meshwright.cluster.readers import read_topology
from meshwright.findings import Severity

MATRIX = (
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity",
    "GPU0     X      {0}    0-7     0",
    "GPU1    {0}     X      0-7     0",
    "",
)


def _with_prefix(host: str, cell: str = "NV18") -> str:
    return "".join(f"{host}: {line.format(cell)}\n" for line in MATRIX)


def _with_heading(host: str, cell: str = "NV18") -> str:
    return "\n".join(["-" * 16, host, "-" * 16, *(line.format(cell) for line in MATRIX)]) + "\n"


def _read(tmp_path: Path, text: str) -> Facts:
    (tmp_path / "all.txt").write_text(text)
    return read_topology(tmp_path / "all.txt")


@pytest.mark.parametrize("form", [_with_prefix, _with_heading])
def test_hosts_that_are_not_read_are_named_in_a_warning(tmp_path: Path, form: object) -> None:
    text = form("n7") + form("n8", "SYS") + form("n9")  # type: ignore[operator]
    facts = _read(tmp_path, text)
    assert facts.host == "n7"
    assert facts.gpu_gpu_class == (("X", "NV18"), ("NV18", "X"))
    (found,) = [one for one in facts.findings if one.rule == "topology/more-matrices"]
    assert found.severity is Severity.WARNING
    assert found.numbers["hosts"] == ["n7", "n8", "n9"]
    assert "only that of n7 is read; not looked at: n8, n9" in found.message
    assert found.remedy


def test_a_second_matrix_of_one_host_is_a_note(tmp_path: Path) -> None:
    facts = _read(tmp_path, _with_prefix("n7") + _with_prefix("n7"))
    (found,) = [one for one in facts.findings if one.rule == "topology/more-matrices"]
    assert found.severity is Severity.NOTE


def test_the_host_before_a_matrix_is_its_host(tmp_path: Path) -> None:
    assert _read(tmp_path, _with_prefix("n7")).host == "n7"
    plain = "".join(f"{line.format('NV18')}\n" for line in MATRIX)
    assert _read(tmp_path, plain).host is None
    # Equal output that dshbak put under one heading is of two hosts: it names neither.
    assert _read(tmp_path, _with_heading("n[7-8]")).host is None


def test_a_word_before_the_header_alone_is_no_host(tmp_path: Path) -> None:
    text = "".join(f"{line.format('NV18')}\n" for line in MATRIX)
    assert _read(tmp_path, "output: " + text).host is None
