"""Expired values leave a job's state by ordinary commits."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from millpond.config import load
from millpond.job import Job


class Turned:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def millis(self) -> int:
        """Give the wall clock."""
        return int(self.now * 1000)

    def monotonic(self) -> float:
        """Give seconds."""
        return self.now


def test_expired_values_are_swept_by_the_commits_that_are_due(tmp_path: Path, monkeypatch) -> None:
    """They are invisible at once, and after some commits the engine no longer holds them."""
    clock = Turned()
    monkeypatch.setattr("millpond.job.SystemClock", lambda: clock)
    config = load(
        {
            "job": {"name": "expiring", "state_dir": str(tmp_path / "state")},
            "checkpoint": {"manager": "directory", "path": str(tmp_path / "records")},
            "backends": {"disk": {"type": "rocksdb-local", "path": str(tmp_path / "backup")}},
            "stores": {"seen": {"engine": "memory", "key": "int", "value": "json", "ttl": "1h"}},
            "commit": {"interval": "10s"},
        }
    )
    with Job(config) as job, job.open_task("t") as task:
        seen = task.store("seen")
        for number in range(500):
            seen[number] = number
        task.commit_now(30)
        task._engine._await_idle(time.monotonic() + 30)
        clock.now += timedelta(hours=2).total_seconds()

        assert [] == list(seen.scan())
        for _ in range(3):
            clock.now += 11
            future = task.commit_if_due()
            assert future is not None
            future.result(30)
            task._engine._await_idle(time.monotonic() + 30)
        task.commit_now(30)

        assert [] == list(task._buffers[0].engine.scan(None, None, False))
