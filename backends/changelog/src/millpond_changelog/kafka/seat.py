"""
What a writer and its appends share: the producer, its transactional id, and how its end is told.

A transactional producer that was fenced, or whose transaction the brokers gave up, is at its end: the driver says the
same of both. To begin anew would fence a successor, so an owner has to find out first whether there is one.
"""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, RLock

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Producer

from millpond.errors import FencedError, MillpondError, StoreClosedError, TransientError
from millpond_changelog.kafka.clients import Clients, Complaints
from millpond_changelog.kafka.driver_errors import Doing, translate

_VAGUE = frozenset({"_FATAL", "_STATE"})
# Of brokers that have just been started, or take over from one that went: the driver does not ask again.
_COMING = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS"}
)
_PAUSE_S = 0.1
_LAST_WORDS = "Producer abort_transaction failed during close"

log = logging.getLogger("millpond.changelog")


@define(eq=False)
class Seat:
    """
    A producer and who sits there.

    Attributes:
        owner: Its transactional id.
        transactions: Whether it has one.
        timeout_s: How long it waits without progress.
        transaction_timeout_s: How long the brokers let an append be open.
        limit: Gives how many bytes a topic takes at once; None if nobody tells.
        end: Gives the offset behind the last that can be read in a partition.
        over: Why it can never append again.
    """

    owner: str
    transactions: bool
    timeout_s: float
    transaction_timeout_s: float
    limit: Callable[[str], int | None]
    end: Callable[[str, int], int]
    over: str | None = field(default=None, init=False)
    _complaints: Complaints = field(factory=Complaints, init=False)
    _producer: Producer | None = field(default=None, init=False)
    _lock: RLock = field(factory=RLock, init=False)

    def take(self, clients: Clients) -> None:
        """Make the producer; with transactions: end every earlier one, and what it left open."""
        if not self.transactions:
            self._producer = clients.producer({}, self._complaints)
            return
        settings = {
            "transactional.id": self.owner,
            "transaction.timeout.ms": round(self.transaction_timeout_s * 1000),
            "message.timeout.ms": round(min(self.timeout_s, self.transaction_timeout_s) * 1000),
        }
        deadline = time.monotonic() + self.timeout_s
        while self._producer is None:
            producer = clients.producer(settings, self._complaints)
            try:
                # One that is connected before it is initialised is spared half a second. The first answer comes from an
                # address that is dropped for the broker that is found there; to give the second, that one is connected.
                for _ in range(2):
                    producer.list_topics("__transaction_state", timeout=self.timeout_s)
                producer.init_transactions(self.timeout_s)
            except KafkaException as error:
                _end(producer)
                cause = error.args[0]
                if cause.name() not in _COMING or time.monotonic() > deadline:
                    raise translate(cause, self.doing("become the writer"), self._complaints) from error
                Event().wait(_PAUSE_S)
            else:
                self._producer = producer

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """
        Give the producer for a moment, in which it is not closed under its user.

        Raises:
            StoreClosedError: It is closed.
        """
        with self._lock:
            if self._producer is None:
                raise StoreClosedError(f"the writer {self.owner!r} is closed: open the log anew")
            yield self._producer

    def leave(self) -> None:
        """Close the producer, whose threads end. Idempotent."""
        with self._lock:
            producer, self._producer = self._producer, None
            if producer is None:
                return
            _end(producer)
        if self.over is not None:
            log.info("a writer that had come to its end is closed: %s", self.over)

    def refuse_if_over(self) -> None:
        """Raise FencedError if it can never append again."""
        if self.over is not None:
            raise FencedError(self.over)

    def doing(self, verb: str, topic: str | None = None) -> Doing:
        """Say what is being done, for messages."""
        what = verb if topic is not None else f"{verb} (as {self.owner!r})"
        return Doing(verb=what, right="WRITE", topic=topic, owner=self.owner)

    def failed(self, error: KafkaError, doing: Doing, open_s: float) -> MillpondError:
        """Give our error for the driver's, about an append that was open for so many seconds."""
        fatal = self._complaints.fatal
        cause = fatal if fatal is not None and error.name() in _VAGUE else error
        found = translate(cause, doing, self._complaints)
        if isinstance(found, FencedError) and self.transactions and open_s >= self.transaction_timeout_s:
            return self._timed_out(doing, open_s)
        if isinstance(found, FencedError) or cause.fatal() or fatal is not None:
            self.over = str(found)
        return found

    def _timed_out(self, doing: Doing, open_s: float) -> TransientError:
        given_up = f"was open for {open_s:.0f} s, and the brokers give a transaction up after "
        self.over = (
            f"{self.owner!r} can append nothing more: an append {given_up}{self.transaction_timeout_s:g} s; or it has "
            "a later writer: reopen the task"
        )
        return TransientError(f"{doing}: it {given_up}{self.transaction_timeout_s:g} s; nothing of it can be read")


def _end(producer: Producer) -> None:
    """Drop what is waiting, and end the driver's threads."""
    with suppress(KafkaException):  # that it was fenced is nothing new
        producer.purge()
        producer.flush(0)
    close = getattr(producer, "close", None)  # older drivers end with the last reference
    if close is not None:
        # The driver tries to abort what one that was fenced has open, and warns on standard error that it cannot. It
        # does so in its caller's name: nobody else's warnings are touched.
        warnings.filterwarnings("ignore", _LAST_WORDS, RuntimeWarning, module=rf"{re.escape(__name__)}\Z")
        with suppress(KafkaException, SystemError):  # the latter by a slip of the driver's, where a warning is an error
            close()
