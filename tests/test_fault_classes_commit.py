"""Classes of faults around commits, tasks and threads, each with its own trigger: see docs/faults.md."""

from __future__ import annotations

import multiprocessing
import time
from itertools import pairwise
from pathlib import Path

import engines
import pytest
from engines import Rig, expected, idle, write

import millpond
from millpond.checkpoint import CheckpointId
from millpond.errors import CommitError, TransientError
from millpond.events import CleanupFailed, CommitFailed, StoreRestored, TaskFailed
from millpond.testing.faults import Fault
from millpond.testing.kit.leaks import Held

IMMEDIATE_S = 5.0  # far below every deadline of these tests, far above a busy machine's pauses


def test_clean_up_that_is_slower_than_commits_queues_nothing(rig: Rig):
    """While one clean-up hangs a thousand calls of commit begin nothing; then the next one has it all."""
    rig.commit = {"interval": None}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    gate = rig.fault().hang("cleanup")
    write(task, 1)
    first = task.commit()
    first.result(30)
    before = rig.fault().calls["upload"], rig.records.calls["write"]
    for number in range(2, 1_002):
        write(task, number, "a")
        assert task.commit() is first
    assert before == (rig.fault().calls["upload"], rig.records.calls["write"])
    gate.set()
    idle(task).commit_now(30)

    assert before[0] + 1 == rig.fault().calls["upload"]
    assert 1_001 == rig.restored()[0]


def test_undoing_a_commit_does_not_hold_up_the_processing_thread(rig: Rig):
    """While the backend hangs in giving a failed commit up, its Future has failed, and the next commit has begun."""
    rig.commit = {"tolerated_failures": 5}
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(error=TransientError("no upload today")))
    gate = rig.fault().hang("abandon")
    failed = task.commit()
    rig.fault().await_call("abandon")
    assert isinstance(failed.exception(0), CommitError)
    begun = time.monotonic()
    for number in range(1, 200):
        write(task, number)
    following = task.commit()
    assert time.monotonic() - begun < IMMEDIATE_S
    assert task.commit() is following
    task._engine._task.apply_lane.submit(lambda: None).result(30)  # its images are made
    assert (1, False) == (rig.fault().calls["upload"], following.done())
    gate.set()
    assert {"199"} == set(following.result(30).offsets.values())

    assert expected(199) == rig.restored()


def test_a_hung_undoing_does_not_hold_up_the_end(rig: Rig):
    """Close has its deadline also while a failed commit's data is being given up."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(error=TransientError("no upload today")))
    gate = rig.fault().hang("abandon")
    task.commit()
    rig.fault().await_call("abandon")
    begun = time.monotonic()
    with pytest.raises(TransientError):
        task.close(0.2)
    assert time.monotonic() - begun < IMMEDIATE_S
    gate.set()


@pytest.mark.parametrize("verb", ["upload", "abandon", "cleanup"])
@pytest.mark.parametrize("error", [MemoryError("none left"), KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_no_background_step_dies_unnoticed(rig: Rig, verb: str, error: BaseException):
    """Whatever a backend raises on a thread of ours is told, and the task commits on or says that it is over."""
    task = rig.open()
    write(task, 0)
    task.commit().result(30)
    idle(task)
    write(task, 1)
    if verb == "abandon":
        rig.fault().add("upload", Fault(error=TransientError("no upload today")))
    rig.fault().add(verb, Fault(error=error))
    failure = task.commit().exception(30)
    idle(task)
    told = [event.error for event in rig.told(CommitFailed, CleanupFailed, TaskFailed)]
    is_over = not task.health.ready
    assert (verb == "cleanup") == (failure is None)
    assert told
    if is_over:
        assert task.health.last_error is not None
        with pytest.raises(millpond.StoreClosedError):
            task.commit()
    else:
        write(task, 2)
        task.commit_now(30)
        assert expected(2) == rig.restored()


def test_a_task_that_could_not_be_restored_is_restored_by_the_next_try(rig: Rig):
    """After an opening that failed of a passing fault, the job's next one restores; no empty state is committed."""
    engines.committed(rig, 5)
    rig.state = "another disk"
    job = rig.open_job()
    rig.fault().add("restore", *[Fault(error=TransientError("503"))] * 4)
    with pytest.raises(TransientError):
        job.open_task(engines.TASK)
    writes = rig.records.calls["write"]
    rig.fault().clear()
    task = job.open_task(engines.TASK)
    found = engines.offset_of(task), engines.state_of(task)
    write(task, 6)
    task.commit_now(30)

    assert expected(5) == found
    assert writes + 1 == rig.records.calls["write"]
    state = rig.restored()
    assert 6 == state[0]
    assert expected(5)[1]["a"].keys() < state[1]["a"].keys()


