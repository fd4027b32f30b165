"""The example of a custom backend keeps the contract's core, and says what it leaves out."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from millpond.testing import BackendSuite, FolderDoor, Level, Profile, check_table

PAGE = Path(__file__).parents[1] / "docs" / "backend-guide.md"
EXAMPLE = Path(__file__).parents[1] / "examples" / "custom_backend" / "sqlite_backend.py"


def load_example() -> Any:
    """Import the example from its file."""
    spec = importlib.util.spec_from_file_location("sqlite_backend", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sqlite_backend = load_example()


class TestSqliteBackend(BackendSuite):
    """Every case of the kit, on the example."""

    name = "SQLite example"
    profile = Profile(
        deviations={
            "abandon.leaves-nothing": "the next clean-up removes it",
            "restore.interrupted-within": "one statement is one piece of work",
            "restore.progress": "it reports none",
            "cleanup.removes-orphans": "it removes what its own claim made, and nothing else",
        }
    )

    def make(self, folder: Path) -> Any:
        return sqlite_backend.SqliteBackend("main", sqlite_backend.SqliteConfig(folder))

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)

    def test_its_table_is_fresh(self, tmp_path: Path):
        """The table in the guide is what this run found."""
        check_table(PAGE, self.report(tmp_path))

    def test_it_keeps_the_core(self, tmp_path: Path):
        """What the example leaves out is none of the core."""
        assert Level.CORE is self.report(tmp_path).level


def test_the_example_is_short():
    """A custom backend that keeps the core takes under sixty lines."""
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text().splitlines()) < 60
