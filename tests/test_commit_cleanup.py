"""After the commit point: what is superseded goes, what is retained or pinned stays, and no failure undoes a commit."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path

import pytest
from engines import SOURCE, TASK, Section, expected, idle, offset_of, state_of, write

from millpond.errors import (
    CommitFailedError,
    ConfigError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
    StoreClosedError,
    TransientError,
)
from millpond.events import CleanupFailed, TaskFailed
from millpond.stores.memory import MemoryEngine
from millpond.testing.faults import Fault


@pytest.mark.parametrize("retain", [1, 2, 3])
def test_as_many_checkpoints_as_the_operator_retains_are_whole(rig, retain):
    """Each of the newest N is restored exactly on another disk; the one before them is gone."""
    rig.retain = retain
    task = rig.open()
    ids = []
    for number in range(5):
        write(task, number)
        ids.append(idle(task).commit_now(30).id)
    idle(task)
    rig.close()
    rig.records.arguments.clear()
    for back in range(retain):
        rig.state = f"disk {back}"
        assert expected(4 - back) == rig.restored(at=ids[4 - back])
    with pytest.raises(StateNotFoundError):
        rig.open(at=ids[4 - retain])


def test_no_file_of_a_superseded_checkpoint_stays(rig):
    """After many commits there is one record beside the claim, one image a store here, and one in the backend."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    for number in range(5):
        write(task, number)
        idle(task).commit_now(30)
    idle(task)

    for root in ("state", "backup main"):
        images = list((rig.root / root).rglob("MANIFEST"))
        assert ["a", "b"] == sorted(path.parent.parent.name for path in images), root
    assert 2 == len(list((rig.root / "records").rglob("records/*")))


@pytest.mark.parametrize(
    ("where", "verb"),
    [("main", "cleanup"), ("records", "ids"), ("records", "delete"), ("records", "pins"), ("records", "read")],
)
@pytest.mark.parametrize("error", [OSError("down"), TransientError("busy"), SystemExit(1)])
def test_a_failing_clean_up_is_an_event(rig, where, verb, error):
    """The commit stands, the task goes on, and the next commit removes what was left."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    idle(task)
    if verb == "read":
        task._engine._task.manager.pin(TASK, first.id, "kept")
        task._engine._keeping._retained.clear()
    write(task, 1)
    (rig.records if where == "records" else rig.fault()).add(verb, Fault(error))

    checkpoint = task.commit_now(30)
    idle(task)

    assert [error] == [event.error for event in rig.told(CleanupFailed)] and checkpoint == task.last
    assert task.health.ready
    write(task, 2)
    task.commit_now(30)
    idle(task)
    kept = 2 if verb == "read" else 1
    assert kept == len(list((rig.root / "backup main").rglob("a/*/MANIFEST")))
    assert expected(2) == rig.restored()


def test_a_pin_that_races_the_drop_of_its_record_is_whole_or_refused(rig):
    """A pin that is made while its record is being dropped is either refused, or names data that stays."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    idle(task)
    manager = task._engine._task.manager
    write(task, 1)
    gate = rig.records.hang("delete")
    future = task.commit()
    rig.records.await_call("delete")
    manager.pin(TASK, first.id, "in time")  # its record is listed still
    gate.set()
    future.result(30)
    idle(task)

    with pytest.raises(StateNotFoundError):
        manager.pin(TASK, task._engine._issued.__class__(1, 1), "too late")
    rig.state = "another disk"
    assert expected(0) == rig.restored(at="in time")
    assert expected(1) == rig.restored()


def test_an_unpinned_checkpoint_goes_with_the_next_clean_up(rig):
    """A pin keeps data, and only as long as it is there."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    manager = task._engine._task.manager
    write(task, 0)
    first = task.commit_now(30)
    manager.pin(TASK, first.id, "kept")
    write(task, 1)
    idle(task).commit_now(30)
    idle(task)
    assert 2 == len(list((rig.root / "backup main").rglob("a/*/MANIFEST")))
    manager.unpin(TASK, "kept")

    write(task, 2)
    idle(task).commit_now(30)
    idle(task)

    assert 1 == len(list((rig.root / "backup main").rglob("a/*/MANIFEST")))


def test_local_images_that_cannot_go_are_an_event(rig, monkeypatch):
    """The commit stands; the images go when they can."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    directory = task._engine._task.directory

    def refuses(store, keep) -> None:
        raise TransientError("the disk is slow")

    with monkeypatch.context() as patch:
        patch.setattr(directory, "drop_images", refuses)
        write(task, 1)
        task.commit_now(30)
        idle(task)
    assert ["local images"] == [event.backend for event in rig.told(CleanupFailed)]
    write(task, 2)
    task.commit_now(30)
    idle(task)
    assert 2 == len(list((rig.root / "state").rglob("images/*/*/MANIFEST")))


