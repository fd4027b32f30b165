"""A task, as a host holds it: stores, offsets, commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self

from attrs import frozen

from millpond.checkpoint import Checkpoint, SystemStreamPartition
from millpond.clock import Clock
from millpond.commit import CommitEngine
from millpond.errors import ConfigError, StoreClosedError
from millpond.stores.buffer import BufferedStore
from millpond.stores.keyvalue import KeyValueStore

SWEPT_AT_A_COMMIT = 200
"""How many values each store with a time to live looks at before a commit that is due."""


@frozen
class TaskHealth:
    """
    How a task is doing; a value of one moment.

    Attributes:
        ready: It is restored and neither closed nor over.
        last_commit_age_s: Seconds since the last checkpoint was published by this process; None before the first.
        last_error: The last failure that no successful commit has followed.
        failures: How many commits in a row have failed.
        uncommitted_records: What a crash now would process again: calls of ``processed`` since the last checkpoint.
    """

    ready: bool
    last_commit_age_s: float | None
    last_error: BaseException | None
    failures: int
    uncommitted_records: int


class Closing(Protocol):
    """Lets go of everything that a task holds."""

    def __call__(self, timeout_s: float) -> None:
        """Close, within *timeout_s* seconds."""
        ...


class Task:
    """
    One task of a job, restored and claimed. A context manager: leaving it cleanly commits, leaving it by an exception
    commits nothing.

    One thread at a time writes, reports ``processed`` and commits; others may read.
    """

    def __init__(
        self,
        name: str,
        engine: CommitEngine,
        stores: Mapping[str, KeyValueStore[Any, Any]],
        images: Mapping[str, Path],
        buffers: Sequence[BufferedStore],
        clock: Clock,
        interval_s: float | None,
        close: Closing,
        timeout_s: float,
    ) -> None:
        """Made by ``Job.open_task``."""
        self.name = name
        self._engine = engine
        self._stores = stores
        self._images = images
        self._buffers = buffers
        self._clock = clock
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._close = close
        self._closed = False
        self._offsets: dict[SystemStreamPartition, str] = dict(engine.last.offsets if engine.last else {})
        self._processed = 0
        self._committed = 0
        self._committed_at: float | None = None
        self._begun_at = clock.monotonic()

    @property
    def offsets(self) -> Mapping[SystemStreamPartition, str]:
        """For each input, the last offset processed: after opening, the restored one. Read on from the one after it."""
        return MappingProxyType(self._offsets)

    @property
    def identities(self) -> Mapping[SystemStreamPartition, str]:
        """For inputs that have one, what tells them from others of their name: restored, or said by ``identify``."""
        return self._engine.identities

    @property
    def last(self) -> Checkpoint | None:
        """The last published checkpoint; None before the task's first."""
        return self._engine.last

    @property
    def health(self) -> TaskHealth:
        """How the task is doing; any thread."""
        engine = self._engine
        failure = next((f for buffer in self._buffers if (f := buffer.failure) is not None), None)
        age = None if self._committed_at is None else self._clock.monotonic() - self._committed_at
        return TaskHealth(
            ready=not self._closed and engine.over is None and failure is None,
            last_commit_age_s=age,
            last_error=engine.last_error or failure or (None if self._closed else engine.over),
            failures=engine.failures,
            uncommitted_records=self._processed - self._committed,
        )

    def store(self, name: str) -> KeyValueStore[Any, Any]:
        """
        Give the store *name*, the same object each time.

        Raises:
            ConfigError: The configuration has no such store.
            StoreClosedError: The task is closed.
        """
        if self._closed:
            raise StoreClosedError(f"task {self.name!r} is closed")
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores))
            raise ConfigError(f"task {self.name!r} has no store {name!r}; the configuration has {known}") from None

    def image(self, store: str) -> Path | None:
        """
        Give the restored image of a host's own database; None: the store is new.

        Copy or link what is needed out of it before the first commit, which may remove it, and never change it.
        """
        return self._images.get(store)

    def processed(self, source: SystemStreamPartition, offset: str | int, records: int = 1) -> None:
        """
        Report that everything of *source* up to *offset* is processed: so many *records* since the last report.

        Raises:
            TypeError: *source* is no SystemStreamPartition, or *offset* neither text nor an integer.
            StoreClosedError: The task is closed.
        """
        if self._closed:
            raise StoreClosedError(f"task {self.name!r} is closed")
        if offset.__class__ is int:
            offset = str(offset)
        elif offset.__class__ is not str:
            raise TypeError(f"an offset is text or an integer, not {offset!r} ({type(offset).__name__})")
        if source.__class__ is not SystemStreamPartition:
            raise TypeError(f"a source is a SystemStreamPartition, not {source!r} ({type(source).__name__})")
        self._offsets[source] = offset
        self._processed += records

    def identify(self, source: SystemStreamPartition, identity: str) -> None:
        """Have later checkpoints say what tells *source* from others of its name; that alone makes no commit due."""
        self._engine.identify(source, identity)

    def before_publish(self, hook: Callable[[], None]) -> None:
        """Call *hook* at each commit before anything is published, on a worker; e.g. a producer's ``flush``."""
        self._engine.before_publish(hook)

    def room(self) -> Future[None]:
        """
        Give a Future that ends when a put into any store would not wait; for event loops.

        Raises:
            FencedError, StoreClosedError: The task is over.
        """
        self._engine.raise_if_over()
        return _all_of([buffer.room() for buffer in self._buffers])

    def has_room(self) -> bool:
        """
        Say whether a put into any store would not wait: ``room().done()``, cheap enough for every record.

        Raises:
            StoreClosedError: The task is over.
        """
        for buffer in self._buffers:  # noqa: SIM110 - a generator costs as much as the look itself
            if not buffer.has_room():
                return False
        return True

    # ----------------------------------------------------------------------------------------------- commits

    @property
    def commit_due(self) -> bool:
        """Whether the commit interval has passed since the last commit began."""
        return self._interval_s is not None and self._clock.monotonic() - self._begun_at >= self._interval_s

    def commit(self) -> Future[Checkpoint]:
        """
        Begin a commit and give its Future; never waits.

        While another commit is in flight, gives that one's Future, which does not cover later writes.

        Raises:
            CommitError: An earlier commit failed and nobody was told yet; or the one in flight is too old.
            FencedError: Another process owns this task now: stop.
            StoreClosedError: The task is closed, or an engine failed: reopen it.
        """
        before = self._engine.begun
        future = self._engine.commit(self._offsets)
        if self._engine.begun != before:
            self._begun_at = self._clock.monotonic()
            self._watch(future)
        return future

    def settle(self, timeout_s: float) -> None:
        """
        Wait at most *timeout_s* seconds until no commit is in flight, so that the next ``commit`` is a new one.

        Raises:
            CommitTimeoutError: One still is.
            FencedError, StoreClosedError: The task is over.
        """
        self._engine.settle(timeout_s)

    def commit_if_due(self) -> Future[Checkpoint] | None:
        """Begin a commit if one is due and none is in flight; cheap enough for every record. Raises as ``commit``."""
        if not self.commit_due:
            return None
        if self._engine.is_busy:
            return None
        self._sweep()
        return self.commit()

    def commit_now(self, timeout_s: float | None = None) -> Checkpoint:
        """
        Commit all that was written and processed so far, and wait at most *timeout_s* seconds for it.

        Without *timeout_s*, the configuration's ``commit.timeout`` counts.

        Raises:
            CommitTimeoutError: It did not end in time, and may still happen.
            CommitError, FencedError, StoreClosedError: As ``commit``, and what became of this one.
        """
        processed = self._processed
        checkpoint = self._engine.commit_now(self._offsets, self._timeout_s if timeout_s is None else timeout_s)
        self._begun_at = self._clock.monotonic()
        self._note(processed)
        return checkpoint

    def _sweep(self) -> None:
        """Let the stores whose values expire delete some that have; a bounded look, on the thread that writes."""
        for store in self._stores.values():
            store.sweep(SWEPT_AT_A_COMMIT)

    def _watch(self, future: Future[Checkpoint]) -> None:
        processed = self._processed
        future.add_done_callback(lambda done: None if done.exception() else self._note(processed))

    def _note(self, processed: int) -> None:
        self._committed = max(self._committed, processed)
        self._committed_at = self._clock.monotonic()

    # --------------------------------------------------------------------------------------------------- end

    def close(self, timeout_s: float = 30.0) -> None:
        """
        Let go of the stores and the directories within *timeout_s* seconds; commits nothing. Idempotent, any thread.

        A commit in flight is given up unless its record is being written already.

        Raises:
            TransientError: Something was still at work when the time was over.
        """
        if not self._closed:
            self._closed = True
            self._close(timeout_s)

    def end_in_child(self) -> None:
        """Make closing do nothing, in a forked child: all that it would let go of is the parent's."""
        self._closed = True

    def __enter__(self) -> Self:
        """Give the task itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit unless an exception passes; close in any case."""
        begun = time.monotonic()
        try:
            if error is None and not self._closed:
                self.commit_now()
        finally:
            self.close(max(1.0, 30.0 - (time.monotonic() - begun)))


def _all_of(futures: Sequence[Future[None]]) -> Future[None]:
    """Give a Future that ends when all of *futures* have, or with the first error."""
    whole: Future[None] = Future()
    waiting = set(futures)
    lock = threading.Lock()

    def done(one: Future[None]) -> None:
        with lock:
            waiting.discard(one)
            last = not waiting or one.exception() is not None
            if not last or whole.done():
                return
            waiting.clear()
            error = one.exception()
            whole.set_result(None) if error is None else whole.set_exception(error)

    for future in futures:
        future.add_done_callback(done)
    return whole
