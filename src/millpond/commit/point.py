"""The commit point: the record is written, or not, or nobody knows yet and it is found out."""

from __future__ import annotations

from attrs import frozen

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.commit.attempt import Attempt
from millpond.commit.parts import CommitTask
from millpond.errors import CommitFailedError, CommitUnknownError, ConfigError, FencedError, FormatError
from millpond.events import CommitSettled


@frozen(eq=False)
class Unsettled:
    """A checkpoint of which nobody knows yet whether it was written."""

    attempt: Attempt
    checkpoint: Checkpoint


class CommitPoint:
    """
    Writes the records of one task; the commit lane's.

    Attributes:
        newest: The newest id that the manager is known to have.
        unsettled: What the next commit has to find out first.
        doubtful: Attempts whose record was not there when it was looked for, and may still arrive: what they name
            stays until a later record has taken their place.
    """

    def __init__(self, task: CommitTask, newest: CheckpointId | None) -> None:
        """Write behind the record *newest*."""
        self.newest = newest
        self.unsettled: Unsettled | None = None
        self.doubtful: list[Attempt] = []
        self._task = task

    def may_be_written(self, attempt: Attempt) -> bool:
        """Whether the record of *attempt* is there, or may still arrive, for all that is known."""
        unsettled = self.unsettled is not None and self.unsettled.attempt is attempt
        return unsettled or attempt in self.doubtful

    def write(self, attempt: Attempt, checkpoint: Checkpoint) -> None:
        """Publish; when nobody knows whether that worked, read back."""
        begun = self._task.now()
        try:
            self._task.manager.write(self._task.claim, checkpoint, after=self.newest)
        except (FencedError, ConfigError, FormatError):
            raise
        except BaseException as error:  # noqa: BLE001 - any other error may come after the effect
            self._read_back(attempt, checkpoint, error)
        finally:
            attempt.phases_s["write"] = self._task.now() - begun

    def _read_back(self, attempt: Attempt, checkpoint: Checkpoint, error: BaseException) -> None:
        """Return if *checkpoint* was written in spite of *error*; else raise."""
        try:
            written = self._is_written(checkpoint)
        except FencedError:
            # It may have been written before the new owner claimed, who then builds on what it names: all of it stays.
            self.doubtful.append(attempt)
            raise
        except BaseException as second:  # noqa: BLE001 - not known is an outcome of its own
            self.unsettled = Unsettled(attempt, checkpoint)
            unknown = CommitUnknownError(
                f"nobody knows whether commit {checkpoint.id} of task {self._task.claim.task!r} was written: {error}; "
                f"reading it back failed too: {second}. The next commit finds out"
            )
            raise unknown from error
        if not written:
            # The request may still be on its way: what it names stays until a later record has taken its place.
            self.doubtful.append(attempt)
            raise CommitFailedError(f"commit {checkpoint.id} was not written: {error}") from error

    def _is_written(self, checkpoint: Checkpoint) -> bool:
        newest = self._task.manager.read_last(self._task.claim.task)
        if newest is None or newest.claim is None:
            return False
        if newest.claim.epoch > self._task.claim.epoch:
            raise FencedError(f"task {self._task.claim.task!r} has a new owner, epoch {newest.claim.epoch}")
        return newest.id == checkpoint.id and newest.claim.writer == self._task.claim.writer

    def settle(self) -> Unsettled | None:
        """
        Find out what became of a commit whose outcome was unknown; give it if it was written after all.

        Raises:
            CommitUnknownError: It still cannot be found out.
            FencedError: The task has a new owner.
        """
        unsettled = self.unsettled
        if unsettled is None:
            return None
        checkpoint = unsettled.checkpoint
        try:
            written = self._is_written(checkpoint)
        except FencedError:
            raise
        except Exception as error:
            raise CommitUnknownError(
                f"commit {checkpoint.id} of task {self._task.claim.task!r} is not settled yet: {error}"
            ) from error
        self.unsettled = None
        self._task.tell(CommitSettled(**self._task.where(), id=checkpoint.id, published=written))
        if written:
            return unsettled
        self.doubtful.append(unsettled.attempt)
        return None
