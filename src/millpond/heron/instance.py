"""
A Heron instance whose state is a Millpond task: at each checkpoint only what has changed is uploaded.

Heron's instances hand all of their state over at each checkpoint. This one commits its task, whose backend uploads what
has changed since the last commit, pins that commit under Heron's id, and hands over a note of some two hundred bytes
which names it. Heron's stream manager and any checkpoint manager, Heron's own too, carry the note as the state.
"""

from __future__ import annotations

import json
import re

from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.keepers import TaskKeeper
from millpond.coordinator.state import State, TaskState
from millpond.errors import ConfigError, FormatError, StateCorruptError, StoreClosedError
from millpond.formats.envelope import seal, unseal
from millpond.job import Job
from millpond.task import Task

MAGIC, VERSION, KIND = "millpond-heron", 1, "task"
KEPT = 10
"""Heron's coordinator records five checkpoints, and its storage keeps ten."""

_ID = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")


class TaskInstance:
    """
    One instance of a topology. Its methods are those that Heron calls on an instance; all on the instance's thread.

    Attributes:
        task: Its task, once :meth:`restore` was called: what it processes goes in there. Nobody else commits it.
    """

    def __init__(self, job: Job, name: str, *, kept: int = KEPT, timeout_s: float = 60.0) -> None:
        """
        Prepare; the first restore opens the task.

        Args:
            job: The open job.
            name: The task's name, one for each instance.
            kept: So many checkpoints stay restorable of those of which :meth:`consistent` was told.
            timeout_s: For a commit, and for opening the task.
        """
        self._keeper = TaskKeeper(job, name, open_timeout_s=timeout_s)
        self._kept, self._timeout_s = kept, timeout_s
        self._consistent: list[JobCheckpointId] = []

    @property
    def task(self) -> Task:
        """The open task; StoreClosedError before the first restore."""
        if self._keeper.task is None:
            raise StoreClosedError("the instance has not been restored yet: its first restore opens its task")
        return self._keeper.task

    def snapshot(self, checkpoint: str) -> bytes:
        """
        Make everything until now durable, and give what Heron is to save under the id *checkpoint*.

        Raises:
            ConfigError: *checkpoint* is no id of Heron's.
            MillpondError: It could not be committed, or not in time: this checkpoint has to be given up.
        """
        try:
            state = self._keeper.save(attempt_of(checkpoint)).result(self._timeout_s)
        except TimeoutError as error:
            raise StoreClosedError(f"checkpoint {checkpoint} took longer than {self._timeout_s:g} s") from error
        return note(state)

    def consistent(self, checkpoint: str) -> None:
        """Note that the whole topology has *checkpoint* (Heron's notice after it); old ones are let go of."""
        self._consistent = sorted({*self._consistent, attempt_of(checkpoint)})[-self._kept :]
        if len(self._consistent) == self._kept:
            self._keeper.keep((), self._consistent[0])

    def restore(self, checkpoint: str, state: bytes | None) -> Task:
        """
        Open the task as it was when *state* was given out; nothing (the empty id): as it was before all checkpoints.

        Raises:
            StateNotFoundError, StateCorruptError, FormatError: It is gone or damaged: an older checkpoint may do.
            MillpondError: Anything else; trying again may help.
        """
        if not checkpoint or not state:
            self._keeper.restore(None, None)
        else:
            self._keeper.restore(attempt_of(checkpoint), read_note(state))
        return self.task

    def close(self) -> None:
        """Close the task; commits nothing."""
        self._keeper.close()


def attempt_of(checkpoint: str) -> JobCheckpointId:
    """Give a Heron id's numbers, which name the pin; ConfigError if it has not two."""
    found = _ID.fullmatch(checkpoint)
    if found is None or max(int(found[1]), int(found[2])) >= 1 << 63:
        raise ConfigError(f"{checkpoint[:80]!r} is no checkpoint id of Heron's: two numbers with a dash in between")
    return JobCheckpointId(int(found[1]), int(found[2]))


def note(state: State) -> bytes:
    """Write what travels in place of the state."""
    assert isinstance(state, TaskState)
    return seal(MAGIC, VERSION, KIND, json.dumps({"checkpoint": state.checkpoint}).encode())


def read_note(data: bytes) -> TaskState:
    """
    Read it.

    Raises:
        StateCorruptError: It is damaged.
        FormatError: It is no such note: another kind of instance saved it.
    """
    opened = unseal(MAGIC, VERSION, data)
    if opened.kind != KIND:
        raise FormatError(f"a {MAGIC} of kind {opened.kind!r} is no state of an instance")
    try:
        return TaskState(str(json.loads(opened.body)["checkpoint"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StateCorruptError(f"an instance's note does not say what it should: {error!r}") from None
