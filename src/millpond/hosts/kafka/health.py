"""How a host is doing: a value of one moment, for a probe or a page."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from millpond.hosts.kafka.decisions import Phase
from millpond.task import TaskHealth


@frozen
class HostHealth:
    """
    How a host is doing.

    Attributes:
        ready: It is in its group, and all tasks that the group gave to it run. A member to which the group gave nothing
            is ready.
        last_poll_age_s: Seconds since the client was polled; None before the first time. Beyond
            ``max.poll.interval.ms`` the group takes everything away.
        tasks: How each running task is doing, by name.
        opening: Those that are being claimed and restored, and those that wait to be tried again; name to phase.
        lag: For each topic and partition of a running task, the offsets between what is processed and the end as the
            client last saw it. Control records count.
        error: Why it stopped; None while it runs, or if it was asked to.
    """

    ready: bool
    last_poll_age_s: float | None
    tasks: Mapping[str, TaskHealth]
    opening: Mapping[str, Phase]
    lag: Mapping[tuple[str, int], int]
    error: BaseException | None = None
