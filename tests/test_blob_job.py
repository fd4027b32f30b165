"""Jobs with RocksDB stores over an object store: what they send, what they get back, and bad days."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import blobs
import pytest
from blobs import World, commit, contents, fill

import millpond
from millpond.blob import AccessDeniedError, BrokenBodyError
from millpond.blob.layout import TaskKeys
from millpond.blob.manifests import ManifestReader
from millpond.errors import (
    CommitError,
    FencedError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.events import (
    BackupDecided,
    CleanupFailed,
    ObjectsRemoved,
    ObjectsUploaded,
    RestoreProgress,
    StoreRestored,
)
from millpond.formats.blob_manifest import BackupManifest
from millpond.formats.blob_marker import BlobMarker

pytest.importorskip("rocksdict")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr("millpond.job.SystemClock", lambda: made.clock)
    yield made
    made.close()


def manifest_of(world: World, checkpoint: millpond.Checkpoint, store: str = "a") -> BackupManifest:
    prefix = TaskKeys.of(world.name, "1", blobs.TASK).data("main")
    return ManifestReader(world.store, prefix).read(checkpoint.markers["main"][store])


# What is sent


def test_a_small_commit_is_one_put_and_one_record(world: World):
    """A commit that changes a hundred keys in two stores sends one object and one record, whatever was there before."""
    task = world.open()
    fill(task, 2_000)
    fill(task, 10, store="b")
    commit(task, 0)
    for number in range(1, 4):
        world.calls.clear()
        for key in range(100):
            task.store("a")[f"k{key:06d}"] = number
        task.store("b")["x"] = number
        commit(task, number)

        assert (1, 1) == (world.calls["put", "data"], world.calls["put", "records"])
        assert 0 == world.calls["get", "data"] + world.calls["list", "data"]


def test_a_commit_of_clean_stores_sends_no_data_request(world: World):
    """When only offsets changed, the object store sees a record, and no request about data at all."""
    world.stores = {f"s{number}": "memory" for number in range(100)}
    task = world.open()
    task.store("s0")["x"] = 1
    commit(task, 0)
    world.calls.clear()
    commit(task, 1)

    assert 1 == world.calls["put", "records"]
    assert {} == {call: count for call, count in world.calls.items() if call[1] == "data"}


def test_only_new_files_are_sent_again(world: World):
    """Without changes a commit sends the files that the last manifest lacks, and names the others where they are."""
    world.settings = {"changes": False}
    task = world.open()
    fill(task, 5_000)
    first = commit(task, 0)
    task.store("a")["new"] = 1
    second = commit(task, 1)
    before, after = manifest_of(world, first), manifest_of(world, second)
    shared = {file for file in before.files if file.size > 10_000}

    assert shared
    assert shared <= set(after.files)
    assert world.told(ObjectsUploaded)[-1].size < before.base_size / 4


def test_large_files_go_alone(world: World):
    """A file from the bound on has an object of its own; the pack has the rest and the manifests."""
    world.settings = {"alone": "30kB"}
    task = world.open()
    fill(task, 5_000)
    manifest = manifest_of(world, commit(task, 0))
    large = {file.object for file in manifest.files if file.size >= 30_000}

    assert large
    assert all(file.object not in large for file in manifest.files if file.size < 30_000)
    assert world.restored("other disk")[1]["a"]["k000007"] == [7, "x" * 20]


def test_a_file_name_with_other_content_is_another_file(world: World):
    """RocksDB uses file names again after a restore: the new content is sent, and an older checkpoint keeps its own."""
    world.settings, world.retain = {"changes": False}, 5
    task = world.open()
    fill(task, 1_000)
    first = commit(task, 0)
    names: dict[str, set[str]] = {}
    states = {}
    for branch in range(3):
        world.close()
        task = world.open(f"disk {branch}", at=str(first.id))
        fill(task, 1_000 + branch, text=str(branch))
        made = commit(task, 1 + branch)
        states[str(made.id)] = contents(task)
        for file in manifest_of(world, made).files:
            names.setdefault(file.name, set()).add(file.digest)

    assert any(len(digests) > 1 for name, digests in names.items() if name.endswith(".sst"))
    for id, state in states.items():
        assert state == world.restored(f"disk of {id}", at=id)[1]


# The chain


def test_a_chain_restores_like_files_and_ends(world: World):
    """Commits of changes restore key for key as the job had it, deletes too; the chain ends at its bound."""
    world.settings = {"max_links": 4}
    task = world.open()
    fill(task, 3_000)
    commit(task, 0)
    for number in range(1, 9):
        task.store("a")[f"k{number:06d}"] = number
        task.store("a").delete(f"k{number + 1000:06d}")
        commit(task, number)
    expected = contents(task)

    assert ["files", *["changes"] * 4, "files", *["changes"] * 3] == world.ways()
    assert max(event.links for event in world.told(BackupDecided)) == 4
    assert (8, expected) == world.restored("other disk")


def test_a_chain_ends_before_it_costs_half_of_its_base(world: World, monkeypatch: pytest.MonkeyPatch):
    """When replaying would cost more than half of loading the base, files go again, and the event says why."""
    monkeypatch.setattr("millpond.blob.policy.FREE", 0)
    task = world.open()
    fill(task, 5_000)
    commit(task, 0)
    for number in range(1, 12):
        fill(task, 600, text=f"{number}-{'abcdefghijklmn'[number]}")
        commit(task, number)
    reasons = [event.reason for event in world.told(BackupDecided) if event.store == "a" and event.way == "files"]

    assert "changes" in world.ways()
    assert any("half of" in reason for reason in reasons)
    assert (11, contents(task)) == world.restored("other disk")


def test_a_deleted_key_stays_deleted(world: World):
    """A key that is put in the base and deleted in a change does not come back, nor by a later base."""
    task = world.open()
    fill(task, 1_000)
    commit(task, 0)
    task.store("a").delete("k000001")
    commit(task, 1)

    assert "k000001" not in world.restored("d1")[1]["a"]
    task = world.open("d1")
    task.store("a")["other"] = 1
    commit(task, 2)
    assert "k000001" not in world.restored("d2")[1]["a"]


def test_a_failed_commit_is_no_base(world: World):
    """After a commit that failed the next one builds on the last published manifest, and what was sent is removed."""
    task = world.open()
    fill(task, 1_000)
    first = commit(task, 0)
    before = set(world.held())

    def refuse(verb: str, key: str) -> None:
        if verb == "put" and "/records/" in key:
            raise TransientError("no record today")

    world.store.before = refuse
    task.store("a")["lost"] = 1
    with pytest.raises(CommitError):
        commit(task, 1)
    world.store.before = world.count
    task.store("a")["kept"] = 2
    second = commit(task, 2)

    assert set(manifest_of(world, second).objects) - set(manifest_of(world, first).objects)
    # One object of the commit that was published; the failed one's is gone, now or once a later record stands.
    assert 1 == len(set(world.held()) - before)
    assert {"lost": 1, "kept": 2}.items() <= world.restored("other disk")[1]["a"].items()


def test_a_store_moves_to_another_engine_in_the_middle_of_a_chain(world: World):
    """A store whose chain lies on another engine's base is restored into the new engine, and goes on with files."""
    task = world.open()
    fill(task, 500)
    commit(task, 0)
    task.store("a")["k000001"] = "changed"
    commit(task, 1)
    assert ["files", "changes"] == world.ways()
    expected = contents(task)
    world.close()
    world.stores = {"a": "memory", "b": "memory"}
    task = world.open("other disk")
    assert expected == contents(task)
    task.store("a")["after"] = 1
    commit(task, 2)

    assert "moved from the engine" in world.told(BackupDecided)[-1].reason
    assert {**expected["a"], "after": 1} == world.restored("third disk")[1]["a"]


