"""What the host decides: functions from an assignment, positions and states to steps; no client, clock or thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum, auto
from typing import Literal

from attrs import frozen

from millpond.errors import ConfigError, FormatError
from millpond.hosts.source import SourceGoneError

Part = tuple[str, int]
"""A topic and a partition's number."""

LONGEST_RETRY_S = 60.0


class Phase(Enum):
    """How far a task of this process has come."""

    OPENING = auto()
    WAITING = auto()
    """An opening failed in a way that may go away; it is tried again later."""
    RUNNING = auto()


@frozen
class Steps:
    """
    What an assignment asks for; each a set of task numbers.

    Attributes:
        open: To be claimed and restored.
        give_up: Their opening is not wanted any more.
        leave: They run, and are to be handed over.
    """

    open: frozenset[int]
    give_up: frozenset[int]
    leave: frozenset[int]


def task_name(number: int, tasks: Sequence[str] | None) -> str:
    """Give the name of the task of partition *number*: its place in *tasks*, else as Samza calls it."""
    return f"Partition {number}" if tasks is None else tasks[number]


def whole_tasks(assigned: Collection[Part], topics: Collection[str]) -> frozenset[int]:
    """Give the tasks that can run: those whose partition of every topic is here."""
    numbers = {number for _, number in assigned}
    return frozenset(number for number in numbers if all((topic, number) in assigned for topic in topics))


def steps(wanted: Collection[int], phases: Mapping[int, Phase]) -> Steps:
    """Say how to get from what is there to what is *wanted*."""
    surplus = {number: phase for number, phase in phases.items() if number not in wanted}
    return Steps(
        open=frozenset(number for number in wanted if number not in phases),
        give_up=frozenset(number for number, phase in surplus.items() if phase is not Phase.RUNNING),
        leave=frozenset(number for number, phase in surplus.items() if phase is Phase.RUNNING),
    )


def flow(
    assigned: Collection[Part], open_numbers: Collection[int], paused: Collection[Part]
) -> tuple[list[Part], list[Part]]:
    """
    Give the partitions to pause and those to resume.

    Args:
        assigned: What is being read.
        open_numbers: Tasks that may get records now: they run, and a write would not wait.
        paused: What is paused now.
    """
    pause = [part for part in assigned if part[1] not in open_numbers and part not in paused]
    resume = [part for part in assigned if part[1] in open_numbers and part in paused]
    return sorted(pause), sorted(resume)


def retry_after_s(failures: int, first_s: float) -> float:
    """Give the seconds to wait after so many *failures* in a row, at least one."""
    return float(min(LONGEST_RETRY_S, first_s * 2 ** min(failures - 1, 30)))


def topic_problems(counts: Mapping[str, int | None], tasks: Sequence[str] | None, *, stated: bool = True) -> list[str]:
    """
    Say what is wrong with the input as a whole, a sentence each.

    Args:
        counts: The number of partitions of each topic; None: it does not exist.
        tasks: The job's tasks, if that is known.
        stated: The operator named the tasks; else they are those that the topics had when the host started.
    """
    missing = [f"topic {topic!r} does not exist: create it first" for topic, count in counts.items() if count is None]
    there = {topic: count for topic, count in counts.items() if count is not None}
    shown = ", ".join(f"{topic!r} {count}" for topic, count in there.items())
    if len(set(there.values())) > 1:
        return [
            *missing,
            (
                f"the topics have unequal numbers of partitions ({shown}): a task reads one partition of each, so that "
                f"equal keys of all topics meet in it; make them equal, or read them by different jobs"
            ),
        ]
    count = next(iter(there.values()), None)
    if tasks is None or count is None or count == len(tasks):
        return missing
    said = f"job.tasks names {len(tasks)}" if stated else f"the job began with {len(tasks)}"
    return [
        *missing,
        (
            f"the topics have {count} partitions ({shown}) and {said}: with another number of partitions keys go to "
            f"other tasks than those that hold their state. Move the job to topics with the old number, or, if no "
            f"state hangs on keys, set hosts.kafka.pin_partitions = false and leave job.tasks out"
        ),
    ]


def first_offset(
    part: Part, saved: str | None, low: int, high: int, begin: Literal["earliest", "latest"], task: str
) -> int:
    """
    Give the offset at which *task* reads on.

    Args:
        part: The topic and the partition.
        saved: The last offset processed, from the checkpoint; None: there is none.
        low: The first offset that the partition still has.
        high: The offset of the next record that will be written.
        begin: Where to begin without a saved offset.
        task: Its name, for the message.

    Raises:
        SourceGoneError: The partition no longer has it.
        FormatError: What is saved is no offset of Kafka's.
    """
    if saved is None:
        return low if begin == "earliest" else high
    try:
        wanted = int(saved) + 1
    except ValueError:
        raise FormatError(f"the checkpoint of task {task!r} has the offset {saved!r} for {part}: no number") from None
    if low <= wanted <= high:
        return wanted
    raise gone(part, wanted, low, high, task)


def check_identity(part: Part, saved: str | None, found: str | None, task: str) -> None:
    """
    Check that a topic is the one that a checkpoint was made of; where either has no identity, offsets alone tell.

    Args:
        part: The topic and the partition.
        saved: The topic's id, from the checkpoint.
        found: Its id now.
        task: The name of the task, for the message.

    Raises:
        SourceGoneError: It is another topic of that name.
    """
    topic, number = part
    if saved is not None and found is not None and saved != found:
        raise SourceGoneError(
            f"topic {topic!r}, partition {number}, is another one than task {task!r} has read: it had the id {saved}, "
            f"was deleted and made again, and has {found} now. Offsets of the old one say nothing about the new one: "
            "nothing was skipped and nothing reset. To read the new topic, give the job a new name or remove its "
            "checkpoints"
        )


def gone(part: Part, wanted: int, low: int, high: int, task: str) -> SourceGoneError:
    """Say what is lost and what can be done about it."""
    topic, number = part
    if wanted < low:
        what = f"the {low - wanted:,} offsets before {low} were removed (retention, or delete-records)"
        mend = "raise the topic's retention.ms and retention.bytes for the next time"
    else:
        what = "it ends before that: it was deleted and made again, or lost records with an unclean leader"
        mend = "if it is a new topic, give the job a new name or remove its checkpoints: its state is another input's"
    return SourceGoneError(
        f"task {task!r} has to read topic {topic!r}, partition {number}, from offset {wanted} on, and the topic has "
        f"{low} to {high} (exclusive) there: {what}. Nothing was skipped and nothing reset. To go on without those "
        f"records, take the job to a checkpoint whose offsets are there, or begin anew under another job name; {mend}"
    )


def check_task_number(number: int, tasks: Sequence[str] | None, counts: Mapping[str, int]) -> None:
    """
    Check that an assigned partition has a task.

    Raises:
        ConfigError: The topic grew while the job ran.
    """
    if tasks is not None and number >= len(tasks):
        raise ConfigError("\n".join(topic_problems(counts, tasks, stated=False)))
