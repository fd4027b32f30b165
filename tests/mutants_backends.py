"""State backends that are wrong in one way: the SQLite example and the memory backend, each with one mistake."""
# ruff: noqa: D106

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from mutants import BackendMutants, caught_by, without_last
from test_conformance_sqlite import sqlite_backend

from millpond import memory
from millpond.local import escape_name
from millpond.memory import MemoryBackend
from millpond.spi import Capabilities, Facet, Snapshot

Backend, Backup, Restore = sqlite_backend.SqliteBackend, sqlite_backend.SqliteBackup, sqlite_backend.SqliteRestore


class Seen(Snapshot):
    """A snapshot through coloured glass: what is read is changed."""

    def __init__(self, inner: Snapshot, items: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        self.inner, self.id, self.stores, self.changed = inner, inner.id, inner.stores, items

    def base(self, store: str) -> Any:
        return self.inner.base(store)

    def changes(self, store: str) -> Iterator[Any]:
        return self.changed(self.inner.changes(store))

    def get_many(self, store: str, keys: Any) -> Any:
        return self.inner.get_many(store, keys)

    def directory(self, store: str) -> Any:
        return self.inner.directory(store)

    def items(self, store: str) -> Iterator[Any]:
        return self.changed(self.inner.items(store))

    def check(self) -> None:
        self.inner.check()


class SqliteMutant(Backend):
    """The example, with other managers."""

    backup: type = Backup
    restore: type = Restore

    def backup_manager(self, task: Any, stores: Any) -> Any:
        made = self.backup(task, self.folder(task))
        made.task = task
        return made

    def restore_manager(self, task: Any, stores: Any) -> Any:
        return self.restore(self.folder(task))


def sqlite(case: str, **managers: type) -> Callable[[type], type]:
    """Make the decorated manager a mutant of the example."""

    def register(manager: type) -> type:
        role = "backup" if issubclass(manager, Backup) else "restore"
        cls = type(manager.__name__, (SqliteMutant,), {role: manager, "__doc__": manager.__doc__})
        caught_by(case, BackendMutants)(cls)
        return manager

    return register


# What is read and written


@sqlite("roundtrip.empty-value")
class EmptyIsDeleted(Backup):
    """Takes an empty value for a deletion."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        return super().upload(Seen(snapshot, lambda items: (each for each in items if each[1])), markers)


@sqlite("roundtrip.many-keys")
class LosesTheLast(Backup):
    """Loses the last record of a store: off by one."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        return super().upload(Seen(snapshot, without_last), markers)


@sqlite("roundtrip.large-value")
class CutsLargeValues(Backup):
    """Cuts values at 64 KiB."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        return super().upload(Seen(snapshot, lambda items: ((key, value[:65536]) for key, value in items)), markers)


@sqlite("upload.error-raised")
class SwallowsAnError(Backup):
    """Takes an error while it reads for the end of the store."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        def until_error(items: Iterator[Any]) -> Iterator[Any]:
            try:
                yield from items
            except Exception:
                return

        return super().upload(Seen(snapshot, until_error), markers)


@sqlite("roundtrip.any-bytes")
class GivesOtherTypes(Restore):
    """Restores values that are no bytes."""

    def restore(self, target: Any) -> None:
        write = target.write
        target.write = lambda records: write((key, bytearray(value)) for key, value in records)
        super().restore(target)


@sqlite("restore.interrupted")
class SwallowsAnInterruption(Restore):
    """Takes an interrupted restore for a whole one."""

    def restore(self, target: Any) -> None:
        try:
            super().restore(target)
        except sqlite_backend.StateNotFoundError:
            raise
        except Exception:
            return


# Markers and verbs


@sqlite("upload.markers")
class OneMarkerTooMany(Backup):
    """Gives a marker for a store that it was not asked for."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        return {**super().upload(snapshot, markers), "other": "x"}


@sqlite("upload.markers")
class OneMarkerTooFew(Backup):
    """Gives no marker for the last store."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        made = super().upload(snapshot, markers)
        made.popitem()
        return made


@sqlite("upload.durable-at-once")
class ReturnsBeforeTheEnd(Backup):
    """Gives its markers before the upload has ended."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        made = super().upload(snapshot, markers)
        self.late = [self.folder / escape_name(store) / marker.partition("/")[2] for store, marker in made.items()]
        for file in self.late:
            file.rename(file.with_suffix(".later"))
        return made

    def cleanup(self, retained: Any) -> None:
        for file in self.late:
            file.with_suffix(".later").rename(file)


@sqlite("upload.given-up")
class NeverChecks(Backup):
    """Never asks whether the commit is still wanted."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        snapshot.check = lambda: None
        return super().upload(snapshot, markers)


@sqlite("upload.given-up-within")
class ChecksOnce(Backup):
    """Asks at the beginning only whether the commit is still wanted."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        snapshot.check()
        snapshot.check = lambda: None
        return super().upload(snapshot, markers)


@sqlite("upload.only-declared-facets")
class ReadsAnotherFacet(Backup):
    """Reads a facet that it does not declare."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        for store in snapshot.stores:
            try:
                list(snapshot.changes(store))
            except ValueError:
                continue
        return super().upload(snapshot, markers)


@sqlite("upload.removes-nothing")
class RemovesInUpload(Backup):
    """Removes what it uploaded before as soon as it uploads again."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        before = set(self.folder.glob(f"*/*-{self.writer}.db"))
        made = super().upload(snapshot, markers)
        for file in before:
            file.unlink()
        return made


@sqlite("snapshot.no-io")
class TouchesTheDisk(Backup):
    """Writes a note to the disk on the processing thread."""

    def snapshot(self, id: Any) -> Any:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "note").write_text(str(id))
        return {}


@sqlite("snapshot.o1")
class TakesItsTime(Backup):
    """Counts something long on the processing thread."""

    def snapshot(self, id: Any) -> Any:
        return {"sum": str(sum(range(4_000_000)))}


@sqlite("init.first")
class NamesAStranger(Backup):
    """Names a store in init that is not its own."""

    def init(self, last: Any) -> Any:
        return ["stranger"]


@sqlite("abandon.harmless")
class AbandonsTooMuch(Backup):
    """Drops all that its claim has made when one commit is given up."""

    def abandon(self, id: Any) -> None:
        for file in self.folder.glob(f"*/*-{self.writer}.db"):
            file.unlink()


@sqlite("abandon.idempotent")
class AbandonsOnce(Backup):
    """Fails when what it has to drop is gone already."""

    def abandon(self, id: Any) -> None:
        for file in [self.folder / "delays" / f"{id}-{self.writer}.db"]:
            file.unlink()


@sqlite("close.lets-go")
class LeavesAThread(Backup):
    """Leaves a thread behind when it is closed."""

    def __init__(self, task: Any, folder: Any) -> None:
        super().__init__(task, folder)
        threading.Thread(target=threading.Event().wait, args=(30,), daemon=True, name="left-behind").start()


@sqlite("restore.repeatable")
class LeavesAFileOpen(Restore):
    """Leaves a file open when it is closed."""

    held: ClassVar[list[Any]] = []

    def restore(self, target: Any) -> None:
        super().restore(target)
        self.held.append((self.folder / escape_name(target.store) / target.marker.partition("/")[2]).open("rb"))


# Cleaning up, and who may


@sqlite("cleanup.keeps-retained")
class KeepsTheNewest(Backup):
    """Keeps what the newest checkpoint needs, and forgets the other retained ones."""

    def cleanup(self, retained: Any) -> None:
        super().cleanup(retained[:1])


@sqlite("owners.zombie-cleanup")
class CleansUpForAll(Backup):
    """Removes what its successor has made."""

    def cleanup(self, retained: Any) -> None:
        self.writer = "*"
        super().cleanup(retained)


@sqlite("cleanup.removes")
class NeverCleansUp(Backup):
    """Never removes anything."""

    def cleanup(self, retained: Any) -> None:
        return


@sqlite("cleanup.idempotent")
class CleansUpOnce(Backup):
    """Fails when it is asked to clean up again."""

    cleaned = None

    def cleanup(self, retained: Any) -> None:
        if retained and self.cleaned == retained:
            raise FileNotFoundError("there is nothing left to remove")
        self.cleaned = retained
        super().cleanup(retained)


@sqlite("owners.one-id")
class ForgetsTheWriter(Backup):
    """Names what it uploads by the commit alone: two owners take the same name."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        self.writer = "0"
        for store in snapshot.stores:
            (self.folder / escape_name(store) / f"{snapshot.id}-0.db").unlink(missing_ok=True)
        return super().upload(snapshot, markers)


@sqlite("restore.every-retained")
class KeepsOneFile(Backup):
    """Keeps one file a store, and declares that it restores every retained checkpoint."""

    def upload(self, snapshot: Any, markers: Any) -> Any:
        for store in snapshot.stores:
            for file in (self.folder / escape_name(store)).glob("*.db"):
                file.unlink()
        return super().upload(snapshot, markers)


# What is not there, and what is damaged


@sqlite("damage.missing")
class MissingIsEmpty(Restore):
    """Takes a missing file for an empty store."""

    def restore(self, target: Any) -> None:
        try:
            super().restore(target)
        except sqlite_backend.StateNotFoundError:
            return


@sqlite("restore.unknown-marker")
class UnknownIsTransient(Restore):
    """Says of what is not there that it may come."""

    def restore(self, target: Any) -> None:
        try:
            super().restore(target)
        except sqlite_backend.StateNotFoundError as error:
            raise TimeoutError("not there yet") from error


@sqlite("damage.flipped-bit")
class TrustsTheDisk(Restore):
    """Restores without a look at the digest."""

    def restore(self, target: Any) -> None:
        _, _, name = target.marker.partition("/")
        file = self.folder / escape_name(target.store) / name
        if file.is_file() and file.stat().st_size:
            target.marker = f"{sqlite_backend.digest_file(file)}/{name}"
        super().restore(target)


@sqlite("damage.cut")
class TakesTheNewest(Restore):
    """Restores another checkpoint when the one that it was asked for is damaged."""

    def restore(self, target: Any) -> None:
        try:
            super().restore(target)
        except sqlite_backend.StateCorruptError:
            folder = self.folder / escape_name(target.store)
            for file in sorted(folder.glob("*.db")):
                if file.name != target.marker.partition("/")[2]:
                    target.marker = f"{sqlite_backend.digest_file(file)}/{file.name}"
                    super().restore(target)
                    return
            raise


# Whole backends


@caught_by("neighbours.jobs", BackendMutants)
class ForgetsTheJobsId(Backend):
    """Keeps two jobs of one name and another id in one folder, and cleans up both."""

    def backup_manager(self, task: Any, stores: Any) -> Any:
        made = super().backup_manager(task, stores)
        made.writer = "same"
        return made

    def folder(self, task: Any) -> Path:
        return self.config.path / escape_name(task.task) / escape_name(task.backend)


@caught_by("neighbours.tasks", BackendMutants)
class CleansUpByPrefix(SqliteMutant):
    """Cleans up every task whose name begins with its own task's."""

    class backup(Backup):
        def cleanup(self, retained: Any) -> None:
            parent = self.folder.parent
            for folder in parent.parent.glob(f"{parent.name}*/{self.folder.name}"):
                needed = {m.partition("/")[2] for c in retained for m in c.markers.get(self.backend, {}).values()}
                for file in folder.glob("*/*.db"):
                    if file.name not in needed:
                        file.unlink()


@caught_by("roundtrip.names", BackendMutants)
class FlattensNames(Backend):
    """Puts an underscore for everything that is no letter: two names become one."""

    def backup_manager(self, task: Any, stores: Any) -> Any:
        return _Flat(super().backup_manager(task, stores))

    def restore_manager(self, task: Any, stores: Any) -> Any:
        return _Flat(super().restore_manager(task, stores))


class _Flat:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def upload(self, snapshot: Any, markers: Any) -> Any:
        made = {}
        for store in snapshot.stores:
            flat = "".join(c if c.isalnum() else "_" for c in store.lower())
            seen = Seen(snapshot, lambda items: items)
            seen.stores, seen.items = [flat], lambda _, s=store: snapshot.items(s)
            for file in (self.inner.folder / escape_name(flat)).glob("*"):
                file.unlink()
            made[store] = self.inner.upload(seen, markers)[flat]
        return made

    def restore(self, target: Any) -> None:
        target.store = "".join(c if c.isalnum() else "_" for c in target.store.lower())
        self.inner.restore(target)


@caught_by("factory.no-io", BackendMutants)
class LooksAround(Backend):
    """Lists its folder in __init__."""

    def __init__(self, name: str, config: Any) -> None:
        super().__init__(name, config)
        list(config.path.parent.iterdir())


@caught_by("upload.survives-kill", BackendMutants)
class SaysItIsDurable(MemoryBackend):
    """Keeps everything in the process, and declares that it is durable."""

    capabilities = Capabilities(facets=Facet.CHANGES | Facet.ITEMS)


class _MemoryMutant(MemoryBackend):
    manager: type

    def backup_manager(self, task: Any, stores: Any) -> Any:
        return self.manager(task, task.claim, [store.name for store in stores])


@caught_by("roundtrip.deletes", BackendMutants)
class ForgetsDeletes(_MemoryMutant):
    """Leaves deletions out of the changes: deleted keys come back."""

    class manager(memory._MemoryBackup):
        def upload(self, snapshot: Any, markers: Any) -> Any:
            return super().upload(Seen(snapshot, lambda items: (e for e in items if e[1] is not None)), markers)


@caught_by("upload.again-without-abandon", BackendMutants)
class BuildsOnTheUnpublished(_MemoryMutant):
    """Lays changes over its own last upload, published or not."""

    class manager(memory._MemoryBackup):
        newest: str | None = None

        def upload(self, snapshot: Any, markers: Any) -> Any:
            seen = Seen(snapshot, lambda items: items)
            if self.newest is not None:
                seen.base = lambda store: (snapshot.id, self.newest)
                seen.changes = lambda store: iter(sorted(snapshot.states[store].content.items()))
            made = super().upload(seen, markers)
            self.newest = next(iter(made.values()))
            return made


@caught_by("upload.without-base", BackendMutants)
class IgnoresTheMissingBase(_MemoryMutant):
    """Lays all live keys over what it has when it is told that there is no base."""

    class manager(memory._MemoryBackup):
        newest: str | None = None

        def upload(self, snapshot: Any, markers: Any) -> Any:
            seen = Seen(snapshot, lambda items: items)
            if self.newest is not None and all(snapshot.base(store) is None for store in snapshot.stores):
                seen.base = lambda store: (snapshot.id, self.newest)
            made = super().upload(seen, markers)
            self.newest = next(iter(made.values()))
            return made
