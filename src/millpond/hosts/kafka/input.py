"""The input as a whole: its topics are there and fit, and what its client says of them is judged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from attrs import define, field

from millpond.errors import ConfigError, TransientError
from millpond.events import Event
from millpond.hosts.kafka.decisions import Part, check_identity, first_offset, topic_problems
from millpond.hosts.kafka.events import ClientTrouble
from millpond.hosts.kafka.hosted import Running
from millpond.hosts.kafka.roles import Driver, Kind, Trouble
from millpond.hosts.kafka.settings import KafkaSettings

TIMEOUT_S = 5.0
"""How long one question to the cluster may take."""
AGAIN_S = 1.0


@define(eq=False)
class Input:
    """
    The topics of one job; everything on the thread that polls.

    Attributes:
        driver: Asked for what is there.
        settings: The host's.
        job: The job's name.
        tasks: Its tasks, if the configuration names them.
        tell: Takes events.
        counts: The number of partitions of each topic, once it is known.
    """

    driver: Driver
    settings: KafkaSettings
    job: str
    tasks: Sequence[str] | None
    tell: Callable[[Event], None]
    counts: dict[str, int] = field(factory=dict)

    def await_topics(self, stop: threading.Event) -> None:
        """
        Wait until the cluster says how many partitions there are, or *stop* is set.

        Raises:
            ConfigError: Topics are missing or do not fit.
        """
        while not stop.is_set():
            try:
                self.check_topics()
            except TransientError as error:
                self._tell(str(error))
                stop.wait(AGAIN_S)
            else:
                return

    def check_topics(self) -> None:
        """
        Ask for the topics.

        Raises:
            ConfigError: They are missing or do not fit.
            TransientError: There was no answer.
        """
        found = {topic: self.driver.partition_count(topic, TIMEOUT_S) for topic in self.settings.topics}
        if problems := topic_problems(found, self.tasks):
            raise ConfigError("\n".join(problems))
        self.counts = {topic: count for topic, count in found.items() if count is not None}

    def grown(self, number: int) -> dict[str, int]:
        """Give the numbers of partitions, which are at least so many that there is a partition *number*."""
        return {topic: max(count, number + 1) for topic, count in self.counts.items()}

    def judge(self, trouble: Trouble, running: Running | None) -> None:
        """
        Do what a trouble of the client asks for; *running* is the task of the partition that it is about.

        Raises:
            SourceGoneError, ConfigError, TransientError: The host cannot go on.
        """
        match trouble.kind:
            case Kind.GONE if trouble.part is not None:
                self._check_offset(trouble.part, running)
            case Kind.NO_TOPIC:
                self._check_again(trouble)
                self._check_identity(trouble.part, running)
            case Kind.REFUSED:
                raise ConfigError(f"the cluster refuses this client: {trouble.text}")
            case Kind.OVER:
                raise TransientError(f"the Kafka client cannot go on: {trouble.text}")
            case _:
                self._tell(trouble.text)

    def _check_offset(self, part: Part, running: Running | None) -> None:
        """Raise if the partition does not have what its task reads next; else have it read there again."""
        if running is None:
            return
        self._check_identity(part, running)
        try:
            low, high = self.driver.range_of(part, TIMEOUT_S)
        except TransientError as error:
            self._tell(str(error))
        else:
            last = str(running.next[part[0]] - 1)
            first_offset(part, last, low, high, self.settings.begin, running.task.name)
        running.begun.discard(part[0])

    def _check_identity(self, part: Part | None, running: Running | None) -> None:
        """Raise if the topic of a partition is another one than its task has read."""
        if part is None or running is None:
            return
        try:
            found = self.driver.identity_of(part[0], TIMEOUT_S)
        except TransientError as error:
            self._tell(str(error))
        else:
            saved = running.task.identities.get(running.sources[part[0]])
            check_identity(part, saved, found, running.task.name)

    def _check_again(self, trouble: Trouble) -> None:
        """Raise if a topic is gone for good, which a client may also say while the cluster is being restarted."""
        self._tell(trouble.text)
        counts = self.counts
        try:
            self.check_topics()
        except TransientError:
            return
        self.counts = counts  # those of the start: the job's layout follows from them

    def _tell(self, text: str) -> None:
        self.tell(ClientTrouble(job=self.job, text=text))
