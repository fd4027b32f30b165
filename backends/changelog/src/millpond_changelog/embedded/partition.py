"""One partition for those who write: frames are added at its end under its lock, torn ends cut, segments begun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import RLock

from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.local import explained, fsync_directory, fsync_file, write_durably
from millpond.local.durable import write_new
from millpond.log import Extent
from millpond.points import reached
from millpond.spi import Change
from millpond_changelog.embedded import topic_file
from millpond_changelog.embedded.frames import (
    ABORT,
    COMMIT,
    DATA,
    NOBODY,
    SEAL,
    AppendId,
    decode_frame,
    encode_frame,
    encode_header,
    encode_records,
)
from millpond_changelog.embedded.locking import held
from millpond_changelog.embedded.owners import Fate
from millpond_changelog.embedded.segments import Segment, start_name
from millpond_changelog.embedded.tail import Tail

LOCK = "LOCK"


class Partition:
    """One partition, as this process knows it. Any thread."""

    def __init__(
        self,
        folder: Path,
        identity: bytes,
        number: int,
        segment_bytes: int,
        timeout_s: float,
        fate: Callable[[AppendId], Fate],
        committed: Callable[[], int],
    ) -> None:
        """
        Use the partition in *folder*, which is there.

        *fate* decides appends that no frame decides; *committed* gives an offset that somebody committed here, or -1.
        """
        self.folder = folder
        self.identity = identity
        self.number = number
        self.timeout_s = timeout_s
        self._segment_bytes = segment_bytes
        self._fate = fate
        self._committed = committed
        self._is_whole = False
        self._tail = Tail(folder, identity, number)
        self._guard = RLock()

    @property
    def lock(self) -> Path:
        """The file that is locked while frames are added."""
        return self.folder / LOCK

    # ----------------------------------------------------------------------------------------------------- looking

    def extent(self) -> Extent:
        """Look at it anew."""
        with self._guard, self._there():
            return self._extent()

    def readable(self) -> tuple[Extent, frozenset[AppendId]]:
        """Give its extent, and the appends below its end that nobody reads."""
        with self._guard, self._there():
            return self._extent(), frozenset(self._tail.aborted)

    def _extent(self) -> Extent:
        self._see_whole()
        end = self._tail.settle(self._fate)
        return Extent(min(self._tail.start, end), end, self._tail.compacted, self._tail.next)

    def _see_whole(self) -> None:
        """
        Once: see that it reaches as far as owners say.

        Raises:
            StateCorruptError: Its end is gone, with what was committed there.
        """
        if self._is_whole:
            return
        committed = self._committed()  # first: what is committed meanwhile is in the frames already
        self._tail.refresh()
        if self._tail.next <= committed:
            raise StateCorruptError(
                f"{self.folder} is cut: offset {committed} was committed there, and its records end before "
                f"{self._tail.next}: restore from another backend"
            )
        self._is_whole = True

    @contextmanager
    def _there(self) -> Iterator[None]:
        """See that the folder is still the topic's: another one of its name may be there by now."""
        path = self.folder.parent / topic_file.FILE_NAME
        with explained("read", path):
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                raise StateNotFoundError(f"there is no {self.folder}: the topic was deleted") from None
        if topic_file.decode(data, str(path)).identity != self.identity:
            raise StateNotFoundError(f"{self.folder} is of another topic by now: it was deleted and made anew")
        yield

    # ----------------------------------------------------------------------------------------------------- writing

    @contextmanager
    def writing(self) -> Iterator[Tail]:
        """Hold it for the block, with its end known and whole."""
        with self._guard, self._there(), held(self.lock, self.timeout_s), self._there():
            self._see_whole()
            self._tail.refresh()
            self._mend()
            yield self._tail

    def add(self, append: AppendId, changes: Sequence[Change], headers: Mapping[str, bytes], millis: int) -> int:
        """Add records of *append*, and give the offset of the last one; not durable before ``sync``."""
        payload = encode_records(changes, None, [(len(changes), millis, dict(headers))])
        with self.writing() as tail:
            if tail.position >= self._segment_bytes:
                self.roll()
            self._put(encode_frame(DATA, append, tail.next, len(changes), payload))
            return tail.next - 1

    def sync(self) -> None:
        """Make all that was added durable; a segment that others have ended, and compacted since, already is."""
        with self._guard:
            path = None if self._tail.at is None else self.folder / self._tail.at.name
            if path is not None and path.exists():
                fsync_file(path)

    def decide(self, append: AppendId, *, commit: bool) -> None:
        """Say what became of *append*, unless a frame says so already; durable at the next ``sync``."""
        with self.writing() as tail:
            if append in tail.open or append in tail.committed:
                self._put(encode_frame(COMMIT if commit else ABORT, append, tail.next))

    def roll(self) -> None:
        """End the segment that grows, and begin another, unless it has no record; within ``writing``."""
        tail = self._tail
        if tail.at is None or tail.at.first == tail.next:
            return
        self._put(encode_frame(SEAL, NOBODY, tail.next))
        self.sync()
        reached("changelog.segment-sealed")
        self._begin_segment(tail.next)

    def trim(self, before: int) -> None:
        """Remove what lies before the offset *before*, which is at most its end, and segments with nothing else."""
        with self.writing() as tail:
            before = min(before, tail.next)
            if before <= tail.start:
                return
            write_durably(self.folder / start_name(before), b"")
            if tail.next <= before and not tail.open:
                self.roll()
            tail.refresh()
            ended = [
                one for one, behind in zip(tail.segments, tail.segments[1:], strict=False) if behind.first <= before
            ]
            names = [segment.name for segment in ended]
            names += [path.name for path in self.folder.glob("*.start") if path.name < start_name(before)]
            for name in names:
                with explained("remove", self.folder / name):
                    (self.folder / name).unlink()
            fsync_directory(self.folder)
            tail.refresh()

    def aged(self, millis: int) -> int:
        """Give the offset before which all segments that no longer grow were last changed before *millis*."""
        with self.writing() as tail:
            if tail.at is not None and not tail.open and _changed_ms(self.folder / tail.at.name) < millis:
                self.roll()
            before = tail.start
            for segment, following in zip(tail.segments, tail.segments[1:], strict=False):
                if _changed_ms(self.folder / segment.name) >= millis:
                    break
                before = following.first
            return before

    def _mend(self) -> None:
        """Cut a torn end, and begin the segment that is to follow, if there is none."""
        tail = self._tail
        if tail.at is None or tail.sealed:
            self._begin_segment(tail.next)
            return
        path = self.folder / tail.at.name
        with explained("cut the torn end of", path):
            if path.stat().st_size > tail.position:
                os.truncate(path, tail.position)

    def _begin_segment(self, first: int) -> None:
        segment = Segment(first)
        path = self.folder / segment.name
        with explained("write", path):
            path.unlink(missing_ok=True)  # one without its header: its writer was killed
            write_new(path, encode_header(self.identity, self.number, first))
        fsync_directory(self.folder)
        self._tail.refresh()

    def _put(self, data: bytes) -> None:
        """Add one frame; a half-written one is cut off again, now or by the next writer."""
        tail = self._tail
        assert tail.at is not None
        path = self.folder / tail.at.name
        frame = decode_frame(data)
        assert frame is not None
        with explained("write", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                rest, position = memoryview(data), tail.position
                while rest:
                    written = os.pwrite(descriptor, rest, position)
                    rest, position = rest[written:], position + written
            finally:
                os.close(descriptor)
        tail.take(frame, path)


def _changed_ms(path: Path) -> int:
    with explained("look at", path):
        return path.stat().st_mtime_ns // 1_000_000
