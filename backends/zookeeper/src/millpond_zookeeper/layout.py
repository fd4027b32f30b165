"""
Where everything lies below the root, and how records are named.

::

    <root>/<job>/tasks/<task>/owners/<writer>   there for the claim that may write
    <root>/<job>/tasks/<task>/head              who may write, and which record is the newest
    <root>/<job>/tasks/<task>/records/<name>    one checkpoint each
    <root>/<job>/tasks/<task>/pins/<name>       copies of records
    <root>/<job>/tasks/<task>/parts/<name>/<n>  what is larger than a node
    <root>/<job>/coordinator/…                  the coordinator's metadata

Names of jobs, tasks and pins are escaped as those of files are. A record's name is its number, counted down so that a
sorted listing begins with the newest, the number itself, the id of its checkpoint, and ``~`` where the node holds a
handle to what is larger than a node.
"""

from __future__ import annotations

import re

from attrs import frozen

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError
from millpond.local import escape_name, job_folder
from millpond.records import record_name, record_number

_NAME = re.compile(r"([0-9]{15}-[1-9][0-9]{0,14})@([0-9]+-[0-9]+)(~?)")


@frozen
class TaskPaths:
    """
    The nodes of one task.

    Attributes:
        base: The node above all of them.
    """

    base: str

    @classmethod
    def of(cls, root: str, job: str, job_id: str, task: str) -> TaskPaths:
        """Give the nodes of a task; ConfigError if a name is too long."""
        return cls(f"{tasks_path(root, job, job_id)}/{escape_name(task)}")

    @property
    def head(self) -> str:
        """The task's head."""
        return f"{self.base}/head"

    @property
    def owners(self) -> str:
        """The node above the claims."""
        return f"{self.base}/owners"

    @property
    def records(self) -> str:
        """The node above the records."""
        return f"{self.base}/records"

    @property
    def pins(self) -> str:
        """The node above the pins."""
        return f"{self.base}/pins"

    @property
    def parts(self) -> str:
        """The node above what is larger than a node."""
        return f"{self.base}/parts"


def job_path(root: str, job: str, job_id: str) -> str:
    """Give the node of a job."""
    return f"{root}/{job_folder(job, job_id)}"


def tasks_path(root: str, job: str, job_id: str) -> str:
    """Give the node above a job's tasks."""
    return f"{job_path(root, job, job_id)}/tasks"


@frozen
class RecordName:
    """
    What a record's name says.

    Attributes:
        number: Its number; from 1, in the order of writing.
        id: The id of its checkpoint.
        large: Whether its node holds a handle.
    """

    number: int
    id: CheckpointId
    large: bool = False

    def __str__(self) -> str:
        return f"{record_name(self.number)}@{self.id}{'~' if self.large else ''}"

    @classmethod
    def parse(cls, name: str) -> RecordName | None:
        """Read a node's name; None if it is no record's."""
        match = _NAME.fullmatch(name)
        number = None if match is None else record_number(match[1])
        if match is None or number is None:
            return None
        try:
            return cls(number, CheckpointId.parse(match[2]), bool(match[3]))
        except ValueError:
            return None


def named(number: int, id: CheckpointId, *, large: bool) -> RecordName:
    """Give the name of a record; FormatError for an id that no name can hold."""
    name = RecordName(number, id, large)
    if RecordName.parse(str(name)) != name:
        raise FormatError(f"the checkpoint id {id} has a number below nothing, or beyond 64 bits")
    return name
