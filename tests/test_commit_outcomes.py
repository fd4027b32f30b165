"""The three outcomes of a write, and the second owner: what was named by a published record is never touched."""

from __future__ import annotations

import pytest
from engines import TASK, Rig, Section, expected, idle, offset_of, state_of, write

from millpond.errors import (
    CommitFailedError,
    CommitUnknownError,
    ConfigError,
    FencedError,
    FormatError,
    StoreClosedError,
    TransientError,
)
from millpond.events import CommitFailed, CommitPublished, CommitSettled, TaskFailed, TaskFenced
from millpond.testing.faults import Fault

LOST = TransientError("the answer was lost")


def test_a_lost_answer_is_a_success(rig):
    """The record is there: it is read back, and the commit has happened."""
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(LOST, after=True))

    assert task.commit_now(30) == task.last

    assert [] == rig.told(CommitFailed) and expected(0) == rig.restored()


@pytest.mark.parametrize("error", [LOST, SystemExit(1), KeyboardInterrupt()])
def test_whatever_the_manager_raises_after_its_effect_loses_nothing(rig, error):
    """An error of any class may come after the effect; the data of a written record is never abandoned."""
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(error, after=True))

    task.commit_now(30)

    assert 0 == rig.fault().calls["abandon"]
    assert expected(0) == rig.restored()


def test_a_write_that_did_not_happen_is_abandoned_only_behind_a_later_record(rig):
    """The request may still be on its way: what it names stays until a later record has taken its place."""
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(LOST))
    with pytest.raises(CommitFailedError, match="was not written"):
        task.commit_now(30)
    lost = rig.told(CommitFailed)[0].id
    assert 0 == rig.fault().calls["abandon"]

    task.commit_now(30)

    idle(task)
    assert [lost] == rig.fault().arguments["abandon"]
    assert expected(0) == rig.restored()


