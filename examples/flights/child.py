"""The job as a process of its own: started, listened to, killed."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from attrs import define, field
from reports import Report, decode

LONGEST_LINE = 1 << 16
GRACE_S = 10.0


@define
class Child:
    """One life of the job. A context manager: whatever happens, no process outlives the block."""

    process: subprocess.Popen[bytes]
    started: float
    _selector: selectors.BaseSelector
    _rest: bytes = b""
    _waiting: list[Report] = field(factory=list)
    ended: bool = False

    @classmethod
    def start(cls, program: str, config: Path, given: str, rows_per_s: float, until: int | None, errors: Path) -> Child:
        """
        Start *program* in a process group of its own; what it complains about is appended to *errors*.

        It reads *until* so many rows and then waits to be killed; None: it reads all and ends.
        """
        command = [sys.executable, str(Path(__file__).with_name(program)), str(config), given]
        command += ["--rows-per-s", str(rows_per_s), *(() if until is None else ("--until", str(until)))]
        with errors.open("ab") as complaints:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, start_new_session=True
            )
        assert process.stdout is not None
        selector = selectors.DefaultSelector()
        selector.register(process.stdout, selectors.EVENT_READ)
        return cls(process, time.monotonic(), selector)

    def next(self, timeout_s: float) -> Report | None:
        """Give the next report; None: none came in *timeout_s*, or the pipe has ended, and then ``ended`` is set."""
        until = time.monotonic() + timeout_s
        while not self._waiting and not self.ended:
            left = until - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                return None
            self._read()
        return self._waiting.pop(0) if self._waiting else None

    def kill(self) -> bool:
        """Send SIGKILL to the whole group; tell whether that, and nothing else, is what ended the process."""
        if self.process.poll() is None:  # a process that was waited for may have left its number to another
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait(GRACE_S) == -signal.SIGKILL

    def last_words(self) -> Iterator[Report]:
        """Give what the dead process had still said."""
        while (report := self.next(GRACE_S)) is not None:
            yield report

    def _read(self) -> None:
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), LONGEST_LINE)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._waiting.extend(decode(line) for line in lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
