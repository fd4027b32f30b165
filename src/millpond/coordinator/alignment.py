"""
Barrier alignment: what arrives on a member's channels, in an order in which a snapshot is right.

A barrier stands in a channel behind everything that its sender had processed when it saved. A channel whose barrier has
come is *held* until all others' have: what comes on it meanwhile belongs after the snapshot. Held records, and further
barriers among them, keep their order. So an attempt that begins while an older one is being aligned, a barrier that
comes twice, late, or for an attempt that was given up, neither lose a record nor move one to the wrong side.

Heron's ``CheckpointGateway`` has the same task; its ways to lose, reorder, and miscount are not here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import Any

from attrs import define, frozen

from millpond.coordinator.channel import END, Barrier, Channel, Replay
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.spill import SpillFile
from millpond.errors import ConfigError


@frozen
class Aligned:
    """
    In the stream of records: all barriers of *attempt* are here, save now.

    Attributes:
        attempt: The attempt at a job checkpoint.
        duration_s: From its first barrier to its last.
        held_size: Bytes that were held at most.
        spilled_size: Those of them that went to disk.
    """

    attempt: JobCheckpointId
    duration_s: float
    held_size: int
    spilled_size: int


@frozen
class Overflowed:
    """In the stream of records: *attempt* was given up here, since more was held than the bound allows."""

    attempt: JobCheckpointId
    held_size: int
    limit: int


class Overflow(Enum):
    """What happens when more is held than the bound allows."""

    FAIL = "fail"
    SPILL = "spill"


@define
class AlignmentCounts:
    """
    What was counted, for metrics.

    Attributes:
        aligned: Attempts of which all barriers came.
        abandoned: Attempts that were given up: by the coordinator, by a newer one, or by overflow.
        overflowed: Those of them that were given up by overflow.
        ignored: Barriers that counted for nothing: late, or repeated.
        seconds: Spent from first to last barrier, over all aligned attempts.
        longest_s: The longest of them.
        largest_held: Bytes held at most.
        spilled: Bytes that went to disk.
    """

    aligned: int = 0
    abandoned: int = 0
    overflowed: int = 0
    ignored: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    largest_held: int = 0
    spilled: int = 0


class BarrierAligner:
    """
    Aligns the channels of one member. One thread.

    Put what arrives into ``channel(name)``; take records, :class:`Aligned` and :class:`Overflowed` out with ``take``.

    Attributes:
        counts: For metrics.
        held_size: Bytes in memory that are held now.
        ready: What comes next; the channels', to append to.
    """

    def __init__(
        self,
        channels: Collection[str],
        limit: int,
        *,
        overflow: Overflow = Overflow.FAIL,
        spill_directory: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """
        Begin with all *channels* open.

        Args:
            channels: The names of all of them; one without channels is a source and needs no aligner.
            limit: The bytes that all held records together may take in memory.
            overflow: What happens beyond: the attempt is given up, or records, which have to be bytes, go to disk.
            spill_directory: Where; it exists, and is this member's own.
            clock: Monotonic seconds.

        Raises:
            ConfigError: There is no channel, a name is double, or a setting does not fit.
        """
        if not channels or len(set(channels)) != len(channels):
            raise ConfigError(f"an aligner needs channels with different names, not {list(channels)}")
        if limit < 0:
            raise ConfigError(f"the limit of held records cannot be below 0 bytes, and is {limit}")
        if (overflow is Overflow.SPILL) != (spill_directory is not None):
            raise ConfigError('a spill directory goes with overflow "spill", and with that only')
        self.counts = AlignmentCounts()
        self.held_size = 0
        self._limit = limit
        self._spill_directory = spill_directory
        self._clock = clock
        self.ready: deque[Any] = deque()
        self._channels = {name: Channel(name, self) for name in channels}
        self._attempt: JobCheckpointId | None = None
        self._floor: JobCheckpointId | None = None  # no attempt up to here is aligned any more
        self._owed: set[Channel] = set()
        self._begun = 0.0
        self._most = 0
        self._spilled = 0

    @property
    def channels(self) -> Mapping[str, Channel]:
        """All channels by name."""
        return self._channels

    def channel(self, name: str) -> Channel:
        """Give the channel *name*; KeyError if there is none."""
        return self._channels[name]

    @property
    def aligning(self) -> JobCheckpointId | None:
        """The attempt of which some barriers are here; None: no channel is held."""
        return self._attempt

    @property
    def age_s(self) -> float:
        """How long the present alignment has taken so far."""
        return 0.0 if self._attempt is None else self._clock() - self._begun

    def take(self) -> Any:
        """Give what comes next; None if nothing can be given now."""
        ready = self.ready
        while ready:
            item = ready.popleft()
            if item.__class__ is not Replay:
                return item
            if (given := self._replay(item.channel)) is not None:
                return given
        return None

    def drain(self) -> Iterator[Any]:
        """Give all that can be given now."""
        while (item := self.take()) is not None:
            yield item

    def abandon(self, attempt: JobCheckpointId) -> None:
        """Give up *attempt*, and take no barrier of it or an older one any more; what was held comes next."""
        self._raise_floor(attempt)
        if self._attempt is not None and self._attempt <= attempt:
            self._give_up()

    def close(self) -> None:
        """Drop everything that is held, e.g. before a restore; removes the files. Idempotent."""
        for channel in self._channels.values():
            channel.held.close()
            channel.is_open, channel.is_replaying = True, False
        self.ready.clear()
        self._owed.clear()
        self._attempt, self.held_size = None, 0

    # --------------------------------------------------------------------------------------------------------- barriers

    def take_barrier(self, channel: Channel, attempt: JobCheckpointId) -> None:
        """Take a barrier that stands first on *channel*."""
        if self._is_over(attempt) or channel.has_ended:
            self.counts.ignored += 1
            return
        if self._attempt is None or attempt > self._attempt:
            self._begin(attempt)
        elif attempt < self._attempt:
            self.counts.ignored += 1
            return
        channel.is_open = False
        self._owed.discard(channel)
        self._finish_if_complete()

    def _is_over(self, attempt: JobCheckpointId) -> bool:
        return self._floor is not None and attempt <= self._floor

    def _raise_floor(self, attempt: JobCheckpointId) -> None:
        if not self._is_over(attempt):
            self._floor = attempt

    def _begin(self, attempt: JobCheckpointId) -> None:
        """Align *attempt*; an older one cannot be whole any more, and what it held comes before this one's barriers."""
        if self._attempt is not None:
            self._raise_floor(self._attempt)
            self._give_up()
        self._attempt, self._begun = attempt, self._clock()
        self._most, self._spilled = self.held_size, 0
        self._owed = {channel for channel in self._channels.values() if not channel.has_ended}

    def _finish_if_complete(self) -> None:
        attempt = self._attempt
        if attempt is None or self._owed:
            return
        duration_s = self._clock() - self._begun
        self.counts.aligned += 1
        self.counts.seconds += duration_s
        self.counts.longest_s = max(self.counts.longest_s, duration_s)
        self._raise_floor(attempt)
        self.ready.append(Aligned(attempt, duration_s, self._most, self._spilled))
        self._release()

    def _give_up(self) -> None:
        self.counts.abandoned += 1
        self._release()

    def _release(self) -> None:
        """Let what is held follow; a channel is open again when all of it has been taken."""
        self._attempt, self._owed = None, set()
        for channel in self._channels.values():
            if not channel.is_open and not channel.is_replaying:
                self._follow(channel)

    def take_end(self, channel: Channel) -> None:
        """Take the end of *channel*."""
        channel.has_ended = True
        self._owed.discard(channel)
        self._finish_if_complete()

    # --------------------------------------------------------------------------------------------------- held records

    def hold(self, channel: Channel, record: Any, size: int) -> None:
        """Keep a *record* that came on a channel which is not open."""
        over = self.held_size + size > self._limit
        if channel.held.is_spilled or (over and self._spill_directory is not None):
            self._spill(channel, record)
            return
        channel.held.put(record, size)
        self.held_size += size
        self._most = max(self._most, self.held_size)
        self.counts.largest_held = max(self.counts.largest_held, self.held_size)
        if over and self._attempt is not None:
            self._overflow(self._attempt)

    def _spill(self, channel: Channel, record: Any) -> None:
        if not isinstance(record, bytes):
            raise ConfigError(f"records that may be spilled have to be bytes, not {type(record).__name__}")
        assert self._spill_directory is not None
        directory = self._spill_directory
        channel.held.spill(lambda: SpillFile(directory), record)
        self._spilled += len(record)
        self.counts.spilled += len(record)

    def _overflow(self, attempt: JobCheckpointId) -> None:
        self.counts.overflowed += 1
        self._raise_floor(attempt)
        self.ready.append(Overflowed(attempt, self.held_size, self._limit))
        self._give_up()

    def _replay(self, channel: Channel) -> Any:
        """Give the first held record of *channel*; None if a barrier came, or the channel's end."""
        channel.is_replaying = False
        item, size = channel.held.take()
        self.held_size -= size
        if item is END:
            channel.is_open = True
            self.take_end(channel)
        elif isinstance(item, Barrier):
            channel.is_open = True
            self.take_barrier(channel, item.attempt)
            if not channel.is_open:
                return None  # it is held again, or what it holds follows already
        self._follow(channel)
        return None if item is END or isinstance(item, Barrier) else item

    def _follow(self, channel: Channel) -> None:
        """Let what *channel* holds come behind what is ready now, one record at a time; open it if that is nothing."""
        channel.is_open = not channel.held
        channel.is_replaying = not channel.is_open
        if channel.is_replaying:
            self.ready.append(Replay(channel))
