"""One channel of a barrier aligner, and what it keeps while it is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from attrs import frozen

from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.spill import SpillFile


class Aligner(Protocol):
    """What a channel needs of its aligner."""

    ready: deque[Any]

    def hold(self, channel: Channel, record: Any, size: int) -> None:
        """Keep a record that came while the channel was not open."""
        ...

    def take_barrier(self, channel: Channel, attempt: JobCheckpointId) -> None:
        """Take a barrier that stands first on the channel."""
        ...

    def take_end(self, channel: Channel) -> None:
        """Take the channel's end."""
        ...


@frozen
class Barrier:
    """A barrier among what is held."""

    attempt: JobCheckpointId


class _End:
    """The end of a channel, among what is held."""


END: Final = _End()


class Channel:
    """
    One way into a member; made by the aligner. ``put`` is all that a record on an open channel costs. One thread.

    Attributes:
        name: Its name.
        is_open: Records pass; else they are held.
        is_replaying: What was held is being given, behind what was ready before it.
        has_ended: Nothing comes any more.
        held: What is kept.
    """

    __slots__ = ("_aligner", "_ready", "has_ended", "held", "is_open", "is_replaying", "name")

    def __init__(self, name: str, aligner: Aligner) -> None:
        self.name = name
        self.is_open = True
        self.is_replaying = False
        self.has_ended = False
        self.held = Held()
        self._aligner = aligner
        self._ready = aligner.ready.append

    def put(self, record: Any, size: int = 0) -> None:
        """Take a *record*, which is not None, of *size* bytes; the size counts only while the channel is not open."""
        if self.is_open:
            self._ready(record)
        else:
            self._aligner.hold(self, record, size)

    def barrier(self, attempt: JobCheckpointId) -> None:
        """Take a barrier, which stands behind what was put before."""
        if self.is_open:
            self._aligner.take_barrier(self, attempt)
        else:
            self.held.mark(Barrier(attempt))

    def end(self) -> None:
        """Take note that nothing comes any more: no attempt waits for this channel from now on."""
        if self.is_open:
            self._aligner.take_end(self)
        else:
            self.held.mark(END)


class Replay:
    """Stands among what is ready where the next held record of *channel* comes."""

    __slots__ = ("channel",)

    def __init__(self, channel: Channel) -> None:
        self.channel = channel


class Held:
    """What one channel keeps, in order: in memory, and from its first spilled record on in a file."""

    def __init__(self) -> None:
        self._memory: deque[tuple[Any, int]] = deque()
        self._spilled: SpillFile | None = None

    def __bool__(self) -> bool:
        return bool(self._memory) or self._spilled is not None

    @property
    def is_spilled(self) -> bool:
        """Whether the next record has to go to disk, to stay behind those that are there."""
        return self._spilled is not None

    def put(self, record: Any, size: int) -> None:
        """Keep *record* in memory."""
        self._memory.append((record, size))

    def mark(self, item: Barrier | _End) -> None:
        """Keep a barrier or an end behind what is kept already."""
        if self._spilled is not None:
            self._spilled.mark(item)
        else:
            self._memory.append((item, 0))

    def spill(self, make: Callable[[], SpillFile], record: bytes) -> None:
        """Keep *record* on disk."""
        if self._spilled is None:
            self._spilled = make()
        self._spilled.put(record)

    def take(self) -> tuple[Any, int]:
        """Give the first item, and the bytes of memory that it no longer takes."""
        if self._memory:
            return self._memory.popleft()
        assert self._spilled is not None
        item = self._spilled.take()
        if not self._spilled:
            self._spilled.close()
            self._spilled = None
        return item, 0

    def close(self) -> None:
        """Drop everything; idempotent."""
        self._memory.clear()
        if self._spilled is not None:
            self._spilled.close()
            self._spilled = None