def test_fifty_tasks_of_one_thread_keep_their_offsets_apart(rig: Rig):
    """Each of fifty tasks that one thread restores has its own input's offset, its own records, and no other's."""
    names = [f"Partition {number}" for number in range(50)]
    inputs = [millpond.SystemStreamPartition("test", "numbers", number) for number in range(50)]
    job = rig.open_job()
    for number, name in enumerate(names):
        task = job.open_task(name)
        task.store("a")["mine"] = number
        task.processed(inputs[number], number)
        task.commit_now(30)
    rig.close()
    job = rig.open_job()
    tasks = [job.open_task(name) for name in names]

    assert [{inputs[number]: str(number)} for number in range(50)] == [dict(task.offsets) for task in tasks]
    assert [{"mine": number} for number in range(50)] == [dict(task.store("a").scan()) for task in tasks]


def test_jobs_that_come_and_go_leave_no_thread_and_no_descriptor(rig: Rig):
    """Thirty jobs that open, commit and close, and some that fail to open, leave nothing in the process."""
    engines.committed(rig, 0)
    before = Held.now()
    for number in range(1, 31):
        if number % 3 == 0:
            rig.fault().add("init", Fault(error=TransientError("no beginning today")))
            with pytest.raises(TransientError):
                rig.open()
        else:
            write(task := rig.open(), number)
            idle(task).commit_now(30)
        rig.close()

    assert "" == before.leaks()


def _ids(count: int, millis: int, connection: object) -> None:
    last, made = None, []
    for number in range(count):
        last = CheckpointId.after(last, millis - (3_600_000 if number > count // 2 else 0), time.monotonic_ns())
        made.append(last)
    connection.send([str(id) for id in made])  # type: ignore[attr-defined]


def test_ids_of_a_lineage_grow_whatever_the_clock_does():
    """Ten thousand ids of a clock that stands still, then goes back an hour, are distinct and each the greatest."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in range(2)]
    children = [context.Process(target=_ids, args=(10_000, 1_700_000_000_000, sender)) for _, sender in ends]
    for child in children:
        child.start()
    lineages = [[CheckpointId.parse(text) for text in receiver.recv()] for receiver, _ in ends]
    for child in children:
        child.join(30)

    for lineage in lineages:
        assert all(one < other for one, other in pairwise(lineage))


def test_ids_that_two_owners_make_alike_name_different_images(rig: Rig, tmp_path: Path):
    """Two histories whose ids are equal, digit by digit, are told apart by their writers: no image is the other's."""
    engines.committed(rig, 1)
    name = next(image.name for image in engines.images(rig.root / rig.state) if image.parent.name == "a")
    shelf = next(image.parent for image in engines.images(rig.root / rig.state) if image.parent.name == "a")
    id, _, _writer = name.rpartition("-")
    (shelf / name).rename(shelf / f"{id}-{'f' * 32}")

    assert expected(1) == rig.restored()
    assert {"a": "main", "b": "local"} == {event.store: event.source for event in rig.told(StoreRestored)}


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_a_write_before_any_read_hides_nothing_that_was_restored(rig: Rig, engine: str):
    """After a restore on an empty disk, puts and deletes without a read leave all else to be read and committed."""
    if engine == "rocksdb":
        pytest.importorskip("rocksdict")
    rig.engine = engine
    engines.committed(rig, 5)
    rig.state = "another disk"
    task = rig.open()
    task.store("a")["new"] = 1
    task.store("a").delete("k001")
    task.processed(engines.SOURCE, 6)
    wanted = {**expected(5)[1]["a"], "new": 1}
    del wanted["k001"]

    assert wanted == {key: task.store("a").get(key) for key in wanted}
    assert task.store("a").get("k001") is None
    assert wanted == dict(task.store("a").scan())
    idle(task).commit_now(30)
    rig.close()
    rig.state = "third disk"
    assert wanted == rig.restored()[1]["a"]


def test_a_scan_that_outlived_its_task_spoils_no_later_one(rig: Rig):
    """A scan kept over a close raises once asked; the task that is opened next reads all."""
    engines.committed(rig, 5)
    task = rig.open()
    kept = task.store("a").scan()
    next(kept)
    rig.close()
    with pytest.raises(millpond.StoreClosedError):
        next(kept)

    assert expected(5) == rig.restored()
