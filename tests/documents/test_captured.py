"""Captured files read as other parsers read them."""

from __future__ import annotations

import json

import pytest
import yaml

from meshwright.documents import ScalarNode, read_document
from meshwright.documents.decoded import walk
from support import shared_path

pytestmark = pytest.mark.captured


def _small(suffix):
    files = sorted(shared_path("data").rglob(f"*{suffix}"))
    return [path for path in files if path.stat().st_size < 2**20]


def test_json_files():
    files = sorted(shared_path("cases").glob("*.json")) + _small(".json")
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        try:
            expected = json.loads(text)
        except ValueError:
            continue
        document = read_document(path)
        assert document.root.to_builtins() == expected
        for _, node in walk(document.root):
            rest = document.lines[node.line - 1][node.column - 1 :]
            if isinstance(node, ScalarNode) and not isinstance(node.value, str):
                assert rest.startswith(node.text)
            else:
                assert rest[0] in '"[{'


def test_yaml_files():
    files = _small(".yaml")
    assert files
    for path in files:
        text = path.read_text(encoding="utf-8")
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
        if len(documents) != 1:
            continue
        assert json.loads(json.dumps(read_document(path).root.to_builtins())) == json.loads(
            json.dumps(documents[0], default=str)
        )
