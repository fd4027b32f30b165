"""Classes of faults in what stores keep beside their values, each with its own trigger: see docs/faults.md."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import engines
import pytest

import millpond
from millpond.job import Job

LONG_S = timedelta(hours=2).total_seconds()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> engines.TurnedClock:
    made = engines.TurnedClock()
    monkeypatch.setattr("millpond.job.SystemClock", lambda: made)
    return made


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Any]:
    """Give what opens the job on a disk, by the disk's name."""
    opened: list[Job] = []

    def open_on(disk: str) -> Job:
        config = {
            "job": {"name": "expiring", "state_dir": str(tmp_path / disk)},
            "checkpoint": {"manager": "directory", "path": str(tmp_path / "records")},
            "backends": {"kept": {"type": "rocksdb-local", "path": str(tmp_path / "backup")}},
            "stores": {"seen": {"engine": "memory", "key": "int", "value": "json", "ttl": "1h"}},
            "commit": {"interval": "10s"},
        }
        opened.append(millpond.open_job(config))
        return opened[-1]

    yield open_on
    for job in opened:
        job.close(5)


def commit_when_due(task: millpond.Task, clock: engines.TurnedClock) -> None:
    clock.turn(11)
    future = task.commit_if_due()
    assert future is not None
    future.result(30)
    engines.idle(task)


def test_what_was_restored_expires_without_a_write(clock: engines.TurnedClock, jobs: Any):
    """Values that another process wrote expire here at their time, leave the engine, and leave the next checkpoint."""
    with jobs("one disk").open_task("t") as task:
        for number in range(500):
            task.store("seen")[number] = number
    clock.turn(60)
    with jobs("another disk").open_task("t") as task:
        seen = task.store("seen")
        assert 500 == len(list(seen.scan()))
        clock.turn(LONG_S)
        assert [] == list(seen.scan())
        for _ in range(3):
            commit_when_due(task, clock)
        task.commit_now(30)
        assert [] == list(task._buffers[0].engine.scan(None, None, False))
    with jobs("third disk").open_task("t") as task:
        assert [] == list(task._buffers[0].engine.scan(None, None, False))


def test_a_clock_that_goes_back_ends_no_value_early_and_leaves_none_for_ever(clock: engines.TurnedClock, jobs: Any):
    """The end of a value is written with it: a clock that is an hour behind after a restore changes no end."""
    with jobs("one disk").open_task("t") as task:
        task.store("seen")[1] = "x"
    clock.wall_s -= 3_600
    with jobs("another disk").open_task("t") as task:
        assert [(1, "x")] == list(task.store("seen").scan())
        clock.turn(3_590 + 3_600)
        assert [(1, "x")] == list(task.store("seen").scan())
        clock.turn(20)
        assert [] == list(task.store("seen").scan())
