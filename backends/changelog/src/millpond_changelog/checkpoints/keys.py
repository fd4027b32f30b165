"""
Keys of the checkpoint topic.

Samza's own two hold the newest checkpoint of a task, and are never given a tombstone, which would stop a Samza job that
reads the topic. Ours have types that Samza skips, whatever their values are: ``millpond-claim``,
``millpond-checkpoint:<id>`` and ``millpond-pin:<name>``.
"""

from __future__ import annotations

from attrs import field, frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.formats import log_key
from millpond.formats.log_key import TYPE_V1, TYPE_V2, KafkaCheckpointLogKey

GROUPER = "org.apache.samza.container.grouper.stream.GroupByPartitionFactory"
"""What Samza takes where nothing is said."""

_VERSIONS = {TYPE_V1: 1, TYPE_V2: 2}
_TYPES = {1: TYPE_V1, 2: TYPE_V2}
_CLAIM = "millpond-claim"
_KEPT = "millpond-checkpoint:"
_PIN = "millpond-pin:"


@frozen
class Key:
    """
    What a record of the topic is about: exactly one of the fields behind the first three says so, or none.

    Attributes:
        task: The task.
        grouper: Samza's class that the record's writer was configured with.
        type: What its kind is called in the topic.
        version: It is the newest checkpoint in this version.
        claim: It is the newest claim.
        kept: It is this checkpoint.
        pin: It is a copy under this name.
    """

    task: str
    grouper: str
    type: str
    version: int | None = None
    claim: bool = False
    kept: CheckpointId | None = None
    pin: str | None = None


_KEPT_AT = f'"{_KEPT}'.encode()
_TYPE = b'"type":'
_END = b'"}'


@frozen
class KeptKeys:
    """Reads keys of kept checkpoints as we write them, which are most of a topic's: what is before the id only once."""

    _fronts: dict[bytes, Key] = field(factory=dict, init=False)

    def decode(self, data: bytes) -> Key | None:
        """Read a key; None if it is of another kind, or not as we write it."""
        front, _, rest = data.rpartition(_KEPT_AT)
        if not front.endswith(_TYPE) or not rest.endswith(_END):
            return None
        known = self._fronts.get(front)
        if known is None:
            known = self._fronts[front] = decode(front + b'""}')
        id = rest[: -len(_END)].decode("ascii", "replace")
        try:
            return Key(known.task, known.grouper, _KEPT + id, kept=CheckpointId.parse(id))
        except ValueError:
            return None


def decode(data: bytes) -> Key:
    """Read a key; of a type that is neither Samza's nor ours it says nothing. Raises FormatError if it is no key."""
    read = log_key.decode(data)
    if read.type.startswith(_KEPT):
        try:
            return Key(read.task, read.grouper, read.type, kept=CheckpointId.parse(read.type.removeprefix(_KEPT)))
        except ValueError as error:
            raise FormatError(f"a key of the checkpoint topic: {error}") from error
    pin = read.type.removeprefix(_PIN) if read.type.startswith(_PIN) else None
    version = _VERSIONS.get(read.type)
    return Key(read.task, read.grouper, read.type, version, read.type == _CLAIM, None, pin)


@frozen
class Keys:
    """
    Writes the keys of one task.

    Attributes:
        task: The task.
        grouper: The grouper that they name.
    """

    task: str
    grouper: str

    def newest(self, version: int) -> bytes:
        """Give Samza's key of the newest checkpoint in *version*."""
        return self._of(_TYPES[version])

    def claim(self) -> bytes:
        """Give the key of the claim."""
        return self._of(_CLAIM)

    def kept(self, id: CheckpointId) -> bytes:
        """Give the key of the checkpoint *id*."""
        return self._of(f"{_KEPT}{id}")

    def pin(self, name: str) -> bytes:
        """Give the key of the pin *name*."""
        return self._of(f"{_PIN}{name}")

    def _of(self, type: str) -> bytes:
        return log_key.encode(KafkaCheckpointLogKey(type, self.task, self.grouper))
