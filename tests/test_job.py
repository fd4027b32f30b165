"""What a host holds: health, the interval, offsets, and names."""

from __future__ import annotations

from datetime import timedelta

import pytest
from engines import SOURCE, TASK, Section, idle, write

import millpond
from millpond.errors import CommitFailedError, ConfigError, FencedError, StoreClosedError
from millpond.events import StateNotDurable
from millpond.testing.faults import Fault


def test_a_commit_counts_that_begins_as_the_last_one_ends(rig, monkeypatch):
    """One was in flight when the host called, and none when its call arrived: the new one counts all the same."""
    task = rig.open()
    gate = rig.fault().hang("cleanup")
    write(task, 0)
    task.commit().result(30)
    write(task, 1)
    commit = task._engine.commit

    def late(offsets):
        gate.set()
        idle(task)
        return commit(offsets)

    monkeypatch.setattr(task._engine, "commit", late)
    task.commit().result(30)

    assert 0 == task.health.uncommitted_records


@pytest.mark.parametrize("offset", [7, "7", "opaque", 0, -1])
def test_an_offset_is_text_or_an_integer(rig, offset):
    """An integer is kept as Samza's text."""
    task = rig.open()
    task.processed(SOURCE, offset)

    assert {SOURCE: str(offset)} == dict(task.offsets)
    assert {SOURCE: str(offset)} == dict(task.commit_now(30).offsets)


@pytest.mark.parametrize("offset", [None, 1.5, True, b"7", object()])
def test_no_other_offset_is_taken(rig, offset):
    """It is refused where it is given, and nothing has changed."""
    task = rig.open()

    with pytest.raises(TypeError, match="offset"):
        task.processed(SOURCE, offset)

    assert {} == dict(task.offsets) and 0 == task.health.uncommitted_records


@pytest.mark.parametrize("source", ["topic", None, ("kafka", "topic", 0), 0])
def test_no_other_source_is_taken(rig, source):
    """A source is a SystemStreamPartition."""
    with pytest.raises(TypeError, match="SystemStreamPartition"):
        rig.open().processed(source, 1)


def test_offsets_are_for_reading(rig):
    """The host reports by `processed` alone."""
    with pytest.raises(TypeError):
        rig.open().offsets[SOURCE] = "1"


def test_a_later_offset_is_not_in_an_earlier_checkpoint(rig):
    """What is processed while a commit is in flight belongs to the next one."""
    task = rig.open()
    write(task, 0)
    gate = rig.fault().hang("upload")
    future = task.commit()
    rig.fault().await_call("upload")
    task.processed(SOURCE, 1)
    gate.set()

    assert "0" == future.result(30).offsets[SOURCE] and "1" == task.offsets[SOURCE]


def test_a_store_is_the_same_object_each_time(rig):
    """And an unknown one is named, with those that there are."""
    task = rig.open()

    assert task.store("a") is task.store("a")
    with pytest.raises(ConfigError, match=r"'c'.* a, b"):
        task.store("c")


def test_only_stated_tasks_can_be_opened(rig):
    """A task that the configuration does not name has no place in the layout."""
    rig.job = {"tasks": (TASK,)}

    with pytest.raises(ConfigError, match="has no task 'Partition 1'"):
        rig.open_job().open_task("Partition 1")


def test_what_is_not_durable_is_told(rig):
    """A backend that dies with the process is named at prepare, once."""
    job = rig.open_job()
    job.prepare()
    job.prepare()

    assert ["backend 'main'"] == [event.name for event in rig.told(StateNotDurable)]


def test_a_commit_is_due_by_the_interval(rig):
    """Due when the interval has passed since the last one began; not again while it is in flight."""
    rig.commit = {"interval": timedelta(seconds=10)}
    task = rig.open()
    write(task, 0)
    assert not task.commit_due and task.commit_if_due() is None
    rig.clock.turn(9)
    assert not task.commit_due
    rig.clock.turn(2)
    assert task.commit_due
    gate = rig.fault().hang("upload")
    future = task.commit_if_due()
    assert future is not None and not task.commit_due
    rig.clock.turn(11)
    assert task.commit_due and task.commit_if_due() is None, "one is in flight"
    gate.set()
    future.result(30)
    idle(task)
    write(task, 1)
    assert "1" == task.commit_if_due().result(30).offsets[SOURCE]


