"""Commits that fail before the commit point: nothing has happened, and nothing is lost."""

from __future__ import annotations

import pytest
from engines import SOURCE, TASK, Section, at_points, expected, idle, state_of, write

from millpond.errors import CommitFailedError, ConfigError, FencedError
from millpond.events import (
    CleanedUp,
    CommitFailed,
    CommitPublished,
    CommitStarted,
    ImageMade,
    TaskClaimed,
    TaskClosed,
    TaskRestored,
    Uploaded,
)
from millpond.testing.faults import Fault

BROKEN = OSError("the network is down")


def failed(future) -> BaseException:
    """Wait for *future*, which must fail, and give its error."""
    error = future.exception(30)
    assert error is not None
    return error


def test_a_failed_upload_changes_nothing_and_the_next_commit_has_it_all(rig):
    """The next commit has the changes, on the base of the last published checkpoint; the failed one is abandoned."""
    task = rig.open()
    write(task, 0)
    first = task.commit_now(30)
    write(task, 1)
    rig.fault().add("upload", Fault(BROKEN))

    error = failed(idle(task).commit())

    assert isinstance(error, CommitFailedError) and error.__cause__ is BROKEN
    assert first == task.last and expected(1) == (1, state_of(task))
    lost = rig.told(CommitFailed)[0].id
    assert [lost] == rig.fault().arguments["abandon"]
    write(task, 2)
    seen = {}
    rig.fault().add("upload", Fault(instead=lambda markers: markers))
    snapshots = rig.fault().arguments["upload"]
    with pytest.raises(CommitFailedError):
        task.commit()
    with at_points(lambda point: seen.update(base=snapshots[-1].base("a")) if point == "commit.uploaded" else None):
        second = task.commit_now(30)
    assert (first.id, first.markers["main"]["a"]) == seen["base"]
    assert first.id == second.parent
    assert expected(2) == rig.restored()


def test_a_failure_is_raised_once_by_the_next_call(rig):
    """With no tolerance the next commit raises what the last one failed of, once, and the one after it works."""
    task = rig.open()
    rig.fault().add("upload", Fault(BROKEN))
    write(task, 0)
    error = failed(idle(task).commit())

    with pytest.raises(CommitFailedError) as raised:
        idle(task).commit()

    assert error is raised.value
    assert task.commit().result(30) == task.last


def test_as_many_failures_as_the_operator_tolerates_are_not_raised(rig):
    """Two in a row are tolerated, the third is raised; a success in between begins a new count."""
    rig.commit = {"tolerated_failures": 2}
    task = rig.open()
    write(task, 0)
    for good in (False, False, True, False, False, False):
        rig.fault().add("upload", None if good else Fault(BROKEN))
        write(task, 0)
        assert good is (idle(task).commit().exception(30) is None)
    with pytest.raises(CommitFailedError):
        idle(task).commit()


def test_commit_now_raises_its_failure_once(rig):
    """Whoever waited has heard of it: the next commit does not tell again."""
    task = rig.open()
    rig.fault().add("upload", Fault(BROKEN))
    write(task, 0)
    with pytest.raises(CommitFailedError):
        task.commit_now(30)

    assert 0 == int(task.commit().result(30).offsets[SOURCE])


def test_commit_now_includes_what_a_failed_commit_in_flight_could_not_publish(rig):
    """It waits for the one in flight, and its own outcome is the one that counts."""
    task = rig.open()
    gate = rig.fault().hang("upload")
    write(task, 0)
    first = task.commit()
    rig.fault().await_call("upload")
    write(task, 1)
    task.before_publish(hook := Hook(error=RuntimeError("the producer is gone")))
    gate.set()
    with pytest.raises(CommitFailedError, match="the producer is gone"):
        task.commit_now(30)  # the first may have passed the hooks already
    assert first.exception(30) is None or hook.calls
    hook.error = None
    task.commit_now(30)
    assert expected(1) == rig.restored()


class Hook:
    """A hook of before_publish that notes its calls."""

    def __init__(self, error: BaseException | None = None, then=None) -> None:
        self.calls, self.error, self.then = 0, error, then

    def __call__(self) -> None:
        self.calls += 1
        if self.then is not None:
            self.then()
        if self.error is not None:
            raise self.error


def test_hooks_run_before_anything_is_uploaded(rig):
    """When a hook is called, no backend was; once published, each hook was called once."""
    task = rig.open()
    seen = []
    task.before_publish(hook := Hook(then=lambda: seen.append(rig.fault().calls["upload"])))
    write(task, 0)
    task.commit_now(30)

    assert ([0], 1) == (seen, hook.calls)


