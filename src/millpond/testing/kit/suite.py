"""A suite: the cases of one role, tried on what its author makes; in pytest, or without it."""

from __future__ import annotations

import inspect
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from millpond.testing.kit.bench import Bench, Profile
from millpond.testing.kit.contract import Case, Cases, Level
from millpond.testing.kit.door import SideDoor
from millpond.testing.kit.report import Outcome, Report, Result
from millpond.testing.kit.running import run_case

B = TypeVar("B", bound=Bench)


class Suite(Generic[B]):
    """
    What the suites of all roles share; an author subclasses that of one role.

    Attributes:
        name: The plugin's name in the report; by default the class's.
        profile: The plugin's honest limits.
        kind: The role.
        kept: What was tried already, by case.
        cases: What is tried.
    """

    kind: ClassVar[str]
    cases: ClassVar[Cases[Any]]
    name: str = ""
    profile: Profile = Profile()
    kept: ClassVar[dict[str, Result]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Give a role's suite a test for each case; each author's suite keeps its own results."""
        super().__init_subclass__(**arguments)
        cls.kept = {}
        if "cases" in cls.__dict__:
            for case in cls.cases:
                _add_test(cls, case)

    def side_door(self, folder: Path) -> SideDoor | None:
        """Give the way under the plugin's feet, for what was made with *folder*; None: what it shows is not shown."""
        return None

    @abstractmethod
    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the plugin declares."""

    @abstractmethod
    def bench(self, folder: Path, *, job: str = "") -> B:
        """Make the world of one case in *folder*."""

    def recipe(self) -> dict[str, str]:
        """Say how a child process makes this suite; a class in a file by default."""
        return {"file": inspect.getfile(type(self)), "class": type(self).__qualname__}

    def run_case(self, case: Case[B], folder: Path) -> Result:
        """Try *case* in *folder*, once for this class."""
        kept = self.kept
        if case.id not in kept:
            place = folder / case.id
            place.mkdir(parents=True)
            features = self.features(_made(folder / f"{case.id}-features"))
            kept[case.id] = run_case(case, lambda: self.bench(place), features, self.profile)
        return kept[case.id]

    def results(self, folder: Path, level: Level = Level.FULL) -> Iterator[Result]:
        """Try every case of *level*, and give each result when it is there."""
        for case in self.cases:
            if level is Level.FULL or case.level is Level.CORE:
                yield self.run_case(case, folder)

    def report(self, folder: Path | None = None, level: Level = Level.FULL) -> Report:
        """Try every case of *level* that was not tried yet, below *folder* or a temporary one."""
        if folder is None:
            with tempfile.TemporaryDirectory(prefix="millpond-kit-") as made:
                return self.report(Path(made), level)
        results = list(self.results(folder, level))
        return Report(
            self.name or type(self).__name__, self.kind, self.features(_made(folder / "features")), results, level
        )


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _add_test(cls: type[Suite[Any]], case: Case[Any]) -> None:
    """Add the pytest test of *case*."""

    def test(self: Suite[Any], tmp_path: Path) -> None:
        result = self.run_case(case, tmp_path)
        if result.outcome is Outcome.FAILED:
            raise AssertionError(f"{result.detail}\n\nbroken: {result.contract}")
        if result.outcome in (Outcome.NOT_SHOWN, Outcome.UNDECLARED, Outcome.DEVIATION):
            import pytest

            pytest.skip(f"{result.outcome}: {result.detail}")

    test.__name__ = f"test_{case.id}".replace(".", "_").replace("-", "_")
    test.__qualname__ = f"{cls.__qualname__}.{test.__name__}"
    test.__doc__ = case.contract
    setattr(cls, test.__name__, test)