# Restores


def test_a_restore_reads_a_manifest_and_then_parts(world: World):
    """A restore of a store asks once for its manifest, tells its progress up to the total, and lists nothing."""
    world.stores = {"a": "rocksdb"}
    task = world.open()
    fill(task, 2_000)
    commit(task, 0)
    task.store("a")["x"] = 1
    commit(task, 1)
    world.close()
    world.events.clear()
    listed: list[str] = []
    world.store.before = lambda verb, key: listed.append(f"{verb} {key}")
    world.open("other disk")
    until = next(n for n, each in enumerate(listed) if each.startswith("get") and "/data/" in each)
    told = world.told(RestoreProgress)

    assert not [each for each in listed[:until] if each.startswith("list") and "/data/" in each]
    assert told[-1].size == told[-1].total_size
    assert ["main"] == [event.source for event in world.told(StoreRestored)]


def test_files_that_an_older_local_image_has_are_not_read(world: World):
    """A disk with an older image takes from it what has the same digest, and reads the rest alone."""
    world.settings, world.stores = {"changes": False}, {"a": "rocksdb"}
    task = world.open("first")
    fill(task, 5_000)
    commit(task, 0)
    world.close()
    task = world.open("second")
    task.store("a")["new"] = 1
    commit(task, 1)
    world.close()
    sizes: list[int] = []
    real = world.store.get

    def get(key: str, start: int = 0, length: int | None = None) -> bytes:
        data = real(key, start, length)
        if "/data/" in key:
            sizes.append(len(data))
        return data

    world.store.get = get  # type: ignore[method-assign]
    task = world.open("first")

    assert contents(task)["a"]["new"] == 1
    assert sum(sizes) < 40_000


