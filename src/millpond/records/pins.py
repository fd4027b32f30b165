"""One task's pins: copies of records, under names, that outlive the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import ConfigError, StateCorruptError, TransientError
from millpond.formats.record import CheckpointRecord
from millpond.local import escape_name, unescape_name
from millpond.records.folder import NamedFolder
from millpond.records.reader import decode_own, named


@frozen
class PinBoard:
    """The pins of *task*. Any thread may use it."""

    task: str
    folder: NamedFolder

    def put(self, name: str, id: CheckpointId, data: bytes) -> bool:
        """
        Keep *data*, the record of *id*, under *name*; the same again is fine. Give whether it is new.

        Raises:
            ConfigError: *name* pins another id, or cannot be a file name.
        """
        if self.folder.create(escape_name(name), data):
            return True
        held = self._read(escape_name(name))
        if held is None:
            raise TransientError(f"the pin {name!r} of task {self.task!r} was removed while it was made")
        if held.id != id:
            raise ConfigError(f"{name!r} pins {held.id} of task {self.task!r} already: unpin it, or use another name")
        return False

    def remove(self, name: str) -> None:
        """Remove the pin *name*; a missing one is fine."""
        self.folder.delete([escape_name(name)])

    def ids(self) -> Mapping[str, CheckpointId]:
        """Give name to id, sorted by name."""
        return {name: checkpoint.id for name, checkpoint in sorted(self._all(), key=lambda pin: pin[0])}

    def find(self, id: CheckpointId) -> Checkpoint | None:
        """Give the checkpoint *id* if a pin holds it."""
        return next((checkpoint for _, checkpoint in self._all() if checkpoint.id == id), None)

    def holds_elsewhere(self, id: CheckpointId, name: str) -> bool:
        """Whether a pin other than *name* holds *id*."""
        return any(other != name and checkpoint.id == id for other, checkpoint in self._all())

    def data_of(self, id: CheckpointId) -> bytes | None:
        """Give the record of *id* if a pin holds it."""
        name = next((name for name, checkpoint in self._all() if checkpoint.id == id), None)
        return None if name is None else self.folder.read(escape_name(name))

    def _all(self) -> Iterator[tuple[str, Checkpoint]]:
        for escaped in self.folder.names():
            name = _name_of(escaped)
            if name is not None and (checkpoint := self._read(escaped)) is not None:
                yield name, checkpoint

    def _read(self, escaped: str) -> Checkpoint | None:
        data = self.folder.read(escaped)
        if data is None:
            return None
        with named(self.folder.where(escaped)):
            record = decode_own(self.task, data)
            if not isinstance(record, CheckpointRecord):
                raise StateCorruptError("it is a claim, not a checkpoint")
        return record.checkpoint


def _name_of(escaped: str) -> str | None:
    try:
        return unescape_name(escaped)
    except ValueError:
        return None  # not a pin: no name escapes to this
