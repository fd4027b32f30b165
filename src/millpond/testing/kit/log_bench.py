"""A world for one log: topics of its own, records that are written and read back, and their removal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from millpond.errors import MillpondError, TransientError
from millpond.log import Batch, Log, LogWriter
from millpond.spi import Change
from millpond.testing.kit.bench import Bench, Profile
from millpond.testing.kit.contract import NotShownError, expect
from millpond.testing.kit.door import SideDoor

Headers = Mapping[str, bytes]
Compact = Callable[[Log, str, int], None]
Cut = Callable[[Log, str, int, int], None]


@frozen
class Found:
    """
    What a read gave.

    Attributes:
        changes: Keys and values.
        offsets: One for each.
        headers: One for each.
        millis: One for each.
        positions: The position after each batch.
    """

    changes: Sequence[Change]
    offsets: Sequence[int]
    headers: Sequence[Headers]
    millis: Sequence[int]
    positions: Sequence[int]


class LogBench(Bench):
    """
    One case's world.

    Attributes:
        log: The log that the case uses.
    """

    def __init__(
        self, folder: Path, profile: Profile, make: Callable[[], Log], door: SideDoor | None = None, job: str = ""
    ) -> None:
        """Make the world of one case; *make* gives a log that shows what earlier ones hold."""
        super().__init__(folder, profile, door, job)
        self._make = make
        self._numbers = itertools.count(1)
        self.compact_now: Compact | None = None
        self.cut_now: Cut | None = None
        self.log = self.another()

    def another(self) -> Log:
        """Make another log over the same place, as another process would; it is closed twice in the end."""
        made = self._make()
        self.at_end(made.close)
        self.at_end(made.close)
        return made

    def new_name(self, word: str = "topic") -> str:
        """Give a name of a topic that there is not; a topic of that name is removed in the end."""
        name = f"{self.job}-{word}-{next(self._numbers)}"
        self.at_end(lambda: self._remove(name))
        return name

    def topic(self, partitions: int = 1, settings: Mapping[str, str] | None = None) -> str:
        """Make a topic, and give its name."""
        name = self.new_name()
        self.log.create(name, partitions, settings or {})
        return name

    def _remove(self, name: str) -> None:
        with suppress(MillpondError):
            self._make_and(lambda log: log.delete(name))

    def _make_and(self, use: Callable[[Log], None]) -> None:
        log = self._make()
        try:
            use(log)
        finally:
            log.close()

    def owner(self, word: str = "owner") -> str:
        """Give the text of an owner that no other case has."""
        return f"{self.job}/{word}"

    def writer(self, word: str = "owner", log: Log | None = None) -> LogWriter:
        """Become the writer of the owner of that word; it is closed in the end."""
        made = (log or self.log).writer(self.owner(word))
        self.at_end(made.close)
        return made

    def write(self, topic: str, changes: Iterable[Change], partition: int = 0, writer: LogWriter | None = None) -> int:
        """Append *changes* to one partition, and commit; give the highest offset."""
        with (writer or self.writer("writing")).append() as append:
            append.add(topic, partition, changes)
            last = append.flush()
            append.commit()
        return last.get((topic, partition), -1)

    def read(
        self, topic: str, partition: int = 0, start: int | None = None, stop: int | None = None, log: Log | None = None
    ) -> Found:
        """Read a partition, by default all that can be read now; what every read promises is checked."""
        log = log or self.log
        extent = log.extent(topic, partition)
        start = extent.start if start is None else start
        stop = extent.end if stop is None else stop
        return checked(log.read(topic, partition, start, stop), start, stop)

    def changes(self, topic: str, partition: int = 0, log: Log | None = None) -> list[Change]:
        """Read the changes of a partition that can be read now."""
        return list(self.read(topic, partition, log=log).changes)

    def compact(self, topic: str, partition: int = 0) -> None:
        """Let the log compact a partition; NotShownError where the author does not say how."""
        if self.compact_now is None:
            raise NotShownError("there is no way to let the log compact")
        self.compact_now(self.log, topic, partition)

    def cut(self, topic: str, partition: int, before: int) -> None:
        """Let the log remove a partition's beginning; NotShownError where the author does not say how."""
        if self.cut_now is None:
            raise NotShownError("there is no way to let the log remove its beginning")
        self.cut_now(self.log, topic, partition, before)


def checked(batches: Iterable[Batch], start: int, stop: int) -> Found:
    """Take *batches* to pieces, and see that positions and offsets grow and stay within what was asked for."""
    changes: list[Change] = []
    offsets: list[int] = []
    headers: list[Headers] = []
    millis: list[int] = []
    positions: list[int] = []
    before = start
    for batch in batches:
        of_batch, columns = list(batch.offsets()), list(batch.changes())
        expect(len(of_batch) == len(columns) == len(batch), "a batch's columns have different lengths")
        expect(batch.position > before, f"the position after a batch is {batch.position}, and before it was {before}")
        within = all(before <= offset < min(batch.position, stop) for offset in of_batch)
        expect(within, f"a batch from {before} to {batch.position}, read up to {stop}, has offsets {of_batch[:3]}…")
        before = batch.position
        changes += columns
        offsets += of_batch
        headers += [batch.headers(index) for index in range(len(batch))]
        millis += [batch.millis(index) for index in range(len(batch))]
        positions.append(batch.position)
    expect(offsets == sorted(set(offsets)), "the offsets of a read do not grow")
    expect(before >= stop, f"a read up to {stop} ended at {before}")
    return Found(changes, offsets, headers, millis, positions)


class GaveUpError(TransientError):
    """What a case's check raises."""


class Giving:
    """A check that counts how often it is called, and gives up at one of its calls."""

    def __init__(self, at: int) -> None:
        """Give up at the call number *at*, from 1."""
        self.calls, self._at = 0, at

    def __call__(self) -> None:
        """Count a call."""
        self.calls += 1
        if self.calls >= self._at:
            raise GaveUpError("the kit gives this up")