def test_an_older_local_image_is_brought_forward_by_changes(world: World):
    """A disk with an image from earlier in the same chain reads only the changes that came after it."""
    world.stores, world.retain = {"a": "rocksdb"}, 9
    task = world.open("first")
    fill(task, 5_000)
    commit(task, 0)
    world.close()
    task = world.open("second")
    for number in range(1, 4):
        task.store("a")[f"new{number}"] = number
        task.store("a").delete(f"k{number:06d}")
        commit(task, number)
    expected = contents(task)
    world.close()
    world.events.clear()
    task = world.open("first")

    assert expected == contents(task)
    assert world.told(RestoreProgress)[-1].size < 2_000


def test_a_body_that_breaks_off_is_resumed(world: World):
    """A body that breaks off again and again is asked for again, each time, and the restore is exact."""
    task = world.open()
    fill(task, 1_000)
    commit(task, 0)
    expected = contents(task)
    world.close()
    broken: dict[str, int] = {}

    def break_off(verb: str, key: str) -> None:
        if verb == "get" and "/data/" in key and broken.setdefault(key, 0) < 3:
            broken[key] += 1
            raise BrokenBodyError("the connection was reset")

    world.store.after = break_off
    task = world.open("other disk")

    assert expected == contents(task)
    assert set(broken.values()) == {3}


def test_short_bodies_are_asked_for_again_from_where_they_ended(world: World):
    """A store that gives a few bytes at a time is read to the end, without a byte twice."""
    task = world.open()
    fill(task, 100)
    commit(task, 0)
    expected = contents(task)
    world.close()
    real = world.store.get

    def get(key: str, start: int = 0, length: int | None = None) -> bytes:
        data = real(key, start, length)
        return data[: len(data) // 2 + 1] if "/data/" in key and len(data) > 200 else data

    world.store.get = get  # type: ignore[method-assign]
    monkey = pytest.MonkeyPatch()
    monkey.setattr("millpond.blob.reading.ATTEMPTS", 64)
    task = world.open("other disk")
    monkey.undo()

    assert expected == contents(task)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (TransientError("SlowDown"), TransientError),
        (TransientError("timed out"), TransientError),
        (AccessDeniedError("s3:GetObject on flights/…"), AccessDeniedError),
    ],
)
def test_a_store_that_does_not_answer_never_gives_an_empty_store(world: World, error: Exception, raised: type):
    """Throttling, time-outs and refusals end the opening with their own words, and nothing is begun empty."""
    task = world.open()
    fill(task, 10)
    commit(task, 0)
    world.close()

    def refuse(verb: str, key: str) -> None:
        if verb == "get" and "/data/" in key:
            raise error

    world.store.before = refuse
    with pytest.raises(raised, match=str(error)[:8]):
        world.open("other disk")
    world.store.before = world.count
    assert 10 == len(world.restored("other disk")[1]["a"])


# Damage


