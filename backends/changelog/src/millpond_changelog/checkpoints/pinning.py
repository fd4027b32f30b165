"""Pins: copies of checkpoints under names. Whoever may write the topic may pin, without a claim."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from threading import Event

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError, FencedError, StateNotFoundError, TransientError
from millpond.formats import record as record_format
from millpond.log import Log
from millpond_changelog.checkpoints.keys import Keys
from millpond_changelog.checkpoints.reading import TaskReader

_ATTEMPTS = 20
_PAUSE_S = 0.1


@frozen
class PinBoard:
    """
    The pins of one task. Any thread.

    Attributes:
        log: Where the topic is.
        owner: The log's owner of pins; its writers end each other, and try again.
        keys: The task's keys.
        reader: Reads the task.
    """

    log: Log
    owner: str
    keys: Keys
    reader: TaskReader

    def pin(self, id: CheckpointId, name: str) -> None:
        """Keep a copy of *id* under *name*; the same again is fine."""
        view = self.reader.look()
        held = self.reader.pinned(view).get(name)
        if held is not None and held.id != id:
            raise ConfigError(f"{name!r} pins {held.id} of task {self.keys.task!r}: unpin it, or use another name")
        if held is not None:
            return
        found = self.reader.find(view, id)
        self._put(name, record_format.encode_checkpoint(found))
        if not self._is_kept(id, name):
            # A writer drops the checkpoint, then looks at the pins, then removes the data. Having found none, we do
            # not know whether it has seen the pin: the data may be gone.
            self._put(name, None)
            raise StateNotFoundError(
                f"the checkpoint {id} of task {self.keys.task!r} was removed while it was being pinned: pin a newer one"
            )

    def unpin(self, name: str) -> None:
        """Remove the pin *name*; a missing one is fine."""
        if name in self.reader.look().pins:
            self._put(name, None)

    def _is_kept(self, id: CheckpointId, name: str) -> bool:
        view = self.reader.look()
        if id in self.reader.ids(view):
            return True
        return any(other != name and each.id == id for other, each in self.reader.pinned(view).items())

    def _put(self, name: str, value: bytes | None) -> None:
        self._again_while_fenced(lambda: self._append((self.keys.pin(name), value)))

    def _append(self, change: tuple[bytes, bytes | None]) -> None:
        with closing(self.log.writer(self.owner)) as writer, writer.append() as append:
            append.add(self.reader.follower.topic, 0, [change])
            append.flush()
            append.commit()

    def _again_while_fenced(self, work: Callable[[], None]) -> None:
        """Do *work*; again if another pins at the same time."""
        for _ in range(_ATTEMPTS):
            try:
                return work()
            except FencedError:
                Event().wait(random.uniform(0, _PAUSE_S))  # noqa: S311 - it parts who collided
        raise TransientError(f"others pin checkpoints of {self.keys.task!r} all the time: try again")
