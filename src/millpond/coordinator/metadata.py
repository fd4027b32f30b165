"""
The role that keeps a coordinator's durable record, and says which of several coordinators may write it.

One place serves one job. The *record* is opaque bytes here (:mod:`millpond.coordinator.record` gives them), replaced as
a whole by compare-and-set. *Leadership* is the right to replace it: it has an epoch that only grows, and whoever holds
an older epoch is refused by the place itself, however long it slept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from attrs import frozen


@frozen
class StoredRecord:
    """
    The record as it is now.

    Attributes:
        data: Its bytes.
        version: The place's own word for this state of it, to be given to ``write`` as *expected*. Every successful
            write has a version of its own; a version never names other bytes.
    """

    data: bytes
    version: str


class Leadership(ABC):
    """
    The right of one coordinator to write, from an election until it is lost or given back. Any thread may use it.

    Attributes:
        candidate: Who was elected, in words for people.
        epoch: Greater than that of every earlier leadership in this place, also across deletions and restarts.
    """

    candidate: str
    epoch: int

    @abstractmethod
    def check(self) -> None:
        """
        Return only while no other coordinator can have been elected; quick, called before each act that others see.

        Where leadership hangs on a session or a lease that has to be renewed, it is lost here, by the local monotonic
        clock, before anybody else can have it.

        Raises:
            FencedError: It is lost, for good: stand for election anew.
        """

    @abstractmethod
    def resign(self) -> None:
        """Give the leadership back, so that a standby need not wait for a time-out. Idempotent; best effort."""


class CoordinatorMetadata(ABC):
    """
    Keeps one job's coordinator record. Any thread may call it; every call ends in bounded time.

    Errors of every method: TransientError for what may go away, ConfigError for what the operator has to correct.
    """

    def create_resources(self) -> None:
        """Make what is missing; idempotent."""
        return None

    def validate_resources(self) -> None:
        """Try what this place relies on, and raise ConfigError with the mend if it does not hold."""
        return None

    @abstractmethod
    def lead(self, candidate: str, timeout_s: float) -> Leadership:
        """
        Wait until this coordinator leads; *candidate* says in messages who it is, and need not be unique.

        Durable when it returns: every earlier leadership's writes are refused from now on. A leader that lives is not
        overthrown; one that died, or resigned, or lost its session is followed by one of the waiting.

        Raises:
            TransientError: *timeout_s* seconds passed, or the place does not answer; stand again.
            StoreClosedError: ``close`` was called meanwhile.
        """

    @abstractmethod
    def leader(self) -> tuple[int, str] | None:
        """
        Give epoch and candidate of the newest leadership, for people; None if there never was one or nobody can tell.

        It may be lost by now.
        """

    @abstractmethod
    def read(self) -> StoredRecord | None:
        """
        Give the record as it is now, never from a cache; None only when it is proven that there is none.

        A leader that reads after it was elected sees every record that any earlier leader was told to be written.

        Raises:
            StateCorruptError, FormatError: There is one, and the place's own wrapping of it cannot be read.
        """

    @abstractmethod
    def write(self, leadership: Leadership, data: bytes, expected: str | None) -> str:
        """
        Replace the record of version *expected* (None: there is none yet) by *data*, durably, and give its version.

        The place checks epoch and version together with the write, in one step. *data* that is there already under
        this leadership, in place of *expected*, is the answer that was lost: success. A reader sees the old record or
        the new one, whole. *data* of any size up to 32 MiB is kept (a place with a smaller limit keeps it elsewhere and
        points to it).

        Raises:
            FencedError: A later leadership exists, or this one is lost; nothing was written.
            ConfigError, FormatError: It cannot be written at all; nothing was.
            Exception: Anything else means *unknown*: it may have happened, also a version other than *expected* by an
                own earlier write. ``read`` says what is there.
        """

    @abstractmethod
    def close(self) -> None:
        """Resign, end every ``lead`` that waits, and let go of everything; idempotent, from any thread."""

    def __enter__(self) -> Self:
        """Give the place itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


MAX_RECORD = 32 << 20
"""The largest record in bytes that every place keeps."""
