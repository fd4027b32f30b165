"""Commits that take too long, are given up, or are interrupted: deadlines hold, and nothing is published late."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from engines import TASK, at_points, expected, idle, state_of, write
from interrupts import Interrupting

from millpond.errors import CommitFailedError, CommitTimeoutError, MillpondError, StoreClosedError, TransientError
from millpond.events import CommitFailed, CommitSkipped, CommitStarted
from millpond.formats import change_file
from millpond.testing.faults import Fault


@pytest.fixture
def hung(rig):
    """A task whose first commit hangs in its upload: the task, what lets it go on, and the commit's Future."""
    rig.commit = {"timeout": timedelta(minutes=5)}
    task = rig.open()
    write(task, 0)
    gate = rig.fault().hang("upload")
    future = task.commit()
    rig.fault().await_call("upload")
    return task, gate, future


def test_a_young_commit_in_flight_is_waited_for(rig, hung):
    """Another commit is skipped: the same Future, an event, no wait."""
    task, gate, future = hung
    write(task, 1)

    assert future is task.commit() and 1 == len(rig.told(CommitSkipped))

    gate.set()
    future.result(30)
    idle(task)
    assert expected(0) == rig.restored(), "it does not cover later writes"


def test_an_old_commit_is_given_up_and_never_published(rig, hung):
    """From its timeout on, commit raises; when the upload comes back at last, no record is written, and all goes on."""
    task, gate, future = hung
    rig.clock.turn(301)

    with pytest.raises(CommitTimeoutError, match="in flight for 30"):
        task.commit()

    gate.set()
    assert isinstance(future.exception(30), CommitFailedError)
    assert 0 == rig.records.calls["write"] and 1 == rig.fault().calls["abandon"]
    with pytest.raises(CommitFailedError):
        idle(task).commit()
    task.commit_now(30)
    assert expected(0) == rig.restored()


def test_a_commit_gives_itself_up_without_being_asked(rig, hung):
    """Nobody called commit meanwhile: a commit that has taken too long does not publish all the same."""
    _, gate, future = hung
    rig.clock.turn(301)
    gate.set()

    assert isinstance(future.exception(30), CommitFailedError)

    assert 0 == rig.records.calls["write"]


def test_timeouts_are_tolerated_as_the_operator_says(rig):
    """One commit may take too long without an exception; the second one in a row is raised."""
    rig.commit = {"timeout": timedelta(minutes=5), "tolerated_timeouts": 1}
    task = rig.open()
    write(task, 0)
    for round in range(2):
        gate = rig.fault().hang("upload")
        future = idle(task).commit()
        rig.fault().await_call("upload", round + 1)
        rig.clock.turn(301)
        if round == 0:
            assert future is task.commit()
        else:
            with pytest.raises(CommitTimeoutError):
                task.commit()
        gate.set()
        assert isinstance(future.exception(30), CommitFailedError)
    with pytest.raises(CommitFailedError):
        idle(task).commit()
    task.commit_now(30)
    assert 0 == task._engine.timeouts


def test_commit_now_keeps_its_deadline(rig, hung):
    """It waits for the one in flight for as long as it was told, and the commit may still happen."""
    task, gate, future = hung
    begun = time.monotonic()

    with pytest.raises(CommitTimeoutError):
        task.commit_now(0.2)

    assert 0.2 <= time.monotonic() - begun < 5
    gate.set()
    future.result(30)


def test_commit_now_keeps_its_deadline_for_its_own_commit(rig):
    """The time is over while its own upload hangs: in flight, and published when it comes back."""
    task = rig.open()
    write(task, 0)
    gate = rig.fault().hang("upload")

    with pytest.raises(CommitTimeoutError, match="still in flight"):
        task.commit_now(0.2)

    gate.set()
    idle(task)
    assert expected(0) == rig.restored()


def test_close_keeps_its_deadline_and_gives_the_commit_up(rig, hung):
    """It raises that something is still at work; the commit is not published when the upload comes back."""
    task, gate, future = hung
    begun = time.monotonic()

    with pytest.raises(TransientError, match="still at work"):
        task.close(0.2)

    assert time.monotonic() - begun < 5
    gate.set()
    assert isinstance(future.exception(30), CommitFailedError)
    assert 0 == rig.records.calls["write"]


def test_a_closed_tasks_straggler_keeps_the_folder(rig, hung):
    """As long as a hung upload may come back to work in it, nobody else gets the folder; then everybody does."""
    task, gate, future = hung
    with pytest.raises(TransientError):
        task.close(0.2)
    job = rig.open_job()

    with pytest.raises(TransientError, match="already open in this process"):
        job.open_task(TASK)

    gate.set()
    future.exception(30)
    task._engine._task.apply_lane.submit(lambda: None).result(30)
    task._engine._task.commit_lane.submit(lambda: None).result(30)
    assert {"a": {}, "b": {}} == state_of(job.open_task(TASK))


