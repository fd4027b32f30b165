"""
What the checkpoint topic says: its records in their order, folded into what each task has. Pure.

Of the newest checkpoints in V1 and V2 one is picked as Samza does: see :func:`takes_over`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from attrs import define, field, frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError
from millpond_changelog.checkpoints import keys
from millpond_changelog.checkpoints.keys import KeptKeys, Key


@frozen
class Found:
    """
    A record of the topic.

    Attributes:
        type: What its kind is called there.
        offset: Where it is.
        millis: Its time stamp, in milliseconds since 1970.
        value: What it says.
        headers: What its writer says beside it.
        version: Of a newest checkpoint: 1 or 2.
    """

    type: str
    offset: int
    millis: int
    value: bytes = field(repr=False)
    headers: Mapping[str, bytes] = field(factory=dict)
    version: int | None = None


@define
class TaskView:
    """
    What one task has.

    Attributes:
        claim: Its newest claim.
        newest: By version, its newest checkpoint.
        picked: The one of them that counts.
        kept: Checkpoints that are kept, and where they are.
        pins: By name.
    """

    claim: Found | None = None
    newest: dict[int, Found] = field(factory=dict)
    picked: Found | None = None
    kept: dict[CheckpointId, int] = field(factory=dict)
    pins: dict[str, Found] = field(factory=dict)

    def is_empty(self) -> bool:
        """Whether nothing is known of the task."""
        return self.claim is None and not (self.newest or self.kept or self.pins)


def takes_over(new: Found, old: Found | None, read: Sequence[int], max_age: timedelta) -> bool:
    """
    Whether *new*, later in the log, counts and *old* no longer does.

    So it is if it is of the same or of a higher priority in *read*; or newer than the other by more than *max_age*.
    Source: Samza's ``KafkaCheckpointManager``.
    """
    if new.version not in read:
        return False
    if old is None or old.version is None:
        return True
    age = timedelta(milliseconds=new.millis - old.millis)
    return read.index(new.version) <= read.index(old.version) or age > max_age


@define
class TopicView:
    """
    What the topic says as far as it was read.

    Attributes:
        grouper: What each key must name.
        read: The versions that are looked at, the highest priority first.
        max_age: See :func:`takes_over`.
        tasks: By name.
    """

    grouper: str
    read: Sequence[int]
    max_age: timedelta
    tasks: dict[str, TaskView] = field(factory=dict)
    _keys: dict[bytes, Key] = field(factory=dict, init=False)
    _kept: KeptKeys = field(factory=KeptKeys, init=False)

    def key_of(self, data: bytes) -> Key:
        """
        Read the key of a record.

        Raises:
            FormatError: It is no key.
            ConfigError: It names another grouper.
        """
        key = self._keys.get(data)
        if key is not None:
            return key
        key = self._kept.decode(data) or keys.decode(data)
        if key.grouper != self.grouper:
            raise ConfigError(
                f"it was written by a job with the grouper {key.grouper}, and this one has {self.grouper}: set "
                "checkpoint.grouper to what the Samza job has"
            )
        if key.kept is None:
            self._keys[data] = key
        return key

    def fold(self, key: Key, found: Found | None, offset: int) -> None:
        """Take a record in; None for a tombstone."""
        task = self.tasks.get(key.task)
        if task is None:
            task = self.tasks[key.task] = TaskView()
        if key.version is not None:
            self._fold_newest(task, key.version, found)
        elif key.claim:
            task.claim = found
        elif key.kept is not None:
            # The newest record of a key is the last in the log, and ids are listed in that order.
            task.kept.pop(key.kept, None)
            if found is not None:
                task.kept[key.kept] = offset
        elif key.pin is not None:
            task.pins.pop(key.pin, None)
            if found is not None:
                task.pins[key.pin] = found

    def _fold_newest(self, task: TaskView, version: int, found: Found | None) -> None:
        if found is None:
            task.newest.pop(version, None)
            if task.picked is not None and task.picked.version == version:
                others = [task.newest[each] for each in self.read if each in task.newest]
                task.picked = others[0] if others else None
            return
        task.newest[version] = found
        if takes_over(found, task.picked, self.read, self.max_age):
            task.picked = found