# ---------------------------------------------------------------------------------------------- engines on a bad day


def fails_with(monkeypatch, error: BaseException, verb: str = "apply") -> list[bool]:
    """Let the memory engine's *verb* raise *error* while the given list is not empty."""
    armed = [True]
    inner = getattr(MemoryEngine, verb)

    def faulty(self, *arguments):
        if armed:
            raise error
        return inner(self, *arguments)

    monkeypatch.setattr(MemoryEngine, verb, faulty)
    return armed


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "disk full"), StateCorruptError("bad block"), SystemExit(1)])
def test_an_engine_that_fails_ends_its_task_with_the_reason(rig, monkeypatch, error):
    """Health says so; every call names the reason; reopened in the same process, all is as committed."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    armed = fails_with(monkeypatch, error)
    future = idle(task).commit()

    assert isinstance(future.exception(30), CommitFailedError)
    for call in (task.commit, task.commit_now, lambda: task.store("a").get("last"), lambda: write(task, 2)):
        with pytest.raises(StoreClosedError) as raised:
            call()
        assert type(error).__name__ in str(raised.value) or str(error) in str(raised.value)
    assert not task.health.ready and 1 == len(rig.told(TaskFailed))
    armed.clear()
    task.close()

    again = rig.open_job().open_task(TASK)

    assert expected(0) == (offset_of(again), state_of(again))
    write(again, 1)
    again.commit_now(30)
    assert expected(1) == rig.restored()


def test_a_run_that_fails_between_commits_shows_in_the_health(rig, monkeypatch):
    """Nobody has called commit: the task is not ready any more, and the next commit raises."""
    task = rig.open()
    fails_with(monkeypatch, OSError(errno.ENOSPC, "disk full"))
    task.store("a")["x"] = 1
    for buffered in task._buffers:
        buffered.close_run()
    task._engine._task.apply_lane.submit(lambda: None).result(30)

    assert not task.health.ready and isinstance(task.health.last_error, OSError)
    with pytest.raises(StoreClosedError):
        task.commit()
    assert 1 == len(rig.told(TaskFailed))


def test_an_image_that_cannot_be_made_fails_the_commit_alone(rig, monkeypatch):
    """The disk was full for the image and is free again: the next commit has it all, in the same process."""
    task = rig.open()
    write(task, 0)
    armed = fails_with(monkeypatch, OSError(errno.ENOSPC, "disk full"), "checkpoint")
    with pytest.raises(CommitFailedError, match="disk full"):
        task.commit_now(30)
    armed.clear()

    task.commit_now(30)

    assert expected(0) == rig.restored()


def test_an_image_that_cannot_be_sealed_fails_the_commit_alone(rig, monkeypatch):
    """A full disk at the manifest: nothing half is left where the next commit or opening would find it."""
    task = rig.open()
    write(task, 0)
    directory = type(task._engine._task.directory)
    inner, armed = directory.seal, [True]

    def full(self, *arguments, **named):
        if armed and armed.pop():
            raise TransientError("the disk is full: free some space")
        return inner(self, *arguments, **named)

    monkeypatch.setattr(directory, "seal", full)
    with pytest.raises(CommitFailedError, match="the disk is full"):
        task.commit_now(30)

    task.commit_now(30)
    idle(task)

    assert [] == list((rig.root / "state").rglob("*.new"))
    assert expected(0) == rig.restored()


# ---------------------------------------------------------------------------------------------- plugins on a bad day


@pytest.mark.parametrize("given", [None, 7, "ab", {"a": 1}.get])
def test_rubbish_from_init_is_a_mistake_of_the_plugin(rig, given):
    """The opening fails with the backend's name, and leaves nothing open."""
    rig.fault().add("init", Fault(instead=lambda _: given))

    with pytest.raises(ConfigError, match="'main' broke its contract"):
        rig.open()

    assert (-1, {"a": {}, "b": {}}) == rig.restored()


