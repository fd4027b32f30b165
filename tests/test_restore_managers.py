"""Restore managers on their bad days, several restores at once, and a restore that races an owner."""

from __future__ import annotations

import shutil
import threading

import pytest
from engines import (
    SOURCE,
    TASK,
    Rig,
    committed,
    expected,
    flip,
    idle,
    images,
    offset_of,
    sources,
    write,
)

from millpond.errors import (
    FormatError,
    StateNotFoundError,
    TransientError,
)


def restoring(rig: Rig, fill) -> None:
    """Let *fill* stand in for every restore of the backend main."""

    class Filled:
        def init(self, checkpoint) -> None: ...
        def v1_markers(self, checkpoint) -> dict:
            return {}

        def close(self) -> None: ...
        def restore(self, target) -> None:
            fill(target)

    rig.config()
    rig.factories["main"]._inner.restore_manager = lambda task, stores: Filled()


def test_a_manager_that_adopts_garbage_is_found_out(disks):
    """Strange files without a manifest are no image: the next backend is asked."""
    committed(disks, 1)
    disks.state = "another disk"

    def garbage(target) -> None:
        (target.directory / "data.changes").write_bytes(b"garbage")
        target.adopt(verified=True)

    restoring(disks, garbage)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_a_manager_that_mixes_stores_up_is_found_out(disks):
    """A whole image of another store is refused by its manifest."""
    committed(disks, 1)
    disks.state = "another disk"
    others = {image.parent.name: image for image in images(disks.root / "backup main")}

    def mixed_up(target) -> None:
        shutil.copytree(others["b" if target.store == "a" else "a"], target.directory, dirs_exist_ok=True)
        target.adopt()

    restoring(disks, mixed_up)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_a_flipped_byte_is_found_by_adopt(disks):
    """A manager that did not verify while streaming has it done for it."""
    committed(disks, 1)
    disks.state = "another disk"
    whole = {image.parent.name: image for image in images(disks.root / "backup main")}

    def flipped(target) -> None:
        shutil.copytree(whole[target.store], target.directory, dirs_exist_ok=True)
        flip(target.directory / "data.changes")
        target.adopt(verified=False)

    restoring(disks, flipped)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_half_a_restore_leaves_nothing_behind(disks):
    """Records that were written before a failure are not part of what the next attempt, or the next backend, gives."""
    committed(disks, 1)
    disks.state = "another disk"
    tries = []

    def half(target) -> None:
        target.write([(b"stray", b"0")])
        tries.append(target.store)
        raise TransientError("reset") if tries.count(target.store) == 1 else StateNotFoundError("gone")

    restoring(disks, half)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)
    assert ["a", "a", "b", "b"] == sorted(tries)


def test_a_restore_that_writes_nothing_is_an_empty_store(disks):
    """The contract: a marker may name an empty store."""
    committed(disks, 1)
    disks.state = "another disk"
    restoring(disks, lambda target: None)

    assert (1, {"a": {}, "b": {}}) == disks.restored()


def test_a_restore_may_begin_from_an_older_local_image(disks):
    """`use_local` gives the state of this backend's own marker; what is written on top is the rest."""
    disks.retain = 3
    ids = committed(disks, 1)
    shutil.copytree(disks.root / "state", disks.root / "kept")
    committed(disks, 2)
    disks.state = "kept"
    used = []

    def on_top(target) -> None:
        used.append(target.local)
        target.use_local()
        target.write([(b"k002", b"2"), (b"last", b"2")])

    restoring(disks, on_top)

    assert expected(2) == disks.restored()
    assert 2 == len(used) and all(str(ids[1]) in local for local in used)


def test_a_newer_local_image_is_no_beginning(disks):
    """Going back in time, what the local disk has of later is not offered to begin from."""
    disks.retain = 3
    ids = committed(disks, 2)
    used = []

    def look(target) -> None:
        used.append(target.local)
        raise StateNotFoundError("asked for the local image only")

    restoring(disks, look)

    assert expected(0) == disks.restored(at=ids[0])
    assert [None, None] == used


def test_a_restore_that_hangs_ends_in_time(disks):
    """The opening raises when its time is over; the folder stays taken until the straggler is gone."""
    committed(disks, 1)
    disks.state = "another disk"
    gate = disks.fault("main").hang("restore")
    job = disks.open_job()

    with pytest.raises(TransientError, match="did not end in time") as raised:
        job.open_task(TASK, timeout_s=0.2)
    for _ in range(3):
        with pytest.raises(TransientError, match="already open in this process"):
            job.open_task(TASK)
        threading.Event().wait(0.1)

    assert "still at work" in "".join(raised.value.__notes__)
    gate.set()
    assert expected(1) == opened_at_last(disks)


def opened_at_last(rig: Rig) -> object:
    """Open the task as soon as its folder is free."""
    import time

    end = time.monotonic() + 30
    while True:
        try:
            return rig.restored()
        except TransientError:
            assert time.monotonic() < end
            threading.Event().wait(0.05)


def test_one_stores_failure_stops_the_others(disks):
    """The other store's restore is told at its next check, and its error is not the one that is raised."""
    committed(disks, 1)
    disks.state = "another disk"
    begun = threading.Event()

    def one_fails(target) -> None:
        if target.store == "a":
            begun.wait(30)
            raise FormatError("of a later release")
        begun.set()
        while True:
            target.check()
            threading.Event().wait(0.01)

    restoring(disks, one_fails)

    with pytest.raises(FormatError, match="later release"):
        disks.open()


def test_two_tasks_are_restored_side_by_side(disks):
    """Each is at work before the other has ended, and both are exact."""
    job = disks.open_job()
    for name, number in (("one", 3), ("two", 5)):
        with job.open_task(name) as task:
            task.store("a")["number"] = number
            task.processed(SOURCE, number)
    disks.close()
    disks.state = "another disk"
    gates = [disks.fault("main").hang("restore") for _ in range(4)]
    job = disks.open_job()
    found: dict[str, object] = {}

    def opening(name: str) -> None:
        task = job.open_task(name)
        found[name] = (offset_of(task), task.store("a")["number"])

    threads = [threading.Thread(target=opening, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    disks.fault("main").await_call("restore", 4)
    for gate in gates:
        gate.set()
    for thread in threads:
        thread.join(30)

    assert {"one": (3, 3), "two": (5, 5)} == found


def test_a_restore_races_the_old_owners_clean_up(disks):
    """The old owner still tidies when its successor has restored and committed twice: nothing that is named goes."""
    disks.sections.pop("second")
    task = disks.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    idle(task)
    gate = disks.fault("main").hang("cleanup")
    cleaned = disks.fault("main").calls["cleanup"]
    last = task.commit().result(30)
    disks.fault("main").await_call("cleanup", cleaned + 1)
    other = Rig(disks.root, disks.clock, name=disks.name, sections=disks.sections, state="state of another machine")
    successor = other.open()
    for number in (2, 3):
        write(successor, number, "a")
        idle(successor).commit_now(30)
    idle(successor)

    disks.clock.turn(86_400)  # beyond every grace period: what protects then is the order of the checkpoints
    gate.set()
    idle(task)

    assert last == task.last
    disks.close()
    other.state = "a third machine"
    offset, stores = other.restored()
    assert (3, expected(3)[1]["a"], expected(1)[1]["b"]) == (offset, stores["a"], stores["b"])