def test_a_flipped_bit_in_any_object_is_found(world: World):
    """In every object, be it a large file, a pack or a change, a turned bit is an error that names it."""
    world.settings, world.stores = {"alone": "20kB"}, {"a": "rocksdb"}
    task = world.open()
    fill(task, 5_000)
    commit(task, 0)
    task.store("a")["x"] = 1
    last = commit(task, 1)
    world.close()
    manifest = manifest_of(world, last)
    assert manifest.changes
    places = [(file.object, file.start) for file in manifest.files if file.size]
    places += [(link.object, link.start + link.size // 2) for link in manifest.changes]
    prefix = TaskKeys.of(world.name, "1", blobs.TASK).data("main")
    for number, (name, at) in enumerate(places):
        world.damage(prefix + name, at)
        with pytest.raises(StateCorruptError, match=name):
            world.open(f"disk {number}")
        world.damage(prefix + name, at)
        world.close()

    assert {name for name, _ in places} == set(manifest.objects)
    assert 1 == world.restored("good disk")[1]["a"]["x"]


def test_a_damaged_or_lost_manifest_names_its_object(world: World):
    """A damaged manifest or a cut object is StateCorruptError, a lost object StateNotFoundError; with its key."""
    world.stores = {"a": "rocksdb"}
    task = world.open()
    fill(task, 10)
    commit(task, 0)
    world.close()
    (key,) = world.held()
    named = re.escape(key)
    data, millis = world.store.objects[key]
    world.damage(key, len(data) - 50)
    with pytest.raises(StateCorruptError, match=named):
        world.open("d1")
    world.store.objects[key] = data[:-100], millis
    with pytest.raises(StateCorruptError, match=named):
        world.open("d2")
    del world.store.objects[key]
    with pytest.raises(StateNotFoundError, match=named):
        world.open("d3")


def test_another_backend_gives_back_what_this_one_lost(world: World):
    """Not found and corrupt lead to the next backend of the restore list."""
    world.stores = {"a": "rocksdb"}
    config = world.config("disk")
    config["backends"]["second"] = {"type": "blobs:Backend", "bucket": world.bucket}
    config["stores"]["a"]["backup"] = ["main", "second"]
    with millpond.open_job(config) as job, job.open_task(blobs.TASK) as task:
        fill(task, 10)
        commit(task, 0)
    for key in world.held():
        if "/data/main/" in key:
            world.damage(key, 0)
    config["job"]["state_dir"] = str(world.root / "other disk")
    with millpond.open_job(config, listeners=[world.events.append]) as job, job.open_task(blobs.TASK) as task:
        assert 10 == len(contents(task)["a"])

    assert ["second"] == [event.source for event in world.told(StoreRestored)]


def test_objects_deleted_behind_our_back_are_sent_again(world: World):
    """With its local image a job finds at its opening that its backup has lost objects, and sends the store anew."""
    task = world.open()
    fill(task, 2_000)
    fill(task, 5, store="b")
    commit(task, 0)
    task.store("a")["x"] = 1
    commit(task, 1)
    expected = contents(task)
    world.close()
    gone = world.held()[0]
    del world.store.objects[gone]
    task = world.open()
    commit(task, 2)

    assert ["files", "files"] == [event.way for event in world.told(BackupDecided)[-2:]]
    assert (2, expected) == world.restored("other disk")


# Owners and clean-up


def test_superseded_objects_go_together_after_the_grace_period(world: World):
    """What no retained checkpoint needs stays for the grace period, then many objects go with one request."""
    world.settings = {"changes": False, "cleanup_every": 4, "grace": "1h"}
    world.stores = {"a": "memory"}  # its image is one file, which every commit replaces
    task = world.open()
    for number in range(8):
        fill(task, 200, text=str(number))
        commit(task, number)
    assert 8 == len(world.held())
    world.clock.turn(3700)
    world.calls.clear()
    for number in range(8, 12):
        fill(task, 200, text=str(number))
        last = commit(task, number)
    removed = world.told(ObjectsRemoved)

    assert [(1, 7)] == [(event.requests, event.objects) for event in removed if "superseded" in event.reason][:1]
    assert 1 == world.calls["delete", "data"]
    assert set(manifest_of(world, last).objects) <= {key.rpartition("/")[2] for key in world.held()}
    assert (11, contents(task)) == world.restored("other disk")


def test_a_retained_or_pinned_checkpoint_keeps_what_it_needs(world: World):
    """However much later commits clean up, every retained checkpoint and every pin restores exactly."""
    world.settings, world.retain = {"cleanup_every": 1, "grace": "15m", "max_links": 1}, 3
    world.stores = {"a": "memory", "b": "rocksdb"}
    states: dict[str, Any] = {}
    task = world.open()
    for number in range(10):
        fill(task, 300, text=str(number))
        made = commit(task, number)
        states[str(made.id)] = contents(task)
        if number == 2:
            task._engine._task.manager.pin(blobs.TASK, made.id, "kept")
        world.clock.turn(1000)
    kept = [str(id) for id in task._engine._task.manager.ids(blobs.TASK)]
    assert 3 == len(kept)
    assert any("superseded" in event.reason for event in world.told(ObjectsRemoved))
    for id in [*kept, list(states)[2]]:
        assert states[id] == world.restored(f"disk of {id}", at=id)[1]
        # The restored task is a new owner, whose clean-up follows the same rules.


def test_earlier_owners_leftovers_go_a_grace_period_after_the_claim(world: World):
    """What an earlier owner left half done stays until the grace period after the claim, then goes by a listing."""
    task = world.open()
    fill(task, 10)
    commit(task, 0)
    prefix = world.held()[0].rpartition("/")[0]
    left = f"{prefix}/1-1-1-0123456789abcdef"
    stranger = f"{prefix}/readme"
    world.store.objects[left] = world.store.objects[stranger] = (b"half", 0)
    world.close()
    task = world.open()
    task.store("a")["x"] = 1
    commit(task, 1)
    assert left in world.held()
    world.clock.turn(3700)
    task.store("a")["x"] = 2
    commit(task, 2)

    assert left not in world.held()
    assert stranger in world.held()
    assert 2 == world.restored("other disk")[1]["a"]["x"]


def test_a_zombie_that_wakes_harms_nothing(world: World):
    """A replaced owner is refused at its next commit, and what it tidies is nothing that its successor needs."""
    world.stores = {"a": "memory"}
    world.settings = {"cleanup_every": 1, "grace": "15m", "changes": False}
    zombie = world.open("zombie's disk")
    fill(zombie, 500)
    commit(zombie, 0)
    zombie.store("a")["x"] = 1
    commit(zombie, 1)
    owner = world.open("owner's disk")
    owner.store("a")["owner"] = True
    commit(owner, 2)
    world.clock.turn(10_000)
    zombie.store("a")["zombie"] = True
    with pytest.raises(FencedError):
        commit(zombie, 3)
    manager = zombie._engine._task.backups[0].manager
    manager.cleanup([zombie.last])
    owner.store("a")["again"] = True
    commit(owner, 3)
    expected = contents(owner)

    assert "zombie" not in expected["a"]
    assert (3, expected) == world.restored("other disk")


def test_a_replaced_owners_sweep_does_not_reach_its_successors_objects(world: World):
    """However late it comes, the sweep of an owner that has not noticed that it was replaced removes nothing newer."""
    world.stores, world.settings = {"a": "memory"}, {"changes": False}
    old = world.open("old disk")
    fill(old, 100)
    commit(old, 0)
    manager, last = old._engine._task.backups[0].manager, old.last
    successor = world.open("new disk")
    fill(successor, 100, text="y")
    commit(successor, 1)
    expected = contents(successor)
    world.clock.turn(1_000_000)
    manager.cleanup([last])

    assert manager._swept
    assert (1, expected) == world.restored("another disk")


def test_a_manifest_that_cannot_be_read_keeps_what_its_checkpoint_may_need(world: World):
    """While it is damaged, nobody knows what it names, and a sweep removes none of that; mended, all is there."""
    world.stores, world.settings, world.retain = {"a": "memory"}, {"changes": False, "alone": "1kB"}, 3
    task = world.open()
    fill(task, 100, text="x")
    first = commit(task, 0)
    expected = contents(task)
    fill(task, 100, text="y")
    commit(task, 1)
    world.close()
    marker = BlobMarker.parse(first.markers["main"]["a"])
    manifest = TaskKeys.of(world.name, "1", blobs.TASK).data("main") + marker.object, marker.start + marker.length // 2
    world.damage(*manifest)
    task = world.open()
    world.clock.turn(1_000_000)
    fill(task, 100, text="z")
    commit(task, 2)
    assert task._engine._task.backups[0].manager._swept
    world.damage(*manifest)

    assert (0, expected) == world.restored("another disk", at=str(first.id))


def test_a_restore_that_races_the_old_owners_cleanup(world: World):
    """While a new owner reads a checkpoint, the old one's late clean-up removes nothing of it."""
    world.stores = {"a": "memory"}
    world.settings = {"cleanup_every": 1, "grace": "15m", "changes": False}
    old = world.open("old disk")
    for number in range(3):
        fill(old, 300, text=str(number))
        commit(old, number)
    expected = contents(old)
    manager = old._engine._task.backups[0].manager
    raced: list[int] = []

    def race(verb: str, key: str) -> None:
        world.count(verb, key)
        if verb == "get" and "/data/" in key and not raced:
            raced.append(1)
            world.clock.turn(10_000)
            manager.cleanup([old.last])

    world.store.before = race
    owner = world.open("new disk")

    assert raced
    assert expected == contents(owner)
    assert [event for event in world.told(ObjectsRemoved) if "superseded" in event.reason]


def test_a_failed_cleanup_is_computed_anew(world: World):
    """A clean-up that fails is an event, harms no commit, and the next one removes the same."""
    world.stores = {"a": "memory"}
    world.settings = {"cleanup_every": 1, "grace": "15m", "changes": False}
    task = world.open()
    fill(task, 100)
    commit(task, 0)
    fill(task, 100, text="y")
    commit(task, 1)
    world.clock.turn(1000)

    def refuse(verb: str, key: str) -> None:
        if verb == "delete" and "/data/" in key:
            raise TransientError("busy")

    world.store.before = refuse
    fill(task, 100, text="z")
    commit(task, 2)
    assert world.told(CleanupFailed)
    assert 3 == len(world.held())
    world.store.before = world.count
    world.clock.turn(1000)
    fill(task, 100, text="u")
    commit(task, 3)

    assert 2 == len(world.held())


@pytest.mark.parametrize("verb", ["put", "get", "list", "delete"])
@pytest.mark.parametrize("kind", ["data", "records"])
def test_a_lost_answer_on_any_verb_loses_nothing(world: World, verb: str, kind: str):
    """Whichever request has its effect and loses its answer, the job goes on or fails that commit, and is exact."""
    world.stores = {"a": "memory"}
    world.settings = {"cleanup_every": 1, "grace": "15m", "changes": False}
    task = world.open()
    fill(task, 100)
    commit(task, 0)
    lost: list[str] = []

    def lose(each: str, key: str) -> None:
        if each == verb and f"/{kind}/" in key and not lost:
            lost.append(key)
            raise TransientError("the answer was lost")

    for number in range(1, 4):
        world.clock.turn(1000)
        if number == 2:
            world.store.after = lose
            if verb == "list":
                world.store.before = lose  # a listing has no effect: before or after is the same
        task.store("a")[f"n{number}"] = number
        try:
            commit(task, number)
        except CommitError:
            commit(task, number)
    expected = contents(task)
    if verb in ("put", "delete"):
        assert lost
    world.store.before, world.store.after = world.count, lambda *_: None

    assert (3, expected) == world.restored("other disk")


def test_a_listing_that_lags_costs_nothing_but_space(world: World):
    """A listing that shows nothing of the last hours makes no restore wrong, and removes nothing that is needed."""
    world.settings = {"cleanup_every": 1, "grace": "15m"}
    task = world.open()
    fill(task, 500)
    commit(task, 0)
    world.store.unlisted = set(world.held())
    world.close()
    task = world.open()  # with its local image: the backup looks lost, and is sent again
    task.store("a")["x"] = 1
    commit(task, 1)
    world.clock.turn(1000)
    task.store("a")["x"] = 2
    commit(task, 2)
    expected = contents(task)
    world.store.unlisted |= set(world.held())

    assert (2, expected) == world.restored("other disk")


def test_two_jobs_of_which_one_is_a_prefix_of_the_other(world: World):
    """Two jobs with names one of which begins the other, and tasks likewise, share a bucket and never an object."""
    twins = [
        World(world.root / name, clock=world.clock, name=name, bucket=world.bucket)
        for name in ("job", "job-2", "job/2")
    ]
    world.store.before = world.count
    for number, twin in enumerate(twins):
        for task_name in ("a", "a/b", "ab"):
            task = twin.open(task=task_name)
            fill(task, 10 + number, text=task_name)
            commit(task, number)
            expected = contents(task)
            twin.close()
            task = twin.open("other disk", task=task_name)
            assert expected == contents(task)
            twin.close()


@pytest.mark.parametrize("name", ["Partition 0", "a b+c%2F", "päivä/1", "日本", "..", ".", "x" * 60, "a\u0308", "ä"])
def test_hostile_names_of_tasks_and_stores(world: World, name: str):
    """Names with spaces, slashes, dots and any letters come back, each in its own place."""
    world.stores = {name: "memory", "plain": "memory"}
    task = world.open(task=name)
    task.store(name)["k"] = name
    commit(task, 0)
    world.close()
    task = world.open("other disk", task=name)

    assert {name: {"k": name}, "plain": {}} == contents(task)
    assert [name] == list(task._engine._task.manager.tasks())


# Stops


def test_a_stop_in_the_middle_of_an_upload(world: World):
    """A task that is closed while a large file goes up publishes nothing, and the next opening is as before."""
    world.settings = {"alone": "1kB", "changes": False}
    task = world.open()
    fill(task, 500)
    commit(task, 0)
    expected = contents(task)
    reached, go = threading.Event(), threading.Event()

    def stop(verb: str, key: str) -> None:
        world.count(verb, key)
        if verb == "put" and "/data/" in key:
            reached.set()
            assert go.wait(30)

    world.store.before = stop
    fill(task, 500, text="never")
    task.processed(blobs.SOURCE, 1)
    future = task.commit()
    assert reached.wait(30)
    task._engine.close(0.01)
    go.set()
    with pytest.raises(CommitError):
        future.result(30)
    world.store.before = world.count

    assert (0, expected) == world.restored("other disk")


def test_a_stop_in_the_middle_of_a_restore(world: World):
    """A restore that is cut short leaves nothing that a later opening takes for a store."""
    world.settings = {"alone": "1kB"}
    task = world.open()
    fill(task, 2_000)
    commit(task, 0)
    task.store("a")["x"] = 1
    commit(task, 1)
    expected = contents(task)
    world.close()
    job = world.open_job("other disk")
    stopped: list[str] = []

    def stop(verb: str, key: str) -> None:
        if verb == "get" and "/data/" in key:
            stopped.append(key)
            if len(stopped) == 3:
                raise KeyboardInterrupt("stopped")

    world.store.before = stop
    with pytest.raises(BaseException, match=r"stopped|interrupted|closed"):
        job.open_task(blobs.TASK)
    world.store.before = world.count
    world.close()

    assert (1, expected) == world.restored("other disk")
    assert not list((world.root / "other disk").rglob("restore-*"))


class HostDatabase:
    """A database of the host's own: a small file that stays, and a large one that is new at every commit."""

    def __init__(self, large: int) -> None:
        self.large = large

    def checkpoint(self, directory: Path) -> None:
        directory.mkdir()
        (directory / "small").write_bytes(b"stays" * 20)
        (directory / "large").write_bytes(random.randbytes(self.large))


def test_a_hosts_database_sends_what_is_new(world: World):
    """A store whose changes nobody knows sends the files that its last backup lacks, and comes back as a folder."""
    world.stores = {"a": "memory", "own": "host"}
    task = world.open(databases={"own": HostDatabase(50_000)})
    commit(task, 0)
    commit(task, 1)
    last = commit(task, 2)
    told = [event for event in world.told(BackupDecided) if event.store == "own"]

    assert [50_100, 50_000, 50_000] == [event.size for event in told]
    assert "not at hand" in told[-1].reason
    assert {"small": 100, "large": 50_000} == {file.name: file.size for file in manifest_of(world, last, "own").files}


def test_a_small_file_does_not_keep_a_large_pack_alive(world: World):
    """A pack of which hardly anything is needed any more is left behind: what is needed of it is sent anew."""
    world.stores = {"own": "host"}
    world.settings = {"cleanup_every": 1, "grace": "15m"}
    task = world.open(databases={"own": HostDatabase(500_000)})
    packs = set()
    for number in range(8):
        manifest = manifest_of(world, commit(task, number), "own")
        packs |= {file.object for file in manifest.files if file.name == "small"}
        world.clock.turn(1000)

    assert 1 < len(packs) < 8
    assert sum(len(world.store.objects[key][0]) for key in world.held()) < 4 * 500_000


def test_the_grace_period_bounds_a_commit(world: World):
    """A commit timeout that is not below half of the grace period is refused with the configuration."""
    world.settings = {"grace": "10m"}
    with pytest.raises(millpond.ConfigError, match="grace"):
        world.open_job()
    assert timedelta(hours=1) == blobs.BucketSettings(bucket="x").grace