def test_without_an_interval_no_commit_is_due(rig):
    """The host alone decides."""
    task = rig.open()
    write(task, 0)
    rig.clock.turn(10_000)

    assert not task.commit_due and task.commit_if_due() is None


def test_commit_if_due_raises_an_earlier_failure(rig):
    """The failure of a commit that nobody waited for reaches the host at the next due one."""
    rig.commit = {"interval": timedelta(seconds=10)}
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(OSError("down")))
    rig.clock.turn(11)
    task.commit_if_due().exception(30)
    idle(task)
    assert task.commit_if_due() is None
    rig.clock.turn(11)

    with pytest.raises(CommitFailedError):
        task.commit_if_due()


def test_health_of_a_task(rig):
    """Ready, the age of the last commit, what a crash would cost, the last error and how many in a row."""
    task = rig.open()
    health = task.health
    assert (True, None, None, 0, 0) == (
        health.ready, health.last_commit_age_s, health.last_error, health.failures, health.uncommitted_records,
    )  # fmt: skip
    write(task, 0)
    write(task, 1)
    assert 2 == task.health.uncommitted_records
    rig.fault().add("upload", Fault(OSError("down")), Fault(OSError("down")))
    for failures in (1, 2):
        with pytest.raises(CommitFailedError):
            task.commit_now(30)
        idle(task)
        assert failures == task.health.failures and isinstance(task.health.last_error, CommitFailedError)
        assert task.health.ready and 2 == task.health.uncommitted_records
    task.commit_now(30)
    rig.clock.turn(50)
    health = task.health
    assert (True, None, 0, 0) == (health.ready, health.last_error, health.failures, health.uncommitted_records)
    assert 50 <= health.last_commit_age_s < 80
    task.close()
    assert not task.health.ready and task.health.last_error is None


def test_health_of_a_fenced_task(rig):
    """It is not ready, and says why."""
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(FencedError("epoch 1 is over")))
    task.commit().exception(30)
    idle(task)

    assert not task.health.ready and isinstance(task.health.last_error, FencedError)


def test_a_job_from_a_mapping(tmp_path):
    """`open_job` takes the shape of the TOML file, and a listener beside the log."""
    events = []
    config = {
        "job": {"name": "mapped", "state_dir": str(tmp_path / "state")},
        "checkpoint": {"manager": "directory", "path": str(tmp_path / "records")},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(tmp_path / "backup")}},
        "stores": {"a": {"engine": "memory", "key": "str", "value": "json"}},
    }
    for run in range(2):
        with millpond.open_job(config, listeners=[events.append]) as job, job.open_task(TASK) as task:
            assert run == task.store("a").get("runs", 0)
            task.store("a")["runs"] = run + 1
            task.processed(SOURCE, run)
    assert {"TaskClaimed", "CommitPublished", "TaskClosed"} <= {type(event).__name__ for event in events}


def test_a_job_that_cannot_begin_leaves_no_thread(rig, monkeypatch):
    """The checkpoint manager's constructor fails: the threads that were begun have ended."""
    import threading

    config = rig.config()

    def broken(*_: object) -> None:
        raise OSError("no such thing")

    object.__setattr__(config.checkpoint, "factory", broken)
    before = {thread for thread in threading.enumerate() if thread.name.startswith("millpond-")}

    with pytest.raises(OSError, match="no such thing"):
        millpond.job.Job(config)

    left = {thread for thread in threading.enumerate() if thread.name.startswith("millpond-")} - before
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


def test_a_listener_that_fails_is_a_guest(rig):
    """Its error is logged, and the job goes on."""

    def broken(event) -> None:
        raise ValueError("a guest's")

    rig.listeners.append(broken)
    rig.sections = {"main": Section()}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)

    task.close()
    with pytest.raises(StoreClosedError):
        task.commit()
