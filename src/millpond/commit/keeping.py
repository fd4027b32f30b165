"""
What stays and what goes: records beyond ``retain``, and in the backends what only those needed.

Where each look and each removal is a request, the checkpoint manager spreads them over several publications
(``tidy_every``). Nothing is ever removed by what was known earlier: records go first, then the pins are looked at, then
the backends are told what stays, all in one tidying.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from millpond.answers import checkpoint_answer, ids_answer, pins_answer
from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.commit.attempt import Attempt
from millpond.commit.decisions import superseded, tidying_is_due
from millpond.commit.parts import Backup, CommitPolicy, CommitTask
from millpond.commit.point import CommitPoint
from millpond.commit.stores import CommittedStore
from millpond.errors import FencedError
from millpond.events import CleanedUp, CleanupFailed
from millpond.points import reached


class Keeping:
    """Tidies behind the commits of one task; the commit lane's. Whatever fails is an event, and the next one's work."""

    def __init__(
        self, task: CommitTask, policy: CommitPolicy, stores: Mapping[str, CommittedStore], point: CommitPoint
    ) -> None:
        """Keep what the records behind *point* need."""
        self._task = task
        self._policy = policy
        self._stores = stores
        self._point = point
        self._retained: dict[CheckpointId, Checkpoint] = {}
        self._published = 0  # since the last tidying that succeeded
        self._called: set[str] = set()  # the backends that uploaded since

    def remember(self, checkpoint: Checkpoint) -> None:
        """Spare reading *checkpoint* when it has to be told to the backends."""
        self._retained[checkpoint.id] = checkpoint

    def clean(self, attempt: Attempt, last: Checkpoint) -> None:
        """
        Tidy behind published commits when it is time: at the backends that they called, and at all that may hold a
        doubtful one.
        """
        self._published += 1
        self._called.update(attempt.uploaded)
        doubtful = bool(self._point.doubtful)
        if tidying_is_due(self._published, self._task.manager.capabilities.tidy_every, doubtful=doubtful):
            self.clean_up([one for one in self._task.backups if doubtful or one.key in self._called], last)

    def clean_up(self, backups: Iterable[Backup], last: Checkpoint) -> None:
        """Drop superseded records, then let *backups* remove what only those needed."""
        reached("commit.before-records-drop")
        try:
            dropped, retained = self._drop_records(last)
        except FencedError:
            raise
        except BaseException as error:  # noqa: BLE001 - the commit has happened; tidying may wait
            self._task.tell(CleanupFailed(**self._task.where(), backend="", error=error))
            return
        reached("commit.before-cleanup")
        self._published, self._called = 0, set()
        doubtful, self._point.doubtful = self._point.doubtful, []
        for backup in backups:
            self._clean_backend(backup, dropped, retained, doubtful)

    def _clean_backend(
        self,
        backup: Backup,
        dropped: tuple[CheckpointId, ...],
        retained: Sequence[Checkpoint],
        doubtful: Iterable[Attempt],
    ) -> None:
        begun = self._task.now()
        written = {checkpoint.id for checkpoint in retained}
        self._forget_lost_bases(backup, retained)
        try:
            for attempt in doubtful:
                if attempt.id not in written:
                    backup.manager.abandon(attempt.id)
            backup.manager.cleanup(retained)
        except BaseException as error:  # noqa: BLE001 - the commit has happened; tidying may wait
            self._task.tell(CleanupFailed(**self._task.where(), backend=backup.name, error=error))
            return
        duration_s = self._task.now() - begun
        self._task.tell(CleanedUp(**self._task.where(), backend=backup.name, duration_s=duration_s, dropped=dropped))

    def _forget_lost_bases(self, backup: Backup, retained: Sequence[Checkpoint]) -> None:
        """Build on no marker of *backup* that no retained checkpoint has: its clean-up removes what that names."""
        kept = {item for checkpoint in retained for item in checkpoint.markers.get(backup.key, {}).items()}
        for store in self._stores.values():
            held = store.backed.get(backup.key)
            if held is not None and (store.name, held.marker) not in kept:
                del store.backed[backup.key]

    def _drop_records(self, last: Checkpoint) -> tuple[tuple[CheckpointId, ...], list[Checkpoint]]:
        """Drop the records beyond ``retain``, then look at the pins, and give all that must stay restorable."""
        manager, task = self._task.manager, self._task.claim.task
        ids = ids_answer(manager.ids(task))
        dropped = superseded(ids, self._policy.retain, last.id)
        if dropped:
            manager.delete(self._task.claim, dropped)
        # In this order: a pin that was set before the record went is seen here; one set later finds no record.
        kept = sorted({*ids[: self._policy.retain], *pins_answer(manager.pins(task)).values(), last.id}, reverse=True)
        self._retained = {id: self._retained.get(id) or checkpoint_answer(manager.read(task, id), id) for id in kept}
        return dropped, list(self._retained.values())
