"""The suite of checkpoint managers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from millpond.spi import CheckpointManager, JobContext, VersionPolicy
from millpond.testing.kit import manager_cases, manager_claims, manager_pins, manager_races
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import Cases, gathered
from millpond.testing.kit.manager_bench import ManagerBench
from millpond.testing.kit.suite import Suite


class CheckpointsSuite(Suite[ManagerBench]):
    """
    Subclass it in pytest, and every case is a test of yours::

        class TestMine(CheckpointsSuite):
            def make(self, folder, job, versions):
                return MyCheckpoints(MyConfig(path=folder), job, versions)
    """

    kind: ClassVar[str] = "checkpoints"
    cases: ClassVar[Cases[Any]] = gathered(
        manager_claims.cases,
        manager_cases.cases,
        manager_pins.cases,
        manager_races.cases,
        order=("manager", "resources", "tasks", "claim"),
    )

    @abstractmethod
    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> CheckpointManager:
        """
        Make a manager for *job* that keeps its records under *folder*, or under a name made of it.

        It is called several times with one folder: each time what earlier managers wrote has to be found. It is also
        called in a child process, on a new instance of this class.
        """

    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the manager declares."""
        bench = self.bench(folder)
        try:
            can = bench.capabilities
            return {
                "durable": can.durable,
                "history": can.history,
                "fencing": can.fencing,
                "atomic_versions": can.atomic_versions,
            }
        finally:
            with suppress(Exception):  # the cases are there to find it
                bench.close()

    def bench(self, folder: Path, *, job: str = "") -> ManagerBench:
        """Make the world of one case in *folder*."""
        kept = folder / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        bench = ManagerBench(
            folder, self.profile, self.side_door(kept), lambda job, versions: self.make(kept, job, versions), job
        )
        bench.child = ChildRecipe(self.recipe(), folder)
        return bench
