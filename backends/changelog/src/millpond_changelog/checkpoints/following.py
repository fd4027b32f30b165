"""Reading the checkpoint topic: from its start once, and then what is new; always to the end that was there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from threading import Event, Lock

from attrs import define, field

from millpond.errors import ConfigError, FormatError, StateCorruptError, StateNotFoundError, TransientError
from millpond.log import Batch, Log
from millpond_changelog.checkpoints.view import Found, TaskView, TopicView

_ATTEMPTS = 5
_PAUSE_S = 0.01
_PATIENCE_S = 2.0
_LENIENT_S = 5.0
_DEADLINE_S = 40.0

Release = Callable[[Collection[str]], None]


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

    def look(self, task: str, release: Release | None = None) -> TaskView:
        """
        Read what is new, and give what is known of *task*, as it is now.

        Behind an open append of another task nothing can be read, though it is committed. *release*, which is given the
        names of the known tasks, ends such appends. Who has none sees, after a while, what can be read.

        Raises:
            TransientError: An append is open in spite of *release*.
        """
        with self._lock:
            found = self._read_on(release).tasks.get(task)
            if found is None:
                return TaskView()
            return TaskView(found.claim, dict(found.newest), found.picked, dict(found.kept), dict(found.pins))

    def tasks(self) -> list[str]:
        """Read what is new, and give the names of all tasks that have a record, sorted."""
        with self._lock:
            return sorted(name for name, task in self._read_on(None).tasks.items() if not task.is_empty())

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
            self._read_on(None)
            if self.log.describe(self.topic).identity != self._identity:
                raise self._another()

    def _read_on(self, release: Release | None) -> TopicView:
        try:
            began = self.log.extent(self.topic, 0)
            view = self._read_to_end()
            tail = began.end if began.tail is None else began.tail
            return view if self._position >= tail else self._read_to_tail(view, tail, release)
        except StateNotFoundError as error:
            raise StateNotFoundError(
                f"the checkpoint topic {self.topic!r} cannot be read: {error}. Where there never was one, "
                "Job.prepare() makes it; else the job's checkpoints are gone with it"
            ) from error

    def _read_to_tail(self, view: TopicView, tail: int, release: Release | None) -> TopicView:
        """Wait until all that lay below *tail* when the look began can be read."""
        pause, asked, released = Event(), time.monotonic(), False
        while self._position < tail:
            pause.wait(_PAUSE_S)
            view = self._read_to_end()
            idle_s = time.monotonic() - asked
            if release is None and idle_s > _LENIENT_S:
                return view
            if release is not None and not released and idle_s > _PATIENCE_S:
                released = True
                release(list(view.tasks))
            if idle_s > _DEADLINE_S:
                raise TransientError(
                    f"in the checkpoint topic {self.topic!r} a transaction is open behind offset {self._position}, and "
                    "what is committed behind it cannot be read: it ends with its owner's next claim or its time-out"
                )
        return view

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
        """Take a batch in: of each key the last record, as if compaction had been here already."""
        offsets, index = batch.offsets(), 0
        try:
            changes = batch.changes()
            last = {data: at for at, (data, _) in enumerate(changes)}
            for index in sorted(last.values()):
                data, value = changes[index]
                key = view.key_of(data)
                offset = offsets[index]
                if value is None:
                    view.fold(key, None, offset)
                elif key.kept is not None:
                    view.fold(key, Found(key.type, offset, 0, b""), offset)
                else:
                    said = batch.headers(index)
                    view.fold(key, Found(key.type, offset, batch.millis(index), value, said, key.version), offset)
        except (FormatError, StateCorruptError, ConfigError) as error:
            where = f"at offset {offsets[index]} of the checkpoint topic {self.topic!r}" if offsets else "there"
            raise type(error)(f"the record {where}: {error}") from error
