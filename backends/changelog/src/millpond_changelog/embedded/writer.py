"""
The writer of one owner, and its appends.

An append's frames go to the ends of its partitions as they come. It is committed by one write to the owner's file,
under the owner's lock, if the epoch there is still the writer's; then each partition gets a frame that says so. Whoever
dies in between is finished by the owner's next writer, and readers ask the owner's file until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import Protocol

from attrs import define

from millpond.clock import Clock
from millpond.errors import ConfigError, FencedError, FormatError, MillpondError, StoreClosedError, TransientError
from millpond.log import Append, LogWriter, unchecked
from millpond.points import reached
from millpond.spi import Change
from millpond_changelog.embedded.frames import AppendId
from millpond_changelog.embedded.locking import lock_on, take
from millpond_changelog.embedded.owners import OwnerFile, Place, Slot, claimed, committed, refuse_replaced
from millpond_changelog.embedded.partition import Partition

_RECORDS = 1_000
_SIZE = 256 << 10


@define
class _Part:
    """A partition of an append, and its highest offset there."""

    partition: Partition
    last: int = -1


class Folders(Protocol):
    """What a writer needs of the log that made it."""

    @property
    def owners(self) -> Path:
        """The folder of the owners' files."""

    @property
    def timeout_s(self) -> float:
        """How long a lock is waited for."""

    @property
    def clock(self) -> Clock:
        """Gives records their time."""

    def partition(self, name: str, number: int) -> Partition:
        """Give a partition; StateNotFoundError if it is not there."""

    def find(self, name: str, identity: bytes, number: int) -> Partition | None:
        """Give a partition of the topic that has *identity*; None if that is gone."""

    def largest_record(self, name: str) -> int:
        """Give the most bytes that a key and a value may have together in a topic."""

    def let_go(self, writer: FolderWriter) -> None:
        """Forget a writer that is closed."""


class FolderWriter(LogWriter):
    """The right of one owner to append; an earlier writer of it commits nothing any more."""

    def __init__(self, log: Folders, owner: str) -> None:
        """Take over from the owner's writer before."""
        self.log = log
        self.file = OwnerFile.named(log.owners, owner)
        self.guard = RLock()
        self._open: FolderAppend | None = None
        self._number = 0
        self._left: FolderAppend | None = None
        self._closed = False
        self._unsynced: list[Partition] = []
        with self.file.locked(log.timeout_s):
            slot = self.file.read()
            if slot is not None:
                self.finish(slot)
            slot = claimed(slot, owner)
            self.file.write(slot)
            self.file.forget_live(slot.epoch)
        self.epoch = slot.epoch

    def append(self) -> FolderAppend:
        """Begin an append; one at a time."""
        with self.guard:
            if self._closed:
                raise StoreClosedError("this writer of the log is closed")
            if self._open is not None:
                raise ConfigError("this writer has an append that is neither committed nor aborted: one at a time")
            refuse_replaced(self.file.read(), self.epoch)
            if self._left is not None:
                self._left.settle()
                self._left = None
            self._number += 1
            self._open = FolderAppend(self, AppendId(self.file.number, self.epoch, self._number))
            return self._open

    def ended(self, append: FolderAppend, *, settled: bool) -> None:
        """Take note that *append* is over; one that is not *settled* is, before the next one begins."""
        with self.guard:
            if self._open is append:
                self._open = None
            if not settled:
                self._left = append
            elif self._left is append:
                self._left = None

    def finish(self, slot: Slot) -> None:
        """Say in all its partitions that the append that *slot* names is committed; under the owner's lock."""
        append = AppendId(self.file.number, slot.done, slot.number)
        found = [self.log.find(place.topic, place.identity, place.partition) for place in slot.places]
        self._unsynced = [partition for partition in found if partition is not None]
        for partition in self._unsynced:
            partition.decide(append, commit=True)

    def sync_before(self, parts: Collection[Partition]) -> None:
        """
        Make durable what the last commit said outside *parts*, which are synced already.

        Until then the owner's file says it; the next commit writes over that.
        """
        for partition in self._unsynced:
            if partition not in parts:
                partition.sync()

    def close(self) -> None:
        """Abort what is open. Idempotent."""
        with self.guard:
            self._closed = True
            if self._open is not None:
                self._open.abort()
        self.log.let_go(self)


