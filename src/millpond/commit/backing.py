"""What a commit asks of the backends: their note at its beginning, their upload, and to drop what was given up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from millpond.answers import note_problem
from millpond.checkpoint import Checkpoint
from millpond.commit.attempt import Attempt
from millpond.commit.decisions import marker_problems, outcome
from millpond.commit.parts import Backup, CommitPolicy, CommitTask
from millpond.commit.snapshot import CommitSnapshot
from millpond.commit.stores import CommittedStore
from millpond.errors import ConfigError, FencedError
from millpond.events import CleanupFailed, OptionalBackendFailed, Uploaded
from millpond.patience import Asking
from millpond.spi import Snapshot


class Backing:
    """Calls the backends of one task for those of its stores that are dirty."""

    def __init__(self, task: CommitTask, policy: CommitPolicy, stores: Mapping[str, CommittedStore]) -> None:
        """Back up *stores*."""
        self._task = task
        self._policy = policy
        self._stores = stores

    def begin(self, last: Checkpoint | None, ask: Asking) -> None:
        """Start the managers; a store that one of them names has to be sent although nothing changed."""
        for backup in self._task.backups:
            for name in ask(partial(_unsent, backup, last), f"backend {backup.name!r} begins (init)"):
                if name in self._stores and backup.key in self._stores[name].backends:
                    self._stores[name].unsent.add(backup.key)

    def note(self, attempt: Attempt) -> None:
        """
        Let every backend with dirty stores take its note; on the processing thread.

        Raises:
            CommitFailedError: One could not; it fails this commit and nothing else.
        """
        for backup in self._called(attempt):
            try:
                attempt.notes[backup.key] = _noted(backup, attempt)
            except Exception as error:  # noqa: BLE001 - a plugin's own
                told = outcome(error, f"snapshot of backend {backup.name!r}")
                raise told from told.__cause__

    def _called(self, attempt: Attempt) -> list[Backup]:
        return [backup for backup in self._task.backups if self._dirty_for(backup, attempt)]

    def upload(self, attempt: Attempt) -> None:
        """Let every backend with dirty stores upload, side by side; raise the first failure of a required one."""
        begun = self._task.now()
        called = self._called(attempt)
        if len(called) == 1:
            errors: list[BaseException | None] = [self._upload_to(called[0], attempt)]
        else:
            futures = [self._task.uploads.submit(lambda b=backup: self._upload_to(b, attempt)) for backup in called]  # type: ignore[misc]
            errors = [future.result() for future in futures]
        attempt.phases_s["upload"] = self._task.now() - begun
        fatal = [
            (not isinstance(error, FencedError), backup.name, error)
            for backup, error in zip(called, errors, strict=True)
            if error is not None and (backup.required or isinstance(error, FencedError))
        ]
        if fatal:
            _, name, first = min(fatal, key=lambda one: one[0])  # a new owner outweighs a backend that is down
            raise outcome(first, f"upload to backend {name!r}")
        for backup, error in zip(called, errors, strict=True):
            if error is not None:
                attempt.failed |= {f"{backup.key}\0{store}" for store in self._dirty_for(backup, attempt)}
                self._task.tell(
                    OptionalBackendFailed(**self._task.where(), id=attempt.id, backend=backup.name, error=error)
                )

    def _upload_to(self, backup: Backup, attempt: Attempt) -> BaseException | None:
        begun = self._task.now()
        stores = self._dirty_for(backup, attempt)
        try:
            attempt.check(begun)
            given = backup.manager.upload(self._snapshot(backup, attempt, stores), attempt.notes.get(backup.key, {}))
            if problem := marker_problems(given, stores):
                raise ConfigError(f"backend {backup.name!r} broke its contract: {problem}")
        except BaseException as error:  # noqa: BLE001 - a plugin's own: it fails this commit, or this backend's part
            return error
        attempt.uploaded[backup.key] = dict(given)
        duration_s = self._task.now() - begun
        self._task.tell(
            Uploaded(**self._task.where(), id=attempt.id, backend=backup.name, stores=stores, duration_s=duration_s)
        )
        return None

    def _snapshot(self, backup: Backup, attempt: Attempt, stores: Sequence[str]) -> Snapshot:
        return CommitSnapshot(
            attempt=attempt,
            backend=backup.key,
            facets=backup.capabilities.facets,
            stores=stores,
            committed=self._stores,
            scratch=self._task.directory.clones(),
            algorithm=self._policy.algorithm,
            wanted=lambda: attempt.check(self._task.now()),
        )

    def _dirty_for(self, backup: Backup, attempt: Attempt) -> tuple[str, ...]:
        return tuple(name for name, mark in attempt.marks.items() if backup.key in self._stores[name].callers(mark))

    def abandon(self, attempt: Attempt) -> None:
        """Let every backend that was called drop what it uploaded; best effort."""
        for backup in self._called(attempt):
            try:
                backup.manager.abandon(attempt.id)
            except BaseException as error:  # noqa: BLE001 - best effort: cleanup finds the rest
                self._task.tell(CleanupFailed(**self._task.where(), backend=backup.name, error=error))


def _noted(backup: Backup, attempt: Attempt) -> Mapping[str, str]:
    """Let *backup* take its note of the commit, and check it."""
    given = backup.manager.snapshot(attempt.id)
    if problem := note_problem(given):
        raise ConfigError(f"backend {backup.name!r} broke its contract: {problem}")
    return dict(given)


def _unsent(backup: Backup, last: Checkpoint | None) -> list[str]:
    """Begin with *backup*; give the stores that it names as not yet sent."""
    given = backup.manager.init(last)
    if isinstance(given, str) or not isinstance(given, Collection):
        raise ConfigError(
            f"backend {backup.name!r} broke its contract: init() gave {type(given).__name__}, not names of stores"
        )
    return list(given)
