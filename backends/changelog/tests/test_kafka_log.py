"""The log in Kafka, against a real broker: what the role promises, and what the driver would do without us."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millpond.errors import ConfigError, FencedError, FormatError, StateNotFoundError, StoreClosedError, TransientError
from millpond.log import Batch, Log, LogWriter
from millpond_changelog.kafka.log import KafkaLog
from millpond_changelog.kafka.topics import Topics

_numbers = count(1)


@pytest.fixture
def log(kafka_address: str) -> Iterator[KafkaLog]:
    """A log that is closed in the end."""
    made = KafkaLog([kafka_address], timeout_s=15)
    yield made
    made.close()


@pytest.fixture
def topic(log: KafkaLog) -> str:
    """A new compacted topic of two partitions, with dots in its name."""
    name = f"test.log-{next(_numbers)}.{id(log)}"
    log.create(name, 2, {"cleanup.policy": "compact"})
    return name


def everything(log: Log, topic: str, partition: int = 0, start: int | None = None) -> list[Batch]:
    """Read a partition from its start, or from *start*, to its end."""
    extent = log.extent(topic, partition)
    return list(log.read(topic, partition, extent.start if start is None else start, extent.end))


def changes(log: Log, topic: str, partition: int = 0) -> list[tuple[bytes, bytes | None]]:
    """Give all that can be read."""
    return [change for batch in everything(log, topic, partition) for change in batch.changes()]


def put(
    log: Log, topic: str, *changes: tuple[bytes, bytes | None], owner: str | None = None, partition: int = 0
) -> int:
    """Append, and give the offset of the last record."""
    writer = log.writer(owner or f"owner-{next(_numbers)}-{topic}")
    with writer.append() as append:
        append.add(topic, partition, changes)
        last = append.flush()[topic, partition]
        append.commit()
    writer.close()
    return last


def test_a_topic_is_made_once_and_described_as_it_is(log: KafkaLog, topic: str) -> None:
    """A second creation changes nothing; partitions, settings and replication are told; a new topic has a new id."""
    log.create(topic, 5, {"cleanup.policy": "delete"})
    found = log.describe(topic)
    assert (found.name, found.partitions) == (topic, 2)
    assert found.settings["cleanup.policy"] == "compact"
    assert found.settings["replication.factor"] == "1"
    assert found.settings["max.message.bytes"] == "1048588"
    assert found.identity == log.describe(topic).identity
    log.delete(topic)
    log.delete(topic)
    log.create(topic, 1, {})
    assert log.describe(topic).identity != found.identity


def test_a_topic_or_a_partition_that_is_not_there_is_not_found(log: KafkaLog, topic: str) -> None:
    """Describe, extent and read say so, at once and without making one."""
    for call in (
        lambda: log.describe("nobody.made.it"),
        lambda: log.extent("nobody.made.it", 0),
        lambda: log.read("nobody.made.it", 0, 0, 0),
        lambda: log.extent(topic, 2),
        lambda: log.read(topic, 7, 0, 0),
    ):
        with pytest.raises(StateNotFoundError, match=r"nobody|2 partitions"):
            call()


def test_settings_that_brokers_refuse_are_the_operators_to_correct(log: KafkaLog) -> None:
    """An unknown value, and more replicas than there are brokers."""
    with pytest.raises(ConfigError, match="INVALID_CONFIG"):
        log.create("refused", 1, {"cleanup.policy": "shred"})
    with pytest.raises(ConfigError, match="INVALID_REPLICATION_FACTOR"):
        log.create("refused", 1, {"replication.factor": "7"})
    with pytest.raises(ConfigError, match="TOPIC_EXCEPTION"):
        log.create("a topic / of no name", 1, {})


def test_what_was_committed_is_read_column_by_column(log: KafkaLog, topic: str) -> None:
    """Keys, values, an empty value, a tombstone, headers, times, offsets, and the position behind the marker."""
    writer = log.writer(f"writer of {topic}")
    with writer.append() as append:
        append.add(topic, 1, [(b"a", b"1"), (b"b", b"")], headers={"x": b"\x00\xff", "y": b""})
        append.add(topic, 1, [(b"a", None)])
        assert append.flush() == {(topic, 1): 2}
        assert log.extent(topic, 1).end == 0
        append.commit()
    extent = log.extent(topic, 1)
    assert (extent.start, extent.end) == (0, 4)
    (batch,) = everything(log, topic, 1)
    assert list(batch.changes()) == [(b"a", b"1"), (b"b", b""), (b"a", None)]
    assert list(batch.offsets()) == [0, 1, 2]
    assert batch.headers(0) == {"x": b"\x00\xff", "y": b""}
    assert batch.headers(2) == {}
    assert batch.millis(0) > 1_700_000_000_000
    assert batch.position >= 3
    assert everything(log, topic, 0) == []


def test_each_committed_append_is_sealed_in_each_of_its_partitions(log: KafkaLog, topic: str) -> None:
    """Behind its last record comes one offset that no record has, as the log's capabilities say."""
    assert log.capabilities.seals
    assert not KafkaLog(["localhost:1"], transactions=False).capabilities.seals
    with log.writer(f"writer of {topic}").append() as append:
        for partition, count in ((0, 3), (1, 1)):
            append.add(topic, partition, [(b"a", b"1")] * count)
        ends = append.flush()
        append.commit()
    assert [end + 2 for end in ends.values()] == [log.extent(*where).end for where in ends]
    assert [[], []] == [changes(log, *where)[end + 1 :] for where, end in ends.items()]