def test_init_may_name_only_stores_that_are_its_own(rig):
    """A store that the backend does not back up is never sent to it."""
    rig.sections = {"main": Section(), "other": Section()}
    rig.changes = {"b": {"backup": ("other",), "restore": ("other",)}}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    rig.close()
    rig.fault("main").add("init", Fault(instead=lambda _: ["a", "b", "unknown"]))
    rig.fault("main").arguments.clear()
    task = rig.open()

    task.commit_now(30)

    assert [("a",)] == [snapshot.stores for snapshot in rig.fault("main").arguments["upload"]]


@pytest.mark.parametrize("error", [OSError("down"), SystemExit(1)])
def test_a_close_that_raises_is_told_and_everything_else_is_closed(rig, error):
    """The task's folder is free again, and the job's threads have ended."""
    job = rig.open_job()
    task = job.open_task(TASK)
    write(task, 0)
    task.commit_now(30)
    rig.fault().add("close", Fault(error))

    with pytest.raises(TransientError, match="backend 'main'"):
        task.close()

    job.close()
    assert expected(0) == rig.restored()


def test_a_close_that_hangs_does_not_hang_the_host(rig):
    """Close says what has not ended within its time."""
    task = rig.open()
    gate = rig.fault().hang("close")

    with pytest.raises(TransientError, match="has not ended"):
        task.close(0.2)

    gate.set()


def test_a_backend_that_leaks_a_thread_harms_nobody(rig):
    """A thread that outlives its manager neither holds up the close nor the next opening."""
    gate = threading.Event()
    task = rig.open()
    rig.fault().add(
        "upload",
        Fault(
            instead=lambda markers: (threading.Thread(target=gate.wait, args=(60,), daemon=True).start(), markers)[1]
        ),
    )
    write(task, 0)
    task.commit_now(30)

    assert expected(0) == rig.restored()
    gate.set()


@pytest.mark.parametrize("verb", ["claim", "read_last"])
@pytest.mark.parametrize("error", [TransientError("busy"), OSError("down"), MillpondError("odd"), SystemExit(2)])
def test_an_opening_that_fails_leaves_nothing_open(rig, verb, error):
    """The error reaches the host as it is, the folder is free, and the next opening works."""
    rig.records.add(verb, Fault(error))

    with pytest.raises(type(error)):
        rig.open()

    task = rig.open()
    task.processed(SOURCE, 1)
    task.commit_now(30)


@pytest.mark.parametrize("verb", ["backup_manager", "restore_manager", "init", "cleanup"])
def test_a_backend_that_fails_while_a_task_is_opened(rig, verb):
    """Whatever verb raises, nothing stays open; a clean-up that fails is only an event."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    rig.close()
    rig.fault().add(verb, Fault(OSError("down")))

    if verb == "cleanup":
        opened = rig.open()
        assert expected(0) == (offset_of(opened), state_of(opened))
        assert 1 == len(rig.told(CleanupFailed))
    else:
        with pytest.raises(OSError, match="down"):
            rig.open()
    rig.close()
    assert expected(0) == rig.restored()


def test_a_start_up_clean_up_that_hangs_is_left_behind(rig):
    """Opening goes on after the operator's time; the folder is not let go before the clean-up has ended."""
    from datetime import timedelta

    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    rig.close()
    rig.commit = {"startup_cleanup_timeout": timedelta(milliseconds=100)}
    gate = rig.fault().hang("cleanup")
    job = rig.open_job()

    task = job.open_task(TASK)

    assert expected(0) == (offset_of(task), state_of(task)) and 1 == len(rig.told(CleanupFailed))
    with pytest.raises(TransientError, match="the clean-up at the start"):
        task.close(0.2)
    with pytest.raises(TransientError, match="already open in this process"):
        job.open_task(TASK)
    gate.set()


def test_a_disk_that_is_wiped_under_a_task_fails_its_commits_and_no_more(rig):
    """Somebody removed the state directory of a running job: an error, no record, and the backend restores."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    root = task._engine._task.directory.root
    shutil.rmtree(root / "images")
    Path(root / "images").write_text("in the way")
    write(task, 1)

    with pytest.raises(CommitFailedError):
        task.commit_now(30)

    (root / "images").unlink()
    assert expected(0) == rig.restored()
