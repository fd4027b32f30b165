"""Outputs: records sent by tasks, of which each is acknowledged before the checkpoint that covers it is published."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import define, field

from millpond.errors import TransientError

if TYPE_CHECKING:
    from millpond.hosts.kafka.driver import KafkaError, Message, Producer

Headers = list[tuple[str, bytes | None]]

QUEUE_FULL_S = 60.0
"""How long ``send`` waits for room in the producer's queue."""
_POLL_S = 0.05


@define(eq=False)
class Outputs:
    """
    What one task sends, over a producer that all tasks share; ``send`` on the thread that processes.

    A record that could not be delivered fails every later commit: the task has to begin again at its last checkpoint,
    which sends it again. After a crash some records come twice: at least once.

    Attributes:
        task: Its name.
        producer: Gives the producer, made when the first record is sent.
        failure: Why a record was not delivered; None while none failed.
    """

    task: str
    producer: Callable[[], Producer]
    failure: BaseException | None = None
    _used: Producer | None = None
    _sent: int = 0
    _delivered: int = 0
    _closed: bool = False
    _lock: threading.Lock = field(factory=threading.Lock)

    def send(
        self, topic: str, value: bytes | str | None, key: bytes | str | None = None, headers: Headers | None = None
    ) -> None:
        """
        Send a record; does not wait for its delivery.

        Raises:
            TransientError: The producer's queue was full for a minute.
        """
        producer = self._used = self._used or self.producer()
        words: dict[str, Any] = {} if headers is None else {"headers": headers}
        deadline = time.monotonic() + QUEUE_FULL_S
        while True:
            try:
                producer.produce(topic, value=value, key=key, on_delivery=self._note, **words)
            except BufferError:
                if time.monotonic() > deadline:
                    raise TransientError(
                        f"task {self.task!r}: the producer's queue is full for {QUEUE_FULL_S:g} s"
                    ) from None
                producer.poll(_POLL_S)
            else:
                self._sent += 1
                return

    def _note(self, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            self._delivered += 1
            if error is not None and self.failure is None:
                self.failure = TransientError(
                    f"task {self.task!r}: a record for topic {message.topic()!r} was not delivered: {error.str()}"
                )

    def flush(self) -> None:
        """
        Wait until all that was sent before this call is acknowledged; a commit's hook, on its worker.

        Raises:
            TransientError: A record was not delivered, or the task is closed.
        """
        wanted, producer = self._sent, self._used
        while producer is not None and self._delivered < wanted and not self._closed:
            producer.poll(_POLL_S)
        if self._closed and self._delivered < wanted:
            raise TransientError(f"task {self.task!r} was closed before its outputs were delivered")
        if self.failure is not None:
            raise self.failure

    def serve(self) -> None:
        """Let deliveries be noted; cheap, for every turn of the loop."""
        if self._used is not None:
            self._used.poll(0)

    def close(self) -> None:
        """Let a ``flush`` that still waits end."""
        self._closed = True
