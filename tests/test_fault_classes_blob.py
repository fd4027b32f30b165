"""Classes of faults around object stores, each with its own trigger: see docs/faults.md."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import blobs
import pytest
from blobs import World, commit, contents, fill

import millpond
from millpond.blob.memory import MemoryBlobStore
from millpond.errors import CommitError, MillpondError, TransientError
from millpond.events import ObjectsUploaded, StoreRestored

pytest.importorskip("rocksdict")

DAY_S = timedelta(days=1).total_seconds()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr("millpond.job.SystemClock", lambda: made.clock)
    yield made
    made.close()


def noise(task: millpond.Task, keys: range, seed: int, store: str = "a") -> None:
    """Put values that nothing compresses."""
    source = random.Random(f"{seed} of {store}")
    for number in keys:
        task.store(store)[f"k{number:06d}"] = source.randbytes(60).hex()


def sent(world: World) -> int:
    """Give the bytes of the last commit's objects."""
    return int(world.told(ObjectsUploaded)[-1].size)


@pytest.mark.parametrize("changes", [False, True], ids=["files", "changes"])
def test_a_name_that_a_dead_attempt_used_has_the_content_of_the_living_one(world: World, changes: bool):
    """What a killed commit uploaded, under names that its successor uses again, is in no later checkpoint."""
    world.settings = {"changes": changes}
    task = world.open()
    fill(task, 500)
    commit(task, 0)

    def dying(verb: str, key: str) -> None:
        world.count(verb, key)
        if verb == "delete" or (verb == "put" and "/records/" in key):
            raise TransientError("the process dies here")

    before = set(world.held())
    world.store.before = dying
    task.store("a")["k000001"] = [1, "X" * 20]
    task.store("b")["k"] = "X"
    with pytest.raises(CommitError):
        commit(task, 1)
    world.close()
    world.store.before = world.count
    assert set(world.held()) > before  # its objects stay, as after a kill
    task = world.open("another disk")
    task.store("a")["k000001"] = [1, "Y" * 20]
    task.store("b")["k"] = "Y"
    commit(task, 1)
    offset, state = world.restored("third disk")

    assert (1, [1, "Y" * 20], "Y") == (offset, state["a"]["k000001"], state["b"]["k"])


@pytest.mark.parametrize("number", range(6))
def test_a_commit_that_breaks_off_at_any_upload_leaves_no_object(world: World, number: int):
    """Of five stores the n-th object cannot be put: nothing is published, what was sent goes, the error says where."""
    world.stores = dict.fromkeys(("a", "b", "c", "d", "e"), "memory")
    world.settings = {"alone": "1kB", "changes": False}
    task = world.open()
    for name in world.stores:
        noise(task, range(100), 1, name)
    commit(task, 0)
    before, records = set(world.held()), world.held("records")
    puts: list[str] = []

    def refuse(verb: str, key: str) -> None:
        if verb == "put" and "/data/" in key:
            puts.append(key)
            if len(puts) > number:
                raise TransientError(f"{key} cannot be put")

    for name in world.stores:
        noise(task, range(100), 2, name)
    wanted = contents(task)
    world.store.before = refuse
    with pytest.raises(CommitError, match="cannot be put"):
        commit(task, 1)
    assert len(puts) > number
    assert (before, records) == (set(world.held()), world.held("records"))
    world.store.before = world.count
    commit(task, 2)
    assert (2, wanted) == world.restored("another disk")


def test_a_commit_that_takes_too_long_leaves_no_object(world: World):
    """An upload that is given up half-way by its timeout takes back what it had put, and the next commit has it all."""
    world.stores = dict.fromkeys(("a", "b", "c", "d", "e"), "memory")
    world.settings = {"alone": "1kB", "changes": False}
    task = world.open()
    commit(task, 0)
    before = set(world.held())
    puts: list[str] = []

    def slow(verb: str, key: str) -> None:
        if verb == "put" and "/data/" in key:
            puts.append(key)
            if len(puts) == 3:
                world.clock.turn(DAY_S)

    for name in world.stores:
        noise(task, range(100), 2, name)
    wanted = contents(task)
    world.store.before = slow
    with pytest.raises(CommitError):
        commit(task, 1)
    world.store.before = world.count
    assert len(puts) >= 3
    assert before == set(world.held())
    commit(task, 2)
    assert (2, wanted) == world.restored("another disk")


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_a_bucket_can_be_moved(world: World, engine: str):
    """All objects copied to a bucket of another name, and the first one gone: everything is there; none names it."""
    world.retain, world.stores = 3, {"a": engine, "b": "memory"}
    task = world.open()
    for number in range(4):
        fill(task, 300, text=str(number))
        commit(task, number)
    wanted = contents(task)
    world.close()
    objects, old = dict(world.store.objects), world.bucket
    del blobs.BUCKETS[old]
    world.bucket = "moved-here"
    blobs.BUCKETS[world.bucket] = moved = MemoryBlobStore(world.clock.millis)
    moved.objects.update(objects)

    assert (3, wanted) == world.restored("another disk")
    for key, (data, _) in objects.items():
        assert old.encode() not in data, key
        assert str(world.root).encode() not in data or engine == "rocksdb", key  # which notes paths, and reads none


