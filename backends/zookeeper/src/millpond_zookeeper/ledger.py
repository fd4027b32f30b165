"""
One task's records in ZooKeeper: claims, the one commit point, history, pins.

A claim and a write each replace the head on condition of its version (see :mod:`millpond_zookeeper.head`). So a request
whose answer was lost may be sent again: whichever of the two arrives second finds another version and changes nothing,
and the head then says whether the first one was carried out.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from attrs import define, evolve, field, frozen
from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import FormatError, MillpondError, StateCorruptError, StateNotFoundError, TransientError
from millpond.formats import record as record_format
from millpond.formats.record import CheckpointRecord
from millpond.points import reached
from millpond.records.pins import PinBoard
from millpond.records.reader import decode_own
from millpond_zookeeper import head as heads
from millpond_zookeeper.connection import Connection
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.head import Head, Newest
from millpond_zookeeper.layout import RecordName, TaskPaths, named
from millpond_zookeeper.pinning import PinFolder
from millpond_zookeeper.shelf import Shelves, is_handle

_ATTEMPTS = 64
_REMOVALS_AT_ONCE = 500


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


@define(eq=False)
class TaskLedger:
    """
    The records of one task. Any thread may read; writing calls do not overlap.

    Every method may raise TransientError when no server answers in time, ConfigError when one refuses, and FormatError
    or StateCorruptError when what it needs cannot be read; the message names the node.
    """

    task: str
    _connection: Connection
    _paths: TaskPaths
    _shelves: Shelves
    _known: dict[str, Seen] = field(factory=dict, init=False)  # by writer: the head that it left, as far as is known

    # Claims

    def claim(self) -> Claim:
        """Take the right to write from whoever has it; durable when it returns."""
        tried, until = set[str](), self._connection.deadline()
        reached("records.before-claim")
        while True:
            seen = self._read_head(until)
            if seen is not None and seen.head.claim.writer in tried:
                break  # The answer was lost, not the claim.
            tried.add(writer := secrets.token_hex(16))
            taken = Head(Claim(self.task, 1, writer)) if seen is None else seen.head.taken_by(writer)
            with suppress(LostAnswerError, BadVersionError, NodeExistsError):
                self._take(taken, seen, until)
                seen = Seen(taken, 0 if seen is None else seen.version + 1)
                break
        self._known[seen.head.claim.writer] = seen
        reached("records.claimed")
        self._sweep(seen)
        return seen.head.claim

    def _take(self, taken: Head, seen: Seen | None, until: float) -> None:
        """Put *taken* in place of *seen*, and the claim's own node beside it."""
        data, paths, doing = heads.encode(taken), self._paths, f"claim the task {self.task!r}"
        if seen is None:
            for path in (paths.owners, paths.records, paths.pins):
                self._connection.ensure(path, doing, until)

        def build(request: TransactionRequest) -> None:
            if seen is None:
                request.create(paths.head, data)
            else:
                request.set_data(paths.head, data, seen.version)
            request.create(self._owner(taken.claim))

        self._connection.multi(build, doing, until)

    def _owner(self, claim: Claim) -> str:
        """Give a claim's own node: it is random, so a task that is removed and made anew knows no earlier claim."""
        return f"{self._paths.owners}/{claim.writer}"

    def _sweep(self, seen: Seen) -> None:
        """Remove what earlier owners left: claims, and large things that nobody needs; the next claim goes on."""
        claim = seen.head.claim
        with suppress(MillpondError, NoNodeError, BadVersionError):
            for writer in self._connection.children(self._paths.owners, f"list {self._paths.owners}"):
                if writer != claim.writer:
                    self._forget(f"{self._paths.owners}/{writer}", seen.version)
            self._shelves.sweep(claim.epoch, self._all_kept)

    def _all_kept(self) -> list[bytes]:
        """Give what the nodes of all large records, and of all pins, hold."""
        pins = self._pins()
        records = [self._kept(name) for name in self._names() if name.large]
        return [kept for kept in [*records, *map(pins.kept, pins.names())] if kept is not None]

    def _forget(self, owner: str, version: int) -> None:
        """Remove a replaced claim's node, unless a newer claim was made meanwhile: it could be that one's."""

        def build(request: TransactionRequest) -> None:
            request.check(self._paths.head, version)
            request.delete(owner)

        self._connection.multi(build, f"remove {owner}")

    # Writing

    def write(self, claim: Claim, checkpoint: Checkpoint, after: CheckpointId | None) -> None:
        """
        Publish *checkpoint* under *claim*; see ``CheckpointManager.write``.

        Raises:
            FencedError: There is a later claim, or another writer's checkpoint beyond *after*.
            FormatError: It cannot be encoded; nothing was written.
        """
        data = record_format.encode_checkpoint(heads.owned(checkpoint, claim))
        named(1, checkpoint.id, large=False)
        kept: bytes | None = None
        until = self._connection.deadline()
        while True:
            seen = self._known.pop(claim.writer, None) or self._own_head(claim, until)
            if seen.head.holds(claim, checkpoint.id):
                break  # It was written; only the answer was lost.
            seen.head.refuse_unseen(claim, after)
            kept = self._shelves.put(data, claim.epoch) if kept is None else kept
            name = named(seen.head.last + 1, checkpoint.id, large=is_handle(kept))
            with suppress(LostAnswerError, BadVersionError):
                seen = self._publish(seen, name, kept, until)
                break
        self._known[claim.writer] = seen

    def _publish(self, seen: Seen, name: RecordName, kept: bytes, until: float) -> Seen:
        """Put the record and its head there together, if the head is still the one that was seen."""
        head = seen.head.with_record(name)

        def build(request: TransactionRequest) -> None:
            request.check(self._owner(head.claim), -1)
            request.set_data(self._paths.head, heads.encode(head), seen.version)
            request.create(self._where(name), kept)

        try:
            self._connection.multi(build, f"write the checkpoint {name.id} of task {self.task!r}", until)
        except NoNodeError:
            raise heads.lost(head.claim) from None
        except NodeExistsError:
            raise StateCorruptError(
                f"the record {self._where(name)} is there, though the task's head does not know it: somebody put back "
                "an old head, or a record; remove the one that is wrong"
            ) from None
        return Seen(head, seen.version + 1)

    def _own_head(self, claim: Claim, until: float | None = None) -> Seen:
        """Read the head; FencedError unless it is that of *claim*."""
        seen = self._read_head(until)
        if seen is None:
            raise heads.lost(claim)
        seen.head.refuse_others(claim)
        return seen

    # Reading

    def read_last(self) -> Checkpoint | None:
        """Give the newest checkpoint; None when it is proven that there is none."""
        for _ in range(_ATTEMPTS):
            seen = self._read_head()
            if seen is None or seen.head.newest is None:
                return None
            name = seen.head.newest.name
            if (found := self._read(name)) is not None:
                return found
            if self._read_head() == seen:
                raise StateCorruptError(f"the record {self._where(name)}, which the task's head names, is gone")
        raise self._too_fast()

    def read(self, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*, listed or pinned; StateNotFoundError if there is none."""
        for name in self._names():
            if name.id == id and (found := self._read(name)) is not None:
                return found
        pinned = self._board(self._pins()).find(id)
        if pinned is None:
            raise self._no_checkpoint(id)
        return pinned

    def ids(self) -> list[CheckpointId]:
        """Give the ids of the listed checkpoints, newest first."""
        return [name.id for name in self._names()]

    def _read_head(self, until: float | None = None) -> Seen | None:
        path = self._paths.head
        try:
            data, state = self._connection.get(path, f"read {path}", until)
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
        if self._names():
            raise StateCorruptError(
                f"the node {self._paths.head} is gone, though there are records beside it: restore it, or remove the "
                f"task's node {self._paths.base} if its state may be forgotten"
            )

    def _names(self) -> list[RecordName]:
        """Give the names of all records, newest first."""
        try:
            listed = self._connection.children(self._paths.records, f"list {self._paths.records}")
        except NoNodeError:
            return []
        names = (RecordName.parse(name) for name in listed)
        return sorted((name for name in names if name is not None), key=lambda name: -name.number)

    def _kept(self, name: RecordName) -> bytes | None:
        """Give what a record's node holds: the record, or a handle to it; None if it is gone."""
        try:
            return self._connection.get(self._where(name), f"read {self._where(name)}")[0]
        except NoNodeError:
            return None

    def _read(self, name: RecordName) -> Checkpoint | None:
        kept = self._kept(name)
        if kept is None:
            return None
        with _naming(self._where(name)):
            record = decode_own(self.task, self._shelves.get(kept))
            if not isinstance(record, CheckpointRecord) or record.checkpoint.id != name.id:
                raise StateCorruptError(f"it is not the checkpoint {name.id}, which its name says")
        return record.checkpoint

    def _where(self, name: RecordName) -> str:
        return f"{self._paths.records}/{name}"

    def _too_fast(self) -> TransientError:
        return TransientError(f"the records of task {self.task!r} change faster than they can be read")

    def _no_checkpoint(self, id: CheckpointId) -> StateNotFoundError:
        return StateNotFoundError(f"the task {self.task!r} has no checkpoint {id}")

    # Removing

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*, missing ones are fine; FencedError to a replaced writer."""
        self._known.pop(claim.writer, None)
        until, large = self._connection.deadline(), dict[RecordName, bytes]()
        while True:
            seen = self._own_head(claim, until)
            names = self._names()
            doomed = [name for name in names if name.id in ids]
            if not doomed:
                break
            large.update((name, kept) for name in doomed if name.large and (kept := self._kept(name)) is not None)
            try:
                self._remove(seen, doomed[:_REMOVALS_AT_ONCE], self._newest_of(seen.head, names, doomed), until)
            except NoNodeError:
                self._refuse_forgotten(claim, until)
            except (LostAnswerError, BadVersionError):
                continue
        self._known[claim.writer] = seen
        self._drop(list(large.values()))

    def _refuse_forgotten(self, claim: Claim, until: float) -> None:
        """Raise FencedError if the claim's own node is gone."""
        try:
            self._connection.get(self._owner(claim), f"read {self._owner(claim)}", until)
        except NoNodeError:
            raise heads.lost(claim) from None

    def _newest_of(self, head: Head, names: Sequence[RecordName], doomed: Collection[RecordName]) -> Newest | None:
        """Give the newest record once *doomed* are gone."""
        if head.newest is None or head.newest.name not in doomed:
            return head.newest
        for name in names:
            found = self._read(name) if name not in doomed else None
            if found is not None:
                return Newest(name, found.claim.writer if found.claim is not None else "")
        return None

    def _remove(self, seen: Seen, doomed: Sequence[RecordName], newest: Newest | None, until: float) -> None:
        """Remove *doomed*, and name *newest* in the head, if the head is still the one that was seen."""
        reached("records.before-removal")

        def build(request: TransactionRequest) -> None:
            request.check(self._owner(seen.head.claim), -1)
            if newest == seen.head.newest:
                request.check(self._paths.head, seen.version)
            else:
                request.set_data(self._paths.head, heads.encode(evolve(seen.head, newest=newest)), seen.version)
            for name in doomed:
                request.delete(self._where(name))

        self._connection.multi(build, f"remove records of task {self.task!r}", until)

    def _drop(self, large: Collection[bytes]) -> None:
        """Remove what large records led to, unless a pin still leads there: it was made before they were removed."""
        if large:
            pins = self._pins()
            pinned = {pins.kept(name) for name in pins.names()}
            for kept in large:
                if kept not in pinned:
                    self._shelves.drop(kept)

    # Pins

    def pin(self, id: CheckpointId, name: str) -> None:
        """Keep a copy of the record *id* as the pin *name*; ConfigError if that pins another id."""
        for source, kept in self._copies(id):
            pins = self._pins(only_while=source)
            try:
                self._board(pins).put(name, id, kept)
            except NoNodeError:
                continue  # What was to be copied was removed meanwhile.
            return
        raise self._no_checkpoint(id)

    def _copies(self, id: CheckpointId) -> Iterator[tuple[str, bytes]]:
        """Give the nodes that hold the record *id*, and what each holds; records first, then pins."""
        for name in self._names():
            if name.id == id and (kept := self._kept(name)) is not None:
                yield self._where(name), kept
        pins = self._pins()
        for pin in pins.names():
            if (kept := pins.kept(pin)) is not None and self._id_of(pins.where(pin), kept) == id:
                yield pins.where(pin), kept

    def _id_of(self, where: str, kept: bytes) -> CheckpointId | None:
        with _naming(where):
            record = decode_own(self.task, self._shelves.get(kept))
        return record.checkpoint.id if isinstance(record, CheckpointRecord) else None

    def unpin(self, name: str) -> None:
        """Remove the pin *name*; a missing one is fine. What it alone led to goes with the next claim."""
        self._board(self._pins()).remove(name)

    def pins(self) -> Mapping[str, CheckpointId]:
        """Give the pins, name to id, sorted by name."""
        return self._board(self._pins()).ids()

    def _pins(self, only_while: str | None = None) -> PinFolder:
        return PinFolder(self._connection, self._shelves, self._paths.pins, only_while)

    def _board(self, pins: PinFolder) -> PinBoard:
        return PinBoard(self.task, pins)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the node's path in front of what an error of the block says; what is gone is damage here."""
    try:
        yield
    except StateNotFoundError as error:
        raise StateCorruptError(f"the node {where} cannot be read: {error}") from error
    except (FormatError, StateCorruptError) as error:
        raise type(error)(f"the node {where} cannot be read: {error}") from error
