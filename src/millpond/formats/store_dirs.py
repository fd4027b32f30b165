"""Where Samza keeps a task's stores, as names relative to its base directory. No file is touched here."""

from __future__ import annotations

import re
from collections.abc import Iterable

from millpond.checkpoint import CheckpointId

_STANDBY = re.compile(r"Standby-(.+)-\d+", re.DOTALL)
_ID = re.compile(r"\d+-\d+", re.ASCII)


def task_dir(store: str, task: str) -> str:
    """
    Give the directory of a task's live store, with ``/`` between its parts.

    As in Samza: a space becomes ``_``, so two tasks may share one directory, and a ``/`` in a name makes a folder.
    Check where it leads before using it: these names come from a job, not from us.
    """
    return f"{store}/{task}".replace(" ", "_")


def checkpoint_dir(store: str, task: str, id: CheckpointId) -> str:
    """Give the directory of a task's store as it was at the commit *id*."""
    return f"{task_dir(store, task)}-{id}"


def active_task(standby: str) -> str:
    """Give the task that ``Standby-<task>-<number>`` stands by for, dashes and all; or another name itself."""
    match = _STANDBY.fullmatch(standby)
    return standby if match is None else match[1]


def checkpoints_of(task: str, names: Iterable[str]) -> dict[str, CheckpointId]:
    """
    Pick a task's checkpoint directories out of the *names* in its store's folder (which is named by ``task_dir``).

    Better than Samza, which takes every name that contains the task's: only ``<task>-<millis>-<nanos>`` counts.
    """
    front = task.replace(" ", "_").rpartition("/")[2] + "-"
    found = {name: name.removeprefix(front) for name in names if name.startswith(front)}
    ids = {name: _id_of(rest) for name, rest in found.items() if _ID.fullmatch(rest)}
    return {name: id for name, id in ids.items() if id is not None}


def _id_of(text: str) -> CheckpointId | None:
    """Give the id that *text* is; None if a number in it is none of an id's."""
    try:
        return CheckpointId.parse(text)
    except ValueError:
        return None
