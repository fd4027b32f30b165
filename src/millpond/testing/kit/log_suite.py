"""The suite of logs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from millpond.log import Log
from millpond.testing.kit import log_appends, log_owners, log_reads, log_topics
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import Cases, gathered
from millpond.testing.kit.log_bench import LogBench
from millpond.testing.kit.suite import Suite


class LogSuite(Suite[LogBench]):
    """
    Subclass it in pytest, and every case is a test of yours::

        class TestMine(LogSuite):
            def make(self, folder):
                return MyLog(folder)

    Attributes:
        shared: Other processes see what this one appends.
    """

    kind: ClassVar[str] = "log"
    cases: ClassVar[Cases[Any]] = gathered(log_topics.cases, log_appends.cases, log_reads.cases, log_owners.cases)
    shared: bool = True

    @abstractmethod
    def make(self, folder: Path) -> Log:
        """
        Make a log; all that are made with one folder show the same topics.

        Every case has topics and owners of its own and removes its topics, so one place may serve all folders. It is
        also called in a child process, on a new instance of this class.
        """

    def compact(self, log: Log, topic: str, partition: int) -> None:
        """Let the log compact what it may of a partition, now; leave this alone where there is no way."""
        raise NotImplementedError

    def cut(self, log: Log, topic: str, partition: int, before: int) -> None:
        """Let the log remove the records of a partition below the offset *before*, now; or leave this alone."""
        raise NotImplementedError

    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the log declares."""
        log = self.make(folder)
        try:
            can = log.capabilities
            return {"fencing": can.fencing, "clears": can.clears, "shared": self.shared}
        finally:
            log.close()

    def bench(self, folder: Path, *, job: str = "") -> LogBench:
        """Make the world of one case in *folder*."""
        kept = folder / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        bench = LogBench(folder, self.profile, lambda: self.make(kept), self.side_door(kept), job)
        bench.child = ChildRecipe(self.recipe(), folder)
        if type(self).compact is not LogSuite.compact:
            bench.compact_now = self.compact
        if type(self).cut is not LogSuite.cut:
            bench.cut_now = self.cut
        return bench
