"""Garbage in an object store, and savepoints that need no other object."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import blobs
import pytest
from blobs import World, commit, contents, fill

from millpond.blob import Unfinished
from millpond.blob.admin import DEAD, FAILED, PROBE, UPLOAD
from millpond.blob.garbage import collect
from millpond.blob.layout import TaskKeys
from millpond.blob.memory import MemoryBlobStore
from millpond.blob.savepoint import Copying, TaskPlace, copy_savepoint
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError, TransientError
from millpond.lanes import TransferPool
from millpond.spi import Garbage, JobContext, StateBackendAdmin
from millpond.task import Task

HOUR = timedelta(hours=1)
OLD = "1-1-1-{:016x}"


@pytest.fixture
def transfers() -> Iterator[TransferPool]:
    pool = TransferPool(2, 64 << 20)
    yield pool
    pool.close(10)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path, stores={"a": "memory"})
    monkeypatch.setattr("millpond.job.SystemClock", lambda: made.clock)
    yield made
    made.close()


def admin(world: World, transfers: TransferPool) -> StateBackendAdmin:
    context = JobContext(world.name, "1", None, lambda event: None, world.clock, transfers)
    return blobs.Backend("main", blobs.BucketSettings(bucket=world.bucket)).admin(context, [])


def retained(task: Task) -> dict[str, list]:
    records = task._engine._task.manager
    ids = [*records.ids(blobs.TASK), *records.pins(blobs.TASK).values()]
    return {blobs.TASK: [records.read(blobs.TASK, id) for id in ids]}


def one_commit(world: World) -> Task:
    task = world.open()
    fill(task, 20)
    commit(task, 0)
    return task


def put(world: World, key: str) -> str:
    world.store.objects[key] = (b"left", 0)
    return key


def test_each_piece_of_garbage_has_its_reason(world: World, transfers: TransferPool):
    """Failed attempts, dead tasks, unfinished uploads and probes are found, each with its reason; nothing else is."""
    task = one_commit(world)
    data = TaskKeys.of("flights", "1", blobs.TASK).data("main")
    dead = TaskKeys.of("flights", "1", "gone").data("main")
    failed, lost, probe = (
        put(world, data + OLD.format(1)),
        put(world, dead + OLD.format(2)),
        put(world, "flights/.probe-1/object"),
    )
    put(world, data + "readme")
    put(world, "flights-2/a/data/main/" + OLD.format(3))
    put(world, TaskKeys.of("flights", "1", blobs.TASK).data("other backend") + OLD.format(4))
    world.store.pending = [Unfinished(data + "x", "token", 0), Unfinished("flights-2/x", "token", 0)]
    found = list(admin(world, transfers).garbage(retained(task), HOUR))

    assert {
        (f"memory:{failed}", FAILED),
        (f"memory:{lost}", DEAD),
        (f"memory:{probe}", PROBE),
        (f"memory:{data}x", UPLOAD),
    } == {(each.name, each.reason) for each in found}
    kept = contents(task)
    assert 4 == collect(found)
    assert [Unfinished("flights-2/x", "token", 0)] == world.store.pending
    assert not {failed, lost, probe} & set(world.store.objects)
    assert kept == world.restored("other disk")[1]


def test_young_objects_are_no_garbage(world: World, transfers: TransferPool):
    """What is younger than the grace period by the store's clock is left alone: a commit may be about to name it."""
    task = one_commit(world)
    data = TaskKeys.of("flights", "1", blobs.TASK).data("main")
    world.store.objects[data + OLD.format(1)] = (b"young", world.store.now())

    assert [] == list(admin(world, transfers).garbage(retained(task), HOUR))
    world.clock.turn(3601)
    assert 1 == len(list(admin(world, transfers).garbage(retained(task), HOUR)))


def test_without_any_task_nothing_is_garbage(world: World, transfers: TransferPool):
    """No record of any task at all means that the wrong place was asked for records: nothing is removed."""
    one_commit(world)
    world.clock.turn(10_000)

    assert [] == list(admin(world, transfers).garbage({}, HOUR))


def test_a_task_whose_records_are_here_is_not_dead(world: World, transfers: TransferPool):
    """A task that nobody names, and that has records here, belongs to somebody."""
    one_commit(world)
    world.clock.turn(10_000)

    assert [] == list(admin(world, transfers).garbage({"another": []}, HOUR))


def test_a_manifest_that_cannot_be_read_keeps_everything_older(world: World, transfers: TransferPool):
    """If a retained checkpoint's manifest is damaged, nothing that it may need is garbage."""
    task = one_commit(world)
    state = retained(task)
    data = TaskKeys.of("flights", "1", blobs.TASK).data("main")
    put(world, data + OLD.format(1))
    (key,) = [key for key in world.held() if not key.endswith(OLD.format(1))]
    world.damage(key, len(world.store.objects[key][0]) - 60)

    assert [] == list(admin(world, transfers).garbage(state, timedelta(0)))


