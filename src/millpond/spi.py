"""
What a plugin implements, and what it is given.

A *state backend* is three classes: a :class:`StateBackendFactory` that makes a :class:`TaskBackupManager` and a
:class:`TaskRestoreManager` for each task, and a :class:`StateBackendAdmin` if the backend has something to prepare.
A :class:`CheckpointManager` keeps the records; a :class:`StoreEngine` holds one store's live data.

Any call may block, except :meth:`TaskBackupManager.snapshot`. Any call may raise the errors of
:mod:`millpond.errors`; an error of another class is taken for one that may go away. Modelled on Samza's
``StateBackendFactory``, ``TaskBackupManager``, ``TaskRestoreManager``, ``StateBackendAdmin`` and ``CheckpointManager``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import Flag, auto
from itertools import islice
from pathlib import Path
from typing import ClassVar, NewType, Protocol, TypeVar

from attrs import field, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, Markers
from millpond.clock import Clock
from millpond.errors import ConfigError
from millpond.events import Listener

SPI_VERSION = (1, 0)
"""Major and minor: a plugin of another major is refused, of a newer minor warned about."""

Change = tuple[bytes, bytes | None]
"""A key and its new value; None says that the key was deleted. ``b""`` is a value."""

BATCH = 1_000
"""The most changes that :meth:`StoreEngine.apply` is given at once: a native batch write may hold the interpreter."""

T = TypeVar("T")
R = TypeVar("R")


Size = NewType("Size", int)
"""Bytes: the type of a field of a ``config_class`` that an operator writes with a unit, such as ``"64MiB"``."""


class Secret(str):
    """
    Text that no message, log line or traceback shows: the type of such a field of a ``config_class``.

    ``str``, ``repr`` and formatting give ``***``; :meth:`reveal` gives the text. Equality and hashing are the text's.
    """

    __slots__ = ()

    def reveal(self) -> str:
        """Give the text itself."""
        return str.__str__(self)

    def __str__(self) -> str:
        return "***"

    def __repr__(self) -> str:
        return "***"

    def __format__(self, spec: str) -> str:
        return format("***", spec)


@frozen
class FileEntry:
    """
    One file of an image.

    Attributes:
        name: Relative to the image, with ``/`` between parts.
        path: Where it is now; readable until ``upload`` returns.
        size: In bytes.
        digest: ``"blake3:<hex>"`` or ``"sha256:<hex>"`` of its content.
    """

    name: str
    path: Path
    size: int
    digest: str


@frozen
class StoreSpec:
    """
    A store as the configuration describes it.

    Attributes:
        name: Its name, as the operator wrote it.
        engine: The name of its engine.
        options: The store's own options, in the engine's words.
        settings: The engine's settings for the whole job: an instance of its ``config_class``, or None.
    """

    name: str
    engine: str
    options: Mapping[str, object] = field(factory=dict)
    settings: object = None


class Transfers(ABC):
    """
    The job's bounded pool for leaf I/O: copying, hashing, uploading, downloading. Any thread may use it.

    Attributes:
        threads: How many pieces of work go on at once; a driver's pool of connections follows it.
    """

    threads: int = 1

    @abstractmethod
    def map(self, work: Callable[[T], R], items: Iterable[T], check: Callable[[], None] | None = None) -> list[R]:
        """
        Do *work* on each of *items*, several at once, and give the results in order.

        *check* is called between items and stops the rest by raising. The first error is raised when everything that
        had begun has ended. Work must not call ``map`` itself: a transfer waits for nobody.
        """

    @abstractmethod
    def reserve(self, size: int) -> AbstractContextManager[None]:
        """Wait until *size* bytes fit into the job's transfer memory, and hold them for the block."""


@frozen
class JobContext:
    """
    What every plugin may know of the job.

    Attributes:
        job: The job's name.
        job_id: Its id; ``"1"`` unless the operator says otherwise, as in Samza.
        layout: The tasks and the partitioner, where the configuration states them.
        listener: Takes events; never raises.
        clock: Tells the time.
        transfers: The job's pool for I/O.
    """

    job: str
    job_id: str
    layout: Layout | None
    listener: Listener
    clock: Clock
    transfers: Transfers


