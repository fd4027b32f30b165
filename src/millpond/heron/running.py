"""A server on a thread of its own, for programs and tests that have no loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from millpond.events import Event
from millpond.heron.events import ignore
from millpond.heron.server import HeronServer
from millpond.heron.settings import ServerSettings
from millpond.heron.states import StateStore

_START_TIMEOUT_S = 30.0


@contextmanager
def running(
    states: StateStore, settings: ServerSettings, tell: Callable[[Event], None] = ignore
) -> Iterator[HeronServer]:
    """
    Serve until the block ends; the server listens when it begins.

    Raises:
        OSError: The address is taken, or not ours.
    """
    server, loop = HeronServer(states, settings, tell), asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop,), name="millpond-heron-loop", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(_START_TIMEOUT_S)
        yield server
    finally:
        stop_timeout = settings.stop_timeout + _START_TIMEOUT_S
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(stop_timeout)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_TIMEOUT_S)
        loop.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    # A handshake that is given up closes its socket one round later.
    loop.run_until_complete(asyncio.gather(*tasks, asyncio.sleep(0), return_exceptions=True))
    loop.run_until_complete(asyncio.sleep(0))
