"""Logs that are wrong in one way: the log in memory, each with one mistake."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from attrs import evolve
from mutants import LogMutants, caught_by

from millpond.errors import ConfigError, FencedError, StateNotFoundError
from millpond.log import Batch, Extent, Topic
from millpond.testing.memory_log import MemoryAppend, MemoryBatch, MemoryLog, MemoryTopic, MemoryWriter


class _Appending(MemoryLog):
    """A log whose appends are of another class."""

    appends: type[MemoryAppend]

    def writer(self, owner: str) -> Any:
        writer: Any = super().writer(owner)
        begin = writer.append

        def append() -> MemoryAppend:
            begin()
            writer.open = self.appends(writer)
            return writer.open

        writer.append = append
        return writer


@caught_by("append.unread-before-commit", LogMutants)
class ReadsTheUncommitted(MemoryLog):
    """Reads what is not committed yet."""

    def extent(self, name: str, partition: int) -> Extent:
        return Extent(super().extent(name, partition).start, self.partition(name, partition).next)


@caught_by("writer.ends-earlier", LogMutants)
class FencesNobody(MemoryLog):
    """Lets an earlier writer of an owner append."""

    def writer(self, owner: str) -> Any:
        writer: Any = super().writer(owner)
        writer.refuse_replaced = lambda: None
        return writer


class _CommitsLate(MemoryAppend):
    def _refuse_ended(self) -> None:
        if self.state != "open":
            raise ConfigError("ended")

    def commit(self) -> None:
        try:
            super().commit()
        except FencedError:
            return


@caught_by("writer.ends-open", LogMutants)
class EndsNoOpenAppend(_Appending):
    """Lets an append that is open be committed after its owner has a later writer."""

    appends = _CommitsLate

    def writer(self, owner: str) -> Any:
        epoch = self.place.epochs[owner] = self.place.epochs.get(owner, 0) + 1
        made: Any = MemoryWriter(self, owner, epoch)
        made.append = lambda: _CommitsLate(made)
        return made


@caught_by("writer.frees", LogMutants)
class LeavesOpenAppends(MemoryLog):
    """Never ends the open append of a writer that is gone, so that all behind it is hidden."""

    def writer(self, owner: str) -> Any:
        epoch = self.place.epochs[owner] = self.place.epochs.get(owner, 0) + 1
        return MemoryWriter(self, owner, epoch)


class _DropsTombstones(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        super().add(topic, partition, [change for change in changes if change[1] is not None], **named)


@caught_by("append.any-bytes", LogMutants)
class LosesTombstones(_Appending):
    """Leaves tombstones out."""

    appends = _DropsTombstones


class _OneTooMany(MemoryAppend):
    def flush(self, *check: Any) -> Mapping[tuple[str, int], int]:
        return {place: last + 1 for place, last in super().flush(*check).items()}


@caught_by("flush.offsets", LogMutants)
class CountsOneTooMany(_Appending):
    """Gives the offset after the last for that of the last: off by one."""

    appends = _OneTooMany


class _Forgetful(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        super().add(topic, partition, changes, **{**named, "headers": {}})


@caught_by("append.headers", LogMutants)
class LosesHeaders(_Appending):
    """Sends no headers."""

    appends = _Forgetful


class _Reordering(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        held = list(changes)
        super().add(topic, partition, held[::2] + held[1::2], **named)


@caught_by("append.many", LogMutants)
class SendsInTwoLines(_Appending):
    """Lets a record that is sent again come behind its successor, as one without an idempotent producer."""

    appends = _Reordering


class _ToTheFirst(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        super().add(topic, 0, changes, **named)


@caught_by("append.partitions", LogMutants)
class KnowsOnePartition(_Appending):
    """Sends everything to the first partition."""

    appends = _ToTheFirst


class _Unchecked(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        super().add(topic, partition, changes, headers=named.get("headers", {}))


@caught_by("append.check", LogMutants)
class SendsUnasked(_Appending):
    """Never asks whether the append is still wanted."""

    appends = _Unchecked


class _DropsTheLarge(MemoryAppend):
    def add(self, topic: str, partition: int, changes: Any, **named: Any) -> None:
        for change in changes:
            try:
                super().add(topic, partition, [change], **named)
            except ConfigError:
                continue


@caught_by("append.too-large", LogMutants)
class DropsWhatIsTooLarge(_Appending):
    """Loses a record that is too large, as one whose delivery reports nobody looks at."""

    appends = _DropsTheLarge


class _AbortsNothing(MemoryAppend):
    def abort(self) -> None:
        with self.writer.log.place.lock:
            self.end("committed")


@caught_by("abort.unread", LogMutants)
class CommitsWhatWasAborted(_Appending):
    """Lets what was given up be read, as a log without transactions."""

    appends = _AbortsNothing


class _AbortsTheCommitted(MemoryAppend):
    def abort(self) -> None:
        self.state = "aborted"


@caught_by("abort.after-commit", LogMutants)
class UndoesACommit(_Appending):
    """Takes an abort after a commit for one."""

    appends = _AbortsTheCommitted


class _OneByOne(MemoryAppend):
    def commit(self) -> None:
        held = [r for t in self.writer.log.place.topics.values() for p in t.partitions for r in p.records]
        mine = [record for record in held if record.by is self]
        for at in range(0, len(mine), 10):
            with self.writer.log.place.lock:
                for partition in (p for t in self.writer.log.place.topics.values() for p in t.partitions):
                    part = MemoryAppend(self.writer)
                    part.state = "committed"
                    chosen = mine[at : at + 10]
                    partition.records = [evolve(r, by=part) if r in chosen else r for r in partition.records]
            threading.Event().wait(0.001)
        super().commit()


@caught_by("append.whole", LogMutants)
class CommitsBitByBit(_Appending):
    """Lets an append be read in parts while it is committed."""

    appends = _OneByOne


class _Later(MemoryAppend):
    def commit(self) -> None:
        threading.Timer(0.02, self._commit_now).start()

    def _commit_now(self) -> None:
        with suppress(ConfigError):  # aborted meanwhile
            super().commit()


@caught_by("append.read-after-commit", LogMutants)
class CommitsInTheBackground(_Appending):
    """Returns from a commit before it is made."""

    appends = _Later


@caught_by("cut.start", LogMutants)
class JumpsToTheStart(MemoryLog):
    """Begins at the first offset that is there when the one that was asked for is not: `earliest`."""

    def read(self, name: str, partition: int, start: int, stop: int, *check: Any) -> Iterator[Batch]:
        return super().read(name, partition, max(start, self.extent(name, partition).start), stop, *check)


@caught_by("read.outside", LogMutants)
class StopsAtTheEnd(MemoryLog):
    """Reads as far as there is something when the log ends before the stop."""

    def read(self, name: str, partition: int, start: int, stop: int, *check: Any) -> Iterator[Batch]:
        end = self.extent(name, partition).end
        return super().read(name, partition, min(start, end), min(stop, end), *check)


@caught_by("read.position", LogMutants)
class ReadsTheLastAgain(MemoryLog):
    """Gives the offset of the last record for the one to go on from."""

    def read(self, name: str, partition: int, start: int, stop: int, *check: Any) -> Iterator[Batch]:
        for batch in super().read(name, partition, start, stop, *check):
            assert isinstance(batch, MemoryBatch)
            last = len(batch) == 500
            yield MemoryBatch(batch.position - 1, batch.records) if last else batch


@caught_by("read.range", LogMutants)
class MissesTheFirst(MemoryLog):
    """Begins behind the offset that was asked for."""

    def read(self, name: str, partition: int, start: int, stop: int, *check: Any) -> Iterator[Batch]:
        for batch in super().read(name, partition, start, stop, *check):
            assert isinstance(batch, MemoryBatch)
            yield MemoryBatch(batch.position, [record for record in batch.records if record.offset != start])


@caught_by("read.check", LogMutants)
class ReadsToTheEnd(MemoryLog):
    """Never asks whether a read is still wanted."""

    def read(self, name: str, partition: int, start: int, stop: int, *_: Any) -> Iterator[Batch]:
        return super().read(name, partition, start, stop)


@caught_by("append.millis", LogMutants)
class LogInSeconds(MemoryLog):
    """Gives a record's time in seconds."""

    def read(self, name: str, partition: int, start: int, stop: int, *check: Any) -> Iterator[Batch]:
        for batch in super().read(name, partition, start, stop, *check):
            assert isinstance(batch, MemoryBatch)
            records = [evolve(record, millis=record.millis // 1000) for record in batch.records]
            yield MemoryBatch(batch.position, records)


@caught_by("errors.missing", LogMutants)
class MissingIsAnEmptyTopic(MemoryLog):
    """Takes a missing topic for an empty one."""

    def extent(self, name: str, partition: int) -> Extent:
        try:
            return super().extent(name, partition)
        except StateNotFoundError:
            return Extent(0, 0)


@caught_by("create.keeps", LogMutants)
class MakesAnew(MemoryLog):
    """Makes a topic anew that exists."""

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        self.place.topics.pop(name, None)
        super().create(name, partitions, settings)


@caught_by("delete.removes", LogMutants)
class IsItsName(MemoryLog):
    """Gives a topic's name for its identity."""

    def describe(self, name: str) -> Topic:
        return evolve(super().describe(name), identity=name)


@caught_by("delete.removes", LogMutants)
class RemembersTopics(MemoryLog):
    """Describes a topic out of a cache."""

    def describe(self, name: str) -> Topic:
        known = self.__dict__.setdefault("known", {})
        return known.setdefault(name, super().describe(name) if name not in known else None)


@caught_by("delete.missing", LogMutants)
class DeletesWhatIsThere(MemoryLog):
    """Fails when the topic that it has to delete is not there."""

    def delete(self, name: str) -> None:
        self.topic(name)
        super().delete(name)


@caught_by("topic.names", LogMutants)
class LogIgnoresCase(MemoryLog):
    """Takes two topics whose names differ by case for one."""

    def topic(self, name: str) -> MemoryTopic:
        return super().topic(next((each for each in self.place.topics if each.lower() == name.lower()), name))


@caught_by("owners.any", LogMutants)
class CutsOwners(MemoryLog):
    """Cuts the text of an owner at a letter that it does not like."""

    def writer(self, owner: str) -> Any:
        return super().writer(owner.partition("%")[0].lower())


@caught_by("compact.newest", LogMutants)
class CompactsToTheOldest(MemoryLog):
    """Keeps the oldest record of a key when it compacts."""

    oldest = True


@caught_by("close.idempotent", LogMutants)
class LogLeavesAThread(MemoryLog):
    """Leaves a thread behind when it is closed."""

    def close(self) -> None:
        if not self._closed:
            threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()
        super().close()