@frozen
class TaskContext:
    """
    What a backend may know of the task that it serves.

    Attributes:
        job: The job's context.
        task: The task's name.
        claim: The right under which it writes; None for one that only reads, and then nothing is claimed, fenced, or
            locked.
        backend: The key of this backend's markers in ``Checkpoint.markers``.
        directory: This backend's own directory, kept between runs. It may not exist yet.
        scratch: This backend's own directory for passing things, emptied at each opening. It may not exist yet.
    """

    job: JobContext
    task: str
    claim: Claim | None
    backend: str
    directory: Path
    scratch: Path


class Facet(Flag):
    """The three ways to read a store's snapshot. Only those that a backend declares are prepared for it."""

    CHANGES = auto()
    DIRECTORY = auto()
    ITEMS = auto()


@frozen(kw_only=True)
class Capabilities:
    """
    What a backend can do. Declared, never guessed, and checked by the conformance kit.

    Attributes:
        facets: What ``upload`` reads.
        durable: False when the state dies with the process.
        point_in_time: It restores every retained checkpoint, not the newest alone.
        checkpoint_v1: Its markers fit into a V1 checkpoint.
        max_record_bytes: The largest key and value together; ``put`` refuses more. None: no limit.
        record_bytes_setting: The field of its section that raises that limit, for the message; empty: there is none.
        grace: How long removed data stays readable; a commit may not take longer than half of it. None: no limit.
    """

    facets: Facet
    durable: bool = True
    point_in_time: bool = True
    checkpoint_v1: bool = False
    max_record_bytes: int | None = None
    record_bytes_setting: str = ""
    grace: timedelta | None = None


class Snapshot(ABC):
    """The dirty stores as they were at one commit. Usable from any thread until ``upload`` returns."""

    id: CheckpointId
    stores: Sequence[str]
    """The dirty stores that this backend backs up, and no others."""

    @abstractmethod
    def base(self, store: str) -> tuple[CheckpointId, str] | None:
        """Give the last published id that has this backend's marker, and it; None if changes since are not at hand."""

    @abstractmethod
    def changes(self, store: str) -> Iterator[Change]:
        """
        Give the changes since :meth:`base`, sorted, one per key.

        Without a base: every live key; a log then also writes tombstones for keys that it holds and the store does not.
        Needs ``Facet.CHANGES``.
        """

    @abstractmethod
    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys* in this snapshot, in order; None for a missing one. Needs ``Facet.ITEMS``."""

    @abstractmethod
    def directory(self, store: str) -> Sequence[FileEntry]:
        """
        Give the files of the store's image, its ``MANIFEST`` among them. Needs ``Facet.DIRECTORY``.

        No file changes afterwards; all stay until ``upload`` returns, and may be linked to.
        """

    @abstractmethod
    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Give every live key and its value, sorted by the bytes of the key. Needs ``Facet.ITEMS``."""

    @abstractmethod
    def check(self) -> None:
        """Raise once this commit is given up: call it between pieces of work."""


class TaskBackupManager(ABC):
    """
    Backs up the stores of one task.

    The life of one: made right after the claim; ``init`` once; then for each commit ``snapshot``, ``upload`` if any of
    its stores is dirty, and either ``cleanup`` once the checkpoint is published, or ``abandon``; at last ``close``.
    One commit is in flight at a time, so no two of ``upload``, ``abandon`` and ``cleanup`` overlap.
    """

    def init(self, last: Checkpoint | None) -> Collection[str]:
        """
        Begin; called once, on the opening thread, after the restore and before the first commit.

        *last* is the restored checkpoint. Gives the names of stores that need an upload although nothing changed.
        """
        return ()

    def snapshot(self, id: CheckpointId) -> Markers:
        """
        Note what must be noted at the very moment of the commit; on the processing thread, so O(1) and without I/O.

        Gives what :meth:`upload` gets as its *markers*. An error fails the commit.
        """
        return {}

    @abstractmethod
    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """
        Make the snapshot durable; on a worker. When it returns, its markers are durable, and survive a power cut.

        Gives a marker for each of ``snapshot.stores``, no more and no fewer. Remove nothing here: this commit may still
        fail. It may be called again for the same changes under a later id, when an earlier commit was given up.
        """

    def abandon(self, id: CheckpointId) -> None:
        """Drop what the upload of *id* left behind; on a worker. Best effort, idempotent: the commit was given up."""
        return None

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """
        Remove what no checkpoint in *retained* needs; on a worker, after a publication and once at the start. After
        each publication, or where the checkpoint manager says ``tidy_every``, after one of so many.

        *retained* are all checkpoints of this task that must stay restorable, newest first, pinned ones too. Remove
        only what this claim's writer made and, a grace period after the claim, what earlier epochs left. Idempotent;
        computed anew each time. A failure is an event, and never undoes the commit.
        """
        return None

    def close(self) -> None:
        """Let go of everything; idempotent, from any thread. No thread of this manager outlives it."""
        return None


