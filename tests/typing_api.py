"""
The public names as a user meets them: checked by mypy, never run.

First a host's author, who holds a job, a task and its stores; then a plugin's author, who implements the roles of
`millpond.spi`; then an operator's tool, which listens and reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, TypeVar, assert_type

from attrs import frozen

import millpond
from millpond import errors, events, spi
from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, Markers, SystemStreamPartition
from millpond.clock import Clock, SystemClock
from millpond.spi import (
    SPI_VERSION,
    Capabilities,
    Change,
    Checkpointable,
    CheckpointManager,
    Facet,
    FileEntry,
    Garbage,
    JobContext,
    ManagerCapabilities,
    NothingToPrepare,
    RestoreTarget,
    Secret,
    Snapshot,
    StateBackendAdmin,
    StateBackendFactory,
    StoreEngine,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
    Transfers,
    VersionPolicy,
)

T = TypeVar("T")
R = TypeVar("R")


# A host


def host(records: Iterable[tuple[str, int, str]]) -> None:
    ssp = SystemStreamPartition("kafka", "departures", 0)
    with millpond.open_job("job.toml", listeners=[show]) as job, job.open_task("Partition 0") as task:
        assert_type(job, millpond.Job)
        assert_type(task, millpond.Task)
        assert_type(task.offsets, Mapping[SystemStreamPartition, str])
        assert_type(task.last, Checkpoint | None)
        delays: millpond.KeyValueStore[str, int] = task.store("delays")
        for key, value, offset in records:
            delays[key] = (delays.get(key) or 0) + value
            assert_type(delays.get(key), int | None)
            task.processed(ssp, offset)
            assert_type(task.commit_if_due(), Future[Checkpoint] | None)
        if task.commit_due:
            assert_type(task.commit(), Future[Checkpoint])
        assert_type(task.commit_now(timeout_s=5.0), Checkpoint)


def all_of_a_store(delays: millpond.KeyValueStore[str, int]) -> None:
    delays.put("JFK", 3)
    delays.put("JFK", "late")  # type: ignore[arg-type]
    del delays["JFK"]
    delays.delete("LGA")
    assert_type(delays["EWR"], int)
    assert_type("EWR" in delays, bool)
    assert_type(delays.get_many(["EWR", "JFK"]), dict[str, int])
    assert_type(delays.scan("A", "M", reverse=True), Iterator[tuple[str, int]])
    for key, value in delays.scan():
        assert_type((key, value), tuple[str, int])


def all_of_a_task(task: millpond.Task, source: SystemStreamPartition) -> None:
    task.processed(source, 41)
    task.before_publish(lambda: None)
    assert_type(task.room(), Future[None])
    assert_type(task.health, millpond.TaskHealth)
    assert_type(task.health.ready, bool)
    task.close(timeout_s=10.0)


def all_of_a_job(path: Path) -> None:
    job = millpond.open_job(path)
    job.prepare()
    job.open_task("Partition 0", at="1700000000000-17", timeout_s=60.0, databases={"own": own})
    job.open_task("Partition 1", at=CheckpointId(1_700_000_000_000, 17))
    job.close(timeout_s=10.0)
    millpond.open_job({"job": {"name": "flights", "state_dir": "state"}})
    millpond.open_job(str(path))


def from_a_checked_configuration(config: millpond.JobConfig) -> millpond.Job:
    return millpond.open_job(config)


# A backend


@frozen
class ShelfConfig:
    path: Path
    password: Secret = Secret("")


class ShelfBackup(TaskBackupManager):
    def __init__(self, task: TaskContext) -> None:
        assert_type(task.claim, Claim | None)
        assert_type(task.job.layout, Layout | None)
        self.folder: Path = task.directory
        self.scratch: Path = task.scratch
        self.transfers: Transfers = task.job.transfers

    def init(self, last: Checkpoint | None) -> Collection[str]:
        return last.markers["shelf"].keys() if last else ()

    def snapshot(self, id: CheckpointId) -> Markers:
        return {"delays": str(id)}

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        for store in snapshot.stores:
            if base := snapshot.base(store):
                assert_type(base, tuple[CheckpointId, str])
            assert_type(snapshot.directory(store), Sequence[FileEntry])
            assert_type(snapshot.changes(store), Iterator[Change])
            assert_type(snapshot.items(store), Iterator[tuple[bytes, bytes]])
            assert_type(snapshot.get_many(store, [b"key"]), list[bytes | None])
            self.transfers.map(self._keep, snapshot.directory(store), snapshot.check)
        return {store: f"{snapshot.id}/{store}" for store in snapshot.stores}

    def _keep(self, file: FileEntry) -> int:
        with self.transfers.reserve(file.size):
            (self.folder / file.digest).write_bytes(file.path.read_bytes())
        return file.size

    def abandon(self, id: CheckpointId) -> None:
        return None

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        return None

    def close(self) -> None:
        return None


class ShelfRestore(TaskRestoreManager):
    def init(self, checkpoint: Checkpoint) -> None:
        assert_type(checkpoint.offsets, Mapping[SystemStreamPartition, str])
        assert_type(checkpoint.parent, CheckpointId | None)

    def v1_markers(self, checkpoint: Checkpoint) -> Markers:
        return {ssp.stream: offset for ssp, offset in checkpoint.offsets.items()}

    def restore(self, target: RestoreTarget) -> None:
        target.check()
        if target.local == target.marker:
            target.use_local()
            target.write([(b"newer", b"value"), (b"gone", None)])
        elif target.directory.exists():
            target.adopt(verified=True)
            target.adopt()
        else:
            raise errors.StateNotFoundError(f"{target.store}: {target.marker}")
        target.progress(records=2, size=10, total_size=None)


class ShelfAdmin(StateBackendAdmin):
    def create_resources(self) -> None:
        return None

    def validate_resources(self) -> None:
        raise errors.ConfigError("the shelf is full")

    def garbage(self, retained: Mapping[str, Sequence[Checkpoint]], grace: timedelta) -> Iterator[Garbage]:
        yield Garbage(name="a file", reason=f"no task of {sorted(retained)} needs it", size=None, remove=lambda: None)


class Shelf(StateBackendFactory):
    spi_version = SPI_VERSION
    config_class = ShelfConfig
    capabilities = Capabilities(facets=Facet.DIRECTORY | Facet.CHANGES, grace=timedelta(hours=1))
    marker_key = "shelf"

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        return ShelfBackup(task)

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        return ShelfRestore()

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> StateBackendAdmin:
        return ShelfAdmin() if stores else NothingToPrepare()


class InTurn(Transfers):
    def map(self, work: Callable[[T], R], items: Iterable[T], check: Callable[[], None] | None = None) -> list[R]:
        return [work(item) for item in items]

    def reserve(self, size: int) -> AbstractContextManager[None]:
        return nullcontext()


# A checkpoint manager


class Ledger(CheckpointManager):
    spi_version = SPI_VERSION
    config_class = ShelfConfig
    capabilities = ManagerCapabilities(versions=frozenset({1, 2}), history=False, fencing=False, durable=False)

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        super().__init__(config, job, versions)
        assert_type(versions.write, tuple[int, ...])
        self.records: dict[str, list[Checkpoint]] = {}

    def tasks(self) -> Sequence[str]:
        return sorted(self.records)

    def claim(self, task: str) -> Claim:
        return Claim(task=task, epoch=1, writer="0" * 32)

    def read_last(self, task: str) -> Checkpoint | None:
        return self.records[task][-1] if task in self.records else None

    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        return next(record for record in self.records[task] if record.id == id)

    def ids(self, task: str) -> Sequence[CheckpointId]:
        return [record.id for record in reversed(self.records[task])]

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        if after is not None and checkpoint.id <= after:
            raise errors.FencedError("somebody else wrote")
        self.records.setdefault(claim.task, []).append(checkpoint)

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        self.records[claim.task] = [record for record in self.records[claim.task] if record.id not in ids]


# An engine, and a host's own database


class Sorted(StoreEngine):
    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = ShelfConfig
    immutable = ("*.sst",)
    transient = ("LOCK",)

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    @classmethod
    def validate(cls, store: StoreSpec) -> Iterable[str]:
        return [f"{store.name}: there is no option {name}" for name in store.options]

    @classmethod
    def open(cls, directory: Path, store: StoreSpec, *, read_only: bool = False) -> Sorted:
        return cls()

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        yield from sorted(self.data.items(), reverse=reverse)

    def apply(self, changes: Sequence[Change]) -> None:
        assert len(changes) <= spi.BATCH
        for key, value in changes:
            if value is None:
                self.data.pop(key, None)
            else:
                self.data[key] = value

    def checkpoint(self, directory: Path) -> None:
        directory.mkdir()

    def close(self) -> None:
        self.data.clear()


class OwnDatabase:
    def checkpoint(self, directory: Path) -> None:
        directory.mkdir()


own: Checkpointable = OwnDatabase()
engine: StoreEngine = Sorted.open(Path("delays"), StoreSpec("delays", "sorted", {"limit": 3}))
engine.load([(b"key", b"value")])
assert_type(engine.get_many([b"key"]), list[bytes | None])


# Values


def values() -> None:
    first = CheckpointId.parse("1700000000000-17")
    second = CheckpointId.after(first, now_millis=1_700_000_000_000)
    assert_type(first < second, bool)
    ssp = SystemStreamPartition("kafka", "departures", 0)
    Checkpoint(
        id=second,
        offsets={ssp: "41"},
        markers={"shelf": {"delays": "17"}},
        claim=Claim("Partition 0", 3, "0" * 32),
        parent=first,
        layout=Layout(["Partition 0", "Partition 1"], "murmur2"),
        images={"delays": f"{second}-{'0' * 32}"},
    )
    first.millis = 3  # type: ignore[misc]


# An operator's tool


def tell(event: events.Event) -> str:
    match event:
        case events.TaskClaimed(claim=claim):
            return f"epoch {claim.epoch}"
        case events.StateNotDurable(name=name):
            return name
        case events.RestorePlanned(checkpoint=checkpoint, sources=sources):
            return f"{checkpoint}: {', '.join(sources.values())}"
        case events.StoreIsNew(store=store) | events.MarkerIgnored(store=store):
            return store
        case events.RestoreProgress(size=size, total_size=total_size):
            return f"{size} of {'an unknown size' if total_size is None else total_size - size}"
        case events.StoreRestored(duration_s=seconds) | events.TaskRestored(duration_s=seconds):
            return f"{seconds:.1f} s"
        case events.RestoreFailedOver(source=source, following=following, error=error):
            return f"{source}: {error}; next {following}"
        case events.OlderCheckpointChosen(damaged=damaged, chosen=chosen):
            return f"{damaged} is damaged: {max(damaged, chosen)}"
        case events.Quarantined(path=path, reason=reason):
            return f"{path.name}: {reason}"
        case events.CommitStarted(stores=stores):
            return ", ".join(stores)
        case events.CommitSkipped(in_flight=in_flight, age_s=seconds):
            return f"{in_flight.millis} is in flight for {seconds:.1f} s"
        case events.ImageMade(new_files=new_files, new_size=new_size):
            return f"{new_files + 1} files, {new_size} bytes"
        case events.Uploaded(backend=backend) | events.OptionalBackendFailed(backend=backend):
            return backend
        case events.BackupDecided(way=way, reason=reason, links=links):
            return f"{way}, {links + 1}: {reason}"
        case events.ObjectsUploaded(objects=objects) | events.ObjectsRemoved(objects=objects):
            return f"{objects + 0} objects"
        case events.CommitPublished(checkpoint=published, phases_s=phases_s):
            return f"{published.id}: {sum(phases_s.values()):.3f} s"
        case events.CommitFailed(unknown=unknown):
            return "perhaps" if unknown else "no"
        case events.CommitSettled(published=yes):
            return "yes" if yes else "no"
        case events.CleanedUp(dropped=dropped):
            return f"{len(dropped)} records"
        case events.CleanupFailed(error=error) | events.TaskFenced(error=error) | events.TaskFailed(error=error):
            return str(error)
        case events.TaskClosed(last=last):
            return str(last)
        case _:
            return f"{event.job} {event.task}"


def show(event: events.Event) -> None:
    print(tell(event))


listener: events.Listener = show
everybody: events.Listener = events.Listeners.of([show, listener])
clock: Clock = SystemClock()
context = JobContext("flights", "1", None, everybody, clock, InTurn())
task_context = TaskContext(context, "Partition 0", None, "shelf", Path("shelf"), Path("scratch"))
Shelf("shelf", ShelfConfig(Path("shelf"))).backup_manager(task_context, []).close()
Ledger(ShelfConfig(Path("ledger")), context, VersionPolicy(max_age=timedelta(minutes=1))).close()


assert_type(ShelfConfig(Path("shelf"), Secret("word")).password.reveal(), str)


def what_to_do(error: errors.MillpondError) -> str:
    match error:
        case errors.PluginError():
            return "install it"
        case errors.ConfigError() | errors.FormatError():
            return "correct it"
        case errors.TransientError() | errors.CommitFailedError():
            return "again"
        case errors.StateNotFoundError() | errors.StateCorruptError():
            return "another backend"
        case errors.FencedError():
            return "stop"
        case errors.StoreClosedError():
            return "reopen"
        case errors.CommitTimeoutError() | errors.CommitUnknownError():
            return "wait"
        case errors.CommitError():
            return "do not acknowledge"
        case _:
            return "ask"
