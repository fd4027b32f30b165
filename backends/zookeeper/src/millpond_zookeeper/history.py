"""One task's records as whoever looks finds them: the head, the newest record, the history, and the pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from attrs import frozen
from kazoo.exceptions import NoNodeError

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError, TransientError
from millpond.formats.record import CheckpointRecord
from millpond.records.pins import PinBoard
from millpond.records.reader import decode_own
from millpond_zookeeper import head as heads
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.head import Head
from millpond_zookeeper.layout import RecordName, TaskPaths
from millpond_zookeeper.pinning import PinFolder
from millpond_zookeeper.shelf import Shelves

_ATTEMPTS = 64


@frozen
class Seen:
    """
    A head as it was read.

    Attributes:
        head: What it says.
        version: The node's version then.
    """

    head: Head
    version: int


@frozen(eq=False)
class TaskHistory:
    """
    What is kept of one task. Any thread may use it.

    Every method may raise TransientError when no server answers in time, ConfigError when one refuses, and FormatError
    or StateCorruptError when what it needs cannot be read; the message names the node.

    Attributes:
        task: The task's name.
        connection: The session.
        paths: The task's nodes.
        shelves: Where large things lie.
    """

    task: str
    connection: Connection
    paths: TaskPaths
    shelves: Shelves

    def read_last(self) -> Checkpoint | None:
        """Give the newest checkpoint; None when it is proven that there is none."""
        for _ in range(_ATTEMPTS):
            seen = self.read_head()
            if seen is None or seen.head.newest is None:
                return None
            name = seen.head.newest.name
            if (found := self.find(name)) is not None:
                return found
            if self.read_head() == seen:
                raise StateCorruptError(f"the record {self.where(name)}, which the task's head names, is gone")
        raise self._too_fast()

    def read(self, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*, listed or pinned; StateNotFoundError if there is none."""
        for name in self.names():
            if name.id == id and (found := self.find(name)) is not None:
                return found
        pinned = self._board(self.pin_folder()).find(id)
        if pinned is None:
            raise self._no_checkpoint(id)
        return pinned

    def ids(self) -> list[CheckpointId]:
        """Give the ids of the listed checkpoints, newest first."""
        return [name.id for name in self.names()]

    def read_head(self, until: float | None = None) -> Seen | None:
        """Read the head; None when it is proven that the task is new."""
        path = self.paths.head
        try:
            data, state = self.connection.get(path, f"read {path}", until)
        except NoNodeError:
            self._refuse_beheaded()
            return None
        with _naming(path):
            head = heads.decode(data)
            if head.claim.task != self.task:
                raise StateCorruptError(f"it belongs to the task {head.claim.task!r}, not to {self.task!r}")
        return Seen(head, state.version)

    def _refuse_beheaded(self) -> None:
        """Raise unless the task is really new: a head that somebody removed is no proof that there is no record."""
        if self.names():
            raise StateCorruptError(
                f"the node {self.paths.head} is gone, though there are records beside it: restore it, or remove the "
                f"task's node {self.paths.base} if its state may be forgotten"
            )

    def names(self) -> list[RecordName]:
        """Give the names of all records, newest first."""
        try:
            listed = self.connection.children(self.paths.records, f"list {self.paths.records}")
        except NoNodeError:
            return []
        names = (RecordName.parse(name) for name in listed)
        return sorted((name for name in names if name is not None), key=lambda name: -name.number)

    def kept(self, name: RecordName) -> bytes | None:
        """Give what a record's node holds: the record, or a handle to it; None if it is gone."""
        try:
            return self.connection.get(self.where(name), f"read {self.where(name)}")[0]
        except NoNodeError:
            return None

    def find(self, name: RecordName) -> Checkpoint | None:
        """Read a record; None if it is gone."""
        kept = self.kept(name)
        if kept is None:
            return None
        with _naming(self.where(name)):
            try:
                data = self.shelves.get(kept)
            except StateNotFoundError:
                if self.kept(name) is None:
                    return None  # It was removed while it was read.
                raise
            record = decode_own(self.task, data)
            if not isinstance(record, CheckpointRecord) or record.checkpoint.id != name.id:
                raise StateCorruptError(f"it is not the checkpoint {name.id}, which its name says")
        return record.checkpoint

    def where(self, name: RecordName) -> str:
        """Give a record's node."""
        return f"{self.paths.records}/{name}"

    def _too_fast(self) -> TransientError:
        return TransientError(f"the records of task {self.task!r} change faster than they can be read")

    def _no_checkpoint(self, id: CheckpointId) -> StateNotFoundError:
        return StateNotFoundError(f"the task {self.task!r} has no checkpoint {id}")

    # Pins

    def pin(self, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* as the pin *name*; ConfigError if that pins another id."""
        for source, kept in self._copies(id):
            pins = self.pin_folder(only_while=source)
            try:
                self._board(pins).put(name, id, kept)
            except NoNodeError:
                continue  # What was to be copied was removed meanwhile.
            return
        raise self._no_checkpoint(id)

    def _copies(self, id: CheckpointId) -> Iterator[tuple[str, bytes]]:
        """Give the nodes that hold the record *id*, and what each holds; records first, then pins."""
        for name in self.names():
            if name.id == id and (kept := self.kept(name)) is not None:
                yield self.where(name), kept
        pins = self.pin_folder()
        for pin in pins.names():
            if (kept := pins.kept(pin)) is not None and self._id_of(pins.where(pin), kept) == id:
                yield pins.where(pin), kept

    def _id_of(self, where: str, kept: bytes) -> CheckpointId | None:
        with _naming(where):
            record = decode_own(self.task, self.shelves.get(kept))
        return record.checkpoint.id if isinstance(record, CheckpointRecord) else None

    def unpin(self, name: str) -> None:
        """Remove the pin *name*; a missing one is fine. What it alone led to goes with the next claim."""
        self._board(self.pin_folder()).remove(name)

    def pins(self) -> Mapping[str, CheckpointId]:
        """Give the pins, name to id, sorted by name."""
        return self._board(self.pin_folder()).ids()

    def pin_folder(self, only_while: str | None = None) -> PinFolder:
        """Give the place of the pins; see :class:`PinFolder` for the condition *only_while*."""
        return PinFolder(self.connection, self.shelves, self.paths.pins, only_while)

    def _board(self, pins: PinFolder) -> PinBoard:
        return PinBoard(self.task, pins)

    def all_kept(self) -> list[bytes]:
        """Give what the nodes of all large records, and of all pins, hold."""
        pins = self.pin_folder()
        records = [self.kept(name) for name in self.names() if name.large]
        return [kept for kept in [*records, *map(pins.kept, pins.names())] if kept is not None]


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the node's path in front of what an error of the block says; what is gone is damage here."""
    try:
        yield
    except StateNotFoundError as error:
        raise StateCorruptError(f"the node {where} cannot be read: {error}") from error
    except (FormatError, StateCorruptError) as error:
        raise type(error)(f"the node {where} cannot be read: {error}") from error