class RestoreTarget(ABC):
    """
    Where one store is restored to. Either fill ``directory`` and ``adopt``, or ``write``, or both in this order: then
    the changes go on top of the adopted image. A restore that returns without either leaves an empty store.
    """

    store: str
    marker: str
    """Leave the store exactly as this marker says."""
    directory: Path
    """Empty, this restore's own."""
    local: str | None
    """This backend's marker of a verified, older local image that ``use_local`` starts from; None if there is none."""

    @abstractmethod
    def use_local(self) -> None:
        """Begin from the local image that ``local`` names instead of from nothing; then ``write`` what is newer."""

    @abstractmethod
    def adopt(self, *, verified: bool = False) -> None:
        """
        Say that ``directory`` is a complete image, with its ``MANIFEST``. A ``write`` afterwards begins from it.

        Each file is checked against that manifest, unless *verified* says that this was done while streaming.

        Raises:
            StateCorruptError: A file is missing, superfluous, or not what the manifest says.
        """

    def local_files(self) -> Sequence[FileEntry]:
        """
        Give the files of this store's verified local images, which may be linked into ``directory``; never written to.

        A file is the one that is wanted only if its digest says so. Empty where there is no image.
        """
        return ()

    @abstractmethod
    def write(self, records: Iterable[Change]) -> None:
        """Put *records* into the store in bulk, in order: the later wins, None deletes. May be called repeatedly."""

    @abstractmethod
    def progress(self, *, records: int = 0, size: int = 0, total_size: int | None = None) -> None:
        """Report what was done since the last call, and the total in bytes where it is known."""

    @abstractmethod
    def check(self) -> None:
        """Raise once the restore is interrupted: call it between pieces of work."""


class TaskRestoreManager(ABC):
    """Gives the stores of one task back."""

    def init(self, checkpoint: Checkpoint) -> None:
        """Begin a restore of *checkpoint*; called once before the first ``restore``."""
        return None

    def v1_markers(self, checkpoint: Checkpoint) -> Markers:
        """Find this backend's own entries among the offsets of a V1 checkpoint, store to marker."""
        return {}

    @abstractmethod
    def restore(self, target: RestoreTarget) -> None:
        """
        Leave one store exactly as its marker says; on a worker, several stores at once.

        Raises:
            StateNotFoundError: What the marker names is not there.
            StateCorruptError: It is not what was committed.
            TransientError: The same call may succeed later; it is repeated, and never ends in an empty store.
        """

    def close(self) -> None:
        """Let go of everything; idempotent."""
        return None


@frozen
class Garbage:
    """
    Something that no checkpoint needs.

    Attributes:
        name: Where it is, in the backend's words.
        reason: Why it may go.
        size: In bytes; None where nobody knows.
        remove: Removes it; idempotent.
        remove_all: Removes many that have this very function, with few requests; None: they go one by one.
    """

    name: str
    reason: str
    size: int | None
    remove: Callable[[], None]
    remove_all: Callable[[Sequence[Garbage]], None] | None = field(default=None, eq=False, repr=False)


class StateBackendAdmin(ABC):
    """Prepares and inspects what a backend needs for a whole job."""

    def create_resources(self) -> None:
        """Make what is missing; idempotent. ``Job.prepare()`` always calls it."""
        return None

    def validate_resources(self) -> None:
        """Try what the backend relies on, and raise ConfigError with the mend if it does not hold."""
        return None

    def garbage(self, retained: Mapping[str, Sequence[Checkpoint]], grace: timedelta) -> Iterator[Garbage]:
        """Find what no checkpoint in *retained* (task to checkpoints) needs and is older than *grace*."""
        return iter(())


