"""The files of the served checkpoint manager, and which of them know which."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import millpond.heron

PACKAGE = "millpond.heron"


def imported(path: Path) -> set[str]:
    """Give the files of the package that *path* imports, wherever in it, for typing too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add((node.module or "").removeprefix(f"{PACKAGE}."))
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix(f"{PACKAGE}.") for alias in node.names if PACKAGE in alias.name}
    return found


def test_no_file_knows_one_that_knows_it():
    """The imports of Heron's files, those for typing too, have no circle."""
    folder = Path(millpond.heron.__file__).parent
    graph = {path.stem: imported(path) for path in folder.glob("*.py") if path.stem != "__init__"}

    assert "service" in graph["connection"]
    assert set(TopologicalSorter(graph).static_order()) == set(graph)
