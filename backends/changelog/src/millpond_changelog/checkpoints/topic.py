"""The checkpoint topic: its name, and what it has to be like. Source: Samza's ``KafkaUtil.getCheckpointTopic``."""

from __future__ import annotations

import re

from millpond.errors import ConfigError
from millpond.formats.digest import digest_bytes
from millpond.log import Topic
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PLAIN = re.compile(r"[a-zA-Z0-9-]")
_LONGEST = 160


def samza_name(job: str, job_id: str) -> str:
    """Give Samza's name for the topic of a job."""
    return f"__samza_checkpoint_ver_1_for_{job.replace('_', '-')}_{job_id.replace('_', '-')}"


def topic_name(job: str, job_id: str) -> str:
    """Give Samza's name; where Kafka could not have a topic of that name, one of our own, different for each job."""
    name = samza_name(job, job_id)
    if _LEGAL.fullmatch(name):
        return name
    escaped = f"{_escaped(job)}_{_escaped(job_id)}"
    if len(escaped) > _LONGEST:
        escaped = escaped[:_LONGEST] + "_" + digest_bytes(escaped.encode()).partition(":")[2][:32]
    return f"__millpond_checkpoint_for_{escaped}"


def _escaped(name: str) -> str:
    """Write each byte that is neither a letter, a digit nor a dash as a dot and two digits."""
    characters = (c if _PLAIN.fullmatch(c) else "".join(f".{byte:02x}" for byte in c.encode()) for c in name)
    return "".join(characters)


def validate(topic: Topic, wanted: KafkaCheckpointsSettings) -> None:
    """
    See that checkpoints are safe in *topic*.

    Raises:
        ConfigError: They are not; with the command's words to alter it.
    """
    if topic.partitions != 1:
        raise ConfigError(
            f"the checkpoint topic {topic.name!r} has {topic.partitions} partitions, and Samza and we use one: set "
            "checkpoint.topic to another name, or delete it and let Job.prepare() make it anew"
        )
    policy = {each.strip() for each in topic.settings.get("cleanup.policy", "compact").split(",")}
    if policy != {"compact"}:
        raise ConfigError(
            f"the checkpoint topic {topic.name!r} has cleanup.policy={topic.settings['cleanup.policy']}, so "
            "checkpoints of a job that rests are deleted: alter it to compact"
        )
    _expect_at_least(topic, "max.message.bytes", wanted.max_message_bytes, "or lower checkpoint.max_message_bytes")
    if wanted.min_insync_replicas is not None:
        _expect_at_least(topic, "min.insync.replicas", wanted.min_insync_replicas, "or lower it in the configuration")


def _expect_at_least(topic: Topic, name: str, least: int, otherwise: str) -> None:
    found = topic.settings.get(name)
    if found is not None and int(found) < least:
        raise ConfigError(
            f"the checkpoint topic {topic.name!r} has {name}={found}, and {least} is wanted: alter it, {otherwise}"
        )
