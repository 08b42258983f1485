"""The structure of the code: import order of the rooms, printing, units, sizes, the public front."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import meshwright
from support import ROOT

SOURCE = ROOT / "src" / "meshwright"
ROOMS = [
    "units", "findings", "errors", "origin", "data", "documents", "capture", "job", "cluster", "groups", "schedules",
    "traffic", "memory", "placement", "routes", "costs", "timeline", "step", "rules", "chain", "search", "emit",
    "evidence", "compare", "report", "shell", "cli",
]  # fmt: skip
"""A room imports only from those before it (docs/design.md)."""
MAY_PRINT = ("cli", "shell", "report")
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the room of a module."""
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms a module imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("meshwright.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_from_rooms_before_it(path):
    room = room_of(path)
    if room in ("__init__", "__main__"):
        return
    later = {other for other in imported_rooms(path) if ROOMS.index(other) > ROOMS.index(room)}
    assert not later, f"{room} imports {later}"


def test_every_folder_is_a_known_room():
    assert {room_of(path) for path in MODULES} <= {*ROOMS, "__init__", "__main__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_some_rooms_print(path):
    if room_of(path) in MAY_PRINT:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{path}:{node.lineno} prints"
        if isinstance(node, ast.Attribute):
            assert (getattr(node.value, "id", ""), node.attr) not in {
                ("sys", "stdout"),
                ("sys", "stderr"),
                ("click", "echo"),
            }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_units_are_converted_in_one_module(path):
    if path.name == "units.py":
        return
    code = "\n".join(line.split("#")[0] for line in path.read_text().splitlines())
    found = re.findall(
        r"(?<![\w.])(?:1024\s*\*\*|1e(?:3|6|9|12)\s*[/*]|[/*]\s*1e-?(?:3|6|9|12)\b|10\s*\*\*\s*(?:3|6|9|12))",
        code,
    )
    assert not found, f"{path}: {found}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_functions_and_classes_are_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 600
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            # The docstring is text, not code.
            doc = node.body[0] if isinstance(node.body[0], ast.Expr) else None
            length = (node.end_lineno or 0) - node.lineno + 1
            if doc is not None and isinstance(doc.value, ast.Constant):
                length -= (doc.end_lineno or 0) - doc.lineno + 1
            assert length <= 45, f"{path.name}:{node.name} has {length} lines"
        if isinstance(node, ast.ClassDef):
            assert (node.end_lineno or 0) - node.lineno < 220, f"{path.name}:{node.name}"


def test_public_front_is_what_the_module_shows():
    shown = {name for name in dir(meshwright) if not name.startswith("_") or name == "__version__"}
    modules = {path.stem for path in SOURCE.iterdir()} | {
        "annotations",
        "importlib",
        "Any",
        "TYPE_CHECKING",
    }
    assert sorted(meshwright.__all__) == sorted(shown - modules)
    for name in meshwright.__all__:
        assert getattr(meshwright, name) is not None
    assert set(meshwright._HOMES) == set(meshwright.__all__) - {"__version__"}


def test_unknown_public_name():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = meshwright.no_such_name


@pytest.mark.parametrize("code", ["import meshwright", "import meshwright.cli.main"])
def test_import_loads_no_numpy(code):
    script = (
        f"{code}; import sys; print(sorted({{'numpy', 'yaml', 'rustworkx'}} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_typed_marker_is_shipped():
    assert (SOURCE / "py.typed").exists()


def test_no_path_of_a_machine_in_the_tree():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".yaml", ".json", ".conf") and path.exists():
            text = path.read_text(errors="ignore")
            assert str(ROOT.parent) + "/" not in text, name
