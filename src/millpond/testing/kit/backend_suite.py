"""The suite of state backends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from millpond.spi import StateBackendFactory
from millpond.testing.kit import backend_damage, backend_owners, backend_trips, backend_uploads, backend_verbs
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import Cases, gathered
from millpond.testing.kit.suite import Suite


class BackendSuite(Suite[BackendBench]):
    """
    Subclass it in pytest, and every case is a test of yours::

        class TestMine(BackendSuite):
            def make(self, folder):
                return MyBackend("main", MyConfig(path=folder))
    """

    kind: ClassVar[str] = "backend"
    cases: ClassVar[Cases[Any]] = gathered(
        backend_verbs.cases,
        backend_uploads.cases,
        backend_trips.cases,
        backend_owners.cases,
        backend_damage.cases,
        order=("factory", "init", "snapshot", "upload"),
    )

    @abstractmethod
    def make(self, folder: Path) -> StateBackendFactory:
        """
        Make a factory that keeps its data under *folder*, or under a name made of it.

        It is called several times with one folder: each time what earlier factories left has to be found. It is also
        called in a child process, on a new instance of this class.
        """

    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the backend declares."""
        capabilities = self.make(folder).capabilities
        return {
            "durable": capabilities.durable,
            "point_in_time": capabilities.point_in_time,
            "checkpoint_v1": capabilities.checkpoint_v1,
            "max_record_bytes": capabilities.max_record_bytes is not None,
            "grace": capabilities.grace is not None,
        }

    def bench(self, folder: Path, *, job: str = "") -> BackendBench:
        """Make the world of one case in *folder*."""
        kept = folder / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        bench = BackendBench(folder, self.profile, self.side_door(kept), lambda: self.make(kept), job)
        bench.child = ChildRecipe(self.recipe(), folder)
        return bench