def test_a_write_that_arrives_late_is_harmless(rig):
    """The record that was taken for lost turns up before the next one: both are whole, and the newest counts."""
    rig.retain = 3
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(LOST))
    with pytest.raises(CommitFailedError):
        task.commit_now(30)
    late = rig.records.arguments["write"][0]
    task._engine._task.manager._inner.write(late.claim, late, after=None)
    write(task, 1)

    newest = idle(task).commit_now(30)

    assert [newest.id, late.id] == list(idle(task)._engine._task.manager.ids(TASK))
    assert 0 == rig.fault().calls["abandon"], "a record names what would be abandoned"
    rig.state = "another disk"
    assert expected(1) == rig.restored()
    assert expected(0) == rig.restored(at=late.id)


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_is_settled_by_the_next_commit(rig, happened):
    """Both checkpoints' data stay; the next commit finds out before anything else, and builds on that."""
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    write(task, 1)
    idle(task)
    cleaned = rig.fault().calls["cleanup"]
    rig.records.add("write", Fault(LOST, after=happened))
    rig.records.add("read_last", Fault(OSError("still down")))
    with pytest.raises(CommitUnknownError):
        task.commit_now(30)
    unknown = rig.records.arguments["write"][-1]
    assert rig.told(CommitFailed)[0].unknown and first == task.last
    assert 0 == rig.fault().calls["abandon"] and cleaned == rig.fault().calls["cleanup"]
    rig.records.add("read_last", Fault(OSError("and still")))
    with pytest.raises(CommitUnknownError, match="not settled yet"):
        task.commit_now(30)

    write(task, 2)
    last = task.commit_now(30)

    assert [happened] == [e.published for e in rig.told(CommitSettled)]
    assert (unknown.id if happened else first.id) == last.parent
    rig.state = "another disk"
    assert expected(2) == rig.restored()


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_is_settled_without_changes(rig, happened):
    """The host calls commit again with nothing new: it ends with all of it published."""
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(LOST, after=happened))
    rig.records.add("read_last", Fault(OSError("still down")))
    with pytest.raises(CommitUnknownError):
        task.commit_now(30)

    checkpoint = task.commit_now(30)

    assert checkpoint == task.last
    assert expected(0) == rig.restored()


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_outcome_is_settled_by_a_restart(rig, happened):
    """The next owner reads what is there, and is exactly that."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    rig.records.add("write", Fault(LOST, after=happened))
    rig.records.add("read_last", Fault(OSError("still down")))
    with pytest.raises(CommitUnknownError):
        idle(task).commit_now(30)

    assert expected(1 if happened else 0) == rig.restored()
    rig.state = "another disk"
    assert expected(1 if happened else 0) == rig.restored()


@pytest.mark.parametrize("error", [FormatError("too large"), ConfigError("no such version")])
def test_a_record_that_cannot_be_written_fails_at_once(rig, error):
    """Nothing was written, so nothing is read back, and what was uploaded is abandoned."""
    task = rig.open()
    write(task, 0)
    reads = rig.records.calls["read_last"]
    rig.records.add("write", Fault(error))

    with pytest.raises(CommitFailedError):
        task.commit_now(30)

    assert reads == rig.records.calls["read_last"] and 1 == rig.fault().calls["abandon"]


def second_owner(rig: Rig) -> Rig:
    """Give the same job on another disk, as another machine would open it; without faults."""
    other = Rig(rig.root, rig.clock, name=rig.name, sections=rig.sections, state="state of another machine")
    other.changes, other.retain = rig.changes, rig.retain
    return other


@pytest.fixture
def other(rig):
    made = second_owner(rig)
    yield made
    made.close()


def test_the_first_owner_is_fenced_and_its_successor_is_exact(rig, other):
    """Its next commit is refused, every later call says so, and what its successor builds on is whole."""
    rig.sections = other.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    last = task.commit_now(30)
    write(task, 1)
    successor = other.open()
    assert expected(0) == (offset_of(successor), state_of(successor))

    with pytest.raises(FencedError):
        task.commit_now(30)

    for call in (task.commit, task.commit_now):
        with pytest.raises(FencedError):
            call()
    assert 1 == len(rig.told(TaskFenced)) and [] == rig.told(TaskFailed)
    assert not task.health.ready and isinstance(task.health.last_error, FencedError)
    assert last == task.last
    write(successor, 1, "a")
    successor.commit_now(30)
    other.state = "a third machine"
    offset, stores = other.restored()
    assert (1, expected(1)[1]["a"], expected(0)[1]["b"]) == (offset, stores["a"], stores["b"])


def test_a_zombie_wakes_long_after(rig, other):
    """It slept while its successor made many commits and the old records went: it is refused, and harms nothing."""
    rig.sections = other.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    gate = rig.records.hang("write")
    sleeper = idle(task).commit()
    rig.records.await_call("write", 2)
    successor = other.open()
    for number in range(1, 6):
        write(successor, number)
        successor.commit_now(30)

    gate.set()

    assert isinstance(sleeper.exception(30), FencedError)
    other.state = "a third machine"
    assert expected(5) == other.restored()


def test_a_replaced_writer_never_abandons_what_its_successor_builds_on(rig, other):
    """
    Its record was written and the answer lost; before it could read back, a successor restored that record and
    committed. The successor's checkpoint names the old writer's data for a clean store: it must stay.
    """
    rig.sections = other.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    rig.records.add("write", Fault(LOST, after=True))
    gate = rig.records.hang("read_last")
    future = task.commit()
    rig.records.await_call("read_last", 2)
    successor = other.open()
    assert expected(0) == (offset_of(successor), state_of(successor))
    write(successor, 1, "a")
    successor.commit_now(30)
    gate.set()

    assert isinstance(future.exception(30), FencedError)

    rig.close()
    other.state = "a third machine"
    offset, stores = other.restored()
    assert (1, expected(0)[1]["b"]) == (offset, stores["b"])


@pytest.mark.parametrize("verb", ["upload", "write"])
def test_a_fenced_task_is_over(rig, verb):
    """Wherever the refusal comes from, nothing is published any more and every later call says why."""
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    write(task, 1)
    (rig.records if verb == "write" else rig.fault()).add(verb, Fault(FencedError("epoch 1 is over")))

    with pytest.raises(FencedError):
        idle(task).commit_now(30)

    with pytest.raises(FencedError):
        task.commit()
    assert first == task.last and expected(0) == rig.restored()


def test_a_replaced_writer_learns_it_while_tidying(rig):
    """A refused delete is a new owner, not a broken disk: the commit stands, the task is fenced."""
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    rig.records.add("delete", Fault(FencedError("epoch 1 is over")))

    checkpoint = idle(task).commit_now(30)
    idle(task)

    assert checkpoint == rig.told(CommitPublished)[-1].checkpoint
    with pytest.raises(FencedError):
        task.commit()
    assert 1 == len(rig.told(TaskFenced)) and [] == rig.told(TaskFailed)


def test_nobody_who_waits_can_cancel_a_commit(rig):
    """A caller that loses patience leaves the commit to itself and to the others who wait for it."""
    task = rig.open()
    write(task, 0)
    gate = rig.fault().hang("upload")
    future = task.commit()

    assert not future.cancel()

    gate.set()
    assert future.result(30) == task.last
    assert task.health.ready and idle(task).commit().result(30) == task.last


def test_an_event_that_nobody_can_tell_does_not_hide_a_success(rig):
    """A listener that exits after the commit point: the Future says what is true, and the task is over."""

    def exits(event) -> None:
        if isinstance(event, CommitPublished):
            raise SystemExit(4)

    rig.listeners.append(exits)
    task = rig.open()
    write(task, 0)

    checkpoint = task.commit().result(30)

    idle(task)
    assert checkpoint == task.last
    with pytest.raises(StoreClosedError):
        task.commit()
    rig.listeners.clear()
    assert expected(0) == rig.restored()


def test_an_event_that_nobody_can_tell_does_not_hide_a_failure(rig):
    """A listener that exits on the failure of a commit: the Future ends, nothing stays in flight."""

    def exits(event) -> None:
        if isinstance(event, CommitFailed):
            raise SystemExit(4)

    rig.listeners.append(exits)
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(LOST))

    assert isinstance(task.commit().exception(30), CommitFailedError)

    idle(task)
    with pytest.raises(StoreClosedError):
        task.commit()
