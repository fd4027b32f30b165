"""A plugin that hangs in the middle of a commit: every wait has an end, and nothing is lost or doubled."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

import pytest
from engines import expected, idle, write

from millpond.errors import CommitError, TransientError
from millpond.testing.faults import Fault

BEFORE = ["upload", "write"]
AFTER = ["ids", "delete", "pins", "cleanup"]


@pytest.fixture
def hanging(disks, request):
    """A task whose second commit hangs in a verb of a backend, or of the checkpoint manager."""
    verb = request.param
    disks.commit = {"timeout": timedelta(seconds=0.5)}
    task = disks.open()
    write(task, 0)
    idle(task).commit_now(30)
    idle(task)
    faults = disks.records if verb in ("write", "ids", "delete", "pins") else disks.fault()
    if verb == "abandon":
        faults.add("upload", Fault(OSError("the link broke")))
    before, gate = faults.calls[verb], faults.hang(verb)
    write(task, 1)
    future = task.commit()
    faults.await_call(verb, before + 1)
    return disks, task, future, gate


@pytest.mark.parametrize("hanging", [*BEFORE, "abandon", *AFTER], indirect=True)
def test_the_host_is_not_held_up(hanging):
    """No call waits beyond its time, nobody else gets the folder meanwhile, and in the end all is exact."""
    disks, task, _, gate = hanging
    begun = time.monotonic()

    with pytest.raises(CommitError):
        task.commit_now(0.2)
    with contextlib.suppress(CommitError):
        task.commit()
    assert time.monotonic() - begun < 10
    with pytest.raises(TransientError, match="still at work"):
        task.close(0.2)

    gate.set()
    offset, stores = disks.restored_when_free()
    assert offset in (0, 1) and expected(offset) == (offset, stores)


@pytest.mark.parametrize("hanging", AFTER, indirect=True)
def test_what_hangs_behind_the_commit_point_does_not_take_the_commit_back(hanging):
    """The Future has the checkpoint while the clean-up hangs, and a restart is at it."""
    disks, _, future, gate = hanging

    assert {"1"} == set(future.result(30).offsets.values())

    gate.set()
    assert expected(1) == disks.restored_when_free()


@pytest.mark.parametrize("hanging", ["upload"], indirect=True)
def test_an_upload_that_comes_back_too_late_is_not_published(hanging):
    """The commit was given up meanwhile: no record of it appears, and the next one has its changes."""
    disks, task, future, gate = hanging
    disks.clock.turn(1)
    gate.set()

    assert isinstance(future.exception(30), CommitError)
    idle(task)
    assert 0 == int(*task.last.offsets.values())
    task.commit_now(30)
    assert expected(1) == disks.restored()
