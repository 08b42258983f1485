"""A folder of small topology files for tests of the cluster room."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.merging_files import BLOCKS, TREE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree.conf").write_text(TREE)
    (tmp_path / "blocks.conf").write_text(BLOCKS)
    (tmp_path / "rubbish.txt").write_text("neither fish nor fowl\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path
