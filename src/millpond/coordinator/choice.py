"""Which job checkpoint a restore goes to: functions of the record and of what is known to be unreadable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.record import JobCheckpoint, JobRecord
from millpond.coordinator.state import Place
from millpond.errors import ConfigError, StateNotFoundError


def choose_checkpoint(
    record: JobRecord, unreadable: Collection[JobCheckpointId], *, allow_empty: bool
) -> JobCheckpoint | None:
    """
    Give the newest job checkpoint that can be read; None: the state before the first one.

    Raises:
        StateNotFoundError: There are some, none can be read, and the operator has not allowed an empty start.
    """
    for checkpoint in record.checkpoints:
        if checkpoint.id not in unreadable:
            return checkpoint
    if not record.checkpoints or allow_empty:
        return None
    raise StateNotFoundError(
        f"none of the job checkpoints {', '.join(map(str, record.ids))} of job {record.job!r} can be restored, and an "
        f"empty start is not allowed: bring the state back, or set allow_empty if all of it may be lost"
    )


def refuse_other_topology(checkpoint: JobCheckpoint, members: Mapping[str, Place]) -> None:
    """
    Refuse *checkpoint* unless it has a state for every member, at the same place, and for nobody else.

    Raises:
        ConfigError: The topology is another one; the message names the first difference of each kind.
    """
    problems = []
    if missing := sorted(members.keys() - checkpoint.members.keys()):
        problems.append(f"it has no state for {_some(missing)}")
    if surplus := sorted(checkpoint.members.keys() - members.keys()):
        problems.append(f"it has state for {_some(surplus)}, which the topology does not name")
    moved = [
        f"{name} was {checkpoint.members[name].place} and is {place} now"
        for name, place in members.items()
        if name in checkpoint.members and checkpoint.members[name].place != place
    ]
    if problems or moved:
        raise ConfigError(
            f"job checkpoint {checkpoint.id} is of another topology: {'; '.join([*problems, *moved[:1]])}. Another "
            f"number of members means another split of the keys: copy the state over offline, or restore the topology"
        )


def retained(
    checkpoints: Sequence[JobCheckpoint], base: JobCheckpointId | None, retain: int, forgotten: Collection[str]
) -> tuple[JobCheckpoint, ...]:
    """
    Give those of *checkpoints*, newest first, that stay beside a new one.

    Args:
        checkpoints: All that are in the record.
        base: What the new one builds on; an unnamed one after it belongs to a history that a restore has ended.
        retain: How many unnamed ones may stay.
        forgotten: Names of savepoints that are counted as unnamed.
    """
    kept, unnamed = [], 0
    for checkpoint in checkpoints:
        is_named = bool(checkpoint.name) and checkpoint.name not in forgotten
        if not is_named:
            if base is None or checkpoint.id > base or unnamed >= retain:
                continue
            unnamed += 1
        kept.append(checkpoint)
    return tuple(kept)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
