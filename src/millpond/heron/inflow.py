"""A large save while it arrives: its state goes to a file, piece by piece, and the disk sets the pace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import MillpondError, TransientError
from millpond.heron.framing import Head
from millpond.heron.scratch import Scratch, Spool
from millpond.heron.state_body import StateBegins, StateBody, StatePiece
from millpond.lanes import Lane


class Spooling:
    """
    A state on its way to a file: what was fed and not yet written is counted. Fed on the loop; written by a lane.

    Attributes:
        lane: Where it is written.
        unwritten: Bytes that wait for the disk; changed on the loop only.
    """

    def __init__(self, scratch: Scratch, lane: Lane, written: Callable[[Spooling, int], None]) -> None:
        """Begin with no state; *written* is called on any thread with the number of bytes that were written."""
        self.lane, self.unwritten = lane, 0
        self._scratch, self._written = scratch, written
        self._spool: Spool | None = None
        self._error: MillpondError | None = None
        self._begun = False

    def begin(self, size: int) -> None:
        """Take a state of *size* bytes; one that was begun before is dropped."""
        self._begun = True
        self.lane.submit(lambda: self._open(size))

    def add(self, pieces: list[memoryview]) -> None:
        """Write *pieces* behind what there is."""
        size = sum(map(len, pieces))
        self.unwritten += size
        self.lane.submit(lambda: self._write(pieces, size))

    @property
    def has_state(self) -> bool:
        """Tell whether a state has begun."""
        return self._begun

    def take(self) -> Spool:
        """
        Give what was written, when the lane has done all of it; whoever takes it discards it.

        Raises:
            MillpondError: It could not be written.
        """
        if self._error is not None:
            raise self._error
        spool, self._spool = self._spool, None
        if spool is None:
            raise TransientError("a state that is to be saved is gone: its connection has ended")
        return spool

    def discard(self) -> None:
        """Drop what was written."""
        self.lane.submit(self._drop)

    def _open(self, size: int) -> None:
        self._drop()
        try:
            self._spool = Spool(self._scratch.new_path(), size)
        except MillpondError as error:
            self._error = error

    def _write(self, pieces: list[memoryview], size: int) -> None:
        # After a failure the rest is taken and dropped, so that the save can be answered.
        try:
            if self._spool is not None and self._error is None:
                self._spool.add(pieces)
        except MillpondError as error:
            self._error = error
            self._drop()
        finally:
            self._written(self, size)

    def _drop(self) -> None:
        if self._spool is not None:
            self._spool.discard()
            self._spool = None


class Inflow:
    """
    One large body while it arrives.

    Attributes:
        head: Its packet's.
        left: Bytes of the body that are still to come.
        spooling: Where the state goes; None: nowhere, since the save is going to be refused.
    """

    def __init__(self, head: Head, spooling: Spooling | None) -> None:
        """Begin."""
        self.head, self.left, self.spooling = head, head.size, spooling
        self._body = StateBody(head.size)

    def feed(self, data: bytes) -> None:
        """
        Take a piece of the body.

        Raises:
            NotThatMessageError: It is no save.
        """
        self.left -= len(data)
        pieces: list[memoryview] = []
        for part in self._body.feed(data):
            if self.spooling is None:
                continue
            if isinstance(part, StatePiece):
                pieces.append(part.data)
            elif isinstance(part, StateBegins):
                pieces = []
                self.spooling.begin(part.size)
        if pieces and self.spooling is not None:
            self.spooling.add(pieces)

    def request(self) -> Any:
        """Give the request without its state, in the end; NotThatMessageError where it is none."""
        return self._body.message()

    def abandon(self) -> None:
        """Drop what arrived."""
        if self.spooling is not None:
            self.spooling.discard()
