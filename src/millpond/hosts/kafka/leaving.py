"""Handing tasks over: each commits and closes, all side by side, within the time that the group leaves."""

from __future__ import annotations

import time
from collections.abc import Collection
from concurrent.futures import wait

from attrs import frozen

from millpond.checkpoint import Checkpoint
from millpond.errors import MillpondError, TransientError
from millpond.hosts.kafka.hosted import Running
from millpond.lanes import Workers

MOST_AT_ONCE = 32
CLOSING_SHARE = 0.25
"""What part of the time is kept for closing, which has to wait for whatever a late commit still does."""


@frozen
class Left:
    """
    How a task was handed over.

    Attributes:
        running: The task.
        committed: Its last checkpoint, if it was asked to commit and did.
        duration_s: How long it took.
        error: Why the commit or the closing did not end well; None: it did.
    """

    running: Running
    committed: Checkpoint | None
    duration_s: float
    error: BaseException | None


def leave(leaving: Collection[Running], timeout_s: float, *, commit: bool) -> list[Left]:
    """
    Close all of *leaving* within *timeout_s* seconds; with *commit*, commit those that are not broken first.

    Never raises: what a task did not commit is done again by its next owner.
    """
    if not leaving:
        return []
    deadline = time.monotonic() + timeout_s
    threads = Workers("hand-over", min(len(leaving), MOST_AT_ONCE))
    asked = {one.number: threads.submit(lambda one=one: _leave(one, deadline, commit)) for one in leaving}  # type: ignore[misc]
    wait(asked.values(), max(0.1, deadline - time.monotonic()))
    threads.close(0)
    late = TransientError(f"it was not handed over within {timeout_s:g} s, and ends in the background")
    return [
        asked[one.number].result() if asked[one.number].done() else Left(one, None, timeout_s, late) for one in leaving
    ]


def _leave(running: Running, deadline: float, commit: bool) -> Left:
    begun = time.monotonic()
    committed, error = _commit(running, deadline) if commit and running.broken is None else (None, None)
    running.outputs.close()
    try:
        running.task.close(max(0.1, deadline - time.monotonic()))
    except MillpondError as late:
        error = error or late
    return Left(running, committed, time.monotonic() - begun, error)


def _commit(running: Running, deadline: float) -> tuple[Checkpoint | None, BaseException | None]:
    left = deadline - time.monotonic()
    try:
        return running.task.commit_now(max(0.1, left * (1 - CLOSING_SHARE))), None
    except MillpondError as error:
        return None, error
