"""Whatever a job does, every retained checkpoint comes back key for key, by files and by changes alike."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import blobs
import pytest
from blobs import World, commit, contents
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from millpond.errors import CommitError, TransientError

pytest.importorskip("rocksdict")

KEYS = st.integers(0, 30).map(lambda number: f"k{number:02d}")


class Job(RuleBasedStateMachine):
    """One job against a dict for each checkpoint; disks are lost, requests fail, commits are given up."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        self.number = 0
        self.disk = 0
        self.now: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
        self.saved: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {}

    @initialize(
        changes=st.booleans(),
        max_links=st.integers(1, 4),
        alone=st.sampled_from(["1B", "200B", "8MiB"]),
        tidy_every=st.integers(1, 3),
    )
    def begin(self, changes: bool, max_links: int, alone: str, tidy_every: int) -> None:
        folder = self.stack.enter_context(_folder())
        clock = blobs.engines.TurnedClock()
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("millpond.job.SystemClock", lambda: clock)
        self.world = World(
            folder,
            clock=clock,
            retain=2,
            tidy_every=tidy_every,
            settings={"changes": changes, "max_links": max_links, "alone": alone, "cleanup_every": 1, "grace": "15m"},
        )
        self.stack.callback(self.world.close)
        self.task = self.world.open("disk 0")

    @rule(store=st.sampled_from("ab"), key=KEYS, value=st.integers())
    def put(self, store: str, key: str, value: int) -> None:
        self.task.store(store)[key] = self.now[store][key] = value

    @rule(store=st.sampled_from("ab"), key=KEYS)
    def delete(self, store: str, key: str) -> None:
        self.task.store(store).delete(key)
        self.now[store].pop(key, None)

    @rule()
    def commit(self) -> None:
        self.number += 1
        made = commit(self.task, self.number)
        self._save(made)

    def _save(self, made: Any) -> None:
        self.saved[str(made.id)] = (self.number, {store: dict(held) for store, held in self.now.items()})
        kept = {str(id) for id in self.task._engine._task.manager.ids(blobs.TASK)[: self.world.retain]}
        self.saved = {id: state for id, state in self.saved.items() if id in kept}

    @rule(verb=st.sampled_from(["put", "get", "list", "delete"]), after=st.booleans(), skip=st.integers(0, 3))
    def commit_on_a_bad_day(self, verb: str, after: bool, skip: int) -> None:
        """One request fails, before or after its effect; the commit happened or did not, and the job knows which."""
        left = [skip]

        def fail(each: str, _key: str) -> None:
            if each == verb:
                left[0] -= 1
                if left[0] == -1:
                    raise TransientError("a bad day")

        store = self.world.store
        store.after, store.before = (fail, store.before) if after else (store.after, fail)
        self.number += 1
        try:
            made = commit(self.task, self.number)
        except CommitError:
            made = None
        store.before, store.after = self.world.count, lambda *_: None
        if made is None:
            made = commit(self.task, self.number)
        self._save(made)

    @rule(minutes=st.integers(1, 60))
    def time_passes(self, minutes: int) -> None:
        self.world.clock.turn(60 * minutes)

    @precondition(lambda self: self.saved)
    @rule(empty_disk=st.booleans(), data=st.data())
    def reopen(self, empty_disk: bool, data: st.DataObject) -> None:
        """The process dies; it goes on from the last checkpoint, or from an older one, here or on an empty disk."""
        id = data.draw(st.sampled_from(sorted(self.saved)))
        self.world.close()
        if empty_disk:
            self.disk += 1
        self.task = self.world.open(f"disk {self.disk}", at=id)
        offset, state = self.saved[id]
        assert (offset, state) == (blobs.engines.offset_of(self.task), contents(self.task))
        self.now = {store: dict(held) for store, held in state.items()}

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.store.before = self.world.count
            for number, (id, state) in enumerate(self.saved.items()):
                assert state == self.world.restored(f"last disk {number}", at=id)
        self.stack.close()


@contextlib.contextmanager
def _folder() -> Iterator[Any]:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="blob-model-") as folder:
        yield Path(folder)


TestJob = Job.TestCase
TestJob.settings = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
