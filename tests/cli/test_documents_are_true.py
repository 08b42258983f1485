"""README and docs say what the program does."""

from __future__ import annotations

import re

import pytest
import yaml

from cli.running import run
from support import ROOT

pytestmark = pytest.mark.process
README = (ROOT / "README.md").read_text()


def blocks(text: str, language: str = "") -> list[str]:
    """Return the fenced blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.M | re.S)
    return [body for name, body in found if name == language]


def test_readme_shows_the_output_of_its_example():
    shown = next(one for one in blocks(README) if one.startswith("$ meshwright map"))
    command, _, page = shown.partition("\n")
    ran = run(*command.split()[2:], cwd=ROOT)
    assert ran.status == 0
    assert page == ran.out


def test_readme_shows_its_example_file():
    shown = yaml.safe_load(blocks(README, "yaml")[0])
    assert shown == yaml.safe_load((ROOT / "examples" / "llama3-8b-16gpu.yaml").read_text())


def test_readme_shows_the_warning_of_the_turned_order(tmp_path):
    shown = next(one for one in blocks(README) if one.startswith("warning"))
    job = (ROOT / "examples" / "llama3-8b-16gpu.yaml").read_text()
    (tmp_path / "turned.yaml").write_text(job.replace("tp-cp-ep-dp-pp ", "dp-cp-ep-tp-pp "))
    assert shown in run("map", "turned.yaml", cwd=tmp_path).out


def test_cluster_file_of_the_docs_is_readable(tmp_path):
    text = next(
        one
        for one in blocks((ROOT / "docs" / "jobs.md").read_text(), "yaml")
        if one.startswith("node:")
    )
    text = text.replace("node: {from: topo.txt, gpu: H100-SXM, nic: 400 Gbit/s}", "node: dgx-h100")
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / "job.yaml").write_text("cluster: cluster.yaml\nlayout: {tp: 8}\n")
    ran = run("map", "job.yaml", "--json", cwd=tmp_path)
    assert ran.status == 0
    assert ran.document["world_size"] == 128


def test_every_key_of_a_job_is_in_the_docs():
    from meshwright.chain.jobfile import JobFile
    from meshwright.cluster.sections import ClusterSection, FabricSection, NodeSection
    from meshwright.job import sections
    from meshwright.placement.section import PlacementSection

    page = (ROOT / "docs" / "jobs.md").read_text()
    structs = [JobFile, ClusterSection, FabricSection, NodeSection, PlacementSection]
    structs += [getattr(sections, name) for name in dir(sections) if name.endswith("Section")]
    missing = {
        field
        for struct in structs
        for field in struct.__struct_encode_fields__
        if not re.search(rf"\b{field}\b", page)
    }
    assert not missing
