r"""
Where everything lies in an object store: keys from names, and names from keys.

::

    <job>/<task>/records/<record>              numbered records: checkpoints and claims
    <job>/<task>/pins/<name>                   copies of records
    <job>/<task>/data/<backend>/<object>       what a backend uploaded; object: <epoch>-<checkpoint id>-<random>
    <job>/.probe-<random>                      written and removed by a check of the store

Names are escaped as in a file system (:func:`millpond.local.escape_name`), so none holds a ``/`` or begins with a dot.
All prefixes end with ``/``: that of one job or task is never that of another whose name merely begins like it. No key
is a folder of another. Manifests name objects, never keys, so that a task's data can be copied elsewhere as it is.
"""

from __future__ import annotations

from attrs import frozen

from millpond.local import escape_name, job_folder, unescape_name

AFTER_ALL = "~"
"""Greater than every character of a key."""


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
