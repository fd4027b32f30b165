"""What a partition's frames say, read forward from where one was: its end, and which appends are open or aborted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from attrs import define, field

from millpond.errors import StateCorruptError
from millpond.local import explained
from millpond_changelog.embedded.frames import (
    ABORT,
    COMMIT,
    DATA,
    FRAME_SIZE,
    HEADER_SIZE,
    KEPT,
    SEAL,
    AppendId,
    Frame,
    check_header,
    decode_frame,
)
from millpond_changelog.embedded.owners import Fate
from millpond_changelog.embedded.segments import Segment, check_chain, in_force, start_of

_PIECE = 1 << 20


@define
class Tail:
    """
    The end of one partition, as far as its frames were read. Whoever uses it holds the partition in this process.

    Attributes:
        folder: The partition's.
        identity: Its topic's.
        partition: Its number.
        segments: In force.
        removed: The offset before which all was removed.
        at: The segment that is read, or None before the first.
        position: Bytes of it that were read: all whole frames.
        next: The offset that the next record gets.
        open: Undecided appends and their first offset here.
        aborted: Appends whose records nobody reads.
        committed: Appends that are committed though no frame says so yet.
        sealed: The segment that is read has ended.
    """

    folder: Path
    identity: bytes
    partition: int
    segments: list[Segment] = field(factory=list)
    removed: int = 0
    at: Segment | None = None
    position: int = 0
    next: int = 0
    open: dict[AppendId, int] = field(factory=dict)
    aborted: set[AppendId] = field(factory=set)
    committed: set[AppendId] = field(factory=set)
    sealed: bool = False

    def refresh(self) -> None:
        """
        Read what was added since.

        Raises:
            StateCorruptError: What was once whole is damaged, or a segment is missing.
        """
        with explained("read", self.folder):
            names = [path.name for path in self.folder.iterdir()]
        self.segments, _ = in_force(names)
        self.removed = start_of(names)
        if self.at is not None and self.at not in self.segments:
            self._forget()
        check_chain(self.segments, self.folder)
        self._go_on()

    def _forget(self) -> None:
        self.at, self.position, self.next, self.sealed = None, 0, 0, False
        self.open.clear()
        self.aborted.clear()
        self.committed.clear()

    def _go_on(self) -> None:
        """Read the segment that is read, and all behind it."""
        start = 0 if self.at is None else self.segments.index(self.at)
        for segment in self.segments[start:]:
            if segment != self.at and not self._enter(segment):
                return
            if segment.end is not None:
                self.next, self.sealed = segment.end, True
            elif not self.sealed:
                self._read(segment, is_last=segment == self.segments[-1])

    def _enter(self, segment: Segment) -> bool:
        """Begin a segment; False: it was only just made, and has no header yet."""
        if self.at is not None and (not self.sealed or segment.first != self.next):
            raise StateCorruptError(
                f"{self.folder / self.at.name} is cut, or a segment is missing: it reaches offset {self.next}, and the "
                f"next one is {segment.name}"
            )
        if segment.end is None:
            path = self.folder / segment.name
            with explained("read", path), path.open("rb") as file:
                head = file.read(HEADER_SIZE)
            if len(head) < HEADER_SIZE and segment == self.segments[-1]:
                self.segments = self.segments[:-1]
                return False
            check_header(head, self.identity, self.partition, segment.first, str(path))
        self.at, self.position, self.next, self.sealed = segment, HEADER_SIZE, segment.first, False
        return True

    def _read(self, segment: Segment, *, is_last: bool) -> None:
        path = self.folder / segment.name
        with explained("read", path), path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(self.position)
            while not self.sealed:
                frame = decode_frame(file.read(FRAME_SIZE))
                if frame is None or self.position + frame.size > size:
                    if not is_last or has_decision_behind(file, self.position, size):
                        raise StateCorruptError(
                            f"{path} is damaged at byte {self.position}, and there is more behind it: restore from "
                            "another backend"
                        )
                    return
                self.take(frame, path)
                file.seek(self.position)

    def take(self, frame: Frame, path: Path) -> None:
        """Go on by one frame."""
        if frame.kind in (DATA, SEAL) and frame.first != self.next:
            raise StateCorruptError(f"{path} is damaged: offset {self.next} was to follow, and it is {frame.first}")
        if frame.kind == DATA:
            if frame.append not in self.aborted and frame.append not in self.committed:
                self.open.setdefault(frame.append, frame.first)
            self.next = frame.first + frame.count
        elif frame.kind == COMMIT:
            self.open.pop(frame.append, None)
            self.committed.discard(frame.append)
        elif frame.kind == ABORT:
            self.abort(frame.append)
        elif frame.kind == SEAL:
            self.sealed = True
        elif frame.kind == KEPT:
            raise StateCorruptError(f"{path} is damaged: it has records that only compaction leaves")
        self.position += frame.size

    def abort(self, append: AppendId) -> None:
        """Take note that *append* never will be committed."""
        if self.open.pop(append, None) is not None:
            self.aborted.add(append)

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return max(self.removed, self.segments[0].first if self.segments else 0)

    @property
    def compacted(self) -> int:
        """The offset up to which records may be gone."""
        return max((segment.end for segment in self.segments if segment.end is not None), default=0)

    def settle(self, fate: Callable[[AppendId], Fate]) -> int:
        """
        Read what was added since, decide what no frame decides, and give the offset behind the last that can be read.

        An append may be committed while it is read: then all of its frames are there, and have to be read first.
        """
        is_whole = False
        while not is_whole:
            self.refresh()
            is_whole = True
            for append in list(self.open):
                found = fate(append)
                if found is Fate.ABORTED:
                    self.abort(append)
                elif found is Fate.COMMITTED:
                    self.open.pop(append)
                    self.committed.add(append)
                    is_whole = False
        return min(self.open.values(), default=self.next)


def has_decision_behind(file: BinaryIO, position: int, size: int) -> bool:
    """
    Tell whether an append is decided, or the segment ended, anywhere behind *position*.

    Then all before it was once on stable storage, and what is wrong there is damage. Otherwise it is the end that a
    power cut tore, in whatever order the disk had written it, and nobody was told that it is durable.
    """
    at = position + 1
    while at < size:
        file.seek(at)
        data = file.read(_PIECE + FRAME_SIZE)
        for kind in (COMMIT, ABORT, SEAL):
            found = data.find(kind)
            while found >= 0:
                frame = decode_frame(data[found : found + FRAME_SIZE])
                if frame is not None and at + found + frame.size <= size:
                    return True
                found = data.find(kind, found + 1)
        at += _PIECE
    return False
