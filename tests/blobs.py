"""Jobs over an object store in this process, for the tests of millpond.blob: buckets by name, and what happened."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import engines
from attrs import define, field, frozen

import millpond
from millpond.blob import BlobBackend, BlobCapabilities, BlobCheckpoints, BlobEntry, BlobSettings, BlobStore, Body
from millpond.blob.layout import TaskKeys
from millpond.blob.memory import MemoryBlobStore
from millpond.blob.settings import RecordsSettings
from millpond.errors import StateNotFoundError
from millpond.events import BackupDecided, Event
from millpond.job import Job
from millpond.local import create_durably, is_temporary, write_durably
from millpond.spi import JobContext
from millpond.task import Task

BUCKETS: dict[str, BlobStore] = {}


class FolderBlobStore(BlobStore):
    """Keeps objects as files below a folder, for any number of processes on one machine."""

    capabilities = BlobCapabilities()

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with body.open() as stream:
            data = stream.read()
        if if_absent:
            return create_durably(path, data)
        write_durably(path, data)
        return True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            with (self.root / key).open("rb") as file:
                file.seek(start)
                return file.read(-1 if length is None else length)
        except (FileNotFoundError, NotADirectoryError):
            raise StateNotFoundError(f"there is no object {self.root / key}") from None

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobEntry]:
        paths = {str(path.relative_to(self.root)): path for path in self.root.rglob("*") if path.is_file()}
        for key in sorted(paths):
            if key.startswith(prefix) and key > after and not is_temporary(paths[key].name):
                with contextlib.suppress(FileNotFoundError):
                    status = paths[key].stat()
                    yield BlobEntry(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, keys: Collection[str]) -> None:
        for key in keys:
            (self.root / key).unlink(missing_ok=True)

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def where(self, key: str = "") -> str:
        return str(self.root / key)


def bucket_named(name: str) -> BlobStore:
    """Give a bucket of this process, or the folder of that name."""
    return FolderBlobStore(Path(name)) if name.startswith("/") else BUCKETS[name]


SOURCE = engines.SOURCE
TASK = engines.TASK


@frozen(kw_only=True)
class BucketSettings(BlobSettings):
    """Says which bucket of this process."""

    bucket: str


@frozen(kw_only=True)
class RecordSettings(RecordsSettings):
    """Says which bucket of this process."""

    bucket: str


class Backend(BlobBackend):
    config_class: ClassVar[type] = BucketSettings

    def open_store(self, job: JobContext) -> BlobStore:
        return bucket_named(self.config.bucket)  # type: ignore[attr-defined]


class Checkpoints(BlobCheckpoints):
    config_class: ClassVar[type] = RecordSettings

    def open_store(self, job: JobContext) -> BlobStore:
        return bucket_named(self.config.bucket)  # type: ignore[attr-defined]


@define
class World:
    """
    One job and its bucket; every opening may have a disk of its own.

    Attributes:
        root: Where local state lies.
        clock: The job's and the bucket's.
        settings: Of the backend, besides its bucket.
        tidy_every: Of the records.
        stores: Store to engine.
        calls: Requests since they were last cleared, by verb and by what they are about.
    """

    root: Path
    clock: engines.TurnedClock = field(factory=engines.TurnedClock)
    settings: dict[str, Any] = field(factory=dict)
    stores: dict[str, str] = field(factory=lambda: {"a": "rocksdb", "b": "memory"})
    retain: int = 1
    tidy_every: int = 1
    name: str = "flights"
    bucket: str = field(factory=lambda: f"bucket-{uuid.uuid4().hex[:12]}")
    events: list[Event] = field(factory=list)
    calls: Counter[tuple[str, str]] = field(factory=Counter)
    options: dict[str, Any] = field(factory=dict)
    _jobs: list[Job] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        BUCKETS[self.bucket] = MemoryBlobStore(self.clock.millis)
        self.store.before = self.count

    @property
    def store(self) -> MemoryBlobStore:
        return BUCKETS[self.bucket]  # type: ignore[return-value]

    def count(self, verb: str, key: str) -> None:
        for kind in ("data", "records", "pins", "probe"):
            if f"/{kind}/" in key or f".{kind}-" in key:
                self.calls[verb, kind] += 1
                return

    def config(self, disk: str) -> dict[str, Any]:
        return {
            "job": {"name": self.name, "state_dir": str(self.root / disk)},
            "checkpoint": {
                "manager": "blobs:Checkpoints",
                "bucket": self.bucket,
                "retain": self.retain,
                "tidy_every": self.tidy_every,
            },
            "backends": {"main": {"type": "blobs:Backend", "bucket": self.bucket, **self.settings}},
            "stores": {
                name: {"engine": engine, "key": "str", "value": "json", "backup": ["main"]}
                for name, engine in self.stores.items()
            },
            "commit": {"interval": "1h"},
            "restore": {"attempts": 1, **self.options},
        }

    def open_job(self, disk: str = "disk") -> Job:
        job = millpond.open_job(self.config(disk), listeners=[self.events.append])
        self._jobs.append(job)
        return job

    def open(self, disk: str = "disk", task: str = TASK, **arguments: Any) -> Task:
        return self.open_job(disk).open_task(task, **arguments)

    def close(self) -> None:
        while self._jobs:
            with contextlib.suppress(millpond.TransientError):
                self._jobs.pop().close(5)

    def restored(self, disk: str, **arguments: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        """Close all, and give offset and stores as an opening on *disk* finds them."""
        self.close()
        task = self.open(disk, **arguments)
        state = engines.offset_of(task), contents(task)
        self.close()
        return state

    def told(self, *kinds: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kinds)]

    def ways(self, store: str = "a") -> list[str]:
        """Give how *store* was uploaded, commit by commit."""
        return [event.way for event in self.told(BackupDecided) if event.store == store]

    def held(self, kind: str = "data", task: str = TASK) -> list[str]:
        """Give the keys of the task's objects."""
        prefix = TaskKeys.of(self.name, "1", task).prefix
        return [key for key in sorted(self.store.objects) if key.startswith(f"{prefix}{kind}/")]

    def damage(self, key: str, at: int = -1) -> None:
        """Turn one bit of an object."""
        data, millis = self.store.objects[key]
        turned = bytearray(data)
        turned[at] ^= 1
        self.store.objects[key] = bytes(turned), millis


def contents(task: Task) -> dict[str, dict[str, Any]]:
    return {name: dict(store.scan()) for name, store in task._stores.items()}


def commit(task: Task, number: int, timeout_s: float = 30.0) -> millpond.Checkpoint:
    task.processed(SOURCE, number)
    return settled(task, task.commit_now(timeout_s))


def settled(task: Task, checkpoint: millpond.Checkpoint) -> millpond.Checkpoint:
    """Wait until the clean-up after a commit has ended."""
    task._engine._await_idle(time.monotonic() + 30)
    return checkpoint


def fill(task: Task, count: int, text: str = "x", store: str = "a") -> None:
    for number in range(count):
        task.store(store)[f"k{number:06d}"] = [number, text * 20]


@contextlib.contextmanager
def capable(world: World, **changes: Any) -> Iterator[None]:
    world.store.capabilities = BlobCapabilities(**changes)
    yield
