"""Checkpoint managers that are wrong in one way: the directory manager, each with one mistake."""

from __future__ import annotations

from threading import Event
from typing import Any, ClassVar

from attrs import evolve
from mutants import ManagerMutants, caught_by

from millpond.checkpoints.directory import DirectoryCheckpoints, DirectoryFolder
from millpond.checkpoints.memory import MemoryCheckpoints
from millpond.errors import FencedError, FormatError, StateCorruptError
from millpond.formats.record import encode_checkpoint
from millpond.local import create_durably, escape_name, make_folders
from millpond.records import record_name, record_number
from millpond.spi import ManagerCapabilities


@caught_by("write.every-field", ManagerMutants)
class LosesProperties(DirectoryCheckpoints):
    """Leaves out by which rules the stores are written."""

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        super().write(claim, evolve(checkpoint, properties={}), after=after)


@caught_by("claim.refuses-earlier", ManagerMutants)
class LetsReplacedWritersWrite(DirectoryCheckpoints):
    """Claims the task again for a writer that was replaced, and writes."""

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        try:
            super().write(claim, checkpoint, after=after)
        except FencedError:
            last = self.read_last(claim.task)
            super().write(self.claim(claim.task), checkpoint, after=last.id if last else None)


@caught_by("claim.refuses-earlier", ManagerMutants)
class LetsReplacedWritersDelete(DirectoryCheckpoints):
    """Deletes records for a writer that was replaced."""

    def delete(self, claim: Any, ids: Any) -> None:
        try:
            super().delete(claim, ids)
        except FencedError:
            super().delete(self.claim(claim.task), ids)


@caught_by("claim.sleeper", ManagerMutants)
class ForgetsOldClaims(DirectoryCheckpoints):
    """Fences by the next number alone, and removes old claims: the number comes free, and the sleeper takes it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.last: dict[str, int] = {}

    def claim(self, task: str) -> Any:
        made, folder = super().claim(task), self.records_folder(task)
        before = [name for name in folder.names() if (record_number(name) or 0) < made.epoch]
        folder.delete([name for name in before if b" claim " in (folder.read(name) or b"").partition(b"\n")[0]])
        return made

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        number = self.last.get(claim.writer, claim.epoch) + 1
        if not self.records_folder(claim.task).create(record_name(number), encode_checkpoint(checkpoint)):
            raise FencedError("another one has this number")
        self.last[claim.writer] = number


@caught_by("claim.epoch-grows", ManagerMutants)
class KeepsTheEpoch(DirectoryCheckpoints):
    """Gives every claim the first epoch."""

    def claim(self, task: str) -> Any:
        return evolve(super().claim(task), epoch=1)


@caught_by("claim.durable", ManagerMutants)
class ManagerSaysItIsDurable(MemoryCheckpoints):
    """Keeps its records in the process, and declares that they are durable."""

    capabilities = ManagerCapabilities()


@caught_by("damage.raises", ManagerMutants)
class UnreadableIsAbsent(DirectoryCheckpoints):
    """Takes a record that it cannot read for none."""

    def read_last(self, task: str) -> Any:
        try:
            return super().read_last(task)
        except (FormatError, StateCorruptError):
            return None


@caught_by("damage.raises", ManagerMutants)
class PassesOverTheUnreadable(DirectoryCheckpoints):
    """Gives an older checkpoint when the newest cannot be read."""

    def read_last(self, task: str) -> Any:
        try:
            return super().read_last(task)
        except (FormatError, StateCorruptError):
            reader = self._of(task)._reader
            for number in sorted(reader.numbers(), reverse=True):
                try:
                    found = reader.read(number)
                except (FormatError, StateCorruptError):
                    continue
                if found is not None and found.checkpoint is not None:
                    return found.checkpoint
            return None


@caught_by("read.ids", ManagerMutants)
class SortsIdsAsText(DirectoryCheckpoints):
    """Sorts ids as texts."""

    def ids(self, task: str) -> Any:
        return sorted(super().ids(task), key=str, reverse=True)


@caught_by("write.seen-at-once", ManagerMutants)
class RemembersTheLast(DirectoryCheckpoints):
    """Gives the last checkpoint out of a cache."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.cache: dict[str, Any] = {}

    def read_last(self, task: str) -> Any:
        return self.cache.setdefault(task, super().read_last(task))