def test_a_commit_that_is_being_written_is_not_given_up(rig):
    """Past the last point, close waits for the record: it is published, and the Future says so."""
    task = rig.open()
    write(task, 0)
    gate = rig.records.hang("write")
    future = task.commit()
    rig.records.await_call("write")
    threading.Timer(0.1, gate.set).start()

    task.close(30)

    assert future.result(0) == task.last
    assert expected(0) == rig.restored()


@pytest.mark.parametrize(
    "point",
    ["commit.image-staged", "commit.image-sealed", "commit.before-hooks", "commit.before-upload", "commit.uploaded"],
)
def test_a_commit_that_is_given_up_at_any_step_is_not_published(rig, point):
    """Wherever it is when its time is over, it ends before the commit point, and the next one has it all."""
    task = rig.open()
    write(task, 0)

    def late(reached: str) -> None:
        if reached == point and rig.told(CommitStarted) and not rig.told(CommitFailed):
            rig.clock.turn(600)

    with at_points(late), pytest.raises(CommitFailedError, match="longer than 300 s"):
        task.commit_now(30)
    assert 0 == rig.records.calls["write"]
    task.commit_now(30)
    assert expected(0) == rig.restored()


def test_an_interrupted_commit_leaves_the_state_intact(rig):
    """Ctrl-C inside commit reaches the host; the commit is abandoned and the next one has it all."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("snapshot", Fault(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        task.commit()

    write(task, 1)
    task.commit_now(30)
    assert 1 == rig.fault().calls["abandon"] and expected(1) == rig.restored()


def test_an_interrupted_listener_leaves_the_commit_in_flight(rig, hung):
    """Ctrl-C while the host is told that its commit was skipped reaches the host, and the one in flight goes on."""
    task, gate, future = hung

    def interrupts(event) -> None:
        if isinstance(event, CommitSkipped):
            raise KeyboardInterrupt

    listeners = task._engine._task.job.listener
    object.__setattr__(listeners, "listeners", (interrupts,))

    with pytest.raises(KeyboardInterrupt):
        task.commit()

    gate.set()
    assert future.result(30) == task.last


def published(rig, checkpoint) -> dict[str, dict[str, int]]:
    """Give what the local images that *checkpoint* names hold."""
    found = {}
    for store, image in checkpoint.images.items():
        path = next((rig.root / "state").rglob(f"images/{store}/{image}"))
        entries = change_file.read(path / "data.changes")
        found[store] = {key.decode(): int(value) for key, value in entries if value is not None}
    return found


@pytest.mark.parametrize("goes_on", [True, False], ids=["writes-on", "commits-at-once"])
def test_an_interrupt_anywhere_in_commit_loses_nothing(rig, goes_on):
    """Wherever an interrupt hits commit, the next one has everything that was written before and after it."""
    number, place, interrupted = -1, 0, True
    task = rig.open()
    while interrupted and task.health.ready:
        place += 1
        number += 1
        write(task, number)
        interrupted = Interrupting(place).around(task.commit)
        if goes_on:
            number += 1
            write(task, number)
        try:
            checkpoint = idle(task).commit_now(60)
        except CommitFailedError:
            checkpoint = task.commit_now(60)
        idle(task)
        assert expected(number)[1] == published(rig, checkpoint), place
    assert 20 < place

    assert expected(number) == rig.restored()


def test_a_hook_may_look_at_the_task_while_it_closes(rig):
    """A commit that is given up by close stops before its hooks are called again."""
    task = rig.open()
    write(task, 0)
    inside, gate = threading.Event(), threading.Event()
    calls = []

    def hook() -> None:
        calls.append(1)
        inside.set()
        gate.wait(30)

    task.before_publish(hook)
    future = task.commit()
    inside.wait(30)
    closing = threading.Thread(target=task.close)
    closing.start()
    while task.health.ready:
        threading.Event().wait(0.01)
    gate.set()
    closing.join(30)

    assert isinstance(future.exception(0), CommitFailedError) and [1] == calls
    assert 0 == rig.fault().calls["upload"]


def test_a_commit_that_loses_its_threads_ends_all_the_same(rig):
    """The job's threads ended between two steps of a commit: its Future does not wait for ever."""
    task = rig.open()
    write(task, 0)
    inside, gate = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "commit.image-staged":
            inside.set()
            gate.wait(30)

    with at_points(hold):
        future = task.commit()
        inside.wait(30)
        task._engine._task.commit_lane._workers.close(0)
        gate.set()
        assert isinstance(future.exception(30), MillpondError)
    idle(task)
    with pytest.raises((StoreClosedError, CommitFailedError)):
        task.commit().result(30)
