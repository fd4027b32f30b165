"""Run a job as a process does: until it is told to end by a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from millpond.config import JobConfig
from millpond.events import Event
from millpond.hosts.kafka.host import KafkaHost
from millpond.hosts.kafka.hosted import Process


def run(
    config: JobConfig | Mapping[str, object] | str | os.PathLike[str],
    process: Process,
    *,
    listeners: Iterable[Callable[[Event], None]] = (),
) -> None:
    """
    Run *process* over the topics of ``[hosts.kafka]`` until SIGTERM or SIGINT, then hand over and return.

    The first signal asks for an orderly end within ``hosts.kafka.shutdown``; a second one has its usual effect. On
    another thread than the main one no signal is listened to.

    Raises:
        MillpondError: As :meth:`millpond.hosts.kafka.KafkaHost.run`; everything else is handed over all the same.
    """
    host = KafkaHost(config, process, listeners=listeners)
    with stopped_by_signals(host.stop):
        host.run()


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* at the first SIGTERM or SIGINT inside of the block; on the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[number])
        stop()

    before = {int(number): signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
