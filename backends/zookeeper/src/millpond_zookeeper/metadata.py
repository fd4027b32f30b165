"""The coordinator's metadata in ZooKeeper; nothing here imports kazoo before it is used."""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING

from millpond.coordinator.metadata import MAX_RECORD, CoordinatorMetadata, Leadership, StoredRecord
from millpond.errors import ConfigError, StoreClosedError
from millpond.records import RecordFolder
from millpond_zookeeper.settings import ZooKeeperSettings

if TYPE_CHECKING:
    from millpond_zookeeper.coordinator_room import CoordinatorRoom


class ZooKeeperMetadata(CoordinatorMetadata):
    """
    Keeps one job's coordinator record in ZooKeeper, and elects its leader. Any thread may call it.

    A record larger than ``max_node`` lies in parts, in the folder ``large`` of the settings, or in *elsewhere*, such as
    a ``millpond.blob.folder.BlobFolder``; the node then holds a handle. See ``docs/zookeeper.md``.
    """

    def __init__(
        self, settings: ZooKeeperSettings, job: str, job_id: str = "1", *, elsewhere: RecordFolder | None = None
    ) -> None:
        """Keep what is given; the first call opens a session."""
        self._settings, self._job, self._job_id, self._elsewhere = settings, job, job_id, elsewhere
        self._room: CoordinatorRoom | None = None
        self._lock = Lock()
        self._closed = False

    def create_resources(self) -> None:
        """Make the coordinator's nodes, and those above them."""
        self._opened().election.prepare()

    def validate_resources(self) -> None:
        """Try permissions, that a stale version is refused, and the largest request."""
        self._opened().probe()

    def lead(self, candidate: str, timeout_s: float) -> Leadership:
        """Wait until *candidate* leads, at most *timeout_s* seconds; durable when it returns."""
        return self._opened().lead(candidate, time.monotonic() + timeout_s)

    def leader(self) -> tuple[int, str] | None:
        """Give epoch and candidate of the newest leadership; it may be lost by now."""
        newest = self._opened().election.newest()
        return None if newest is None else (newest.epoch, newest.candidate)

    def read(self) -> StoredRecord | None:
        """Give the record as it is now; None only when it is proven that there is none."""
        return self._opened().read()

    def write(self, leadership: Leadership, data: bytes, expected: str | None) -> str:
        """Replace the record, with epoch, leader's node and version checked in the same multi-operation."""
        if len(data) > MAX_RECORD:
            raise ConfigError(
                f"the coordinator's record of {len(data):,} bytes is larger than any ({MAX_RECORD:,}): let its parts, "
                "such as inline states, lie elsewhere"
            )
        return self._opened().write(leadership, data, expected)

    def close(self) -> None:
        """Resign, end every ``lead`` that waits, and end the session; idempotent."""
        with self._lock:
            self._closed = True
            room, self._room = self._room, None
        if room is not None:
            room.close()

    def _opened(self) -> CoordinatorRoom:
        from millpond_zookeeper.coordinator_room import CoordinatorRoom

        with self._lock:
            if self._closed:
                raise StoreClosedError("this metadata is closed: make a new one")
            if self._room is None:
                self._room = CoordinatorRoom.of(self._settings, self._job, self._job_id, self._elsewhere)
            return self._room
