"""Children that are forked from this process, which must have no thread, and what they say through a pipe."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from millpond.errors import TransientError

Say = Callable[..., None]
"""Tells the parent a word and what belongs to it; at once, from any thread."""

_POLL_S = 0.002
_SHOWING_S = 1.0
_PIECE = 1 << 16
_PR_SET_PDEATHSIG = 1


@define(eq=False)
class Child:
    """
    A forked process. Used by the thread that forked it.

    Attributes:
        pid: Its process id.
        said: What it has said, in order: a word, then what belongs to it.
        status: How it ended, as ``os.waitpid`` gives it; None while it lives.
        sleeps: It has stopped itself.
    """

    pid: int
    _pipe: int
    said: list[tuple[str, Any]] = field(factory=list)
    status: int | None = None
    sleeps: bool = False
    _rest: bytes = b""

    @property
    def was_killed(self) -> bool:
        """Whether it died by SIGKILL."""
        return self.status is not None and os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    def words(self, word: str) -> list[Any]:
        """Give what it said with *word*."""
        return [value for each, value in self.said if each == word]

    def follow(self, deadline_s: float, kill_after_us: int | None = None) -> None:
        """
        Read what it says until it has ended, or sleeps; kill it after *kill_after_us* microseconds.

        Raises:
            TransientError: Neither within *deadline_s* seconds; it shows on stderr what its threads do, and is killed.
        """
        born = time.monotonic()
        kill_at = None if kill_after_us is None else born + kill_after_us / 1e6
        while self.status is None and not self.sleeps:
            now = time.monotonic()
            if now - born > deadline_s:
                self._show()
                self.kill()
                raise TransientError(f"a process of the trial did not end within {deadline_s:g} s: {self.said[-3:]}")
            if kill_at is not None and now >= kill_at:
                self.kill()
                return
            self._listen(_POLL_S if kill_at is None else max(0.0, min(_POLL_S, kill_at - now)))
            self._look()

    def ends_within(self, seconds: float) -> bool:
        """Read what it says for so long; give whether it has ended, or sleeps."""
        until = time.monotonic() + seconds
        while self.status is None and not self.sleeps and time.monotonic() < until:
            self.step()
        return self.status is not None or self.sleeps

    def step(self) -> None:
        """Read what it has said, after a short wait for it, and see whether it has ended."""
        self._listen(_POLL_S)
        self._look()

    def wake(self) -> None:
        """Let it go on after it has stopped itself."""
        self.sleeps = False
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it, unless it has ended, and read the rest of what it said."""
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self._ended(os.waitpid(self.pid, 0)[1])

    def _show(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)
        self.ends_within(_SHOWING_S)

    def _look(self) -> None:
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            self.sleeps = True
        elif pid:
            self._ended(status)

    def _ended(self, status: int) -> None:
        self.status = status
        while self._listen(0):
            pass
        os.close(self._pipe)

    def _listen(self, timeout_s: float) -> bool:
        """Take what is there; False: nothing, or it has closed its end."""
        if not select.select([self._pipe], [], [], timeout_s)[0]:
            return False
        data = os.read(self._pipe, _PIECE)
        if not data:
            time.sleep(_POLL_S if self.status is None else 0)
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.said += [tuple(json.loads(line)) for line in lines]
        return True


def refuse_threads() -> None:
    """
    Raise ConfigError unless this process has one thread, the native ones too: a forked child would lack the others.

    Raises:
        TransientError: It has several.
    """
    tasks = Path("/proc/self/task")
    count = len(list(tasks.iterdir())) if tasks.is_dir() else 1
    if count != 1:
        raise TransientError(f"the lab's parent has {count} threads, so no child can be forked from it safely")


def fork(work: Callable[[Say], None], others: Sequence[int] = ()) -> Child:
    """Fork a child that does *work* and ends, without any of this process's exit handlers."""
    refuse_threads()
    sys.stdout.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return Child(pid, read)
    code = 1
    try:
        die_with_the_parent()
        faulthandler.register(signal.SIGUSR1)
        os.close(read)
        for descriptor in others:
            os.close(descriptor)
        code = _work(work, write)
    finally:
        os._exit(code)


def die_with_the_parent() -> None:
    """Ask Linux to kill this process when its parent ends: one that sleeps, or lost its tracer, would stay for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(work: Callable[[Say], None], pipe: int) -> int:
    def say(word: str, value: Any = None) -> None:
        os.write(pipe, json.dumps([word, value]).encode() + b"\n")

    try:
        work(say)
    except BaseException as error:  # noqa: BLE001 - the parent has to hear of it, whatever it is
        say("failed", "".join(traceback.format_exception_only(error)).strip())
        return 1
    return 0