class FolderAppend(Append):
    """One append of a writer."""

    def __init__(self, writer: FolderWriter, id: AppendId) -> None:
        """Not to be called: the writer begins appends."""
        self._writer = writer
        self._log = writer.log
        self._id = id
        self._parts: dict[tuple[str, int], _Part] = {}
        self._live_path = writer.file.live(writer.epoch)
        self._live = lock_on(self._live_path)
        self._state = "open"

    def add(
        self,
        topic: str,
        partition: int,
        changes: Iterable[Change],
        *,
        headers: Mapping[str, bytes] = {},
        check: Callable[[], None] = unchecked,
    ) -> None:
        """Send the changes; nobody reads them yet."""
        self._refuse_ended()
        refuse_replaced(self._writer.file.read(), self._id.epoch)
        part: _Part | None = None
        limit = self._log.largest_record(topic)
        for batch in _batches(changes, limit, topic):
            check()
            if part is None:
                part = self._part(topic, partition)
            part.last = part.partition.add(self._id, batch, headers, self._log.clock.millis())

    def _part(self, topic: str, partition: int) -> _Part:
        if not self._live.is_locked:
            take(self._live, self._live_path, self._log.timeout_s)
        known = self._parts.get((topic, partition))
        if known is None:
            known = self._parts[topic, partition] = _Part(self._log.partition(topic, partition))
        return known

    def flush(self, check: Callable[[], None] = unchecked) -> Mapping[tuple[str, int], int]:
        """Make all of it durable, and give the highest offset in each partition."""
        self._refuse_ended()
        refuse_replaced(self._writer.file.read(), self._id.epoch)
        for part in self._parts.values():
            check()
            part.partition.sync()
        reached("changelog.flushed")
        return {place: part.last for place, part in self._parts.items()}

    def commit(self) -> None:
        """Make all of it readable at once; where an earlier call left that in doubt, find out."""
        if self.doubtful:
            self._find_out()
            return
        self._refuse_ended()
        writer = self._writer
        try:
            with writer.file.locked(self._log.timeout_s):
                slot = writer.file.read()
                refuse_replaced(slot, self._id.epoch)
                if self._parts:
                    self._decide(slot)
        except FencedError:
            self._end(settled=True, state="aborted")
            raise
        except MillpondError as error:
            self.doubtful = True
            self._end(settled=False, state="unknown")
            raise TransientError(f"it is not known whether an append to the log is readable: {error}") from error
        except BaseException:
            self.doubtful = True
            self._end(settled=False, state="unknown")
            raise
        self._end(settled=True, state="committed")

    def _find_out(self) -> None:
        is_committed = self.settle()
        self.doubtful, self._state = False, "committed" if is_committed else "aborted"
        self._writer.ended(self, settled=True)
        if not is_committed:
            raise TransientError("an append to the log was not committed: begin it anew")

    def _decide(self, slot: Slot | None) -> None:
        places = tuple(
            Place(part.partition.identity, topic, number, part.last) for (topic, number), part in self._parts.items()
        )
        decision = committed(slot, self._id, places)
        self._writer.sync_before([part.partition for part in self._parts.values()])
        reached("changelog.before-decision")
        self._writer.file.write(decision)
        reached("changelog.decided")
        self._writer.finish(decision)

    def abort(self) -> None:
        """Give it up; nothing after a commit."""
        if self._state != "open":
            return
        self._state = "aborted"
        settled = True
        try:
            self._say_aborted()
        except MillpondError:  # best effort: the next append of this writer, or the next writer, does it
            settled = False
        finally:
            self._end(settled=settled, state="aborted")

    def settle(self) -> bool:
        """
        Say in its partitions what became of it where that was left unsaid; give whether it is committed.

        Raises:
            FencedError: The owner has a later writer, which has said so.
            TransientError: It still cannot be said.
        """
        writer = self._writer
        with writer.file.locked(self._log.timeout_s):
            slot = writer.file.read()
            refuse_replaced(slot, self._id.epoch)
            assert slot is not None
            if (slot.done, slot.number) == (self._id.epoch, self._id.number):
                writer.finish(slot)
                return True
        self._say_aborted()
        return False

    def _say_aborted(self) -> None:
        for part in self._parts.values():
            part.partition.decide(self._id, commit=False)

    def _end(self, *, settled: bool, state: str) -> None:
        self._state = state
        self._live.release()
        self._writer.ended(self, settled=settled)

    def _refuse_ended(self) -> None:
        if self._state != "open":
            raise ConfigError(f"this append is {self._state}: begin another one")


def _batches(changes: Iterable[Change], limit: int, topic: str) -> Iterable[list[Change]]:
    """Cut *changes* into lists of a bounded size, and refuse what the topic does not take."""
    stream = iter(changes)
    batch: list[Change] = []
    size = 0
    while piece := list(islice(stream, 64)):
        for key, value in piece:
            if type(key) is not bytes or not (value is None or type(value) is bytes):
                raise FormatError("a change must be a key of bytes, and a value of bytes or None")
            here = len(key) + len(value or b"")
            if here > limit:
                raise ConfigError(
                    f"a record of {here} bytes, key {key[:64]!r}, is larger than the topic {topic} takes: raise its "
                    f"max.message.bytes above {limit}"
                )
            size += here
        batch += piece
        if len(batch) >= _RECORDS or size >= _SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
