"""What the job tells the process that watches it: one line of JSON a report, over a pipe that outlives the job."""

from __future__ import annotations

import json
import os
from typing import Final

from attrs import asdict, frozen


@frozen
class Restored:
    """A store of *task* is back, from ``"local"`` (its image), a backend's name, or ``"new"``."""

    task: str
    store: str
    source: str


@frozen
class Resumed:
    """*task* is open and was told that *offset* is the last one its state reflects; None: nothing at all."""

    task: str
    checkpoint: str | None
    offset: int | None


@frozen
class Left:
    """*task* was closed while the job lives, e.g. in a rebalance: it resumes when it is opened again."""

    task: str


@frozen
class Reads:
    """*task* is about to process the rows from *first* to *last*, both included."""

    task: str
    first: int
    last: int


@frozen
class Committing:
    """A commit of *task* has begun."""

    task: str
    checkpoint: str


@frozen
class Durable:
    """The job was told that *checkpoint*, which reflects all rows up to *offset*, is durable."""

    task: str
    checkpoint: str
    offset: int


@frozen
class Refused:
    """The job was told that a commit is not known to have happened."""

    task: str
    error: str


@frozen
class Finished:
    """*task* has processed its last row and the last commit is durable."""

    task: str


class NotAReportError(ValueError):
    """A line on the pipe is none of the job's reports."""


Report = Restored | Resumed | Left | Reads | Committing | Durable | Refused | Finished

_KINDS: Final = {
    kind.__name__: kind for kind in (Restored, Resumed, Left, Reads, Committing, Durable, Refused, Finished)
}


def encode(report: Report) -> bytes:
    """Give *report* as a line."""
    return json.dumps({"report": type(report).__name__, **asdict(report)}).encode() + b"\n"


def decode(line: bytes) -> Report:
    """
    Read a line.

    Raises:
        NotAReportError: It is none.
    """
    try:
        values = json.loads(line)
        return _KINDS[values.pop("report")](**values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotAReportError(f"not a report of the job: {line!r}") from error


def send(report: Report, pipe: int) -> None:
    """Write *report* in one call, so that lines of several threads never mix and a kill never cuts one."""
    line = encode(report)
    if os.write(pipe, line) != len(line):
        raise OSError(f"the pipe took only a part of {line!r}")
