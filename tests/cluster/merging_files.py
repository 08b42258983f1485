"""What tests of the merge share: a folder of small files, and the merge as one call."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.cluster.assembly.merge import merge_cluster
from meshwright.cluster.fabric import Fabric
from meshwright.cluster.sections import ClusterSection
from meshwright.errors import InputError, Problem
from meshwright.findings import Finding, Place, Severity
from support import FIXTURES

TOPO = FIXTURES / "topology"
TREE = "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\nSwitchName=top Switches=s[0-1]\n"
BLOCKS = "BlockName=b0 Nodes=n[0-3]\nBlockName=b1 Nodes=n[4-7]\nBlockSizes=4\n"


def place(key: str) -> Place:
    return Place("cluster.yaml", 5, 3, key)


def merged(folder: Path, **section: object) -> tuple[Fabric, list[Finding]]:
    return merge_cluster(ClusterSection(**section), folder, place)


def refused(folder: Path, **section: object) -> Problem:
    with pytest.raises(InputError) as caught:
        merged(folder, **section)
    (problem,) = caught.value.problems
    assert problem.place.file
    assert problem.message
    return problem


def own_fixture(kind: str, name: str) -> str:
    return str(TOPO / kind / name)


def notes(findings: list[Finding]) -> list[str]:
    assert {one.severity for one in findings} <= {Severity.NOTE}
    assert all(one.place.subject or one.place.file for one in findings)
    return [one.rule for one in findings]
