"""Going back: to an older checkpoint on damage, by name, and to what a pin keeps."""

from __future__ import annotations

import shutil

import pytest
from engines import (
    TASK,
    committed,
    expected,
    idle,
    images,
    offset_of,
    state_of,
    write,
)

from millpond.checkpoint import CheckpointId
from millpond.errors import (
    ConfigError,
    StateNotFoundError,
)
from millpond.events import (
    OlderCheckpointChosen,
)


@pytest.mark.parametrize("named", [lambda given: given, str, lambda _: "before the upgrade"], ids=["id", "text", "pin"])
def test_time_travel(disks, named):
    """An older checkpoint, by id, text or pin; the next commit builds on it, and a restart resumes there."""
    disks.retain = 3
    ids = committed(disks, 2)
    disks.open_job()._parts.manager.pin(TASK, ids[0], "before the upgrade")
    disks.close()

    task = disks.open(at=named(ids[0]))
    assert expected(0) == (offset_of(task), state_of(task))
    write(task, 1, "a")
    checkpoint = task.commit_now(30)

    assert ids[0] == checkpoint.parent and checkpoint.id > ids[2]
    offset, stores = disks.restored()
    assert (1, expected(1)[1]["a"], expected(0)[1]["b"]) == (offset, stores["a"], stores["b"])


def test_what_a_time_traveller_builds_on_is_kept_though_it_is_old(rig):
    """With a smaller retain than the travelled way, the clean-up at the start spares what the next commit builds on."""
    rig.retain = 3
    ids = committed(rig, 2)
    rig.retain = 1
    task = rig.open(at=ids[0])
    idle(task)
    write(task, 1, "a")
    task.commit_now(30)
    idle(task)
    rig.close()

    rig.state = "another disk"
    offset, stores = rig.restored()
    assert (1, expected(1)[1]["a"], expected(0)[1]["b"]) == (offset, stores["a"], stores["b"])


def test_a_pin_outlives_its_record_and_its_data(disks):
    """Three commits later with retain 1 the pinned checkpoint is restored exactly, on another disk."""
    task = disks.open()
    write(task, 0)
    first = task.commit_now(30)
    disks.open_job()._parts.manager.pin(TASK, first.id, "kept")
    for number in range(1, 4):
        write(task, number)
        idle(task).commit_now(30)
    idle(task)
    disks.state = "another disk"

    assert expected(0) == disks.restored(at="kept")
    assert expected(3) == disks.restored()


@pytest.mark.parametrize(
    ("at", "error"),
    [("no such pin", ConfigError), ("17-4", StateNotFoundError), (CheckpointId(17, 4), StateNotFoundError)],
)
def test_time_travel_to_nowhere_is_an_error(disks, at, error):
    """A pin or an id that is not there is never taken for the newest, nor for an empty state."""
    committed(disks, 1)

    with pytest.raises(error):
        disks.open(at=at)


def test_an_older_checkpoint_takes_everything_back_together(disks):
    """One store of the newest checkpoint is lost everywhere: all stores and the offsets go to the one before it."""
    disks.retain, disks.restore = 3, {"on_damage": "older"}
    ids = committed(disks, 2)
    disks.state = "another disk"
    for backend in ("main", "second"):
        (newest,) = (
            p for p in images(disks.root / f"backup {backend}") if p.parent.name == "a" and str(ids[2]) in p.name
        )
        shutil.rmtree(newest)

    task = disks.open()

    assert expected(1) == (offset_of(task), state_of(task)) and ids[1] == task.last.id
    (chosen,) = disks.told(OlderCheckpointChosen)
    assert (ids[2], ids[1]) == (chosen.damaged, chosen.chosen)
    write(task, 2)
    checkpoint = task.commit_now(30)
    assert ids[1] == checkpoint.parent and checkpoint.id > ids[2]
    assert expected(2) == disks.restored()


def test_without_leave_no_older_checkpoint_is_taken(disks):
    """The default is to stop: a silent step back would process what was acknowledged again."""
    disks.retain = 3
    ids = committed(disks, 2)
    disks.state = "another disk"
    for backend in ("main", "second"):
        for image in images(disks.root / f"backup {backend}"):
            if str(ids[2]) in image.name:
                shutil.rmtree(image)

    with pytest.raises(StateNotFoundError):
        disks.open()


def test_an_ended_history_is_never_gone_back_to(disks):
    """After time travel the damaged checkpoint's predecessor is what it built on, not what is listed before it."""
    disks.retain, disks.restore = 5, {"on_damage": "older"}
    ids = committed(disks, 2)
    task = disks.open(at=ids[0])
    write(task, 7)
    newest = task.commit_now(30)
    idle(task)
    disks.close()
    disks.state = "another disk"
    for backend in ("main", "second"):
        for image in images(disks.root / f"backup {backend}"):
            if str(newest.id) in image.name:
                shutil.rmtree(image)

    assert expected(0) == disks.restored()

    assert [ids[0]] == [event.chosen for event in disks.told(OlderCheckpointChosen)]
