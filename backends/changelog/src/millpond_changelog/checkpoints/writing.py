"""
One task's checkpoints, written: claims, commits, removals.

Where the log fences, the writer of a claim is the log's writer of the task: who becomes it ends the earlier one, then
reads to the end, then says by a record of a greater epoch that it did. A writer that the log refuses looks for that
record: if its own claim is still the newest, the log gave up a transaction of it, or somebody is only about to claim;
then it takes its place again. Where the log does not fence, that record alone tells, and only to who looks.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import TypeVar

from attrs import define, evolve, field

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.clock import Clock
from millpond.errors import ConfigError, FencedError, MillpondError, TransientError
from millpond.formats import record as record_format
from millpond.log import Append, Log, LogWriter
from millpond.points import reached
from millpond.spi import Change, VersionPolicy
from millpond_changelog.checkpoints import records
from millpond_changelog.checkpoints.keys import Keys
from millpond_changelog.checkpoints.reading import TaskReader
from millpond_changelog.checkpoints.view import TaskView

_ATTEMPTS = 40
_FAILURES = 2
_PAUSE_S = 0.05

T = TypeVar("T")


@define
class TaskWriter:
    """
    Writes the checkpoints of one task. One thread at a time, but for ``settle``.

    Attributes:
        log: Where the topic is.
        owners: Gives the log's owners for a task: the writer of its checkpoints first.
        all_tasks: Tasks that the configuration states.
        job: Who may claim, as it is written beside a claim.
        keys: The task's keys.
        versions: What is written and read.
        reader: Reads the same task.
        clock: This machine's.
    """

    log: Log
    owners: Callable[[str], Sequence[str]]
    all_tasks: Collection[str]
    job: str
    keys: Keys
    versions: VersionPolicy
    reader: TaskReader
    clock: Clock
    _writers: dict[str, LogWriter] = field(factory=dict, init=False)  # by the claim's writer
    _written: dict[str, CheckpointId | None] = field(factory=dict, init=False)  # likewise: its newest, once it wrote
    _doubt: Append | None = field(default=None, init=False)

    def look(self) -> TaskView:
        """Look at what the task has now, and at all of it: what hangs in the way is ended."""
        return self.reader.look(self._release_others)

    def has_claim(self) -> bool:
        """Whether some claim of the task is held here."""
        return bool(self._writers)

    def _release_others(self, tasks: Collection[str]) -> None:
        """
        End the open appends of all other tasks, whose owners are dead or hang.

        One that is alive is refused by the log, looks, finds that its claim is still the newest, and takes its place
        again.
        """
        for owner in [owner for task in {*tasks, *self.all_tasks} - {self.keys.task} for owner in self.owners(task)]:
            with suppress(MillpondError):
                self.log.writer(owner).close()

    # Claims

    def claim(self) -> Claim:
        """Take the right to write; durable when it returns."""
        self.settle()
        self.reader.follower.see_that_it_is_the_same()
        failures = 0
        for attempt in range(_ATTEMPTS):
            writer = self.log.writer(self.owners(self.keys.task)[0])
            try:
                if (claim := self._try_to_claim(writer)) is not None:
                    self._writers[claim.writer] = writer
                    return claim
            except FencedError:
                pass  # another claims at the same moment: one of us comes first
            except TransientError:
                # A claim that may be there is only replaced by the next one.
                self._doubt, failures = None, failures + 1
                if failures > _FAILURES:
                    writer.close()
                    raise
            except BaseException:
                writer.close()
                raise
            writer.close()
            Event().wait(random.uniform(0, _PAUSE_S * min(attempt + 1, 10)))  # noqa: S311 - it parts who collided
        raise TransientError(f"others claim the task {self.keys.task!r} all the time: try again")

    def _try_to_claim(self, writer: LogWriter) -> Claim | None:
        """Write a claim; None if another one came between the look and the record."""
        view = self.look()
        self._refuse_another_job(view)
        claim = Claim(self.keys.task, self._next_epoch(view), secrets.token_hex(16))
        change = (self.keys.claim(), record_format.encode_claim(claim, self.clock.millis()))
        reached("checkpoints.before-claim")
        self._append(writer, [change], {records.JOB: self.job.encode()})
        reached("checkpoints.claimed")
        if self.log.capabilities.fencing:
            return claim
        return claim if self.reader.claim(self.look()) == claim else None

    def _next_epoch(self, view: TaskView) -> int:
        claimed = self.reader.claim(view)
        newest = self.reader.newest(view)
        written = newest.claim.epoch if newest is not None and newest.claim is not None else 0
        return max(written, 0 if claimed is None else claimed.epoch) + 1

    def _refuse_another_job(self, view: TaskView) -> None:
        """Samza's name for the topic is the same for ``a_b`` and ``a-b``; their tasks must not meet."""
        other = None if view.claim is None else records.job_of(view.claim.headers)
        if other is not None and other != self.job:
            raise ConfigError(
                f"the checkpoint topic {self.reader.follower.topic!r} is used by the job {other}, whose name is too "
                f"much like that of {self.job}: set checkpoint.topic"
            )

    # Writing

    def write(self, claim: Claim, checkpoint: Checkpoint, after: CheckpointId | None) -> None:
        """Publish *checkpoint*; see ``CheckpointManager.write``."""
        if checkpoint.id == records.NOTHING:
            raise ConfigError(f"a checkpoint of the task {claim.task!r} cannot have the id {records.NOTHING}")
        mine = checkpoint if checkpoint.claim == claim else evolve(checkpoint, claim=claim)
        changes = records.commit_changes(mine, self.keys, self.versions)
        self.settle()
        self._as_owner(claim, mine.id, lambda writer: self._publish(writer, claim, mine.id, changes, after))
        self._written[claim.writer] = mine.id

    def _publish(
        self, writer: LogWriter, claim: Claim, id: CheckpointId, changes: list[Change], after: CheckpointId | None
    ) -> None:
        before: list[Change] = []
        if self._written.get(claim.writer) in (None, id) or not self.log.capabilities.fencing:
            view = self.look()
            self._refuse_if_replaced(claim, view)
            newest = self.reader.newest(view)
            if self._is_ours(newest, claim, id):
                return  # The answer was lost, not the write.
            if self._written.get(claim.writer) is None:
                self._refuse_unseen(claim, newest, after)
            if newest is not None and newest.id not in view.kept:
                # Samza wrote it; it is about to be covered.
                before = [(self.keys.kept(newest.id), record_format.encode_checkpoint(newest))]
        reached("checkpoints.before-write")
        self._append(writer, [*before, *changes], records.headers_of(id, claim))
        reached("checkpoints.written")

    def _is_ours(self, newest: Checkpoint | None, claim: Claim, id: CheckpointId) -> bool:
        return newest is not None and newest.id == id and newest.claim is not None and newest.claim == claim

    def _refuse_unseen(self, claim: Claim, newest: Checkpoint | None, after: CheckpointId | None) -> None:
        """Refuse a writer's first record if it has not seen the newest checkpoint before its claim."""
        if newest is None or newest.id == after or newest.claim == claim:
            return
        raise FencedError(
            f"the newest checkpoint of task {claim.task!r} is {newest.id}, but its owner (epoch {claim.epoch}) builds "
            f"on {after or 'none'}: claim the task, read its last checkpoint, and begin from there"
        )

    # Removing

    def delete(self, claim: Claim, ids: Collection[CheckpointId]) -> None:
        """Remove checkpoints; missing ones are fine."""
        self.settle()
        if ids:
            self._as_owner(claim, None, lambda writer: self._remove(writer, claim, ids))

    def _remove(self, writer: LogWriter, claim: Claim, ids: Collection[CheckpointId]) -> None:
        doomed: list[Change] = [(self.keys.kept(id), None) for id in ids]
        last = self._written.get(claim.writer)
        if last is None or last in ids or not self.log.capabilities.fencing:
            view = self.look()
            self._refuse_if_replaced(claim, view)
            doomed = [(self.keys.kept(id), None) for id in ids if id in view.kept]
            newest = self.reader.newest(view)
            if newest is not None and newest.id in ids:
                self._uncover(writer, claim, view, ids, doomed)
                return
        self._append(writer, doomed, {})

    def _uncover(
        self, writer: LogWriter, claim: Claim, view: TaskView, ids: Collection[CheckpointId], doomed: list[Change]
    ) -> None:
        """Make the newest that stays the newest again; where none does, a checkpoint of nothing stands for it."""
        left = [id for id in self.reader.ids(view) if id not in ids]
        standing = self.reader.find(view, left[0]) if left else Checkpoint(records.NOTHING, claim=claim)
        changes = records.newest_changes(standing, self.keys, self.versions)
        owner = standing.claim or claim
        self._append(writer, [*changes, *doomed], records.headers_of(standing.id, owner))
        self._written[claim.writer] = None

    # The log's writer

    def _as_owner(self, claim: Claim, id: CheckpointId | None, work: Callable[[LogWriter], T]) -> T | None:
        """Do *work* as the writer of *claim*; once more if the log refuses it though the claim is the newest."""
        try:
            return work(self._writer_of(claim))
        except FencedError:
            view = self.look()
            if id is not None and self._is_ours(self.reader.newest(view), claim, id):
                return None  # It was committed, then we were replaced, and the answer was lost.
            self._refuse_if_replaced(claim, view)
            if not self._may_take_its_place_again(claim):
                raise
        return work(self._writer_of(claim))

    def _may_take_its_place_again(self, claim: Claim) -> bool:
        """Let go of the log's writer, if that is what was refused and not what was to be written."""
        writer = self._writers.get(claim.writer)
        if writer is None:
            return False
        try:
            writer.append().abort()
        except FencedError:
            self._writers.pop(claim.writer).close()
            return True
        return False

    def _writer_of(self, claim: Claim) -> LogWriter:
        """Give the log's writer for *claim*, which another manager may have made."""
        if (known := self._writers.get(claim.writer)) is not None:
            return known
        self._refuse_if_replaced(claim, self.look())
        writer = self.log.writer(self.owners(self.keys.task)[0])
        try:
            self._refuse_if_replaced(claim, self.look())
        except BaseException:
            writer.close()
            raise
        self._writers[claim.writer] = writer
        return writer

    def _refuse_if_replaced(self, claim: Claim, view: TaskView) -> None:
        newest = self.reader.claim(view)
        if newest != claim:
            found = (
                "its claim is gone" if newest is None else f"it belongs to epoch {newest.epoch} ({newest.writer}) now"
            )
            raise FencedError(
                f"epoch {claim.epoch} has lost the task {claim.task!r}: {found}; stop, and write nothing more"
            )

    def _append(self, writer: LogWriter, changes: Sequence[Change], headers: Mapping[str, bytes]) -> None:
        if not changes:
            return
        append = writer.append()
        with append:
            append.add(self.reader.follower.topic, 0, changes, headers=headers)
            append.flush()
            reached("checkpoints.sent")
            try:
                append.commit()
            except BaseException:
                self._doubt = append if append.doubtful else None
                raise

    def settle(self) -> None:
        """Find out what became of a commit without an answer; TransientError if that is still not possible."""
        append = self._doubt
        if append is None:
            return
        try:
            append.commit()
        except FencedError:
            pass  # whoever came later has settled it: reading tells how
        except TransientError:
            if append.doubtful:
                raise
        self._doubt = None

    def close(self) -> None:
        """Let go of all writers."""
        writers, self._writers = list(self._writers.values()), {}
        for writer in writers:
            with suppress(MillpondError):
                writer.close()
