"""What an operator says of the checkpoint topic."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.spi import Size
from millpond_changelog.checkpoints.keys import GROUPER
from millpond_changelog.settings import LogSettings


@frozen(kw_only=True)
class KafkaCheckpointsSettings(LogSettings):
    """
    The settings of the checkpoint manager ``kafka``; the defaults are Samza's.

    Attributes:
        topic: The topic; None: Samza's name for the job.
        grouper: Samza's class that spreads the input over the tasks: a part of every key, so as the Samza job has it.
        replication_factor: Of a topic that is made.
        min_insync_replicas: How many replicas must have a record before it counts; None: one less than there are.
        segment_bytes: The size of its segments.
        max_message_bytes: The largest checkpoint, compressed.
        topic_settings: More settings by Kafka's names; they win over all above.
        transaction_timeout: A commit is one short transaction. While that of a dead owner is open, nobody sees what
            other tasks committed behind it: so a short time.
    """

    topic: str | None = None
    grouper: str = field(default=GROUPER)
    replication_factor: int = field(default=3)
    min_insync_replicas: int | None = None
    segment_bytes: Size = Size(26_214_400)
    max_message_bytes: Size = Size(1_000_012)
    topic_settings: Mapping[str, str] = field(factory=dict)
    transaction_timeout: timedelta = timedelta(seconds=15)

    @grouper.validator
    def _check_grouper(self, _attribute: object, grouper: str) -> None:
        if not grouper:
            raise ConfigError("grouper is empty: name Samza's class, or leave it out")

    @replication_factor.validator
    def _check_replication(self, _attribute: object, factor: int) -> None:
        if factor < 1:
            raise ConfigError(f"replication_factor is {factor}: at least 1")

    def for_topic(self) -> dict[str, str]:
        """Give the settings of a topic that is made."""
        in_sync = max(1, self.replication_factor - 1) if self.min_insync_replicas is None else self.min_insync_replicas
        return {
            "cleanup.policy": "compact",
            "replication.factor": str(self.replication_factor),
            "min.insync.replicas": str(in_sync),
            "segment.bytes": str(self.segment_bytes),
            "max.message.bytes": str(self.max_message_bytes),
            **self.topic_settings,
        }
