"""``topo --allocation``: what it refuses, and the page it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.running import rules_of, run

pytestmark = pytest.mark.process

_CONF = "SwitchName=s1 Nodes=a[1-2]\nSwitchName=s2 Nodes=a[3-4]\nSwitchName=top Switches=s[1-2]\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "topology.conf"
    path.write_text(_CONF)
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--segment", "2"), "--segment goes with --allocation"),
        (("--allocation", "a[2-1]"), "runs backwards"),
        (("--allocation", ""), "names no host"),
        (("--allocation", "a1,a1"), "named twice"),
        (("--allocation", "a1", "--segment", "2"), "no source names a block"),
        (("--allocation", "a1", "--segment", "0"), "0"),
    ],
)
def test_refused(conf: Path, options: tuple[str, ...], message: str) -> None:
    ran = run("topo", conf, *options)
    assert ran.status == 2
    assert message in ran.err
    assert ran.out == ""


def test_page_and_document_agree(conf: Path) -> None:
    asked = ("--allocation", "a1 a3, a[2,4]")
    document = run("topo", conf, *asked, "--json").document
    found = document["allocation"]
    assert found["hosts"] == ["a1", "a3", "a2", "a4"]
    assert (found["given_order_crossings"], found["ring_crossings_name_order"]) == (4, 2)
    assert rules_of(document) == []
    assert document["origin"]["allocation"] == "modelled"
    page = run("topo", conf, *asked).out
    assert "as given           4" in page
    assert "by name (Slurm's)  2" in page


def test_without_an_allocation_it_is_null(conf: Path) -> None:
    document = run("topo", conf, "--json").document
    assert document["allocation"] is None
    assert document["nvlink_domains"] is None