@pytest.mark.parametrize("error", [RuntimeError("flush"), FencedError("a producer's"), SystemExit(3)])
def test_a_failing_hook_fails_the_commit(rig, error):
    """Nothing is published, and no cause is its own cause: loops over causes end."""
    task = rig.open()
    write(task, 0)
    task.before_publish(Hook(error))

    told = failed(idle(task).commit())

    assert task.last is None and 0 == rig.records.calls["write"]
    assert isinstance(told, (CommitFailedError, FencedError))
    assert told.__cause__ is not told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "NoneType"),
        ({}, "no marker for a, b"),
        ({"a": "m", "b": "m", "c": "m"}, "not asked for"),
        ({"a": "m", "b": 7}, "no text"),
        (["a", "b"], "list"),
    ],
)
def test_rubbish_from_upload_fails_the_commit(rig, given, said):
    """A backend that breaks its contract is named, and nothing is published."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(instead=lambda _: given))

    error = failed(idle(task).commit())

    assert isinstance(error, CommitFailedError) and isinstance(error.__cause__, ConfigError)
    assert said in str(error) and "'main'" in str(error)
    assert 0 == rig.records.calls["write"]
    task.commit_now(30)
    assert expected(0) == rig.restored()


@pytest.mark.parametrize("given", [None, 5, {"a": 7}, ["a"]])
def test_rubbish_from_snapshot_fails_the_commit(rig, given):
    """What the processing thread got is checked before it reaches upload."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("snapshot", Fault(instead=lambda _: given))

    error = failed(idle(task).commit())

    assert isinstance(error, CommitFailedError) and "snapshot" in str(error)
    assert 0 == rig.fault().calls["upload"] == rig.records.calls["write"]
    task.commit_now(30)
    assert expected(0) == rig.restored()


def test_a_snapshot_that_raises_fails_the_future_and_not_the_call(rig):
    """The host's thread goes on; the failure is the Future's, and the commit is abandoned."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("snapshot", Fault(BROKEN))

    error = failed(idle(task).commit())

    assert isinstance(error, CommitFailedError) and error.__cause__ is BROKEN
    assert 1 == rig.fault().calls["abandon"]
    task.commit_now(30)
    assert expected(0) == rig.restored()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
@pytest.mark.parametrize("sections", [("main",), ("main", "other")], ids=["one", "two"])
def test_a_plugin_cannot_end_a_lane(rig, error, sections):
    """What is no Exception fails the commit like any other error, and the next one works."""
    rig.sections = dict.fromkeys(sections, Section())
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(error))

    assert isinstance(failed(idle(task).commit()), CommitFailedError)

    task.commit_now(30)
    assert expected(0) == rig.restored()


def test_a_plugin_that_exits_is_waited_for_like_any_other(rig):
    """No backend is told to abandon a commit while another one still uploads it."""
    rig.sections = {"main": Section(), "other": Section()}
    task = rig.open()
    write(task, 0)
    gate = rig.fault("other").hang("upload")
    rig.fault("main").add("upload", Fault(SystemExit(1)))
    future = task.commit()
    rig.fault("other").await_call("upload")
    rig.fault("main").await_call("upload")

    assert 0 == rig.fault("other").calls["abandon"] and not future.done()

    gate.set()
    assert isinstance(failed(future), CommitFailedError)
    assert 1 == rig.fault("other").calls["abandon"]


def test_a_fenced_backend_outweighs_a_broken_one(rig):
    """When one backend is down and another one says that the task has a new owner, the task is over."""
    rig.sections = {"main": Section(), "other": Section()}
    task = rig.open()
    write(task, 0)
    rig.fault("main").add("upload", Fault(BROKEN))
    rig.fault("other").add("upload", Fault(FencedError("epoch 1 is over")))

    assert isinstance(failed(idle(task).commit()), FencedError)


def test_an_abandon_that_fails_is_an_event(rig):
    """Best effort: the failed commit stays what it is, and the next one works."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(BROKEN))
    rig.fault().add("abandon", Fault(SystemExit(2)))

    assert isinstance(failed(idle(task).commit()), CommitFailedError)

    with pytest.raises(CommitFailedError):
        idle(task).commit()
    assert task.commit().result(30) == task.last


def test_later_writes_never_enter_an_image(rig):
    """While a commit is on its way the host writes on; it holds what was there at its call."""
    task = rig.open()
    write(task, 0)
    gate = rig.fault().hang("upload")
    first = task.commit()
    rig.fault().await_call("upload")
    for number in range(1, 5):
        write(task, number)
        for buffered in task._buffers:
            buffered.close_run()  # the runs are applied while the image is uploaded
    gate.set()
    first.result(30)

    assert expected(0) == rig.restored()


