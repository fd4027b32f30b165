"""The memory checkpoint manager: its records live in the process, by job, and die with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Lock
from typing import ClassVar

from attrs import define, field, frozen

from millpond.clock import Clock
from millpond.records import NumberedCheckpoints, RecordFolder
from millpond.spi import ManagerCapabilities


@frozen
class MemoryCheckpointsConfig:
    """The memory manager has no settings."""


@define
class _Shelf:
    """Names to bytes, for the whole process."""

    things: dict[str, bytes] = field(factory=dict)
    lock: Lock = field(factory=Lock)


@frozen
class _MemoryFolder(RecordFolder):
    _shelf: _Shelf
    _clock: Clock

    def names(self) -> list[str]:
        with self._shelf.lock:
            return list(self._shelf.things)

    def create(self, name: str, data: bytes) -> bool:
        with self._shelf.lock:
            absent = name not in self._shelf.things
            self._shelf.things.setdefault(name, data)
            return absent

    def read(self, name: str) -> bytes | None:
        with self._shelf.lock:
            return self._shelf.things.get(name)

    def delete(self, names: Collection[str]) -> None:
        with self._shelf.lock:
            for name in names:
                self._shelf.things.pop(name, None)

    def now_millis(self) -> int:
        return self._clock.millis()


_SHELVES: dict[tuple[str, str, str, str], _Shelf] = {}
"""By job, id, task and kind: a job that is opened again in this process finds what it left."""
_LOCK = Lock()


class MemoryCheckpoints(NumberedCheckpoints):
    """
    Keeps records in this process, for tests and for state that may be lost.

    Jobs of one name and id share them; another process sees none.
    """

    config_class: ClassVar[type] = MemoryCheckpointsConfig
    capabilities = ManagerCapabilities(durable=False)

    def tasks(self) -> Sequence[str]:
        """Give the names of the tasks that have a record here, sorted."""
        with _LOCK:
            shelves = list(_SHELVES.items())
        mine = (self.job.job, self.job.job_id)
        return sorted({key[2] for key, shelf in shelves if key[:2] == mine and shelf.things})

    def records_folder(self, task: str) -> RecordFolder:
        """Give the place of the task's records."""
        return self._folder(task, "records")

    def pins_folder(self, task: str) -> RecordFolder:
        """Give the place of the task's pins."""
        return self._folder(task, "pins")

    def _folder(self, task: str, kind: str) -> RecordFolder:
        with _LOCK:
            shelf = _SHELVES.setdefault((self.job.job, self.job.job_id, task, kind), _Shelf())
        return _MemoryFolder(shelf, self.job.clock)