def test_ten_thousand_objects_go_in_batches(world: World, transfers: TransferPool):
    """Ten thousand objects are ten requests, by garbage collection and by an owner's clean-up alike."""
    task = one_commit(world)
    data = TaskKeys.of("flights", "1", blobs.TASK).data("main")
    for number in range(10_000):
        put(world, data + OLD.format(number))
    world.calls.clear()
    found = list(admin(world, transfers).garbage(retained(task), HOUR))
    assert 10_000 == collect(found)
    assert (10, 1) == (world.calls["delete", "data"], len(world.held()))

    for number in range(10_000):
        put(world, data + f"0-1-1-{number:016x}")
    world.clock.turn(3601)
    world.calls.clear()
    task.store("a")["x"] = 1
    commit(task, 1)
    assert (10, 2) == (world.calls["delete", "data"], len(world.held()))


def test_garbage_that_cannot_go_together_goes_one_by_one():
    """Whatever has no way to be removed in batches is removed by its own."""
    removed: list[str] = []
    found = [Garbage(name, "why", None, lambda name=name: removed.append(name)) for name in "abc"]

    assert 3 == collect(found)
    assert list("abc") == removed


# Savepoints


def places(world: World, bucket: MemoryBlobStore, job: str = "flights") -> tuple[TaskPlace, TaskPlace]:
    return (
        TaskPlace(world.store, TaskKeys.of(world.name, "1", blobs.TASK)),
        TaskPlace(bucket, TaskKeys.of(job, "1", blobs.TASK)),
    )


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_a_savepoint_in_another_bucket_needs_no_other_object(
    world: World, transfers: TransferPool, tmp_path: Path, engine: str
):
    """A checkpoint that was copied to another bucket under another job opens there when the first bucket is gone."""
    world.stores = {"a": engine}
    task = world.open()
    for number in range(3):
        fill(task, 500 + number)
        task.store("a").delete(f"k{number:06d}")
        last = commit(task, number)
    expected = contents(task)
    other = World(tmp_path / "other", clock=world.clock, name="moved", stores=world.stores)
    source, target = places(world, other.store, "moved")
    copied = copy_savepoint(last, "sp", ["main"], source, target, Copying(transfers, tmp_path / "scratch"))
    again = copy_savepoint(last, "sp", ["main"], source, target, Copying(transfers, tmp_path / "scratch"))
    world.close()
    world.store.objects.clear()

    assert copied == again
    assert (2, expected) == other.restored("d1")
    assert (2, expected) == other.restored("d2", at="sp")
    task = other.open("d3")
    task.store("a")["goes"] = "on"
    commit(task, 3)
    assert "on" == other.restored("d4")[1]["a"]["goes"]
    assert not list((tmp_path / "scratch").iterdir())


def test_a_damaged_backup_makes_no_savepoint(world: World, transfers: TransferPool, tmp_path: Path):
    """A turned bit, a lost object or a silent store stops the copy with its object, and no record is there."""
    task = one_commit(world)
    last = task.last
    assert last is not None
    bucket = MemoryBlobStore()
    source, target = places(world, bucket)
    copying = Copying(transfers, tmp_path / "scratch")
    (key,) = world.held()
    world.damage(key, 10)
    with pytest.raises(StateCorruptError, match="damaged"):
        copy_savepoint(last, "sp", ["main"], source, target, copying)
    world.damage(key, 10)
    world.store.before = lambda verb, key: (_ for _ in ()).throw(TransientError("busy")) if verb == "get" else None
    with pytest.raises(TransientError):
        copy_savepoint(last, "sp", ["main"], source, target, copying)
    world.store.before = world.count
    del world.store.objects[key]
    with pytest.raises(StateNotFoundError):
        copy_savepoint(last, "sp", ["main"], source, target, copying)

    assert {} == bucket.objects


def test_a_savepoints_name_is_taken_once(world: World, transfers: TransferPool, tmp_path: Path):
    """A name that keeps another checkpoint there is refused."""
    task = one_commit(world)
    first = task.last
    task.store("a")["x"] = 1
    second = commit(task, 1)
    assert first is not None
    source, target = places(world, MemoryBlobStore())
    copying = Copying(transfers, tmp_path / "scratch")
    copy_savepoint(first, "sp", ["main"], source, target, copying)
    with pytest.raises(ConfigError, match="sp"):
        copy_savepoint(second, "sp", ["main"], source, target, copying)
