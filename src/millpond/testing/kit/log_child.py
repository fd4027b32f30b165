"""What child processes do for the cases of a log."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from millpond.errors import FencedError, TransientError
from millpond.log import Log
from millpond.testing.kit.child import answer, await_word
from millpond.testing.kit.suite import Suite

EACH = 5
"""How many records each append of ``contend`` has."""


def _with_log(suite: Suite[Any], folder: Path, use: Callable[[Log], object]) -> Any:
    log = suite.make(folder / "kept")  # type: ignore[attr-defined]
    try:
        return use(log)
    finally:
        log.close()


def commit_and_die(suite: Suite[Any], folder: Path, topic: str, owner: str, count: int) -> NoReturn:
    """Commit an append, and die as soon as ``commit`` has returned."""
    append = suite.make(folder / "kept").writer(owner).append()  # type: ignore[attr-defined]
    append.add(topic, 0, [(b"%d" % number, b"x" * 100) for number in range(count)])
    append.flush()
    append.commit()
    answer("committed")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not dead")


def flush_and_die(suite: Suite[Any], folder: Path, topic: str, owner: str, count: int) -> NoReturn:
    """Flush an append to two partitions, and die before it is committed."""
    append = suite.make(folder / "kept").writer(owner).append()  # type: ignore[attr-defined]
    for partition in (0, 1):
        append.add(topic, partition, [(b"%d" % number, b"x" * 100) for number in range(count)])
    append.flush()
    answer("flushed")
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not dead")


def flush_and_commit_late(suite: Suite[Any], folder: Path, topic: str, owner: str) -> str:
    """Flush an append, sleep until the parent says a word, and commit it then; say how that ended."""

    def use(log: Log) -> str:
        append = log.writer(owner).append()
        append.add(topic, 0, [(b"late", b"x")])
        append.flush()
        answer("flushed")
        await_word()
        try:
            append.commit()
        except FencedError:
            return "fenced"
        return "committed"

    return str(_with_log(suite, folder, use))


def contend(suite: Suite[Any], folder: Path, topic: str, owner: str, me: int, rounds: int) -> list[tuple[int, str]]:
    """Claim and append in turns as fast as possible, against others; say what was said of each append."""

    def use(log: Log) -> list[tuple[int, str]]:
        return [(number, _attempt(log, topic, owner, b"%d/%d" % (me, number))) for number in range(rounds)]

    return list(_with_log(suite, folder, use))


def _attempt(log: Log, topic: str, owner: str, name: bytes) -> str:
    try:
        writer = log.writer(owner)
        with writer.append() as append:
            append.add(topic, 0, [(name, b"%d" % number) for number in range(EACH)])
            append.flush()
            append.commit()
    except FencedError:
        return "fenced"
    except TransientError:
        return "unknown"
    return "committed"
