"""
A mutant: a plugin that is wrong in one way, and the case of the kit that finds it.

``python tests/mutants.py`` tries them all, and says of each whether the case found it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from millpond.spi import StoreSpec
from millpond.testing import BackendSuite, BlobSuite, CheckpointsSuite, EngineSuite, FolderDoor, LogSuite, Suite
from millpond.testing.kit.bench import Profile
from millpond.testing.memory_log import MemoryPlace


@frozen
class Mutant:
    """
    A wrong plugin.

    Attributes:
        cls: Its class; the first line of its docstring says what is wrong.
        case: The id of the case that has to find it.
        suite: Makes the suite that tries it.
    """

    cls: type
    case: str
    suite: Callable[[], Suite[Any]]

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def wrong(self) -> str:
        return (self.cls.__doc__ or "").strip().splitlines()[0].rstrip(".")


FOUND: list[Mutant] = []


def caught_by(case: str, suite: Callable[[type], Suite[Any]]) -> Callable[[type], type]:
    """Register the decorated class as a mutant."""

    def register(cls: type) -> type:
        FOUND.append(Mutant(cls, case, lambda: suite(cls)))
        return cls

    return register


class _Own:
    """A suite over a class that is given, with results of its own."""

    profile = Profile(many=3000, large_value=200_000)

    def __init__(self, cls: type) -> None:
        self.cls, self.kept = cls, {}

    def recipe(self) -> dict[str, str]:
        return {"function": "mutants:remade", "mutant": self.cls.__name__}

    def side_door(self, folder: Path) -> FolderDoor:
        return FolderDoor(folder)


def remade(recipe: dict[str, str]) -> Suite[Any]:
    """Make a mutant's suite in a child process."""
    return next(mutant.suite() for mutant in all_mutants() if mutant.name == recipe["mutant"])


def all_mutants() -> list[Mutant]:
    """Load every module of mutants, and give them."""
    import mutants  # this module under the name by which the others know it
    import mutants_backends
    import mutants_blobs
    import mutants_engines
    import mutants_logs
    import mutants_managers

    assert mutants_backends and mutants_blobs and mutants_engines and mutants_logs and mutants_managers
    return mutants.FOUND


class BackendMutants(_Own, BackendSuite):
    def make(self, folder: Path) -> Any:
        return self.cls("main", self.cls.config_class(**({"path": folder} if self.has_path() else {})))

    def has_path(self) -> bool:
        return "path" in [each.name for each in self.cls.config_class.__attrs_attrs__]


class ManagerMutants(_Own, CheckpointsSuite):
    def make(self, folder: Path, job: Any, versions: Any) -> Any:
        kind = self.cls.config_class
        fields = [each.name for each in kind.__attrs_attrs__]
        return self.cls(kind(**({"path": folder} if "path" in fields else {})), job, versions)


class EngineMutants(_Own, EngineSuite):
    def make(self, directory: Path, read_only: bool) -> Any:
        return self.cls.open(directory, StoreSpec("kit", "mutant"), read_only=read_only)


class BlobMutants(_Own, BlobSuite):
    shared = False

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.made: dict[Path, Any] = {}

    def make(self, folder: Path) -> Any:
        return self.made.setdefault(folder, self.cls())


class LogMutants(_Own, LogSuite):
    shared = False

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.places: dict[Path, MemoryPlace] = {}

    def make(self, folder: Path) -> Any:
        return self.cls(self.places.setdefault(folder, MemoryPlace()))

    def compact(self, log: Any, topic: str, partition: int) -> None:
        held = log.place.topics[topic].partitions[partition]
        if getattr(log, "oldest", False):
            held.records.reverse()
        held.compact()
        held.records.sort(key=lambda record: record.offset)

    def cut(self, log: Any, topic: str, partition: int, before: int) -> None:
        log.place.topics[topic].partitions[partition].cut(before)


def without_last(items: Iterator[Any]) -> Iterator[Any]:
    """Give all but the last."""
    held = list(items)
    yield from held[:-1]


def main() -> int:
    """Try every mutant, and print what became of it; 1 if one survives."""
    mutants, survive = all_mutants(), 0
    for mutant in mutants:
        with tempfile.TemporaryDirectory(prefix="millpond-mutant-") as folder:
            suite = mutant.suite()
            outcome = suite.run_case(suite.cases.by_id[mutant.case], Path(folder)).outcome
        survive += outcome != "failed"
        told = "killed" if outcome == "failed" else "SURVIVES"
        sys.stdout.write(f"{told} by {mutant.case}: {suite.kind}: {mutant.wrong}\n")
    sys.stdout.write(f"{len(mutants) - survive} of {len(mutants)} mutants killed\n")
    return 1 if survive else 0


if __name__ == "__main__":
    sys.exit(main())