def test_a_stuck_apply_lane_keeps_the_order(rig):
    """Runs that were closed after the mark wait behind the image, however long the lane was stuck before."""
    import threading

    task = rig.open()
    stuck = threading.Event()
    task._buffers[0]._lane.submit(lambda: stuck.wait(30))
    write(task, 0)
    first = task.commit()
    write(task, 1)
    for buffered in task._buffers:
        buffered.close_run()
    stuck.set()

    assert "0" == first.result(30).offsets[SOURCE]
    assert expected(0) == rig.restored()


def test_without_changes_nothing_is_written(rig):
    """The last checkpoint is given again: no record, no image, no call."""
    task = rig.open()
    write(task, 0)
    last = task.commit_now(30)
    idle(task)
    rig.fault().calls.clear(), rig.records.calls.clear()

    assert last is task.commit().result(0)

    assert {} == dict(rig.fault().calls) == dict(rig.records.calls)


def test_offsets_alone_make_a_record_and_nothing_else(rig):
    """No backend is called, no file is made, the markers are the last ones."""
    task = rig.open()
    write(task, 0)
    last = task.commit_now(30)
    idle(task)
    files = {path: path.stat().st_ino for path in (rig.root / "state").rglob("*")}
    rig.fault().calls.clear()
    task.processed(SOURCE, 1)

    new = task.commit_now(30)

    assert (last.markers, last.images) == (new.markers, new.images) and new.id > last.id
    assert 0 == rig.fault().calls["upload"] == rig.fault().calls["snapshot"] == rig.fault().calls["cleanup"]
    assert files == {path: path.stat().st_ino for path in (rig.root / "state").rglob("*")}
    assert (1, expected(0)[1]) == rig.restored()


def test_only_the_dirty_store_is_uploaded(rig):
    """A clean store keeps its marker and its image."""
    task = rig.open()
    write(task, 0)
    last = task.commit_now(30)
    write(task, 1, "a")

    new = task.commit_now(30)

    assert ("a",) == rig.fault().arguments["upload"][-1].stores
    assert last.markers["main"]["b"] == new.markers["main"]["b"] and last.images["b"] == new.images["b"]
    assert last.markers["main"]["a"] != new.markers["main"]["a"]


def test_ids_grow_though_the_clock_goes_back(rig):
    """An hour back between commits, and over a restart: each id is greater than all before."""
    ids = []
    for _ in range(3):
        task = rig.open()
        for number in range(3):
            write(task, number)
            ids.append(task.commit_now(30).id)
            rig.clock.wall_s -= 3600
        rig.close()

    assert sorted(set(ids)) == ids


def test_events_tell_the_story_in_order(rig):
    """A task's life in events: claimed, restored, a commit with its phases, closed."""
    rig.sections = {"main": Section()}
    task = rig.open()
    write(task, 0, "a")
    task.commit_now(30)
    rig.close()

    kinds = [type(event) for event in rig.events]
    wanted = [TaskClaimed, TaskRestored, CommitStarted, ImageMade, Uploaded, CommitPublished, CleanedUp, TaskClosed]
    assert wanted == [kind for kind in dict.fromkeys(kinds) if kind in wanted]
    published = rig.told(CommitPublished)[0]
    assert {"freeze", "image", "upload", "write"} == set(published.phases_s)
    assert ("a", "b") == published.stores and all(seconds >= 0 for seconds in published.phases_s.values())
    assert all((rig.name, TASK) == (e.job, e.task) for e in rig.told(*wanted))


def test_an_ephemeral_store_is_in_no_checkpoint(rig):
    """Its changes commit nothing, and it begins empty; the others are exact."""
    rig.changes["b"] = {"ephemeral": True, "backup": (), "restore": ()}
    task = rig.open()
    write(task, 0)
    checkpoint = task.commit_now(30)
    task.store("b")["more"] = 1

    assert checkpoint is task.commit_now(30)
    assert ["a"] == list(checkpoint.images) == list(checkpoint.markers["main"])
    assert (0, {"a": expected(0)[1]["a"], "b": {}}) == rig.restored()


def test_a_plugins_error_text_is_never_lost(rig):
    """An error without a text is told by its class."""
    task = rig.open()
    write(task, 0)
    rig.fault().add("upload", Fault(TimeoutError()))

    assert "TimeoutError" in str(failed(idle(task).commit()))
