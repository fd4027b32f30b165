"""One task's checkpoints, read: the newest, those that are kept, and pins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from attrs import evolve, frozen

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond_changelog.checkpoints import records
from millpond_changelog.checkpoints.following import Follower, Release
from millpond_changelog.checkpoints.view import Found, TaskView

_ATTEMPTS = 5


@frozen
class TaskReader:
    """
    Reads the checkpoints of one task. Any thread.

    Attributes:
        task: Its name.
        follower: Follows the topic.
    """

    task: str
    follower: Follower

    def look(self, release: Release | None = None) -> TaskView:
        """Look at what the task has now; see :meth:`Follower.look`."""
        return self.follower.look(self.task, release)

    def claim(self, view: TaskView) -> Claim | None:
        """Give the newest claim."""
        with self._named(view.claim):
            return records.decode_claim(self.task, view.claim)

    def newest(self, view: TaskView) -> Checkpoint | None:
        """
        Give the newest checkpoint; None if there is none.

        A V1 of ours says less than what was committed: then the whole is taken from where it is kept.
        """
        found = view.picked
        if found is None:
            return None
        with self._named(found):
            read = records.decode_newest(found)
        mark = records.mark_of(found)
        if mark is None:
            return read
        if mark.id == records.NOTHING:
            return None
        if found.version == 1 and (whole := self.kept(view, mark.id)) is not None:
            return whole if whole.claim is None or whole.claim.writer == mark.writer else read
        return evolve(read, id=mark.id) if found.version == 1 else read

    def kept(self, view: TaskView, id: CheckpointId) -> Checkpoint | None:
        """Give the checkpoint *id* from where it is kept; None if it is not."""
        for _ in range(_ATTEMPTS):
            offset = view.kept.get(id)
            if offset is None:
                return None
            value = self.follower.value_at(offset)
            if value is not None:
                with self._named(Found(f"millpond-checkpoint:{id}", offset, 0, value)):
                    return records.decode_kept(self.task, value)
            view = self.look()  # compaction took it: there is a newer record of that key, or none
        return None

    def pinned(self, view: TaskView) -> Mapping[str, Checkpoint]:
        """Give all pins, sorted by name."""
        return {name: self._pin(found) for name, found in sorted(view.pins.items())}

    def _pin(self, found: Found) -> Checkpoint:
        with self._named(found):
            return records.decode_kept(self.task, found.value)

    def find(self, view: TaskView, id: CheckpointId) -> Checkpoint:
        """Give the checkpoint *id*, wherever it is; StateNotFoundError if it is nowhere."""
        found = self.kept(view, id)
        if found is None:
            newest = self.newest(view)
            found = newest if newest is not None and newest.id == id else None
        if found is None:
            found = next((each for each in self.pinned(view).values() if each.id == id), None)
        if found is None:
            raise StateNotFoundError(f"the task {self.task!r} has no checkpoint {id}")
        return found

    def ids(self, view: TaskView) -> list[CheckpointId]:
        """Give the ids of what is kept and of the newest, newest first; what was begun behind the newest is not."""
        newest = self.newest(view)
        if newest is None or view.picked is None:
            return []
        committed = [id for id, offset in view.kept.items() if offset < view.picked.offset]
        listed = committed[::-1]
        return listed if newest.id in listed else [newest.id, *listed]

    @contextmanager
    def _named(self, found: Found | None) -> Iterator[None]:
        """Say in an error which record it is about."""
        try:
            yield
        except (FormatError, StateCorruptError) as error:
            if found is None:
                raise
            where = f"{found.type} of task {self.task!r} at offset {found.offset} of {self.follower.topic!r}"
            raise type(error)(f"the record {where} cannot be read: {error}") from error