class NothingToPrepare(StateBackendAdmin):
    """The admin of a backend that has nothing to prepare."""


class StateBackendFactory(ABC):
    """
    The class that the entry point of a backend names. Its module imports no driver.

    Attributes:
        spi_version: The SPI that it was written for: ``millpond.SPI_VERSION`` of that day.
        config_class: An attrs class: the backend's section in the job's configuration.
        capabilities: What this backend, so configured, can do.
        marker_key: V2's key for its markers; None: the section's name in the configuration.
    """

    spi_version: ClassVar[tuple[int, int]]
    config_class: ClassVar[type]
    capabilities: Capabilities
    marker_key: ClassVar[str | None] = None

    def __init__(self, name: str, config: object) -> None:
        """Keep *name* and *config*, an instance of ``config_class``. No I/O here."""
        self.name = name
        self.config = config

    @abstractmethod
    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        """Make the manager that backs up *stores*; right after the claim, before anything is read: fence here."""

    @abstractmethod
    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        """Make the manager that restores *stores*."""

    def admin(self, job: JobContext, stores: Sequence[StoreSpec]) -> StateBackendAdmin:
        """Make the admin of this backend for *job*."""
        return NothingToPrepare()


def _as_set(numbers: Iterable[int]) -> frozenset[int]:
    """Freeze *numbers*; with a type that a checker of a plugin's code understands."""
    return frozenset(numbers)


@frozen(kw_only=True)
class ManagerCapabilities:
    """
    What a checkpoint manager can do.

    Attributes:
        versions: The checkpoint versions that it can write: 1, 2.
        history: It keeps more than the newest checkpoint; without it ``retain > 1``, time travel and pins are refused.
        fencing: A replaced writer's next write is refused, however long it slept.
        atomic_versions: Several versions of one checkpoint appear together or not at all.
        durable: False when the records die with the process.
        tidy_every: Publications over which the removal of superseded records, the look at the pins and the backends'
            ``cleanup`` are spread. More than 1 where each of them is a request over a network that is paid for: until
            the next removal up to so many checkpoints stay beyond ``retain``, all of them restorable.
    """

    versions: frozenset[int] = field(converter=_as_set, default=frozenset({2}))
    history: bool = True
    fencing: bool = True
    atomic_versions: bool = True
    durable: bool = True
    tidy_every: int = 1


@frozen(kw_only=True)
class VersionPolicy:
    """
    Which checkpoint versions are written and read, as in Samza.

    Attributes:
        write: The versions written at each commit.
        read: A priority list; the first wins.
        max_age: A record of lower priority wins if it is newer by more than this.
    """

    write: tuple[int, ...] = (2,)
    read: tuple[int, ...] = (2, 1)
    max_age: timedelta = timedelta(minutes=10)


