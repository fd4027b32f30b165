r"""
Where everything lies in an object store: keys from names, and names from keys.

::

    <job>/<task>/records/<record>              numbered records: checkpoints and claims
    <job>/<task>/pins/<name>                   copies of records
    <job>/<task>/data/<backend>/<object>       what a backend uploaded; object: <epoch>-<checkpoint id>-<random>
    <job>/.probe-<random>                      written and removed by a check of the store

Names are escaped as in a file system (:func:`millpond.local.escape_name`), so none holds a ``/`` or begins with a dot.
All prefixes end with ``/``: that of one job or task is never that of another whose name merely begins like it. No key is a
folder of another. Manifests name objects, never keys, so that a task's data can be copied to another place as it is.
"""

from __future__ import annotations

import re
import secrets

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.local import escape_name, job_folder, unescape_name

AFTER_ALL = "~"
"""Greater than every character of a key."""

_OBJECT = re.compile(r"(0|[1-9][0-9]{0,17})-(-?[0-9]{1,19}-[0-9]{1,19})-([0-9a-f]{16})", re.ASCII)


@frozen
class ObjectName:
    """
    The name of one data object; never used twice.

    Attributes:
        epoch: Of the claim under which it was uploaded.
        id: Of the commit that uploaded it.
        random: 64 random bits in lower-case hex.
    """

    epoch: int
    id: CheckpointId
    random: str

    @classmethod
    def new(cls, epoch: int, id: CheckpointId) -> ObjectName:
        """Make a name that nobody has."""
        return cls(epoch, id, secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> ObjectName | None:
        """Read *text*; None if it is no object's name, and so nothing that could lead out of a folder."""
        match = _OBJECT.fullmatch(text)
        if match is None:
            return None
        try:
            name = cls(int(match[1]), CheckpointId.parse(match[2]), match[3])
        except ValueError:
            return None
        return name if str(name) == text else None

    def __str__(self) -> str:
        return f"{self.epoch}-{self.id}-{self.random}"


def check_object(text: str) -> str:
    """Give *text* back if it is an object's name; FormatError if not."""
    if ObjectName.parse(text) is None:
        raise FormatError(f"not the name of a data object: {text[:200]!r}")
    return text


def job_prefix(job: str, job_id: str) -> str:
    """Give what all keys of a job begin with; ConfigError if the names cannot be written."""
    return f"{job_folder(job, job_id)}/"


def task_of(job: str, key: str) -> str | None:
    """Give the task that *key* below the job's prefix *job* belongs to; None if it belongs to none."""
    folder, slash, _ = key.removeprefix(job).partition("/")
    if not key.startswith(job) or not slash:
        return None
    try:
        return unescape_name(folder)
    except ValueError:
        return None


@frozen
class TaskKeys:
    """
    The keys of one task.

    Attributes:
        prefix: What all of them begin with.
    """

    prefix: str

    @classmethod
    def of(cls, job: str, job_id: str, task: str) -> TaskKeys:
        """Give the keys of *task*; ConfigError if a name cannot be written."""
        return cls(f"{job_prefix(job, job_id)}{escape_name(task)}/")

    @property
    def records(self) -> str:
        """What the keys of its records begin with."""
        return f"{self.prefix}records/"

    @property
    def pins(self) -> str:
        """What the keys of its pins begin with."""
        return f"{self.prefix}pins/"

    def data(self, backend: str) -> str:
        """Give what the keys of a backend's objects begin with; *backend* is the key of its markers."""
        return f"{self.prefix}data/{escape_name(backend)}/"
