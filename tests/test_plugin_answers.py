"""Plugins that answer rubbish: the plugin and the verb are named, and nothing is taken for an empty state."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from engines import committed, expected, idle, write

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import ConfigError
from millpond.events import CleanupFailed
from millpond.testing.faults import Fault

RUBBISH = [7, "text", [1]]


@pytest.mark.parametrize("rubbish", [None, *RUBBISH], ids=repr)
@pytest.mark.parametrize("verb", ["claim", "read"])
def test_a_checkpoint_manager_that_answers_rubbish(disks, verb, rubbish):
    """Even None is no answer to `read`: absence is an error of its own, and never an empty state."""
    ids = committed(disks, 1)
    disks.records.add(verb, Fault(instead=lambda _: rubbish))

    with pytest.raises(ConfigError, match=rf"the checkpoint manager broke its contract: {verb}\(\) gave"):
        disks.open(at=ids[-1] if verb == "read" else None)

    assert expected(1) == disks.restored()


IDS = [None, 7, "1-2", {}, [1], ["1-2"], [CheckpointId(1, 2), None], [CheckpointId(1, 2), CheckpointId(1, 2)]]
PINS = [None, 7, "kept", ["kept"], {"kept": "1-2"}, {"kept": None}, {7: CheckpointId(1, 2)}]


@pytest.mark.parametrize(("verb", "rubbish"), [("ids", each) for each in IDS] + [("pins", each) for each in PINS])
def test_ids_and_pins_that_are_rubbish(disks, verb, rubbish):
    """What is no sequence of ids, or no mapping to ids, ends a clean-up and a look-up, and removes nothing."""
    committed(disks, 3)
    task = idle(disks.open())
    disks.records.add(verb, Fault(instead=lambda _: rubbish))
    write(task, 4)
    task.commit_now(30)
    idle(task)

    (told,) = disks.told(CleanupFailed)
    assert f"the checkpoint manager broke its contract: {verb}() gave" in str(told.error)
    disks.close()
    if verb == "pins":
        disks.records.add(verb, Fault(instead=lambda _: rubbish))
        with pytest.raises(ConfigError, match=r"pins\(\) gave"):
            disks.open(at="kept")
        disks.close()
    assert disks.restored()[0] == 4


@pytest.mark.parametrize("rubbish", RUBBISH, ids=repr)
def test_a_last_checkpoint_that_is_none(disks, rubbish):
    """What is neither a checkpoint nor None is refused."""
    committed(disks, 1)
    disks.records.add("read_last", Fault(instead=lambda _: rubbish))

    with pytest.raises(ConfigError, match=r"read_last\(\) gave"):
        disks.open()


def test_another_checkpoint_than_was_asked_for(disks):
    """A manager that gives another record than the one that was named is found out."""
    ids = committed(disks, 1)
    disks.records.add("read", Fault(instead=lambda real: evolve(real, id=CheckpointId(1, 1))))

    with pytest.raises(ConfigError, match=r"read\(\) gave checkpoint 1-1"):
        disks.open(at=ids[-1])


@pytest.mark.parametrize("rubbish", [None, *RUBBISH], ids=repr)
@pytest.mark.parametrize("verb", ["backup_manager", "restore_manager"])
def test_a_backend_that_makes_rubbish(disks, monkeypatch, verb, rubbish):
    """A manager without its verbs is refused when it is made, not in the middle of a commit."""
    committed(disks, 1)
    disks.config()
    monkeypatch.setattr(type(disks.factories["main"]), verb, lambda *_: rubbish)

    with pytest.raises(ConfigError, match=rf"backend 'main' broke its contract: {verb}\(\) gave"):
        disks.open()


def test_a_clean_up_that_reads_rubbish_is_an_event(disks):
    """The commit has happened; the next one tidies, and the task goes on."""
    ids = committed(disks, 0)
    disks.retain = 3
    task = disks.open()
    task._engine._keeping._retained.clear()
    absent: Any = None
    disks.records.add("read", Fault(instead=lambda _: absent))
    write(task, 1)

    second: Checkpoint = idle(task).commit_now(30)

    assert ids[0] < second.id
    idle(task)
    assert ["read() gave NoneType, not a Checkpoint"] == [
        str(event.error).split(": ")[1].split(";")[0] for event in disks.told(CleanupFailed)
    ]
    write(task, 2)
    idle(task).commit_now(30)
    assert expected(2) == disks.restored()
