"""The suite of store engines."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from millpond.spi import StoreEngine
from millpond.testing.kit import engine_cases, engine_images
from millpond.testing.kit.contract import Cases, gathered
from millpond.testing.kit.engine_bench import EngineBench
from millpond.testing.kit.suite import Suite


class EngineSuite(Suite[EngineBench]):
    """
    Subclass it in pytest, and every case is a test of yours::

        class TestMine(EngineSuite):
            def make(self, directory, read_only):
                return MyEngine.open(directory, StoreSpec("kit", "mine"), read_only=read_only)
    """

    kind: ClassVar[str] = "engine"
    cases: ClassVar[Cases[Any]] = gathered(engine_cases.cases, engine_images.cases)

    @abstractmethod
    def make(self, directory: Path, read_only: bool) -> StoreEngine:
        """Open the database in *directory*, which is empty for a new one."""

    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the engine declares: nothing, an engine has no choices."""
        return {}

    def bench(self, folder: Path, *, job: str = "") -> EngineBench:
        """Make the world of one case in *folder*."""
        return EngineBench(folder, self.profile, self.make)
