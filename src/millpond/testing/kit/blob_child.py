"""What a child process does for the cases of an object store."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from attrs import frozen

from millpond.blob.store import Body, BytesBody
from millpond.testing.kit.blob_bench import _Failing
from millpond.testing.kit.child import answer
from millpond.testing.kit.suite import Suite


def put_all(suite: Suite[Any], folder: Path, job: str, rounds: int, me: int) -> list[bool]:
    """Put the keys of all rounds if they are absent; say which were."""
    store = suite.make(folder / "kept")  # type: ignore[attr-defined]
    try:
        body = BytesBody(b"%d" % me)
        return [store.put(f"{job}/race-{number}", body, if_absent=True) for number in range(rounds)]
    finally:
        store.close()


def die_within_put(suite: Suite[Any], folder: Path, job: str, size: int) -> NoReturn:
    """Die within the body of a new object, or of one that is replaced."""
    answer("begun")
    suite.make(folder / "kept").put(f"{job}/big", _DeadlyBody(size))  # type: ignore[attr-defined]
    raise AssertionError("the body was not read to its end")


class _Deadly(_Failing):
    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().readinto(buffer)


@frozen
class _DeadlyBody(Body):
    """A body whose reader dies near its end."""

    size: int

    def open(self) -> BinaryIO:
        """Give a deadly stream."""
        import io

        return io.BufferedReader(_Deadly(self.size - 1000))