@caught_by("write.every-field", ManagerMutants)
class LosesAField(DirectoryCheckpoints):
    """Leaves the images out of the record."""

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        super().write(claim, evolve(checkpoint, images={}), after=after)


@caught_by("write.after", ManagerMutants)
class IgnoresAfter(DirectoryCheckpoints):
    """Does not look whether there is a record that its writer has not seen."""

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        last = self.read_last(claim.task)
        super().write(claim, checkpoint, after=None if last is None else last.id)


@caught_by("write.lost-answer", ManagerMutants)
class ConflictsWithItself(DirectoryCheckpoints):
    """Takes its own record for another writer's when an answer was lost."""

    def write(self, claim: Any, checkpoint: Any, *, after: Any) -> None:
        if checkpoint.id in self.ids(claim.task):
            raise FencedError("somebody has written this already")
        super().write(claim, checkpoint, after=after)


@caught_by("delete.removes", ManagerMutants)
class DeletesOlderOnes(DirectoryCheckpoints):
    """Deletes all that is older than what it was asked to delete."""

    def delete(self, claim: Any, ids: Any) -> None:
        newest = max(ids, default=None)
        super().delete(claim, [id for id in self.ids(claim.task) if newest is not None and id <= newest])


@caught_by("jobs.apart", ManagerMutants)
class ManagerForgetsTheJobsId(DirectoryCheckpoints):
    """Keeps two jobs of one name in one folder."""

    def _job(self) -> Any:
        return self._root() / escape_name(self.job.job)


@caught_by("tasks.sorted", ManagerMutants)
class IgnoresCase(DirectoryCheckpoints):
    """Keeps tasks whose names differ by case together."""

    def records_folder(self, task: str) -> DirectoryFolder:
        return super().records_folder(task.lower())


@caught_by("pins.keep", ManagerMutants)
class PinsWithoutACopy(DirectoryCheckpoints):
    """Notes a pin's id, and keeps no copy of the record."""

    noted: ClassVar[dict[Any, Any]] = {}

    def pin(self, task: str, id: Any, name: str) -> None:
        self.read(task, id)
        self.noted[self.job.job, task, name] = id

    def unpin(self, task: str, name: str) -> None:
        self.noted.pop((self.job.job, task, name), None)

    def pins(self, task: str) -> Any:
        return {name: id for (job, of, name), id in self.noted.items() if (job, of) == (self.job.job, task)}


@caught_by("pins.refuse", ManagerMutants)
class MovesAPin(DirectoryCheckpoints):
    """Lets a pin's name be taken by another id."""

    def pin(self, task: str, id: Any, name: str) -> None:
        self.unpin(task, name)
        super().pin(task, id, name)


class _LooksFirst(DirectoryFolder):
    def create(self, name: str, data: bytes) -> bool:
        make_folders(self.path)
        if (self.path / name).exists():
            return False
        Event().wait(0.02)
        (self.path / name).unlink(missing_ok=True)
        return create_durably(self.path / name, data)


@caught_by("races.claims", ManagerMutants)
class LooksBeforeItLeaps(DirectoryCheckpoints):
    """Looks whether a record is there and then writes it: two can win."""

    def records_folder(self, task: str) -> DirectoryFolder:
        folder = super().records_folder(task)
        return _LooksFirst(folder.path, folder.root)


@caught_by("resources.idempotent", ManagerMutants)
class LeavesAProbe(DirectoryCheckpoints):
    """Leaves what it tried behind, as a task."""

    def validate_resources(self) -> None:
        self.claim("probe")


@caught_by("close.reopens", ManagerMutants)
class ClosesOnce(DirectoryCheckpoints):
    """Fails when it is closed again."""

    closed = False

    def close(self) -> None:
        if self.closed:
            raise ValueError("closed already")
        self.closed = True