def test_the_position_says_when_the_end_is_reached(log: KafkaLog, topic: str) -> None:
    """Aborted records and markers at the end are passed over without a record, and without waiting."""
    put(log, topic, (b"a", b"1"))
    writer = log.writer(f"writer of {topic}")
    with writer.append() as append:
        append.add(topic, 0, [(b"b", b"2")] * 50)
        append.flush()
    end = 2 + 50 + 1
    await_last_stable(log, topic, end)
    batches = everything(log, topic)
    assert [change for batch in batches for change in batch.changes()] == [(b"a", b"1")]
    assert batches[-1].position == end
    assert list(log.read(topic, 0, 10, 20))[-1].position >= 20


def test_a_reading_stops_at_its_end(log: KafkaLog, topic: str) -> None:
    """Records from the stop on are not given, although the driver has them."""
    put(log, topic, *[(b"%d" % n, b"x" * 100) for n in range(3000)])
    batches = list(log.read(topic, 0, 1000, 2500))
    offsets = [offset for batch in batches for offset in batch.offsets()]
    assert offsets == list(range(1000, 2500))
    assert batches[-1].position == 2500
    assert [len(batch) for batch in batches] == [len(batch.changes()) for batch in batches]
    positions = [batch.position for batch in batches]
    assert positions == sorted(set(positions))


def test_offsets_outside_a_log_are_not_found(log: KafkaLog, topic: str) -> None:
    """Neither a start nor a stop beyond the end, nor a start that retention took: never the nearest instead."""
    put(log, topic, (b"a", b"1"))
    for start, stop in ((3, 3), (0, 3), (7, 9)):
        with pytest.raises(StateNotFoundError, match="beyond the end"):
            log.read(topic, 0, start, stop)
    log.create(f"{topic}.deleted", 1, {"cleanup.policy": "delete"})
    put(log, f"{topic}.deleted", *[(b"a", b"1")] * 10)
    delete_before(log, f"{topic}.deleted", 5)
    assert log.extent(f"{topic}.deleted", 0).start == 5
    with pytest.raises(StateNotFoundError, match="no longer"):
        log.read(f"{topic}.deleted", 0, 4, 8)


