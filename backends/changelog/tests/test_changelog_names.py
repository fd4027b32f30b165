"""Topics' names, tasks' partitions and stores' markers: functions of values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import CheckpointId, Layout, SystemStreamPartition
from millpond.errors import ConfigError, FormatError, StateCorruptError
from millpond.formats import changelog_marker
from millpond_changelog.marker import Marker, Origin, decode, encode
from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.streams import AllButLast
from millpond_changelog.topics import Topics, topic_name

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12) | st.sampled_from(
    ["a", "a-", "-a", "a--b", "a-b", "-", "--", "a_b", "a.b", "A", "_2d", "changelog", "x" * 200]
)


@given(one=st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES), other=st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES))
def test_a_topic_has_a_legal_name_that_nobody_else_has(
    one: tuple[str, str, str, str | None], other: tuple[str, str, str, str | None]
) -> None:
    """Whatever jobs, ids, stores and tasks are called, two of them share no topic, nor a name that Kafka mistakes."""
    first, second = topic_name(*one), topic_name(*other)

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,200}", first)
    assert (first == second) == (one == other)


def topics(layout: Layout | None = None, **settings: Any) -> Topics:
    return Topics(ChangelogSettings(directory=Path("x"), **settings), "flights", "1", layout)


def test_a_tasks_partition_is_its_place_or_the_number_in_its_name() -> None:
    """Stated tasks come first, then Samza's names; without either there are topics of the task's own."""
    stated = topics(Layout(("north", "south", "Partition 0"), "hash"))

    assert (1, 3) == (stated.place("s", "south").partition, stated.place("s", "south").partitions)
    assert 2 == stated.place("s", "Partition 0").partition
    assert 7 == topics(partitions=8).place("s", "Partition 7").partition
    assert ("log", 7, None) == (
        topics(topics={"s": "log"}).place("s", "Partition 7").topic,
        topics(topics={"s": "log"}).place("s", "Partition 7").partition,
        topics(topics={"s": "log"}).place("s", "Partition 7").partitions,
    )
    own = topics().place("s", "north")
    assert (topic_name("flights", "1", "s", "north"), 0, 1) == (own.topic, own.partition, own.partitions)


@pytest.mark.parametrize(
    ("settings", "task", "told"),
    [
        ({"partitions": 8}, "north", "nobody says which partition"),
        ({"partitions": 8}, "Partition 8", "the changelogs have 8 partitions"),
        ({"partitions": 8}, "Partition 07", "nobody says which partition"),
        ({"topics": {"s": "a/b"}, "partitions": 1}, "Partition 0", r"topics\.s is 'a/b'"),
        ({"topics": {"s": ".."}, "partitions": 1}, "Partition 0", r"topics\.s is '\.\.'"),
    ],
)
def test_a_place_that_nobody_knows_is_an_error(settings: dict[str, Any], task: str, told: str) -> None:
    """No task is sent to a partition by a guess, and no topic leaves its folder."""
    with pytest.raises(ConfigError, match=told):
        topics(**settings).place("s", task)


def test_topics_are_made_as_samza_makes_them() -> None:
    """The defaults are Samza's; what the operator says by Kafka's own names wins."""
    wanted = topics(topic_settings={"segment.bytes": "1", "retention.ms": "5"}).wanted()

    assert wanted == {
        "cleanup.policy": "compact",
        "replication.factor": "2",
        "min.insync.replicas": "1",
        "max.message.bytes": "1000012",
        "segment.bytes": "1",
        "delete.retention.ms": "86400000",
        "min.compaction.lag.ms": "14400000",
        "retention.ms": "5",
    }


# Markers

SSP = SystemStreamPartition("kafka", "flights.of.today", 3)
OURS = Marker(SSP, 811, Origin("8f3e", 5, CheckpointId(1_700_000_000_123, 456), 9))


def test_a_marker_is_samzas_with_one_field_more() -> None:
    """Without that field it is Samza's, byte for byte; with it Samza reads the same."""
    plain = evolve(OURS, origin=None)
    samza = changelog_marker.encode(changelog_marker.KafkaStateCheckpointMarker(SSP, "811"))

    assert samza == encode(plain, "me")
    assert encode(OURS, "me").startswith(samza[:-1] + ',"millpond":{')
    assert changelog_marker.decode(samza) == changelog_marker.decode(encode(OURS, "me"))
    assert (OURS, plain) == (decode(encode(OURS, "me"), "me"), decode(samza, "anybody"))
    empty = evolve(OURS, offset=None)
    assert (empty, 0) == (decode(encode(empty, "me"), "me"), empty.stop)


def test_a_sealed_marker_ends_behind_the_mark() -> None:
    """It says so in a field of its own, which others do not have; nothing else but true may stand there."""
    sealed = evolve(OURS, origin=evolve(OURS.origin, sealed=True))

    assert (812, 812) == (OURS.stop, OURS.end)
    assert (812, 813) == (sealed.stop, sealed.end)
    assert sealed == decode(encode(sealed, "me"), "me")
    assert '"sealed":true' in encode(sealed, "me")
    assert "sealed" not in encode(OURS, "me")
    with pytest.raises(FormatError, match="sealed"):
        decode(encode(sealed, "me").replace('"sealed":true', '"sealed":1'), "me")


@given(st.integers(1, 700))
def test_all_but_the_last_of_a_stream(count: int) -> None:
    """However many there are, the last one is told when the others are through."""
    many = [(b"%d" % number, None) for number in range(count)]
    stream = AllButLast(iter(many))

    assert many[:-1] == list(stream)
    assert many[-1:] == stream.last


@given(place=st.integers(0), flip=st.integers(1, 127))
def test_a_marker_that_was_changed_is_refused(place: int, flip: int) -> None:
    """Whatever character changes, it is no marker any more."""
    text = encode(OURS, "me")
    place %= len(text)
    changed = text[:place] + chr(ord(text[place]) ^ flip) + text[place + 1 :]

    with pytest.raises((FormatError, StateCorruptError)):
        decode(changed, "me")


def test_a_marker_of_another_store_is_refused() -> None:
    """It names whose state it is."""
    with pytest.raises(FormatError, match="of another task, store or job"):
        decode(encode(OURS, "me"), "you")


@pytest.mark.parametrize("offset", ["-1", "x", "", "1.5", "9" * 30])
def test_an_offset_that_no_log_gives_is_refused(offset: str) -> None:
    """Another system's offsets are texts of any kind; this one's are numbers."""
    text = changelog_marker.encode(changelog_marker.KafkaStateCheckpointMarker(SSP, offset))

    with pytest.raises(FormatError):
        decode(text, "me")
