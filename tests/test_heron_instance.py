"""Instances of a Heron topology whose state is a Millpond task: what they upload, what comes back (14)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from blobs import World
from heron_servers import COUNT0, NAME, TOPOLOGY, Served, serving

from millpond.blob.memory import MemoryBlobStore
from millpond.errors import ConfigError, FormatError, StateCorruptError, StateNotFoundError, StoreClosedError
from millpond.heron.double import StreamManagerDouble
from millpond.heron.folder import FolderStore
from millpond.heron.instance import TaskInstance, attempt_of, read_note
from millpond.heron.peers import Topology

pytest.importorskip("rocksdict")

ALONE = Topology(TOPOLOGY.name, TOPOLOGY.id, (COUNT0,))
KEYS = 20_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A bucket, and a job with a RocksDB store whose backend is in it."""
    made = World(tmp_path, stores={"a": "rocksdb"})
    yield made
    made.close()


def stored(store: MemoryBlobStore) -> int:
    return sum(len(data) for data, _ in store.objects.values())


def save(stmgr: StreamManagerDouble, instance: TaskInstance, checkpoint: str) -> bytes:
    """Do what Heron does at a checkpoint, and give what travelled."""
    state = instance.snapshot(checkpoint)
    assert stmgr.save({COUNT0: state}, checkpoint) == {COUNT0}
    instance.consistent(checkpoint)
    return state


def restored(stmgr: StreamManagerDouble, instance: TaskInstance, checkpoint: str) -> dict[str, object]:
    """Do what Heron does at a restore, and give what is in the instance's store then."""
    found = stmgr.restore(checkpoint)
    assert found is not None
    return dict(instance.restore(checkpoint, found[COUNT0]).store("a").scan())


def text_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, FolderStore(tmp_path / "states")) as one:
        yield one


def test_14_a_checkpoint_costs_what_has_changed_and_not_the_whole_state(served: Served, world: World):
    """14: one changed key of 20,000 costs less than a hundredth of the state; as Heron does it, all of it again."""
    with served.stmgr(topology=ALONE) as stmgr:
        instance = TaskInstance(world.open_job(), "count-0")
        instance.restore("", None)
        for number in range(KEYS):
            instance.task.store("a")[f"k{number}"] = text_of(number)
        notes = [save(stmgr, instance, "1717-1")]
        whole = stored(world.store)
        instance.task.store("a")["k7"] = "changed"
        notes.append(save(stmgr, instance, "1717-2"))
        change = stored(world.store) - whole
        everything = repr(sorted(instance.task.store("a").scan())).encode()  # what Heron would hand over
        assert stmgr.save({COUNT0: everything}, "1717-3") == {COUNT0}

        assert whole > 500_000
        assert change < whole / 100
        assert max(map(len, notes)) < 300
        heron = served.blobs.get(f"{NAME}/1717-3/count/0")
        assert len(heron) > 50 * change
        instance.close()


def test_14_every_checkpoint_comes_back_byte_for_byte(served: Served, world: World):
    """14: each of five checkpoints that share what did not change is restored as it was, also on an empty disk."""
    with served.stmgr(topology=ALONE) as stmgr:
        instance = TaskInstance(world.open_job(), "count-0")
        instance.restore("", None)
        wanted: dict[str, dict[str, object]] = {"": {}}
        for round in range(5):
            for number in range(round, 200, 3):
                instance.task.store("a")[f"k{number}"] = f"{round} {number}"
            del instance.task.store("a")[f"k{round}"]
            wanted[f"1717-{round}"] = dict(instance.task.store("a").scan())
            save(stmgr, instance, f"1717-{round}")
        instance.close()
        again = TaskInstance(world.open_job("another disk"), "count-0")

        for checkpoint in ("1717-2", "1717-4", "1717-0", "1717-3", "", "1717-1"):
            assert restored(stmgr, again, checkpoint) == wanted[checkpoint]
        again.close()


def test_what_no_recorded_checkpoint_needs_is_let_go_of(served: Served, world: World):
    """Of the consistent ones the last are kept; failed attempts, however many, push none of them out."""
    with served.stmgr(topology=ALONE) as stmgr:
        instance = TaskInstance(world.open_job(), "count-0", kept=2)
        instance.restore("", None)
        for number in range(4):
            instance.task.store("a")["k"] = number
            save(stmgr, instance, f"1717-{number}0")
            for attempt in range(1, 4):
                instance.snapshot(f"1717-{number}{attempt}")  # nobody ever says that this one is whole

        with pytest.raises(StateNotFoundError):
            restored(stmgr, instance, "1717-10")
        assert restored(stmgr, instance, "1717-20") == {"k": 2}
        assert restored(stmgr, instance, "1717-30") == {"k": 3}
        instance.close()


def test_a_state_that_is_no_note_is_refused(world: World):
    """What another kind of instance saved, a damaged note, and an id that is none are told apart, and open nothing."""
    instance = TaskInstance(world.open_job(), "count-0")
    with pytest.raises(StoreClosedError):
        _ = instance.task
    instance.restore("", None)
    good = instance.snapshot("1717-1")
    assert read_note(good).checkpoint
    with pytest.raises(FormatError):
        instance.restore("1717-1", b"\x80\x04pickled")
    with pytest.raises((StateCorruptError, FormatError)):
        instance.restore("1717-1", good[:-3] + b"???")
    for wrong in ("", "1717", "a-b", "1-2-3", f"{1 << 63}-1", "-1-1"):
        with pytest.raises(ConfigError):
            attempt_of(wrong)
    assert dict(instance.restore("1717-1", good).store("a").scan()) == {}
    instance.close()