def delete_before(log: KafkaLog, topic: str, offset: int) -> None:
    """Remove records as retention does."""
    from confluent_kafka import TopicPartition

    admin = log._place._admin
    assert admin is not None
    for answer in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result(20)


def test_a_start_that_is_taken_away_while_it_is_read_is_not_found(log: KafkaLog, topic: str) -> None:
    """Between the look at the log and the first record, retention strikes: an error and no jump."""
    name = f"{topic}.deleted"
    log.create(name, 1, {"cleanup.policy": "delete"})
    put(log, name, *[(b"a", b"1")] * 10)
    reading = log.read(name, 0, 0, 10)
    delete_before(log, name, 5)
    with pytest.raises(StateNotFoundError, match="no longer"):
        list(reading)


def test_a_topic_that_is_deleted_while_it_is_read_is_not_found(log: KafkaLog, topic: str) -> None:
    """The reading ends with an error, before the deadline."""
    put(log, topic, (b"a", b"1"))
    reading = log.read(topic, 0, 0, 2)
    log.delete(topic)
    with pytest.raises((StateNotFoundError, TransientError)):
        list(reading)


def test_a_record_without_a_key_is_named(log: KafkaLog, topic: str, kafka_address: str) -> None:
    """Something else writes to a topic that is not compacted: the offset is in the message."""
    log.create(f"{topic}.free", 1, {"cleanup.policy": "delete"})
    producer = Producer({"bootstrap.servers": kafka_address})
    producer.produce(f"{topic}.free", b"no key")
    producer.flush(10)
    (batch,) = everything(log, f"{topic}.free")
    with pytest.raises(FormatError, match=r"offset 0 of .*has no key"):
        batch.changes()


def test_a_later_writer_ends_an_earlier_one(log: KafkaLog, topic: str) -> None:
    """Its open append is aborted, its next produce, its commit and its next append are refused; others are not."""
    owner = f"owner of {topic}"
    old, bystander = log.writer(owner), log.writer(f"{owner}2")
    hanging = old.append()
    hanging.add(topic, 0, [(b"a", b"old")])
    hanging.flush()
    new = log.writer(owner)
    with new.append() as append:
        append.add(topic, 0, [(b"a", b"new")])
        append.flush()
        append.commit()
    with pytest.raises(FencedError, match="later writer"):
        hanging.commit()
    with pytest.raises(FencedError):
        hanging.add(topic, 0, [(b"a", b"older")])
    hanging.abort()
    with pytest.raises(FencedError):
        old.append()
    with bystander.append() as append:
        append.add(topic, 0, [(b"b", b"2")])
        append.flush()
        append.commit()
    assert changes(log, topic) == [(b"a", b"new"), (b"b", b"2")]


def test_a_zombie_learns_it_in_the_midst_of_handing_records_over(log: KafkaLog, topic: str) -> None:
    """The driver says that it was fenced out of any call, also the one that only looks for reports."""
    owner = f"owner of {topic}"
    for _ in range(5):
        old = log.writer(owner)
        log.writer(owner)
        with pytest.raises(FencedError, match="later writer"), old.append() as append:
            for number in range(1_000_000):
                append.add(topic, 0, [(b"key %d" % number, b"old")])


def test_a_zombies_next_produce_is_refused(log: KafkaLog, topic: str) -> None:
    """It had nothing open when it was replaced."""
    owner = f"owner of {topic}"
    old = log.writer(owner)
    log.writer(owner)
    with pytest.raises(FencedError), old.append() as append:
        append.add(topic, 0, [(b"a", b"old")])
        append.flush()
        append.commit()
    assert changes(log, topic) == []


