"""Store engines that are wrong in one way: the memory engine and RocksDB, each with one mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from mutants import EngineMutants, caught_by

from millpond.errors import StateCorruptError
from millpond.stores.memory import DATA, MemoryEngine
from millpond_rocksdb.engine import RocksDBEngine


@caught_by("scan.moment", EngineMutants)
class ScansLate(MemoryEngine):
    """Shows in a scan what is there at the first step, not at the call."""

    def scan(self, start: Any, stop: Any, reverse: bool) -> Iterator[Any]:
        def late() -> Iterator[Any]:
            yield from super(ScansLate, self).scan(start, stop, reverse)

        self._check()
        return late()


@caught_by("scan.bounds", EngineMutants)
class IncludesTheStop(MemoryEngine):
    """Scans up to and with the stop."""

    def scan(self, start: Any, stop: Any, reverse: bool) -> Iterator[Any]:
        return super().scan(start, None if stop is None else stop + b"\x00", reverse)


@caught_by("scan.bounds", EngineMutants)
class TurnsTheBounds(MemoryEngine):
    """Includes the stop and excludes the start when it goes backwards."""

    def scan(self, start: Any, stop: Any, reverse: bool) -> Iterator[Any]:
        if not reverse:
            return super().scan(start, stop, reverse)
        after = None if start is None else start + b"\x00"
        return super().scan(after, None if stop is None else stop + b"\x00", reverse)


@caught_by("close.scans", EngineMutants)
class ScansAfterClose(MemoryEngine):
    """Lets a scan go on after close, out of a copy."""

    def scan(self, start: Any, stop: Any, reverse: bool) -> Iterator[Any]:
        found = list(super().scan(start, stop, reverse))
        return (each for each in found)


@caught_by("close.idempotent", EngineMutants)
class ReadsAfterClose(MemoryEngine):
    """Says of a closed store that it is empty."""

    def get(self, key: bytes) -> Any:
        return self._values.get(key)


@caught_by("get.values", EngineMutants)
class EngineEmptyIsAbsent(MemoryEngine):
    """Takes an empty value for an absent one."""

    def get(self, key: bytes) -> Any:
        return super().get(key) or None


@caught_by("get.values", EngineMutants)
class SortsTheAnswer(MemoryEngine):
    """Gives get_many's values in the order of the keys, not in that of the question."""

    def get_many(self, keys: Any) -> Any:
        return super().get_many(sorted(keys))


@caught_by("apply.changes", EngineMutants)
class RefusesAbsentDeletes(MemoryEngine):
    """Fails when a key that is to be deleted is not there."""

    def apply(self, changes: Any) -> None:
        for key, value in changes:
            if value is None and self.get(key) is None:
                raise KeyError(key)
        super().apply(changes)


@caught_by("apply.repeatable", EngineMutants)
class AppliesOnce(MemoryEngine):
    """Adds to what is there when the same change is applied again."""

    def apply(self, changes: Any) -> None:
        super().apply([(k, v + v if v is not None and self.get(k) == v else v) for k, v in changes])


@caught_by("threads.reads", EngineMutants)
class AppliesInHalves(MemoryEngine):
    """Lets scans see half of a batch."""

    def apply(self, changes: Any) -> None:
        half = len(changes) // 2
        super().apply(changes[:half])
        Event().wait(0.001)
        super().apply(changes[half:])


@caught_by("load.order", EngineMutants)
class FirstWins(MemoryEngine):
    """Lets the earlier of two records win in a load."""

    def load(self, records: Any) -> None:
        first: dict[bytes, Any] = {}
        for key, value in records:
            first.setdefault(key, value)
        super().load(first.items())


@caught_by("load.error", EngineMutants)
class LoadSwallows(MemoryEngine):
    """Takes an error of the stream for its end."""

    def load(self, records: Any) -> None:
        def until_error() -> Iterator[Any]:
            try:
                yield from records
            except Exception:
                return

        super().load(until_error())


@caught_by("image.complete", EngineMutants)
class ForgetsTheLastBatch(MemoryEngine):
    """Leaves the last batch out of the image, as one that does not flush."""

    before: ClassVar[list[Any]] = []

    def apply(self, changes: Any) -> None:
        self.before = self._chunks
        super().apply(changes)

    def checkpoint(self, directory: Path) -> None:
        now, self._chunks = self._chunks, self.before
        try:
            super().checkpoint(directory)
        finally:
            self._chunks = now


@caught_by("image.immutable", EngineMutants)
class WritesIntoTheImage(MemoryEngine):
    """Goes on writing into the image that it made last."""

    image: Path | None = None

    def checkpoint(self, directory: Path) -> None:
        super().checkpoint(directory)
        self.image = directory

    def apply(self, changes: Any) -> None:
        super().apply(changes)
        if self.image is not None:
            with (self.image / DATA).open("ab") as file:
                file.write(b"more")


@caught_by("damage.flipped-bit", EngineMutants)
class EndsEarly(MemoryEngine):
    """Ends a scan at a damaged place, as if it were the end."""

    @classmethod
    def open(cls, directory: Path, store: Any, *, read_only: bool = False) -> Any:
        try:
            return super().open(directory, store, read_only=read_only)
        except StateCorruptError:
            return cls(store.name, read_only=read_only)


@caught_by("open.not-ours", EngineMutants)
class OpensAnything(MemoryEngine):
    """Takes a stranger's folder for an empty store."""

    @classmethod
    def open(cls, directory: Path, store: Any, *, read_only: bool = False) -> Any:
        if not (directory / DATA).exists():
            return cls(store.name, read_only=read_only)
        return super().open(directory, store, read_only=read_only)


@caught_by("open.read-only", EngineMutants)
class WritesWhenReadOnly(MemoryEngine):
    """Writes though it was opened for reading only."""

    @classmethod
    def open(cls, directory: Path, store: Any, *, read_only: bool = False) -> Any:
        return super().open(directory, store)


@caught_by("engine.declares", EngineMutants)
class TakesAnyOption(MemoryEngine):
    """Says nothing of options that do not exist."""

    @classmethod
    def validate(cls, store: Any) -> Any:
        return ()


@caught_by("image.cheap", EngineMutants)
class SharesNothing(RocksDBEngine):
    """Does not say which of its files never change: every commit copies all of them."""

    immutable: ClassVar[tuple[str, ...]] = ()
