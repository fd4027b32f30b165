"""A server as a child process: started, waited for until it answers, ended by its own number."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0


class ServerError(Exception):
    """A server did not start; the message has what it said."""


def free_port() -> int:
    """Give a port of this machine that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], port: int, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """
    Run *command* until the block ends, and enter the block when something listens on *port*.

    Raises:
        ServerError: It ended by itself, or does not listen after a minute.
    """
    import os

    with log.open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **environment})
    try:
        _await_port(process, port, log)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End *process*, kindly at first."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    pause, deadline = threading.Event(), time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        pause.wait(0.02)
    raise ServerError(f"{process.args!r} does not listen on {port}:\n{log.read_text('utf-8', 'replace')[-4000:]}")
