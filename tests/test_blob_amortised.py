"""Removals and listings are spread over commits: what stays until then is whole, and only what was looked at goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blobs
import pytest
from blobs import World, commit, contents, fill

from millpond.commit.decisions import tidying_is_due
from millpond.errors import StateNotFoundError, TransientError
from millpond.events import CleanedUp, CleanupFailed, ObjectsRemoved
from millpond.spi import JobContext, VersionPolicy

pytest.importorskip("rocksdict")

EVERY = 8


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A job that tidies at one commit of EVERY; its changes go as files, so every commit supersedes the one before."""
    world = World(tmp_path, retain=2, tidy_every=EVERY, stores={"a": "memory"})
    world.settings = {"changes": False, "cleanup_every": 1, "grace": "15m"}
    monkeypatch.setattr("millpond.job.SystemClock", lambda: world.clock)
    yield world
    world.store.before = world.count
    world.close()


def commits(world: World, task: Any, numbers: range) -> dict[str, Any]:
    """Commit each of *numbers*, and give what each checkpoint must hold."""
    states = {}
    for number in numbers:
        fill(task, 50, text=str(number))
        states[str(commit(task, number).id)] = contents(task)
    return states


def others(world: World) -> int:
    """Count the requests that are no PUT."""
    return sum(count for (verb, _), count in world.calls.items() if verb != "put")


@pytest.mark.parametrize(
    ("published", "every", "doubtful", "due"),
    [(1, 1, False, True), (7, 8, False, False), (8, 8, False, True), (9, 8, False, True), (1, 8, True, True)],
)
def test_when_it_is_time_to_tidy(published: int, every: int, doubtful: bool, due: bool):
    """After so many publications, at once behind a doubtful commit, and again at the next one if it failed."""
    assert due is tidying_is_due(published, every, doubtful=doubtful)


def test_between_two_tidyings_a_commit_is_two_requests(world: World):
    """Of 3 x EVERY commits all but three send a PUT of data and a PUT of the record, and nothing else."""
    task = world.open()
    commits(world, task, range(1))
    counts = []
    for number in range(1, 1 + 3 * EVERY):
        world.calls.clear()
        commits(world, task, range(number, number + 1))
        assert (1, 1) == (world.calls["put", "data"], world.calls["put", "records"])
        counts.append(others(world))

    assert 3 == sum(count > 0 for count in counts)
    assert max(counts) <= 5


def test_what_is_not_yet_tidied_is_restorable(world: World):
    """Until the next tidying every checkpoint since the last one is listed and restores exactly; then retain stay."""
    task = world.open()
    states = commits(world, task, range(EVERY - 1))
    listed = [str(id) for id in task._engine._task.manager.ids(blobs.TASK)]
    assert list(states)[::-1] == listed
    oldest = next(iter(states))
    assert states[oldest] == world.restored("other disk", at=oldest)[1]

    task = world.open()  # a new owner tidies at once, and so did the one before it, but for what it stood on
    assert 2 == len(task._engine._task.manager.ids(blobs.TASK))


def test_a_pin_made_by_another_process_between_two_tidyings_holds(world: World):
    """A checkpoint beyond retain, pinned before the next tidying, keeps its data through it, and restores exactly."""
    task = world.open()
    states = commits(world, task, range(3))
    first = task._engine._task.manager.ids(blobs.TASK)[-1]
    context = JobContext(world.name, "1", None, lambda event: None, world.clock, None)  # type: ignore[arg-type]
    other = blobs.Checkpoints(blobs.RecordSettings(bucket=world.bucket), context, VersionPolicy())
    other.pin(blobs.TASK, first, "kept")
    world.clock.turn(3600)
    commits(world, task, range(3, 1 + 2 * EVERY))
    world.clock.turn(3600)
    commits(world, task, range(1 + 2 * EVERY, 2 + 3 * EVERY))

    assert world.told(ObjectsRemoved)
    assert states[str(first)] == world.restored("new disk", at="kept")[1]
    with pytest.raises(StateNotFoundError):
        world.open("third disk", at=list(states)[1])


def test_a_tidying_that_failed_is_done_at_the_next_commit(world: World):
    """A listing that fails is an event, and the next commit does not wait for EVERY others."""
    task = world.open()
    commits(world, task, range(EVERY - 1))

    def refuse(verb: str, key: str) -> None:
        if verb == "list":
            raise TransientError("busy")

    world.store.before = refuse
    commits(world, task, range(EVERY - 1, EVERY))
    assert world.told(CleanupFailed)
    world.store.before = world.count
    commits(world, task, range(EVERY, EVERY + 1))

    assert world.told(CleanedUp)
    assert 2 == len(task._engine._task.manager.ids(blobs.TASK))


def test_space_is_bounded_by_what_a_tidying_waits_for(world: World):
    """In a long run there are never more records than retain, EVERY and the claim, and objects for two such rounds."""
    task = world.open()
    most = 0
    for number in range(6 * EVERY):
        commits(world, task, range(number, number + 1))
        world.clock.turn(300)
        most = max(most, len(world.held("records")))

    assert most <= 2 + EVERY + 1
    assert len(world.held()) <= 2 + 2 * EVERY
