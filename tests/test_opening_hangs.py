"""An opening whose plugins hang: it has an end, and nothing is left open or free too early."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from engines import TASK, committed, expected

from millpond.errors import StoreClosedError, TransientError
from millpond.stores.memory import MemoryEngine

MANAGER = ["create_resources", "validate_resources", "claim", "read_last", "read"]
BACKEND = ["backup_manager", "restore_manager", "restore_init", "restore", "init"]


def hanging(rig, verb):
    """Let the next call of *verb* hang; give its faults and what lets it go on."""
    faults = rig.records if verb in MANAGER else rig.fault()
    return faults, faults.hang(verb)


@pytest.fixture
def commits(disks):
    """The ids of two commits of the task."""
    return committed(disks, 1)


@pytest.fixture
def elsewhere(disks, commits):
    """The task with its commits, on a machine whose local disk is empty."""
    disks.state = "another disk"
    return disks


@pytest.mark.parametrize("verb", MANAGER + BACKEND)
def test_an_opening_ends_in_time_whatever_hangs(elsewhere, commits, verb):
    """`timeout_s` counts for each verb; when the plugin comes back at last, the task can be opened and is exact."""
    faults, gate = hanging(elsewhere, verb)
    begun = time.monotonic()

    with pytest.raises(TransientError, match="did not end in time"):
        elsewhere.open(timeout_s=0.3, at=commits[-1] if verb == "read" else None)

    assert time.monotonic() - begun < 15
    faults.await_call(verb)
    gate.set()
    assert expected(1) == elsewhere.restored_when_free()


@pytest.mark.parametrize("verb", ["claim", "read_last", "backup_manager", "restore_init", "init"])
def test_the_folder_stays_taken_while_a_plugin_hangs(elsewhere, verb):
    """What comes back late may still write there: until then a second opening is told that the folder is taken."""
    _, gate = hanging(elsewhere, verb)
    with pytest.raises(TransientError, match="did not end in time"):
        elsewhere.open(timeout_s=0.3)

    with pytest.raises(TransientError, match="already open"):
        elsewhere.open()

    gate.set()


@pytest.mark.parametrize("verb", ["create_resources", "claim", "read_last", "restore_init", "init"])
def test_closing_the_job_ends_an_opening_that_hangs(elsewhere, verb):
    """The opening thread gets StoreClosedError although the plugin has not come back."""
    faults, gate = hanging(elsewhere, verb)
    job = elsewhere.open_job()
    raised = []

    def work():
        try:
            job.open_task(TASK)
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    faults.await_call(verb)
    with contextlib.suppress(TransientError):
        job.close(1)
    thread.join(20)

    assert [StoreClosedError] == raised
    gate.set()


def test_a_manager_that_is_made_too_late_is_closed(elsewhere):
    """Nobody has it any more, so it is closed as soon as it is there."""
    faults, gate = hanging(elsewhere, "backup_manager")
    before = faults.calls["close"]
    with pytest.raises(TransientError, match="did not end in time"):
        elsewhere.open(timeout_s=0.3)
    assert before == faults.calls["close"]

    gate.set()

    faults.await_call("close", before + 1, 10)


def test_an_engine_that_hangs_in_open_ends_in_time(elsewhere, monkeypatch):
    """Its database is closed when it is there at last, and the next opening is exact."""
    gate, closed = threading.Event(), threading.Event()

    class Slow(MemoryEngine):
        @classmethod
        def open(cls, directory, store, *, read_only=False):
            gate.wait(60)
            return super().open(directory, store, read_only=read_only)

        def close(self):
            super().close()
            closed.set()

    elsewhere.state = "state"
    elsewhere.changes = {"a": {"engine_class": Slow}}
    with pytest.raises(TransientError, match="did not end in time"):
        elsewhere.open(timeout_s=0.5)
    gate.set()

    assert closed.wait(10)
    elsewhere.changes = {}
    assert expected(1) == elsewhere.restored_when_free()
