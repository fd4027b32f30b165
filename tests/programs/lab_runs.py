"""The crash lab run as a process of its own beside a server: what ``crash_s3.py`` and its siblings share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread

from attrs import frozen

from millpond.testing.lab.seeds import in_memory


@frozen
class Served:
    """
    A server that runs.

    Attributes:
        template: The lab's, for trials on it.
        environment: What the lab's process needs beyond this one's.
        restart: Kills it, starts it again on its data, and waits until it serves; None: it cannot.
    """

    template: str
    environment: Mapping[str, str] = {}
    restart: Callable[[], None] | None = None


Serve = Callable[[Path], AbstractContextManager[Served]]
"""Serves out of a folder until the block ends."""


def run_beside(name: str, serve: Serve, arguments: Sequence[str]) -> int:
    """
    Run the lab on the backend *name* with *arguments* while *serve* serves; give its exit code.

    These come before the lab's own: ``--module flips`` and the like choose another module of the lab, and
    ``--kill-the-server SECONDS`` kills the server so often.
    """
    module, every_s = "millpond.testing.lab", None
    while arguments[:1] in (["--module"], ["--kill-the-server"]):
        if arguments[0] == "--module":
            module = f"millpond.testing.lab.{arguments[1]}"
        else:
            every_s = float(arguments[1])
        arguments = arguments[2:]
    place = tempfile.TemporaryDirectory(prefix=f"millpond-crash-{name}-", dir=in_memory())
    with place as folder, serve(Path(folder)) as served, _killed(served, every_s):
        file = Path(folder) / f"{name}.toml"
        file.write_text(served.template, "utf-8")
        command = [sys.executable, "-m", module, "--backend", name, "--config-template", str(file), *arguments]
        return _run(command, {**os.environ, **served.environment})


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run the lab; told to end, let it tell what it has run by then, and end the server too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(command, env=environment) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:
            lab.terminate()
            return lab.wait()


@contextmanager
def _killed(served: Served, every_s: float | None) -> Iterator[None]:
    """Kill the server so often until the block ends, and say how long it was away."""
    if every_s is None:
        yield
        return
    if served.restart is None:
        raise ValueError("this server cannot be killed and started again")
    ended, away = Event(), list[float]()
    killer = Thread(target=_kill, args=(served.restart, every_s, ended, away))
    killer.start()
    try:
        yield
    finally:
        ended.set()
        killer.join()
        sys.stderr.write(
            f"the server was killed {len(away)} times, and away for {max(away, default=0):.1f} s at most\n"
        )


def _kill(restart: Callable[[], None], every_s: float, ended: Event, away: list[float]) -> None:
    while not ended.wait(every_s):
        died = time.monotonic()
        restart()
        away.append(time.monotonic() - died)
