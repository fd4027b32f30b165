"""What the checkpoint manager declares and asks for, by its settings alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millpond.checkpoint import CheckpointId
from millpond.config import load
from millpond.errors import ConfigError
from millpond.spi import VersionPolicy
from millpond_changelog.checkpoints.keys import KeptKeys, Keys, decode
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.records import in_order
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.checkpoints.view import Found, takes_over


def job(**checkpoint: Any) -> dict[str, Any]:
    """Give a configuration with the manager."""
    return {
        "job": {"name": "j", "state_dir": "/tmp/never-made"},
        "checkpoint": {"manager": "kafka", "bootstrap_servers": ["b:1"], **checkpoint},
        "backends": {"disk": {"type": "rocksdb-local", "path": "/tmp/never-made-either"}},
        "stores": {"s": {"engine": "rocksdb", "key": "str", "value": "json"}},
    }


def test_without_transactions_the_operator_has_to_accept_it() -> None:
    """It fences unless transactions are off; then the configuration is refused until ``allow_unfenced`` says so."""
    assert KafkaCheckpoints.capabilities_of(KafkaCheckpointsSettings(bootstrap_servers="b:1")).fencing
    load(job())
    with pytest.raises(ConfigError, match="allow_unfenced"):
        load(job(transactions=False))
    load(job(transactions=False, allow_unfenced=True))


def test_a_topic_is_made_as_samza_would_and_safer() -> None:
    """Samza's settings, all but one replica in sync, and what the operator says over all."""
    made = KafkaCheckpointsSettings(bootstrap_servers="b:1", topic_settings={"segment.ms": "1"}).for_topic()
    assert made == {
        "cleanup.policy": "compact",
        "replication.factor": "3",
        "min.insync.replicas": "2",
        "segment.bytes": "26214400",
        "max.message.bytes": "1000012",
        "segment.ms": "1",
    }


@pytest.mark.parametrize(
    ("write", "read", "order"),
    [((1, 2), (2, 1), [1, 2]), ((1, 2), (1,), [2, 1]), ((2,), (2, 1), [2])],
)
def test_the_version_that_is_read_first_is_written_last(
    write: tuple[int, ...], read: tuple[int, ...], order: list[int]
) -> None:
    """Where an append is not atomic, that record is the commit point."""
    assert list(in_order(VersionPolicy(write=write, read=read))) == order


@pytest.mark.parametrize(("age_ms", "wins"), [(540_000, False), (600_000, False), (600_001, True)])
def test_a_lower_version_counts_if_it_is_newer_by_more_than_the_age(age_ms: int, wins: bool) -> None:
    """Strictly more, as in Samza; a higher version counts whatever its time."""
    old, new = Found("", 1, 0, b"", version=2), Found("", 2, age_ms, b"", version=1)
    assert takes_over(new, old, (2, 1), timedelta(minutes=10)) is wins
    assert takes_over(old, new, (2, 1), timedelta(minutes=10))
    assert not takes_over(new, None, (2,), timedelta(minutes=10))


def test_keys_come_back_as_what_they_are() -> None:
    """Of any task and any name of a pin."""
    keys = Keys('t"ask/ü 😀', "g")
    assert decode(keys.pin("a:b/c\n")).pin == "a:b/c\n"
    assert decode(keys.claim()).claim
    assert [decode(keys.newest(version)).version for version in (1, 2)] == [1, 2]
    id = CheckpointId(17, 3)
    assert decode(keys.kept(id)) == KeptKeys().decode(keys.kept(id))
    assert decode(keys.kept(id)).kept == id
    for name in ('"millpond-checkpoint:1-2"}', '"millpond-checkpoint:1-2-', '"type":"millpond-checkpoint:1-2-'):
        assert KeptKeys().decode(keys.pin(name)) is None
        assert KeptKeys().decode(Keys(name, "g").claim()) is None
    assert decode(keys.claim()).task == 't"ask/ü 😀'
