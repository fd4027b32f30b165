"""A commit costs what has changed: clean stores are not even looked at, and none that changed is overlooked."""

from __future__ import annotations

from collections import Counter

import pytest
from engines import at_points, expected, idle, write

from millpond.errors import CommitFailedError
from millpond.events import CommitPublished
from millpond.stores.buffer import BufferedStore
from millpond.testing.faults import Fault


@pytest.fixture
def looked_at(monkeypatch) -> Counter[str]:
    """Count by store how often a commit closed its run."""
    counted: Counter[str] = Counter()
    close_run = BufferedStore.close_run

    def counting(store: BufferedStore) -> int:
        counted[store.name] += 1
        return close_run(store)

    monkeypatch.setattr(BufferedStore, "close_run", counting)
    return counted


def test_a_commit_looks_at_no_store_that_is_clean(rig, looked_at):
    """Once a look has found it clean, a store is asked again only after a write to it."""
    task = rig.open()
    write(task, 0)
    for number in (1, 2):
        write(task, number, "a")
        idle(task).commit_now(30)
    looked_at.clear()

    write(task, 3, "a")
    idle(task).commit_now(30)

    assert {"a": 1} == dict(looked_at)
    assert ("a",) == rig.told(CommitPublished)[-1].stores


def test_a_store_that_is_written_to_again_is_committed_again(rig):
    """A store that was clean for several commits takes part in the next one after a write or a delete."""
    task = rig.open()
    write(task, 0)
    idle(task).commit_now(30)
    for number in (1, 2, 3):
        write(task, number, "a")
        idle(task).commit_now(30)

    del task.store("b")["k000"]
    idle(task).commit_now(30)

    assert ("b",) == rig.told(CommitPublished)[-1].stores
    _, content = rig.restored()
    assert {"last": 0} == content["b"]


def test_what_a_failed_commit_had_is_in_the_next_although_nothing_was_written_since(rig):
    """A store stays suspect until a checkpoint with its changes is published."""
    task = rig.open()
    write(task, 0)
    idle(task).commit_now(30)
    idle(task).commit_now(30)
    write(task, 1)
    rig.fault().add("upload", Fault(OSError("the network is down")))
    with pytest.raises(CommitFailedError):
        task.commit_now(30)

    idle(task).commit_now(30)

    assert ("a", "b") == rig.told(CommitPublished)[-1].stores
    assert expected(1) == rig.restored()


def test_the_base_of_a_store_that_was_clean_is_the_last_checkpoint(rig):
    """The base names the newest checkpoint with the marker, although the store was dirty long ago."""
    task = rig.open()
    write(task, 0)
    idle(task).commit_now(30)
    write(task, 1, "a")
    last = idle(task).commit_now(30)
    write(task, 2, "b")
    bases = []
    uploads = rig.fault().arguments["upload"]

    with at_points(lambda point: bases.append(uploads[-1].base("b")) if point == "commit.uploaded" else None):
        idle(task).commit_now(30)

    assert [(last.id, last.markers["main"]["b"])] == bases
