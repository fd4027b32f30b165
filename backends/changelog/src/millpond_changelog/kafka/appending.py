"""One append: a transaction; or, where the log has none, some records in a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from threading import Event
from typing import TypeVar

from attrs import define, field
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millpond.errors import ConfigError, MillpondError, StoreClosedError, TransientError
from millpond.log import Append, unchecked
from millpond.spi import Change
from millpond_changelog.kafka.pieces import pieces
from millpond_changelog.kafka.seat import Seat

_SLICE_S = 0.2
_TURN_S = 1.0
_ABORT_S = 5.0
_PAUSE_S = 0.002
_READERS_S = 1.0
_CAUSE_S = 1.0
_CONSEQUENCES = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "_STATE"})
T = TypeVar("T")

_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})

Reports = dict[KafkaError | None, Message]
"""
What was reported of the records of one partition: the newest by its error, None being success.

Its ``__setitem__`` is the driver's call-back for each record, so each is looked at without a call into Python.
"""


@define(eq=False)
class KafkaAppend(Append):
    """
    An append by one producer.

    Attributes:
        state: ``open``, ``flushed``, ``doubtful`` after a commit without an answer, ``decided`` after one that nobody
            can read yet, ``committed`` or ``aborted``.
    """

    _seat: Seat
    _ended: Callable[[KafkaAppend], None]
    state: str = field(default="open", init=False)
    _began: float = field(factory=time.monotonic, init=False)
    _reports: dict[tuple[str, int], Reports] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        if self._seat.transactions:
            self._call("begin an append", lambda producer: producer.begin_transaction())

    def add(
        self,
        topic: str,
        partition: int,
        changes: Iterable[Change],
        *,
        headers: Mapping[str, bytes] = {},
        check: Callable[[], None] = unchecked,
    ) -> None:
        """Send the changes."""
        self._require("open", "flushed")
        self.state = "open"
        reports = self._reports.setdefault((topic, partition), {})
        limit = self._seat.limit(topic)
        for piece, alone in pieces(changes, limit):
            check()
            if alone and limit is not None and len(piece) == 1:
                self._refuse_too_large(topic, piece[0], limit)
            self._send(topic, partition, piece, list(headers.items()) or None, reports, check)
            self._raise_reported()
            if alone:
                self.flush(check)

    def flush(self, check: Callable[[], None] = unchecked) -> Mapping[tuple[str, int], int]:
        """Wait until every record is acknowledged, and see that each was."""
        self._require("open", "flushed")
        left, moved = self._call("append", len), time.monotonic()
        while left:
            check()
            remaining = self._call("append", lambda producer: producer.flush(_SLICE_S))
            self._raise_reported()
            if remaining < left:
                left, moved = remaining, time.monotonic()
            elif time.monotonic() - moved > self._seat.timeout_s:
                raise self._failed(KafkaError(KafkaError._MSG_TIMED_OUT), "append")  # noqa: SLF001 - the driver's own
        self._raise_reported()
        self.state = "flushed"
        return {where: _offset(reports[None]) for where, reports in self._reports.items() if None in reports}

    def commit(self) -> None:
        """Commit the transaction; without one, it is done. Again after an error: find out."""
        if self.state == "committed":
            return
        self._require("flushed", "doubtful", "decided")
        if self._seat.transactions:
            if self.state != "decided":
                self._commit()
            self._await_readers()
        self._end("committed")

    def _commit(self) -> None:
        self.state = "doubtful"
        deadline = time.monotonic() + self._seat.timeout_s
        while True:
            try:
                with self._seat.producer() as producer:
                    producer.commit_transaction(_TURN_S)
            except KafkaException as error:
                if not (error.args[0].retriable() and time.monotonic() < deadline):
                    raise self._not_committed(error.args[0]) from error
            else:
                self.state = "decided"
                return

    def _not_committed(self, cause: KafkaError) -> MillpondError:
        """Give the error for a commit that failed, after giving up what has to be given up."""
        if cause.txn_requires_abort():
            self.state = "open"
            self.abort()
        found = self._failed(cause, "commit an append")
        if self._seat.over is not None:
            self._end("aborted")
        return found

    def _await_readers(self) -> None:
        """
        Wait until it can be read: brokers answer as soon as it is decided, and tell the partitions afterwards.

        Not for long: behind another owner's open append it cannot be read before that one has ended.
        """
        deadline = time.monotonic() + _READERS_S
        for (topic, partition), reports in self._reports.items():
            while None in reports and self._seat.end(topic, partition) <= _offset(reports[None]):
                if time.monotonic() > deadline:
                    return
                Event().wait(_PAUSE_S)

    def abort(self) -> None:
        """Give it up, if that can still be done: what a commit has become is found out by the next append."""
        if self.state in ("committed", "aborted", "doubtful", "decided"):
            return
        self.state = "aborting"
        self._try_to_abort(_ABORT_S)

    @property
    def doubtful(self) -> bool:  # type: ignore[override]  # told by its state
        """Whether a commit was begun of which nobody knows what has become."""
        return self.state in ("doubtful", "decided")

    def settle(self) -> None:
        """Find out what became of it, or end it; TransientError if that is not possible now."""
        if self.state in ("doubtful", "decided"):
            self.commit()
        elif self.state not in ("committed", "aborted") and not self._try_to_abort(self._seat.timeout_s):
            raise TransientError(
                f"an earlier append of {self._seat.owner!r} cannot be given up: do the brokers answer?"
            )

    def _try_to_abort(self, timeout_s: float) -> bool:
        """Give it up; True if that is done, or the producer is at its end anyway."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                with self._seat.producer() as producer:
                    self._drop(producer)
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < deadline:
                    continue
                if not cause.fatal():
                    return False
                self._failed(cause, "give an append up")
            except StoreClosedError:
                pass
            self._end("aborted")
            return True

    def _drop(self, producer: Producer) -> None:
        if self._seat.transactions:
            # The driver purges by itself, and then takes a new epoch: what is purged before that leaves a gap in the
            # numbers of its records, for which brokers refuse the next append.
            producer.abort_transaction(_TURN_S)
        else:
            producer.purge()
            producer.flush(0)

    def _end(self, state: str) -> None:
        self.state = state
        self._ended(self)

    def _require(self, *states: str) -> None:
        with self._seat.producer():
            pass
        if self.state == "aborted":
            self._seat.refuse_if_over()
            raise TransientError(f"this append of {self._seat.owner!r} was given up: begin it anew")
        if self.state not in states:
            raise ConfigError(f"this append is {self.state}: only one that is {' or '.join(states)} can go on")

    def _send(
        self,
        topic: str,
        partition: int,
        piece: list[Change],
        headers: list[tuple[str, str | bytes | None]] | None,
        reports: Reports,
        check: Callable[[], None],
    ) -> None:
        """Hand a piece to the driver, waiting whenever it has no room."""
        done = self._hand_over(topic, partition, piece, headers, reports)
        while done < len(piece):
            self._await_room(check)
            done += self._hand_over(topic, partition, piece[done:], headers, reports)

    def _hand_over(
        self,
        topic: str,
        partition: int,
        piece: list[Change],
        headers: list[tuple[str, str | bytes | None]] | None,
        reports: Reports,
    ) -> int:
        """Hand over as many as the driver has room for, and give their number."""
        done, report = 0, reports.__setitem__
        with self._seat.producer() as producer:
            produce = producer.produce
            try:
                if headers is None:  # no word is looked up for each of them: a quarter less of the thread's time
                    for key, value in piece:
                        produce(topic, value, key, partition, report)
                        done += 1
                else:
                    for key, value in piece:
                        produce(topic, value, key, partition, report, headers=headers)
                        done += 1
                producer.poll(0)
            except BufferError:
                return done
            except KafkaException as error:
                cause = _told_on_the_side(producer) or error.args[0]
                key, value = piece[min(done, len(piece) - 1)]
                raise self._refused(cause, topic, len(key) + len(value or b"")) from error
            return done

    def _await_room(self, check: Callable[[], None]) -> None:
        """Wait until the driver has sent something."""
        began, full = time.monotonic(), self._call("append", len)
        while self._call("append", len) >= full > 0:
            check()
            self._call("append", lambda producer: producer.poll(_SLICE_S))
            self._raise_reported()
            if time.monotonic() - began > self._seat.timeout_s:
                raise self._failed(KafkaError(KafkaError._QUEUE_FULL), "append")  # noqa: SLF001 - the driver's own name

    def _call(self, doing: str, call: Callable[[Producer], T]) -> T:
        try:
            with self._seat.producer() as producer:
                return call(producer)
        except KafkaException as error:
            raise self._failed(error.args[0], doing) from error

    def _raise_reported(self) -> None:
        """Raise the worst that was reported of any record."""
        if any(len(reports) > (None in reports) for reports in self._reports.values()):
            topic, error, message = self._await_cause()
            if error.name() in _CONSEQUENCES:
                error = self._why_it_must_be_given_up(error)
            raise self._refused(error, topic, len(message.key() or b"") + len(message.value() or b""))

    def _why_it_must_be_given_up(self, error: KafkaError) -> KafkaError:
        """Ask the driver for what it did not report: it refuses to begin again, and says why."""
        try:
            with self._seat.producer() as producer:
                if self._seat.transactions:
                    producer.begin_transaction()
        except KafkaException as refusal:
            cause: KafkaError = refusal.args[0]
            return cause
        return error

    def _await_cause(self) -> tuple[str, KafkaError, Message]:
        """Give the report that tells most: records that fail with another may be reported before it."""
        deadline = time.monotonic() + _CAUSE_S
        while True:
            told = [(t, e, m) for (t, _), each in self._reports.items() for e, m in each.items() if e is not None]
            found = min(told, key=lambda each: each[1].name() in _CONSEQUENCES)
            if found[1].name() not in _CONSEQUENCES or time.monotonic() > deadline:
                return found
            self._call("append", lambda producer: producer.poll(_SLICE_S))

    def _refuse_too_large(self, topic: str, change: Change, limit: int) -> None:
        """Refuse what the topic takes only as long as it happens to be compressed well."""
        size = len(change[0]) + len(change[1] or b"")
        if size > limit:
            raise _too_large(topic, size, limit)

    def _refused(self, error: KafkaError, topic: str, size: int) -> MillpondError:
        if error.name() in _TOO_LARGE:
            return _too_large(topic, size, self._seat.limit(topic))
        return self._failed(error, "append to", topic)

    def _failed(self, error: KafkaError, verb: str, topic: str | None = None) -> MillpondError:
        return self._seat.failed(error, self._seat.doing(verb, topic), time.monotonic() - self._began)


def _told_on_the_side(producer: Producer) -> KafkaError | None:
    """Give what ended the producer: the driver raises it once, out of whichever call serves reports next."""
    try:
        producer.poll(0)
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        return cause
    return None


def _too_large(topic: str, size: int, limit: int | None) -> ConfigError:
    return ConfigError(
        f"cannot append to the topic {topic!r}: a record of {size:,} bytes is too large, since the topic takes "
        f"{'less' if limit is None else f'{limit:,}'}: raise its max.message.bytes"
    )


def _offset(message: Message) -> int:
    return int(message.offset() or 0)
