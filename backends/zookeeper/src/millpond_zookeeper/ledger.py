"""
Who writes one task's records in ZooKeeper: claims, the one commit point, removals.

A claim and a write each replace the head on condition of its version (see :mod:`millpond_zookeeper.head`). So a request
whose answer was lost may be sent again: whichever of the two arrives second finds another version and changes nothing,
and the head then says whether the first one was carried out.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress

from attrs import define, evolve, field
from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import MillpondError, StateCorruptError
from millpond.formats import record as record_format
from millpond.points import reached
from millpond_zookeeper import head as heads
from millpond_zookeeper.failures import LostAnswerError
from millpond_zookeeper.head import Head, Newest
from millpond_zookeeper.history import Seen, TaskHistory
from millpond_zookeeper.layout import RecordName, named
from millpond_zookeeper.shelf import is_handle

_REMOVALS_AT_ONCE = 500


@define(eq=False)
class TaskLedger:
    """
    Who writes the records of one task. Calls do not overlap.

    Every method may raise TransientError when no server answers in time, ConfigError when one refuses, and FormatError
    or StateCorruptError when what it needs cannot be read; the message names the node.

    Attributes:
        history: What is kept of the task.
    """

    history: TaskHistory
    _known: dict[str, Seen] = field(factory=dict, init=False)  # by writer: the head that it left, as far as is known

    # Claims

    def claim(self) -> Claim:
        """Take the right to write from whoever has it; durable when it returns."""
        tried, until = set[str](), self.history.connection.deadline()
        reached("records.before-claim")
        while True:
            seen = self.history.read_head(until)
            if seen is not None and seen.head.claim.writer in tried:
                break  # The answer was lost, not the claim.
            tried.add(writer := secrets.token_hex(16))
            taken = Head(Claim(self.history.task, 1, writer)) if seen is None else seen.head.taken_by(writer)
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
        data, paths, doing = heads.encode(taken), self.history.paths, f"claim the task {self.history.task!r}"
        if seen is None:
            for path in (paths.owners, paths.records, paths.pins):
                self.history.connection.ensure(path, doing, until)

        def build(request: TransactionRequest) -> None:
            if seen is None:
                request.create(paths.head, data)
            else:
                request.set_data(paths.head, data, seen.version)
            request.create(self._owner(taken.claim))

        self.history.connection.multi(build, doing, until)

    def _owner(self, claim: Claim) -> str:
        """Give a claim's own node: it is random, so a task that is removed and made anew knows no earlier claim."""
        return f"{self.history.paths.owners}/{claim.writer}"

    def _sweep(self, seen: Seen) -> None:
        """Remove what earlier owners left: claims, and large things that nobody needs; the next claim goes on."""
        claim, owners = seen.head.claim, self.history.paths.owners
        with suppress(MillpondError, NoNodeError, BadVersionError):
            for writer in self.history.connection.children(owners, f"list {owners}"):
                if writer != claim.writer:
                    self._forget(f"{owners}/{writer}", seen.version)
            self.history.shelves.sweep(claim.epoch, self.history.all_kept)

    def _forget(self, owner: str, version: int) -> None:
        """Remove a replaced claim's node, unless a newer claim was made meanwhile: it could be that one's."""

        def build(request: TransactionRequest) -> None:
            request.check(self.history.paths.head, version)
            request.delete(owner)

        self.history.connection.multi(build, f"remove {owner}")

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
        until = self.history.connection.deadline()
        while True:
            seen = self._known.pop(claim.writer, None) or self._own_head(claim, until)
            if seen.head.holds(claim, checkpoint.id):
                break  # It was written; only the answer was lost.
            seen.head.refuse_unseen(claim, after)
            kept = self.history.shelves.put(data, claim.epoch) if kept is None else kept
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
            request.set_data(self.history.paths.head, heads.encode(head), seen.version)
            request.create(self.history.where(name), kept)

        try:
            self.history.connection.multi(build, f"write the checkpoint {name.id} of task {self.history.task!r}", until)
        except NoNodeError:
            self._own_head(head.claim, until)
            raise heads.lost(head.claim) from None
        except NodeExistsError:
            raise StateCorruptError(
                f"the record {self.history.where(name)} is there, though the task's head does not know it: somebody "
                "put back an old head, or a record; remove the one that is wrong"
            ) from None
        return Seen(head, seen.version + 1)

    def _own_head(self, claim: Claim, until: float | None = None) -> Seen:
        """Read the head; FencedError unless it is that of *claim*."""
        seen = self.history.read_head(until)
        if seen is None:
            raise heads.lost(claim)
        seen.head.refuse_others(claim)
        return seen

    # Removing

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove the records *ids*, missing ones are fine; FencedError to a replaced writer."""
        self._known.pop(claim.writer, None)
        until, large, left = self.history.connection.deadline(), dict[RecordName, bytes](), True
        while left:
            seen = self._own_head(claim, until)
            names = self.history.names()
            doomed = [name for name in names if name.id in ids]
            large |= {name: kept for name in doomed if name.large and (kept := self.history.kept(name)) is not None}
            try:
                self._remove(seen, doomed[:_REMOVALS_AT_ONCE], self._newest_of(seen.head, names, doomed), until)
                left = len(doomed) > _REMOVALS_AT_ONCE
            except NoNodeError:
                self._refuse_forgotten(claim, until)
            except (LostAnswerError, BadVersionError):
                continue
        self._drop(list(large.values()))

    def _refuse_forgotten(self, claim: Claim, until: float) -> None:
        """Raise FencedError if the claim's own node is gone."""
        try:
            self.history.connection.get(self._owner(claim), f"read {self._owner(claim)}", until)
        except NoNodeError:
            raise heads.lost(claim) from None

    def _newest_of(self, head: Head, names: Sequence[RecordName], doomed: Collection[RecordName]) -> Newest | None:
        """Give the newest record once *doomed* are gone."""
        if head.newest is None or head.newest.name not in doomed:
            return head.newest
        for name in names:
            found = self.history.find(name) if name not in doomed else None
            if found is not None:
                return Newest(name, found.claim.writer if found.claim is not None else "")
        return None

    def _remove(self, seen: Seen, doomed: Sequence[RecordName], newest: Newest | None, until: float) -> None:
        """Remove *doomed*, and name *newest* in the head, if the head is still the one that was seen."""
        if not doomed:
            return
        reached("records.before-removal")

        def build(request: TransactionRequest) -> None:
            request.check(self._owner(seen.head.claim), -1)
            if newest == seen.head.newest:
                request.check(self.history.paths.head, seen.version)
            else:
                request.set_data(self.history.paths.head, heads.encode(evolve(seen.head, newest=newest)), seen.version)
            for name in doomed:
                request.delete(self.history.where(name))

        self.history.connection.multi(build, f"remove records of task {self.history.task!r}", until)

    def _drop(self, large: Collection[bytes]) -> None:
        """Remove what large records led to, unless a pin still leads there: it was made before they were removed."""
        if large:
            pins = self.history.pin_folder()
            pinned = {pins.kept(name) for name in pins.names()}
            for kept in large:
                if kept not in pinned:
                    self.history.shelves.drop(kept)
