"""
Restores the stores of one task from a log: from its start, or a local image's place, up to the marker, by position.

What the log cannot prove to be whole is not restored: another topic of that name, offsets that retention removed or
that were never there, compaction beyond the marker.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.checkpoint import Checkpoint, Markers, SystemStreamPartition
from millpond.errors import FormatError
from millpond.formats import changelog_offset
from millpond.spi import RestoreTarget, StoreSpec, TaskContext, TaskRestoreManager
from millpond_changelog.backup import marker_owner
from millpond_changelog.lease import LogLease
from millpond_changelog.marker import Marker, encode
from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.source import restore_from
from millpond_changelog.topics import Topics


class ChangelogRestore(TaskRestoreManager):
    """Reads what markers name. Several stores at once."""

    def __init__(
        self, task: TaskContext, lease: LogLease, settings: ChangelogSettings, stores: Sequence[StoreSpec]
    ) -> None:
        """Read by *lease*; nothing is asked before a restore."""
        self._task, self._lease, self._settings, self._stores = task, lease, settings, stores

    def v1_markers(self, checkpoint: Checkpoint) -> Markers:
        """Find the stores' changelogs among a V1's offsets; Samza has one topic for all tasks of a job."""
        topics = Topics(self._settings, self._task.job.job, self._task.job.job_id, self._task.job.layout)
        named = {
            topics.place(spec.name, self._task.task).topic: spec.name for spec in self._stores if checkpoint.offsets
        }
        found = {}
        for ssp, offset in checkpoint.offsets.items():
            if ssp.system == self._settings.system and ssp.stream in named:
                found[named[ssp.stream]] = _v1_marker(ssp, offset)
        return found

    def restore(self, target: RestoreTarget) -> None:
        """Leave one store exactly as its marker says."""
        owner = marker_owner(self._task, target.store)
        restore_from(self._lease.log, target, owner, self._task.job.clock)

    def close(self) -> None:
        """Let go of the log; idempotent."""
        self._lease.close()


def _v1_marker(ssp: SystemStreamPartition, text: str) -> str:
    """
    Give the marker that a changelog's entry in a V1 stands for.

    Raises:
        FormatError: It is no value of a changelog's.
    """
    value = changelog_offset.decode(text)
    if value.offset is not None and not value.offset.isdigit():
        raise FormatError(f"the offset {value.offset!r:.40} of changelog {ssp} is no number that a log could give")
    return encode(Marker(ssp, None if value.offset is None else int(value.offset)), "")
