"""Reading the checkpoint topic: from its start once, and then what is new; always to the end that was there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from attrs import define, field

from millpond.errors import ConfigError, FormatError, StateCorruptError, StateNotFoundError, TransientError
from millpond.log import Batch, Log
from millpond_changelog.checkpoints.view import Found, TaskView, TopicView

_ATTEMPTS = 5


@define
class Follower:
    """
    Follows one topic. Any thread.

    Attributes:
        log: Where it is.
        topic: Its name.
    """

    log: Log
    topic: str
    _fresh: Callable[[], TopicView]
    _view: TopicView | None = field(default=None, init=False)
    _position: int = field(default=0, init=False)
    _identity: str | None = field(default=None, init=False)
    _lock: Lock = field(factory=Lock, init=False)

    def look(self, task: str) -> TaskView:
        """Read what is new, and give what is known of *task*, as it is now."""
        with self._lock:
            found = self._read_on().tasks.get(task)
            if found is None:
                return TaskView()
            return TaskView(found.claim, dict(found.newest), found.picked, dict(found.kept), dict(found.pins))

    def tasks(self) -> list[str]:
        """Read what is new, and give the names of all tasks that have a record, sorted."""
        with self._lock:
            return sorted(name for name, task in self._read_on().tasks.items() if not task.is_empty())

    def value_at(self, offset: int) -> bytes | None:
        """Give the value of the record at *offset*; None if compaction has taken it."""
        try:
            for batch in self.log.read(self.topic, 0, offset, offset + 1):
                for _, value in batch.changes():
                    return value
        except StateNotFoundError:
            return None
        return None

    def see_that_it_is_the_same(self) -> None:
        """Raise StateNotFoundError if the topic was deleted and made anew since it was first read."""
        with self._lock:
            self._read_on()
            if self.log.describe(self.topic).identity != self._identity:
                raise self._another()

    def _read_on(self) -> TopicView:
        try:
            return self._read_to_end()
        except StateNotFoundError as error:
            raise StateNotFoundError(
                f"the checkpoint topic {self.topic!r} cannot be read: {error}. Where there never was one, "
                "Job.prepare() makes it; else the job's checkpoints are gone with it"
            ) from error

    def _read_to_end(self) -> TopicView:
        for _ in range(_ATTEMPTS):
            extent = self.log.extent(self.topic, 0)
            view = self._view
            if view is None or extent.start > self._position:
                # Only what is there counts: records that we knew may be gone.
                view, self._position = self._fresh(), extent.start
                self._identity = self._identity or self.log.describe(self.topic).identity
            if extent.end < self._position:
                raise self._another()
            try:
                self._read(view, extent.end)
            except StateNotFoundError:
                if self.log.extent(self.topic, 0).start <= self._position:
                    raise
                self._view = None  # its start moved on meanwhile
                continue
            self._view = view
            return view
        raise TransientError(f"the start of the checkpoint topic {self.topic!r} moves faster than it can be read")

    def _another(self) -> StateNotFoundError:
        return StateNotFoundError(f"it was deleted and made anew since this job began to read it ({self.topic!r})")

    def _read(self, view: TopicView, end: int) -> None:
        for batch in self.log.read(self.topic, 0, self._position, end) if self._position < end else ():
            self._fold(view, batch)
            self._position = batch.position
            self._view = view

    def _fold(self, view: TopicView, batch: Batch) -> None:
        offsets = batch.offsets()
        for index, (data, value) in enumerate(batch.changes()):
            offset = offsets[index]
            with _named(self.topic, offset):
                key = view.key_of(data)
            if value is None or key.kept is not None:
                found = None if value is None else Found(key.type, offset, 0, b"")
            else:
                found = Found(key.type, offset, batch.millis(index), value, batch.headers(index), key.version)
            view.fold(key, found, offset)


@contextmanager
def _named(topic: str, offset: int) -> Iterator[None]:
    try:
        yield
    except (FormatError, StateCorruptError, ConfigError) as error:
        raise type(error)(f"the record at offset {offset} of the checkpoint topic {topic!r}: {error}") from error