class CheckpointManager(ABC):
    """
    Keeps the records of a job's tasks. Any thread may call it; calls for one task do not overlap, except reads.

    ``write`` is the one commit point: before it nothing has happened, after it everything has.
    """

    spi_version: ClassVar[tuple[int, int]]
    config_class: ClassVar[type]
    capabilities: ManagerCapabilities

    @classmethod
    def capabilities_of(cls, config: object) -> ManagerCapabilities:
        """Give what it can do with the settings *config*; the same for all of them, unless a manager says otherwise."""
        return cls.capabilities

    def __init__(self, config: object, job: JobContext, versions: VersionPolicy) -> None:
        """Keep what is given; no I/O here."""
        self.config = config
        self.job = job
        self.versions = versions

    def create_resources(self) -> None:
        """Make what is missing; idempotent."""
        return None

    def validate_resources(self) -> None:
        """Try what this manager relies on, e.g. that a conditional write refuses, and raise ConfigError if not."""
        return None

    @abstractmethod
    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record here, sorted."""

    @abstractmethod
    def claim(self, task: str) -> Claim:
        """Take the right to write; durable when it returns. Every earlier claim is refused from now on."""

    @abstractmethod
    def read_last(self, task: str) -> Checkpoint | None:
        """
        Give the newest checkpoint; None only when it is proven that there is none.

        Raises:
            FormatError, StateCorruptError: There is a record, and it cannot be read. It is never passed over.
        """

    @abstractmethod
    def read(self, task: str, id: CheckpointId) -> Checkpoint:
        """
        Give the checkpoint *id*, listed or pinned.

        Raises:
            StateNotFoundError: There is none.
        """

    @abstractmethod
    def ids(self, task: str) -> Sequence[CheckpointId]:
        """Give the ids of the checkpoints that are kept, newest first; pins that outlived their record not included."""

    @abstractmethod
    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        """
        Publish *checkpoint*, durably.

        *after* is the newest id that ``read_last`` or an own write saw; a record that is there beyond it, of another
        writer, refuses the write. Our own record of the same id is the answer that was lost: success.

        Raises:
            FencedError: A later claim exists.
            ConfigError, FormatError: It cannot be written at all; nothing was.
            Exception: Anything else means *unknown*: it may have happened.
        """

    @abstractmethod
    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*; missing ones are fine. Refused (FencedError) to a replaced writer."""

    def pin(self, task: str, id: CheckpointId, name: str) -> None:
        """
        Keep a copy of the record *id* under *name*, until ``unpin``. The same pin again is fine.

        Raises:
            ConfigError: *name* pins another id, or this manager keeps no history.
            StateNotFoundError: There is no such record.
        """
        raise ConfigError(f"{type(self).__name__} keeps no pins")

    def unpin(self, task: str, name: str) -> None:
        """Remove the pin *name*; a missing one is fine."""
        return None

    def pins(self, task: str) -> Mapping[str, CheckpointId]:
        """Give the pins: name to id."""
        return {}

    def close(self) -> None:
        """Let go of everything; idempotent."""
        return None


class StoreEngine(ABC):
    """
    One store's database. Reads come from any thread; ``apply``, ``load``, ``checkpoint`` from one at a time.

    Attributes:
        spi_version: The SPI that it was written for.
        config_class: An attrs class: the engine's settings for a whole job.
        immutable: File-name patterns (``fnmatch``) of an image's files that never change once written: they may be
            hard-linked into a live directory; all others are copied.
        transient: Patterns of files that belong to no image, such as a lock file.
    """

    spi_version: ClassVar[tuple[int, int]]
    config_class: ClassVar[type]
    immutable: ClassVar[tuple[str, ...]] = ()
    transient: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def validate(cls, store: StoreSpec) -> Iterable[str]:
        """Give what is wrong with the store's options, a sentence each; no I/O."""
        return ()

    @classmethod
    @abstractmethod
    def open(cls, directory: Path, store: StoreSpec, *, read_only: bool = False) -> StoreEngine:
        """
        Open the database in *directory*, which is empty for a new one.

        Raises:
            StateCorruptError: What is there is not a database of this engine, or is damaged.
        """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Give the value of *key*, or None."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys*, in order."""
        return [self.get(key) for key in keys]

    @abstractmethod
    def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """
        Give the entries from *start* (inclusive) to *stop* (exclusive) in the order of the keys' bytes.

        In reverse the same entries come in the opposite order. Shows the state as it was when the call was made (not at
        the first ``next``). The iterator has ``close()``. Damage raises StateCorruptError; it never ends early.
        """

    @abstractmethod
    def apply(self, changes: Sequence[Change]) -> None:
        """Apply at most ``BATCH`` sorted changes; the same ones may be applied again."""

    def load(self, records: Iterable[Change]) -> None:
        """Fill a fresh store in bulk, in order: the later wins, None deletes."""
        stream = iter(records)
        while batch := list(islice(stream, BATCH)):
            self.apply(sorted(dict(batch).items()))

    @abstractmethod
    def checkpoint(self, directory: Path) -> None:
        """
        Flush, then make *directory* (which does not exist, its parent does) an image that never changes.

        Its files are on stable storage when this returns. Must not hold the interpreter for a time that grows with
        the state.
        """

    @abstractmethod
    def close(self) -> None:
        """Close; idempotent. Open iterators raise StoreClosedError at their next step."""


class Checkpointable(Protocol):
    """A host's own database that takes part in commits as a store."""

    def checkpoint(self, directory: Path) -> None:
        """Make *directory* (which does not exist) an image; called on the host's thread inside ``commit()``."""
        ...