def test_small_commits_stay_small(world: World):
    """Of twenty commits that each change a hundredth, none sends a twentieth of what the first one sent."""
    world.settings = {"changes": False}
    world.stores = {"a": "rocksdb"}
    task = world.open()
    noise(task, range(20_000), 0)
    commit(task, 0)
    first = sent(world)
    sizes = []
    for number in range(1, 8):
        noise(task, range(number * 200, number * 200 + 200), number)
        commit(task, number)
        sizes.append(sent(world))

    assert first > 1_000_000
    assert max(sizes) < first / 20


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_a_file_of_the_same_name_and_size_is_sent_when_its_content_changed(world: World, engine: str):
    """An image's file that is written anew with as many bytes is another file: each checkpoint has its own content."""
    world.settings, world.retain, world.stores = {"changes": False}, 5, {"a": engine}
    task = world.open()
    made = []
    for number in range(4):
        task.store("a")["x"] = f"{number:09d}"
        made.append(commit(task, number).id)
    for number, id in enumerate(made):
        assert (number, {"a": {"x": f"{number:09d}"}}) == world.restored(f"disk {number}", at=str(id))


def test_other_sizes_of_objects_send_nothing_twice(world: World):
    """After the operator changed what goes alone and how large packs are, unchanged files are not sent again."""
    world.stores, world.settings = {"a": "rocksdb"}, {"changes": False}
    task = world.open()
    noise(task, range(20_000), 0)
    commit(task, 0)
    first = sent(world)
    world.close()
    world.settings = {"changes": False, "alone": "10kB"}
    task = world.open()
    task.store("a")["new"] = 1
    commit(task, 1)

    assert ["local"] == [event.source for event in world.told(StoreRestored)][-1:]
    assert sent(world) < first / 20


def test_idle_commits_leave_no_object_behind(world: World):
    """Two hundred commits of new offsets alone, then fifty of a key: objects and records stay within their bounds."""
    world.settings = {"grace": "3h"}
    world.stores = {"a": "memory"}
    task = world.open()
    task.store("a")["x"] = 0
    commit(task, 0)
    before = set(world.held())
    for number in range(1, 200):
        commit(task, number)
    assert before == set(world.held())
    for number in range(200, 250):
        task.store("a")["x"] = number
        world.clock.turn(3_600)
        commit(task, number)

    assert len(world.held()) <= 80
    assert len(world.held("records")) <= 10


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_deletes_in_a_chain_are_kept_in_their_order(world: World, size: int):
    """Deletes and puts of one key, over commits that cut them anywhere, restore to what the last one says."""
    log = [("a", 1), ("b", 2), ("a", None), ("c", None), ("b", None), ("b", 3)]
    task = world.open()
    fill(task, 50)
    commit(task, 0)
    for start in range(0, len(log), size):
        for key, value in log[start : start + size]:
            if value is None:
                task.store("a").delete(key)
            else:
                task.store("a")[key] = value
        commit(task, start + 1)
    found = world.restored("another disk")[1]["a"]

    assert {"b": 3} == {key: value for key, value in found.items() if not key.startswith("k")}


def test_a_retired_key_comes_back_by_no_retention(world: World):
    """A delete whose own checkpoint was cleaned up holds in the chain that follows it, and in the base after that."""
    task = world.open()
    fill(task, 200)
    commit(task, 0)
    task.store("a").delete("k000007")
    commit(task, 1)
    for number in range(2, 5):
        task.store("a")["other"] = number
        commit(task, number)
        world.clock.turn(DAY_S)
    by_the_chain = world.restored("another disk")[1]["a"]
    world.settings = {"changes": False}
    task = world.open("another disk")
    task.store("a")["other"] = 5
    commit(task, 5)
    by_a_base = world.restored("third disk")[1]["a"]

    assert ["files", "changes", "changes", "changes", "changes", "files"] == world.ways()
    assert 200 == len(by_the_chain) == len(by_a_base)
    assert "k000007" not in {*by_the_chain, *by_a_base}


def test_clean_ups_that_fail_at_random_come_to_what_one_good_one_does(world: World):
    """Deletes that fail, and others that lose their answer, are made good by later ones: only what is needed stays."""
    world.settings, world.stores = {"changes": False, "cleanup_every": 1}, {"a": "memory"}
    task = world.open()
    source, failed = random.Random(7), []

    def moody(when: str, verb: str, key: str) -> None:
        if verb == "delete" and "/data/" in key and source.random() < 0.5:
            failed.append(when)
            raise TransientError("no delete today")

    world.store.before, world.store.after = partial(moody, "before"), partial(moody, "after")
    for number in range(20):
        noise(task, range(100), number)
        commit(task, number)
        world.clock.turn(DAY_S)
    world.store.before, world.store.after = world.count, lambda verb, key: None
    for number in range(20, 23):
        noise(task, range(100), number)
        commit(task, number)
        world.clock.turn(DAY_S)
    wanted = contents(task)

    assert min(failed.count("before"), failed.count("after")) >= 3
    assert len(world.held()) <= 2
    assert (22, wanted) == world.restored("another disk")


def test_a_record_that_cannot_be_read_for_a_while_is_waited_for_and_never_replaced(world: World):
    """Of three retained checkpoints the newest cannot be read: opening raises, by no older one, until it can."""
    world.retain = 3
    task = world.open()
    for number in range(3):
        task.store("a")["x"] = number
        newest = str(commit(task, number).id).encode()
    world.close()
    holding = {key for key in world.held("records") if newest in world.store.objects[key][0]}
    assert holding

    def away(verb: str, key: str) -> None:
        if verb == "get" and key in holding:
            raise TransientError("503")

    world.store.before = away
    with pytest.raises(MillpondError, match="503"):
        world.open("another disk")
    world.close()
    world.store.before = world.count

    assert 2 == world.restored("another disk")[0]
