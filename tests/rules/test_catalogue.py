"""Every rule id the source can give is known to ``meshwright rules``, and no other."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from meshwright.chain.jobfile import load_job
from meshwright.chain.judge import judge
from meshwright.chain.outline import outline_job
from meshwright.chain.plan import plan_job
from meshwright.findings import Severity
from meshwright.rules.catalogue import REGISTERED, find_rule, known_rules, near_rules, rules_like
from support import ROOT

SOURCE = ROOT / "src" / "meshwright"
_ID = re.compile(r"[a-z]+(?:-[a-z]+)*/[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_WORDS = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\Z")
_PREFIXES = {one.id.split("/")[0] for one in known_rules()}


class _Module:
    """Rule ids in one module: written whole, or as a suffix given to a function that completes it."""

    def __init__(self, path: Path) -> None:
        self.tree = ast.parse(path.read_text())
        self.whole: set[str] = set()
        self.calls: list[tuple[str, list[ast.expr]]] = []
        self.makers: dict[str, str] = {}
        self.forwarders: list[tuple[str, str]] = []
        self.words: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._constant(node.value)
            elif isinstance(node, ast.FunctionDef):
                self._function(node)
            elif isinstance(node, ast.Call):
                given = [*node.args, *(one.value for one in node.keywords)]
                self.calls.append((_name_of(node.func), given))

    def _constant(self, text: str) -> None:
        if _ID.match(text) and text.partition("/")[0] in _PREFIXES:
            self.whole.add(text)
        elif _WORDS.match(text):
            self.words.add(text)

    def _function(self, node: ast.FunctionDef) -> None:
        parameters = {one.arg for one in node.args.args}
        for inner in ast.walk(node):
            if isinstance(inner, ast.JoinedStr) and len(inner.values) == 2:
                head, tail = inner.values
                prefix = head.value if isinstance(head, ast.Constant) else ""
                name = _name_of(tail.value) if isinstance(tail, ast.FormattedValue) else ""
                if name in parameters and str(prefix).split("/")[0] in _PREFIXES and "/" in prefix:
                    self.makers[node.name] = str(prefix)
            elif isinstance(inner, ast.Call):
                names = {_name_of(one) for one in inner.args}
                if "rule" in names & parameters:
                    self.forwarders.append((node.name, _name_of(inner.func)))


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _texts(node: ast.expr) -> set[str]:
    """Return the constants an argument may be (``a if c else b`` gives both)."""
    branches = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return {
        one.value
        for one in branches
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and _WORDS.match(one.value)
    }


def _ids_of_source() -> tuple[set[str], set[str]]:
    """Return (ids that certainly arise, further words that a prefix may stand before)."""
    modules = [_Module(path) for path in sorted(SOURCE.rglob("*.py"))]
    makers = {name: prefix for module in modules for name, prefix in module.makers.items()}
    found: set[str] = set()
    for module in modules:
        local = dict(makers) | {name: makers[to] for name, to in module.forwarders if to in makers}
        found |= module.whole
        for name, given in module.calls:
            prefix = local.get(name)
            if prefix is not None and given:
                found |= {prefix + one for argument in given[:2] for one in _texts(argument)}
    return found, {word for module in modules for word in module.words}


_NO_IDS: set[str] = set()
"""Ids that are only looked for: nothing gives them any more."""
_TOLD = (SOURCE / "rules" / "told_defaults.py").read_text()


def test_every_id_of_the_source_is_known():
    found, _ = _ids_of_source()
    registered = {one.id for one in REGISTERED}
    missing = sorted(one for one in found | registered if one not in _NO_IDS and not find_rule(one))
    assert not missing, f"not in data/rules.json: {', '.join(missing)}"
    assert len(found) > 150, "the search for ids finds too little to say anything"


def test_no_entry_is_stale():
    found, words = _ids_of_source()
    registered = {one.id for one in REGISTERED}
    stale = []
    for one in known_rules():
        prefix, suffix = one.id.split("/")
        if one.id in found | registered or suffix.endswith("*") or suffix in words:
            continue  # also where a function completes the suffix
        if prefix == "assumed" and f".{suffix.replace('-', '_')}" in _TOLD:
            continue  # the note on a default is named after its key
        stale.append(one.id)
    assert not stale, f"in data/rules.json, and nowhere in the source: {', '.join(stale)}"


def test_ids_are_unique_and_entries_whole():
    ids = [one.id for one in known_rules()]
    assert len(ids) == len(set(ids))
    for one in known_rules():
        assert one.severity in {severity.value for severity in Severity}, one.id
        assert one.source, one.id
        assert one.summary.endswith("."), one.id
        assert one.versions, one.id


def test_findings_name_where_they_come_from():
    # our own judgement, a repository with a path or a thread, or the library whose word it is
    named = re.compile(r"meshwright\Z|NVIDIA NVML |[\w.-]+/[\w.-]+( [\w./-]+|#\d+)")
    registered = {one.id for one in REGISTERED}
    others = [one for one in known_rules() if one.id not in registered]
    assert [one.id for one in others if not named.match(one.source)] == []
    assert find_rule("topology/matrix-asymmetric").source == "vllm-project/vllm#8947"
    assert find_rule("memory/not-known").source == "meshwright"


def test_every_registered_rule_has_an_example():
    missing = {one.id for one in REGISTERED} - {one.id for one in known_rules() if one.example}
    assert not missing, f"no example in data/rules.json: {', '.join(sorted(missing))}"


@pytest.mark.parametrize(
    "one", [one for one in known_rules() if one.example], ids=lambda one: one.id
)
def test_each_example_breaks_its_rule(one, tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(one.example or "")
    outline = outline_job(load_job(path))
    placement = plan_job(outline).placement if outline.fabric is not None else None
    judge(outline, placement)
    mine = [finding for finding in outline.findings if finding.rule == one.id]
    assert mine, sorted({finding.rule for finding in outline.findings})
    for finding in mine:
        assert finding.severity.value == one.severity
        assert finding.message.endswith("."), finding.message
        assert finding.place.subject or finding.place.file


def test_lookups():
    assert find_rule("topology/conflict-anything").id == "topology/conflict-*"
    assert find_rule("heads/divide-tp").source.startswith("NVIDIA/Megatron-LM")
    assert find_rule("heads") is None
    assert {one.id.split("/")[0] for one in rules_like("grid")} == {"grid"}
    assert "heads/divide-tp" in near_rules("heads/divides-tp")