def test_a_fenced_writer_is_closed_with_a_line_in_the_log_and_no_warning(
    log: KafkaLog, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver cannot abort what a later writer has ended: that is said once, in words, and not on standard error."""
    first = log.writer(f"owner of {topic}")
    log.writer(f"owner of {topic}")
    with pytest.raises(FencedError):
        append_with(first, topic, [(b"a", b"1")])
    with warnings.catch_warnings(record=True) as warned, caplog.at_level("INFO", "millpond.changelog"):
        warnings.simplefilter("always")
        first.close()
    assert not [str(each.message) for each in warned]
    assert [f"owner of {topic}" in line and "later writer" in line for line in caplog.messages] == [True]


def test_an_append_is_atomic_over_partitions(log: KafkaLog, topic: str) -> None:
    """Left by an error, nothing of it is read, and the next append goes on."""
    writer = log.writer(f"owner of {topic}")
    with pytest.raises(RuntimeError), writer.append() as append:
        append.add(topic, 0, [(b"a", b"1")])
        append.add(topic, 1, [(b"a", b"1")])
        append.flush()
        raise RuntimeError
    with writer.append() as append:
        append.add(topic, 1, [(b"b", b"2")])
        assert append.flush().keys() == {(topic, 1)}
        append.commit()
        append.commit()
        append.abort()
    assert (changes(log, topic, 0), changes(log, topic, 1)) == ([], [(b"b", b"2")])


def test_two_appends_of_one_owner_do_not_overlap(log: KafkaLog, topic: str) -> None:
    """The second says so instead of mixing records."""
    writer = log.writer(f"owner of {topic}")
    first = writer.append()
    with pytest.raises(ConfigError, match="is open"):
        writer.append()
    first.abort()
    writer.append().abort()


def test_a_record_that_is_too_large_is_told_with_its_size_and_the_setting(log: KafkaLog, topic: str) -> None:
    """By the broker's answer for that record; nothing of the append is read, and appends go on soon."""
    writer = log.writer(f"owner of {topic}")
    too_large = [(b"s", b"small"), (b"l", os.urandom(2_000_000)), (b"t", b"small")]
    with pytest.raises(ConfigError, match=r"2,000,001 bytes.*1,048,588.*max\.message\.bytes"):
        append_with(writer, topic, too_large)
    with suppress(TransientError):  # the driver counts the record that was refused, and the brokers do not
        append_with(writer, topic, [(b"1", b"")])
    append_with(writer, topic, [(b"2", b"small")])
    assert changes(log, topic)[-1] == (b"2", b"small")
    assert len(changes(log, topic)) <= 2


def append_with(writer: LogWriter, topic: str, changes: list[tuple[bytes, bytes | None]]) -> None:
    """Append to the first partition."""
    with writer.append() as append:
        append.add(topic, 0, changes)
        append.flush()
        append.commit()


def test_a_topic_narrower_than_a_batch_takes_many_records(log: KafkaLog, topic: str) -> None:
    """Its limit holds for whole batches: 400 records of 1 KiB pass a limit of 16 KiB, and one of 20 KiB does not."""
    log.create(f"{topic}.narrow", 1, {"cleanup.policy": "compact", "max.message.bytes": "16384"})
    many = [(b"%d" % n, os.urandom(1024)) for n in range(400)]
    put(log, f"{topic}.narrow", *many)
    assert changes(log, f"{topic}.narrow") == many
    with pytest.raises(ConfigError, match="16,384"):
        put(log, f"{topic}.narrow", (b"k", os.urandom(20_000)))


def test_to_append_to_a_topic_that_is_not_there_is_told_by_its_name(kafka_address: str) -> None:
    """Within the log's deadline, and as a reading of it would be."""
    log = KafkaLog([kafka_address], timeout_s=5)
    writer = log.writer("owner-of-nothing")
    with pytest.raises(StateNotFoundError, match="'not-there': it is not there"), writer.append() as append:
        append.add("not-there", 0, [(b"a", b"1")])
        append.flush()
    log.close()


def test_a_deleted_topic_is_gone_when_its_deletion_returns(
    log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is behind, and shows the topic a moment longer, is waited for."""
    look, asked = Topics._look, count(1)
    stale = look(log._place, topic)
    monkeypatch.setattr(Topics, "_look", lambda place, name: stale if next(asked) <= 3 else look(place, name))
    log.delete(topic)
    assert next(asked) == 5
    with pytest.raises(StateNotFoundError):
        log.describe(topic)


def test_a_look_for_a_lost_leader_takes_seconds_and_is_made_again(
    log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody tells offsets, who cannot be asked for the topic is asked again; at the end that is what is told."""
    put(log, topic, (b"a", b"1"))
    whole, wait, unanswered, patiences = log.extent(topic, 0), Topics._await, 3, []

    def leaderless(place: Topics, doing: Any, answer: Any, *rest: Any, **more: Any) -> Any:
        nonlocal unanswered
        if doing.verb != "look into" or not unanswered:
            return wait(place, doing, answer, *rest, **more)
        unanswered -= 1
        return None

    def away(_place: Topics, _name: str, patience_s: float | None = None) -> None:
        patiences.append(patience_s)
        raise TransientError("the controller is away")

    monkeypatch.setattr(Topics, "_await", leaderless)
    monkeypatch.setattr(Topics, "_look", away)
    assert log.extent(topic, 0) == whole
    assert patiences == [2.0]
    monkeypatch.setattr(log._place, "timeout_s", 0.3)
    unanswered = 1_000
    with pytest.raises(TransientError, match="the controller is away"):
        log.extent(topic, 0)
    assert max(patiences[1:]) <= 0.3


def test_a_check_stops_an_append_and_a_reading(log: KafkaLog, topic: str) -> None:
    """It is called between pieces, and what it raises comes out."""
    put(log, topic, *[(b"%d" % n, b"x") for n in range(5000)])
    calls = count()

    def check() -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(log.read(topic, 0, 0, 5000, check))
    calls = count()
    writer = log.writer(f"owner of {topic}")
    with pytest.raises(KeyboardInterrupt), writer.append() as append:
        append.add(topic, 0, [(b"a", b"1")] * 5000, check=check)


def test_a_full_queue_is_waited_for(kafka_address: str, topic: str) -> None:
    """A producer that holds a hundred records takes ten thousand, in order."""
    log = KafkaLog([kafka_address], {"queue.buffering.max.messages": 100}, timeout_s=15)
    many = [(b"%05d" % n, b"x" * 50) for n in range(10_000)]
    put(log, topic, *many)
    assert changes(log, topic) == many
    log.close()


def test_without_transactions_records_are_written_and_nothing_is_promised(kafka_address: str, topic: str) -> None:
    """It declares no fencing; an append is acknowledged record by record, and what was sent stays after an abort."""
    log = KafkaLog([kafka_address], timeout_s=15, transactions=False)
    assert not log.capabilities.fencing
    writer = log.writer("anybody")
    with writer.append() as append:
        append.add(topic, 0, [(b"a", b"1"), (b"b", None)], headers={"h": b"1"})
        assert append.flush() == {(topic, 0): 1}
        append.commit()
    with writer.append() as append:
        append.add(topic, 0, [(b"c", b"3")])
        append.flush()
    assert changes(log, topic) == [(b"a", b"1"), (b"b", None), (b"c", b"3")]
    log.close()


def test_without_transactions_a_record_that_a_broker_refuses_fails_its_append(kafka_address: str, topic: str) -> None:
    """The topic was narrowed since it was looked at: only the report of that record says that it is not there."""
    log = KafkaLog([kafka_address], timeout_s=15, transactions=False)
    writer = log.writer("anybody")
    append_with(writer, topic, [(b"a", b"1")])
    narrow(kafka_address, topic, 1_000)
    with pytest.raises(ConfigError, match=r"5,001 bytes.*max\.message\.bytes"):
        for _ in range(100):  # the brokers hear of it in their own time
            append_with(writer, topic, [(b"b", os.urandom(5_000))])
    log.close()


def test_records_that_nobody_acknowledges_are_not_waited_for_beyond_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that takes connections and never answers costs an append its time-out, and no more."""
    monkeypatch.setattr(KafkaLog, "_limit", lambda log, topic: 1_000_000)  # else that would be asked for, and time out
    begun = time.monotonic()

    def check() -> None:
        assert time.monotonic() - begun < 10, "it waits on"

    with socket.create_server(("127.0.0.1", 0)) as silent:
        log = KafkaLog([f"127.0.0.1:{silent.getsockname()[1]}"], timeout_s=1, transactions=False)
        with pytest.raises(TransientError, match="_MSG_TIMED_OUT"), log.writer("anybody").append() as append:
            append.add("topic", 0, [(b"a", b"1")])
            append.flush(check)
        log.close()


def narrow(address: str, topic: str, limit: int) -> None:
    """Let a topic take less from now on."""
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(20)


def test_a_transaction_that_the_brokers_gave_up_may_be_begun_anew_by_the_next_owner(
    kafka_address: str, topic: str
) -> None:
    """Its commit is transient and names the time; its writer is over, since it may have a successor."""
    log = KafkaLog([kafka_address], timeout_s=15, transaction_timeout_s=3)
    owner = f"owner of {topic}"
    writer = log.writer(owner)
    append = writer.append()
    append.add(topic, 0, [(b"a", b"1")])
    append.flush()
    await_last_stable(log, topic, 2)
    with pytest.raises(TransientError, match=r"gives? a transaction up after 3 s"):
        append.commit()
    with pytest.raises(FencedError, match="reopen the task"):
        writer.append()
    put(log, topic, (b"b", b"2"), owner=owner)
    assert changes(log, topic) == [(b"b", b"2")]
    log.close()


def await_last_stable(log: Log, topic: str, end: int) -> None:
    """Wait until what was open is no longer."""
    pause = threading.Event()
    for _ in range(400):
        if log.extent(topic, 0).end >= end:
            return
        pause.wait(0.05)
    raise AssertionError("the transaction is still open")


def test_nothing_outlives_a_closed_log(kafka_address: str, topic: str) -> None:
    """Native threads and sockets of readers, writers and admin are gone; calls say that it is closed."""
    before = threads_and_files()
    use_and_close(kafka_address, topic)
    gc.collect()
    assert threads_and_files() <= before


def use_and_close(kafka_address: str, topic: str) -> None:
    """Close a log in the middle of a reading and of an append."""
    log = KafkaLog([kafka_address], timeout_s=15)
    put(log, topic, *[(b"%d" % n, b"x") for n in range(5000)])
    reading = log.read(topic, 0, 0, 5000)
    next(reading)
    hanging = log.writer("a hanging one").append()
    hanging.add(topic, 0, [(b"a", b"1")])
    log.close()
    log.close()
    with pytest.raises(StoreClosedError):
        list(reading)
    calls: list[Callable[[], object]] = [
        lambda: log.describe(topic),
        lambda: log.extent(topic, 0),
        lambda: log.writer("x"),
        lambda: hanging.add(topic, 0, [(b"b", b"2")]),
        hanging.flush,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()


def threads_and_files() -> int:
    """Count what this process has open: Python does not know of the driver's threads."""
    return sum(len(list(Path("/proc/self", what).iterdir())) for what in ("task", "fd"))


def test_options_that_the_log_rests_on_are_refused_and_secrets_are_not_shown() -> None:
    """Reserved ones by name; and an option that the driver refuses is told without the password in it."""
    from millpond.spi import Secret

    with pytest.raises(ConfigError, match=r"isolation\.level"):
        KafkaLog(["x:1"], {"isolation.level": "read_uncommitted"})
    secret = Secret("hunter2")
    log = KafkaLog(["x:1"], {"security.protocol": secret})
    with pytest.raises(ConfigError) as caught:
        log.extent("t", 0)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r} {log.__dict__!r}"
    log.close()
