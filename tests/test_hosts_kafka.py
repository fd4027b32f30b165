"""The Kafka host on a real broker: rebalances, restores, ends and bad days, each with every count exact at the end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hosts_kafka
import pytest
from hosts_kafka import FAST, Cluster, config, expected, hosting, state_of, unique

import millpond
from millpond.errors import CommitFailedError, ConfigError, FencedError, TransientError
from millpond.events import CommitFailed, CommitPublished, StoreRestored
from millpond.hosts.kafka import SourceGoneError, tasks
from millpond.hosts.kafka.driver import connect
from millpond.hosts.kafka.events import (
    ClientTrouble,
    HostReady,
    Revoked,
    TaskHeld,
    TaskLeft,
    TaskStarted,
    TaskWaits,
)
from millpond.plugins import BACKENDS, ENGINES, registered, resolve

PROGRAM = Path(__file__).with_name("programs") / "kafka_member.py"
PROTOCOLS = {
    "cooperative": FAST,
    "eager": {**FAST, "partition.assignment.strategy": "range"},
    "consumer": {"group.protocol": "consumer", "max.poll.interval.ms": 40_000},
}
KEYS = 7


@pytest.fixture(scope="module")
def cluster(kafka_address: str) -> Cluster:
    """The shared broker."""
    return Cluster(kafka_address)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder whose name is the group's."""
    made = tmp_path / unique("group")
    made.mkdir()
    return made


def names(count: int) -> list[str]:
    """Give the tasks of *count* partitions."""
    return [f"Partition {number}" for number in range(count)]


def is_task(name: str) -> Callable[[Any], bool]:
    """Give what tells the events of one task."""
    return lambda event: event.task == name


def total(partitions: int, number: int) -> Counter[str]:
    """Give the counts of *number* records in each of *partitions*."""
    return sum((expected(partition, KEYS, number) for partition in range(partitions)), Counter())


def fill(cluster: Cluster, topic: str, partitions: int, number: int, first: int = 0) -> None:
    """Write *number* records into each partition."""
    for partition in range(partitions):
        cluster.count(topic, partition, KEYS, number, first)


def await_all(hosts: list[hosts_kafka.Hosted], topic: str, partitions: int, last: int) -> None:
    """Wait until the hosts together have committed *last* in each partition."""

    def covered() -> set[int]:
        found = set()
        for host in hosts:
            assert not host.errors, host.errors
            for event in host.of(CommitPublished):
                found |= {
                    s.partition for s, o in event.checkpoint.offsets.items() if s.stream == topic and int(o) >= last
                }
        return found

    hosts_kafka.await_true(lambda: covered() == set(range(partitions)))


# ----------------------------------------------------------------------------------------------------------- rebalances


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_rebalance_hands_tasks_over_and_every_count_is_exact(cluster, place, protocol):
    """A second member takes tasks over at the first one's last commit, and gives them back when it leaves."""
    topic = cluster.topic(partitions=2)
    kafka = {"client": PROTOCOLS[protocol]}
    first = config(place, cluster.address, [topic], "a", kafka=kafka)
    second = config(place, cluster.address, [topic], "b", kafka=kafka)
    fill(cluster, topic, 2, 400)
    with hosting(first) as a:
        await_all([a], topic, 2, 399)
        with hosting(second) as b:
            b.await_event(TaskStarted)
            fill(cluster, topic, 2, 400, 400)
            await_all([a, b], topic, 2, 799)
            left = a.of(TaskLeft)
            assert left
            assert [None] * len(left) == [event.error for event in left]
            assert all(event.committed is not None for event in left)
            b.stop()
        fill(cluster, topic, 2, 100, 800)
        await_all([a], topic, 2, 899)
        a.stop()
        assert not a.of(TaskWaits) or protocol == "eager"
    found = state_of(first, place, names(2))

    assert total(2, 900) == found.counts
    assert {(topic, 0): 899, (topic, 1): 899} == found.offsets


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_spare_member_is_ready(cluster, place, protocol):
    """A member to which the group has no partition to give is ready, and takes over when the other one leaves."""
    topic = cluster.topic()
    kafka = {"client": PROTOCOLS[protocol]}
    fill(cluster, topic, 1, 20)
    second = config(place, cluster.address, [topic], "b", kafka=kafka)
    with hosting(config(place, cluster.address, [topic], "a", kafka=kafka)) as a:
        a.await_offset(topic, 0, 19)
        with hosting(second) as b:
            b.await_event(HostReady, lambda event: event.ready)
            working, spare = (b, a) if b.host.health.tasks else (a, b)
            working.stop()
            fill(cluster, topic, 1, 20, 20)
            spare.await_offset(topic, 0, 39)
            spare.stop()

    assert expected(0, KEYS, 40) == state_of(second, place, names(1)).counts


@pytest.mark.timeout(300)  # topics for two stores and the records are made
def test_state_and_records_may_be_topics_too(cluster, place):
    """With checkpoint topic and changelog a task moves to a member with an empty disk, and every count is exact."""
    pytest.importorskip("millpond_changelog")
    topic = cluster.topic(partitions=2)
    log = {"bootstrap_servers": [cluster.address], "replication_factor": 1}
    job = unique("counting")
    settings = {}
    for name in "ab":
        made = config(place, cluster.address, [topic], name, job={"name": job})
        settings[name] = made | {
            "checkpoint": {"manager": "kafka", **log},
            "backends": {"log": {"type": "changelog", **log}},
        }
    fill(cluster, topic, 2, 300)
    with hosting(settings["a"]) as a:
        await_all([a], topic, 2, 299)
        with hosting(settings["b"]) as b:
            b.await_event(TaskStarted)
            fill(cluster, topic, 2, 300, 300)
            await_all([a, b], topic, 2, 599)
            a.stop()
            fill(cluster, topic, 2, 100, 600)
            await_all([b], topic, 2, 699)
            b.stop()

    assert (
        total(2, 700)
        == state_of(settings["b"] | {"job": {**settings["b"]["job"], "tasks": names(2)}}, place, names(2)).counts
    )


def test_a_hand_over_that_cannot_end_in_time_is_cut_off(cluster, place):
    """A commit that hangs holds the group up no longer than the hand-over's time; its work is done again elsewhere."""
    topic = cluster.topic(partitions=2)
    fill(cluster, topic, 2, 100)
    gate = Gate()
    gate.open.set()
    disk = {"disk": {"type": "gated", "path": str(place / "backup")}}
    slow = config(
        place, cluster.address, [topic], "a", backends=disk, kafka={"handover": "1s"}, commit={"interval": "1h"}
    )
    quick = config(place, cluster.address, [topic], "b")
    read = threading.Semaphore(0)

    def process(record: Any, task: Any) -> None:
        hosts_kafka.count(record, task)
        read.release()

    with registered(BACKENDS, "gated", gate.backend()), hosting(slow, process) as a:
        for _ in range(200):
            assert read.acquire(timeout=hosts_kafka.LONGEST_S)
        gate.held.clear()
        with hosting(quick) as b:
            left = a.await_event(TaskLeft)
            assert left.error is not None
            assert left.committed is None
            assert left.duration_s < 10
            b.await_event(TaskStarted)
            gate.held.set()
            a.stop()  # which commits the task that it kept
            await_all([a, b], topic, 2, 99)
            b.stop()

    assert total(2, 100) == state_of(quick, place, names(2)).counts


@contextmanager
def member(settings: dict[str, Any], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a member in a process of its own."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), json.dumps(settings)], stdout=subprocess.PIPE, stderr=said
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


def told(process: subprocess.Popen[bytes], log: Path, event: str, holds: Callable[[Any], bool] = bool) -> Any:
    """Give the member's next line of *event* that *holds*; pytest's own time-out ends a wait for ever."""
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if said["event"] == event and holds(said):
            return said
    raise AssertionError(f"the member ended without {event}: {log.read_text()[-3000:]}")


def test_a_killed_members_tasks_go_on_elsewhere(cluster, place):
    """After SIGKILL in the middle of its work, two others take a member's tasks over, and every count is exact."""
    topic = cluster.topic(partitions=3)
    fill(cluster, topic, 3, 2_000)
    kafka = {"client": {**FAST, "session.timeout.ms": 4_000}}
    settings = {name: config(place, cluster.address, [topic], name, kafka=kafka) for name in "abc"}
    log = place / "member.log"
    with member(settings["a"], log) as killed:
        told(killed, log, "CommitPublished", lambda said: max(said["offsets"].values()) > 0)
        killed.kill()
        killed.wait(30)
        with hosting(settings["b"]) as b, hosting(settings["c"]) as c:
            await_all([b, c], topic, 3, 1_999)
            b.stop()
            c.stop()
    found = state_of(settings["b"], place, names(3))

    assert total(3, 2_000) == found.counts
    assert 6_000 == len(found.seen)


def test_sigterm_ends_a_member_with_everything_committed(cluster, place):
    """A member that is asked to end commits what it has processed, leaves its group, and exits with 0."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 3_000)
    settings = config(place, cluster.address, [topic], commit={"interval": "1h"})
    log = place / "member.log"
    with member(settings, log) as asked:
        told(asked, log, "Processed", lambda said: said["offset"] >= 200)
        asked.send_signal(signal.SIGTERM)
        last = told(asked, log, "CommitPublished")
        told(asked, log, "Ended")
        assert 0 == asked.wait(30), log.read_text()
    found = state_of(settings, place, names(1))

    assert found.offsets[topic, 0] == last["offsets"][f"{topic} 0"] >= 200
    assert found.offsets[topic, 0] + 1 == sum(found.counts.values())
    with hosting(settings) as host:  # and nobody has to wait for a session to end
        assert {topic: found.offsets[topic, 0] + 1} == host.await_event(TaskStarted, timeout_s=10).offsets


# ------------------------------------------------------------------------------------------------------------- restores


class Gate:
    """Holds restores and uploads back."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Event()
        self.held = threading.Event()
        self.held.set()
        self.refuse = 0

    def backend(self) -> type[Any]:
        """Give a backend whose restores wait at this gate, and whose uploads fail while ``refuse`` is not 0."""
        gate = self

        class Gated(resolve(BACKENDS, "rocksdb-local")):  # type: ignore[misc]
            def restore_manager(self, task: Any, stores: Any) -> Any:
                manager = super().restore_manager(task, stores)
                given = manager.restore

                def restore(target: Any) -> None:
                    gate.reached.release()
                    while not gate.open.wait(0.01):
                        target.check()
                    given(target)

                manager.restore = restore
                return manager

            def backup_manager(self, task: Any, stores: Any) -> Any:
                manager = super().backup_manager(task, stores)
                given = manager.upload

                def upload(snapshot: Any, markers: Any) -> Any:
                    assert gate.held.wait(hosts_kafka.LONGEST_S)
                    if gate.refuse:
                        gate.refuse -= 1
                        raise TransientError("the disk is away")
                    return given(snapshot, markers)

                manager.upload = upload
                return manager

        return Gated


def filled(cluster: Cluster, place: Path, partitions: int) -> str:
    """Let a job process 100 records in each of *partitions*; give the topic."""
    topic = cluster.topic(partitions=partitions)
    fill(cluster, topic, partitions, 100)
    with hosting(config(place, cluster.address, [topic], "before")) as host:
        await_all([host], topic, partitions, 99)
        host.stop()
    return topic


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_task_that_is_taken_in_the_middle_of_its_restore_is_given_up_at_once(cluster, place, protocol):
    """A restore that hangs is interrupted when the task goes to another member, which is not kept waiting."""
    topic = filled(cluster, place, 2)
    gate = Gate()
    kafka = {"client": PROTOCOLS[protocol]}
    slow = config(
        place,
        cluster.address,
        [topic],
        "a",
        kafka=kafka,
        backends={"disk": {"type": "gated", "path": str(place / "backup")}},
    )
    quick = config(place, cluster.address, [topic], "b", kafka=kafka)
    with registered(BACKENDS, "gated", gate.backend()), hosting(slow) as a:
        for _ in range(2):  # a store of each
            assert gate.reached.acquire(timeout=hosts_kafka.LONGEST_S)
        assert not a.host.health.ready
        with hosting(quick) as b:
            taken = b.await_event(TaskStarted)
            assert (a.host.health.last_poll_age_s or 0) < 5, "a restore must not keep its member from polling"
            assert not a.of(TaskStarted)
            assert not a.of(TaskLeft)
            gate.open.set()
            other = "Partition 1" if taken.task == "Partition 0" else "Partition 0"
            a.await_event(TaskStarted, is_task(other))
            a.await_event(HostReady, lambda event: event.ready)
            assert {other} == set(a.host.health.tasks)
            fill(cluster, topic, 2, 100, 100)
            await_all([a, b], topic, 2, 199)
            b.stop()
        a.stop()

    assert total(2, 200) == state_of(quick, place, names(2)).counts


def test_a_member_is_not_ready_before_its_tasks_are_restored(cluster, place):
    """Readiness is false while any task is being restored, true afterwards, and the restored image is a local one."""
    topic = filled(cluster, place, 1)
    settings = config(place, cluster.address, [topic], "before")
    with hosting(settings) as host:
        assert "local" == host.await_event(StoreRestored).source
        host.await_event(HostReady, lambda event: event.ready)
        assert host.host.health.ready
        assert {"Partition 0"} == set(host.host.health.tasks)
        host.stop()
        assert not host.host.health.ready


# -------------------------------------------------------------------------------------------------------------- offsets


def test_an_offset_that_retention_took_is_an_error_and_nothing_is_skipped(cluster, place):
    """A job whose next records were removed refuses to go on, and names what it wanted and what is there."""
    topic = filled(cluster, place, 1)
    fill(cluster, topic, 1, 100, 100)
    cluster.trim(topic, 0, 150)
    settings = config(place, cluster.address, [topic])
    with hosting(settings) as host:
        host.join()
        (error,) = host.errors

    assert isinstance(error, SourceGoneError)
    assert f"topic '{topic}', partition 0, from offset 100 on, and the topic has 150 to 200" in str(error)
    assert {(topic, 0): 99} == state_of(settings, place, names(1)).offsets


def test_a_topic_made_again_is_an_error(cluster, place):
    """A topic that was deleted and made again ends before the checkpoint's offset: it is no source of this job."""
    topic = filled(cluster, place, 1)
    cluster.delete(topic)
    cluster.topic(topic)
    cluster.count(topic, 0, KEYS, 20)
    with hosting(config(place, cluster.address, [topic])) as host:
        host.join()
        (error,) = host.errors

    assert isinstance(error, SourceGoneError)
    assert "deleted and made again" in str(error)


def test_a_topic_made_again_that_has_grown_past_the_old_offset_is_an_error(cluster, place):
    """The checkpoint knows which topic it was: offsets that the new one has, too, do not hide that it is another."""
    topic = filled(cluster, place, 1)
    cluster.delete(topic)
    cluster.topic(topic)
    cluster.count(topic, 0, KEYS, 300)
    with hosting(config(place, cluster.address, [topic])) as host:
        host.join()
        (error,) = host.errors

    assert isinstance(error, SourceGoneError)
    assert "deleted and made again, and has" in str(error)
    assert {(topic, 0): 99} == state_of(config(place, cluster.address, [topic]), place, names(1)).offsets


def test_a_topic_made_again_under_the_job_is_an_error(cluster, place):
    """A topic that is replaced by a longer one while the job reads it ends the job, which has taken nothing from it."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 50)
    settings = config(
        place, cluster.address, [topic], kafka={"client": {**FAST, "topic.metadata.refresh.interval.ms": 500}}
    )
    with hosting(settings) as host:
        host.await_offset(topic, 0, 49)
        cluster.delete(topic)
        cluster.topic(topic)
        cluster.count(topic, 0, KEYS, 300, 1000)
        host.join()
        (error,) = host.errors

    assert isinstance(error, ConfigError | SourceGoneError)
    assert topic in str(error)
    assert expected(0, KEYS, 50) == state_of(settings, place, names(1)).counts


def test_a_topic_that_is_deleted_under_the_job_ends_it(cluster, place):
    """A job whose topic is deleted while it runs ends with an error that names the topic, its work committed."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 50)
    settings = config(
        place, cluster.address, [topic], kafka={"client": {**FAST, "topic.metadata.refresh.interval.ms": 500}}
    )
    with hosting(settings) as host:
        host.await_offset(topic, 0, 49)
        cluster.delete(topic)
        host.join()
        (error,) = host.errors

    assert isinstance(error, ConfigError | SourceGoneError)
    assert topic in str(error)
    assert expected(0, KEYS, 50) == state_of(settings, place, names(1)).counts


def test_transactions_leave_gaps_that_are_no_loss(cluster, place):
    """Control records and aborted records take offsets; a job reads past them, stops behind them, and starts again."""
    topic = cluster.topic()
    settings = config(place, cluster.address, [topic])

    def write(first: int) -> None:
        records = [(0, f"0-{n % KEYS}", str(n)) for n in range(first, first + 10)]
        cluster.write(topic, records, **{"transactional.id": unique("writer")})

    for first in (0, 10, 20):
        write(first)
    with hosting(settings) as host:
        host.await_offset(topic, 0, 31)
        host.stop()
    assert 33 == cluster.end(topic, 0)
    write(30)
    with hosting(settings) as host:
        assert {topic: 32} == host.await_event(TaskStarted).offsets  # the control record that nobody sees
        host.await_offset(topic, 0, 42)
        host.stop()

    assert expected(0, KEYS, 40) == state_of(settings, place, names(1)).counts


def test_dotted_topics_are_read_together_and_an_empty_one_is_no_trouble(cluster, place):
    """A task reads its partition of several topics, of names with dots; one without records has its place too."""
    filled_one, other, empty = (cluster.topic(unique(name), 2) for name in ("a.b", "a_b.c", "empty.one"))
    topics = [filled_one, other, empty]
    settings = config(place, cluster.address, topics)
    fill(cluster, filled_one, 2, 60)
    fill(cluster, other, 2, 60)
    with hosting(settings) as host:
        await_all([host], filled_one, 2, 59)
        await_all([host], other, 2, 59)
        host.stop()
    found = state_of(settings, place, names(2))

    assert total(2, 60) + total(2, 60) == found.counts
    wanted = {(topic, n): last for topic, last in ((filled_one, 59), (other, 59), (empty, -1)) for n in (0, 1)}
    assert wanted == found.offsets


def test_a_start_at_the_end_is_remembered(cluster, place):
    """A job that begins at the end begins there once: what comes while it is down is not skipped by the next start."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 10)
    settings = config(place, cluster.address, [topic], kafka={"begin": "latest"})
    with hosting(settings) as host:
        assert {topic: 10} == host.await_event(TaskStarted).offsets
        host.stop()
    fill(cluster, topic, 1, 20, 10)
    with hosting(settings) as host:
        assert {topic: 10} == host.await_event(TaskStarted).offsets
        host.await_offset(topic, 0, 29)
        host.stop()

    assert expected(0, KEYS, 30) - expected(0, KEYS, 10) == state_of(settings, place, names(1)).counts


def test_the_group_shows_the_offsets_for_other_tools(cluster, place):
    """After each checkpoint the group has the offset of the next record, unless the operator wants none."""
    from confluent_kafka import Consumer, TopicPartition

    topic = cluster.topic()
    fill(cluster, topic, 1, 30)
    for mirrored, offset in ((False, -1001), (True, 30)):
        group = unique("mirror")
        settings = config(place / group, cluster.address, [topic], kafka={"mirror_offsets": mirrored, "group": group})
        with hosting(settings) as host:
            host.await_offset(topic, 0, 29)
            host.stop()
        looking = Consumer({"bootstrap.servers": cluster.address, "group.id": group})
        (found,) = looking.committed([TopicPartition(topic, 0)], timeout=20)
        looking.close()
        assert offset == found.offset


def test_a_topic_that_grew_is_refused_while_running_and_at_the_next_start(cluster, place):
    """With another number of partitions keys go astray: a job says so, unless the operator says that none matters."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 20)
    client = {**FAST, "topic.metadata.refresh.interval.ms": 500}
    settings = config(place, cluster.address, [topic], kafka={"client": client})
    with hosting(settings) as host:
        host.await_offset(topic, 0, 19)
        cluster.grow(topic, 2)
        host.join()
        (running,) = host.errors
    with hosting(settings) as host:
        host.join()
        (starting,) = host.errors
    for error in (running, starting):
        assert isinstance(error, ConfigError)
    assert "have 2 partitions" in str(running)
    assert "began with 1" in str(running)
    assert "Partition 1" in str(starting)

    cluster.count(topic, 1, KEYS, 20)
    free = config(place, cluster.address, [topic], kafka={"client": client, "pin_partitions": False})
    with hosting(free) as host:
        host.await_offset(topic, 1, 19)
        host.stop()
    assert total(2, 20) == state_of(free, place, names(2)).counts


# ------------------------------------------------------------------------------------------------------------- bad days


@pytest.mark.timeout(300)  # a broker starts three times
def test_a_broker_that_goes_and_comes_back_is_waited_for(own_kafka, place):
    """A job starts before its broker, lives through its restart, and counts exactly, without being started again."""
    broker = own_kafka()
    cluster = Cluster(broker.address)
    topic = cluster.topic(partitions=2)
    fill(cluster, topic, 2, 100)
    broker.stop()
    client = {**FAST, "reconnect.backoff.max.ms": 500}
    settings = config(place, cluster.address, [topic], kafka={"client": client})
    with hosting(settings) as host:
        host.await_event(ClientTrouble)
        assert not host.host.health.ready
        broker.restart()
        await_all([host], topic, 2, 99)
        broker.kill()
        host.await_event(ClientTrouble)
        broker.restart()
        fill(cluster, topic, 2, 100, 100)
        await_all([host], topic, 2, 199)
        host.stop()

    assert total(2, 200) == state_of(settings, place, names(2)).counts


def test_a_broker_that_dies_while_it_is_asked_where_input_ends_gives_no_other_end(own_kafka):
    """The client then gives offsets below zero, and no error: a task's offset would seem to be beyond the end."""
    broker = own_kafka()
    cluster = Cluster(broker.address)
    topic = cluster.topic(partitions=1)
    fill(cluster, topic, 1, 5)
    driver = connect({"bootstrap.servers": broker.address, "group.id": unique("group")}, [topic])
    try:
        assert (0, 5) == driver.range_of((topic, 0), 30.0)
        broker.freeze()
        death = threading.Timer(0.5, broker.kill)
        death.start()
        with pytest.raises(TransientError):
            driver.range_of((topic, 0), 30.0)
        death.join()
    finally:
        driver.close()


def test_a_record_that_cannot_be_processed_is_not_half_committed(cluster, place):
    """The function's error ends the host: the record's half-done write is nowhere, and other tasks are committed."""
    topic = cluster.topic(partitions=2)
    fill(cluster, topic, 2, 50)
    settings = config(place, cluster.address, [topic], commit={"interval": "1h"})
    with hosting(settings, stumbling(30)) as host:
        host.join()
        (error,) = host.errors
    found = state_of(settings, place, names(2))

    assert isinstance(error, ZeroDivisionError)
    assert (topic, 0) not in found.offsets
    assert all(key.startswith("1-") for key in found.counts)
    assert found.offsets.get((topic, 1), -1) + 1 == sum(found.counts.values())


def stumbling(at: int) -> Callable[[Any, Any], None]:
    """Give a function that fails in the middle of the record *at* of partition 0."""

    def process(record: Any, task: Any) -> None:
        hosts_kafka.count(record, task)
        if record.partition() == 0 and record.offset() == at:
            raise ZeroDivisionError("no such record")

    return process


def test_a_task_that_another_process_claims_stops_alone_and_comes_back(cluster, place, monkeypatch):
    """A fenced task is closed without a commit, others go on; while the group gives it to us it is claimed again."""
    monkeypatch.setattr(tasks, "FENCED_RETRY_S", 0.3)
    topic = cluster.topic(partitions=2)
    fill(cluster, topic, 2, 50)
    settings = config(place, cluster.address, [topic])
    other = {**settings, "job": {**settings["job"], "state_dir": str(place / "other"), "tasks": names(2)}}
    with hosting(settings) as host:
        await_all([host], topic, 2, 49)
        with millpond.open_job(other) as job:
            job.open_task("Partition 0").close()
        fill(cluster, topic, 2, 50, 50)
        waits = host.await_event(TaskWaits)
        assert isinstance(waits.error, FencedError)
        assert "Partition 0" == waits.task
        host.await_event(TaskStarted, is_task("Partition 0"))
        await_all([host], topic, 2, 99)
        assert 2 == sum(event.task == "Partition 0" for event in host.of(TaskStarted))
        assert 1 == sum(event.task == "Partition 1" for event in host.of(TaskStarted))
        host.stop()

    assert total(2, 100) == state_of(settings, place, names(2)).counts


def test_commits_may_fail_as_often_as_the_operator_says(cluster, place):
    """Failed commits within the allowance change nothing; one more ends the host with what went wrong."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 50)
    gate = Gate()
    gate.open.set()
    gate.refuse = 2
    disk = {"disk": {"type": "gated", "path": str(place / "backup")}}
    settings = config(
        place, cluster.address, [topic], backends=disk, commit={"interval": "50ms", "tolerated_failures": 2}
    )
    with registered(BACKENDS, "gated", gate.backend()), hosting(settings) as host:
        host.await_offset(topic, 0, 49)
        assert 2 == len(host.of(CommitFailed))
        gate.refuse = 1_000
        fill(cluster, topic, 1, 50, 50)
        host.join()
        (error,) = host.errors
    plain = config(place, cluster.address, [topic])

    assert isinstance(error, CommitFailedError)
    assert "the disk is away" in str(error)
    assert expected(0, KEYS, 50) == state_of(plain, place, names(1)).counts


def test_a_member_that_sleeps_too_long_loses_its_tasks_and_spoils_nothing(cluster, place):
    """A member that does not poll in time is put out of its group and commits nothing more; the next owner counts."""
    topic = cluster.topic()
    fill(cluster, topic, 1, 100)
    client = {**FAST, "max.poll.interval.ms": 3_000, "session.timeout.ms": 2_900}
    kafka = {"client": client, "handover": "2s"}
    first = config(place, cluster.address, [topic], "a", kafka=kafka, job={"put_timeout": "2s"})
    second = config(place, cluster.address, [topic], "b", kafka=kafka, job={"put_timeout": "2s"})
    asleep, awake = threading.Event(), threading.Event()

    def sleepy(record: Any, task: Any) -> None:
        hosts_kafka.count(record, task)
        if record.offset() == 60:
            asleep.set()
            assert awake.wait(hosts_kafka.LONGEST_S)

    with hosting(first, sleepy) as a:
        assert asleep.wait(hosts_kafka.LONGEST_S)
        with hosting(second) as b:
            b.await_offset(topic, 0, 99)
            awake.set()
            a.await_event(Revoked, lambda event: event.lost)
            fill(cluster, topic, 1, 50, 100)
            await_all([a, b], topic, 1, 149)
            b.stop()
        a.stop()

    assert expected(0, KEYS, 150) == state_of(first, place, names(1)).counts


def test_a_task_without_room_is_paused_and_its_member_keeps_polling(cluster, place):
    """While an engine does not keep up its partitions wait, the member polls, and nothing is lost when it goes on."""
    gate = Gate()

    class Held(resolve(ENGINES, "rocksdb")):  # type: ignore[misc]
        def apply(self, changes: Any) -> None:
            assert gate.open.wait(hosts_kafka.LONGEST_S)
            super().apply(changes)

    topic = cluster.topic()
    fill(cluster, topic, 1, 3_000)
    store = {"engine": "held", "key": "str", "value": "int"}
    with registered(ENGINES, "held", Held):
        settings = config(
            place,
            cluster.address,
            [topic],
            stores={"counts": store, "seen": store},
            job={"buffer_memory": "1MiB"},
            commit={"interval": "10ms"},
        )
        with hosting(settings) as host:
            host.await_event(TaskHeld)
            polled = host.host.health.last_poll_age_s
            gate.open.set()
            host.await_offset(topic, 0, 2_999)
            host.stop()
        counts = state_of(settings, place, names(1)).counts

    assert polled is not None
    assert polled < 5
    assert expected(0, KEYS, 3_000) == counts


def test_outputs_are_delivered_before_the_checkpoint_that_covers_them(cluster, place):
    """What a durable checkpoint covers has its output in the topic; an output that is refused is sent again later."""
    source, target = cluster.topic(), unique("output")
    fill(cluster, source, 1, 40)
    kafka = {"producer": {"message.timeout.ms": 1_500, "topic.metadata.propagation.max.ms": 500}, "retry": "100ms"}
    settings = config(place, cluster.address, [source], kafka=kafka)

    def forward(record: Any, task: Any) -> None:
        hosts_kafka.count(record, task)
        task.send(target, record.value(), key=record.key(), headers=[("from", b"test")])

    with hosting(settings, forward) as host:
        waits = host.await_event(TaskWaits)
        assert target in str(waits.error)
        covered = [offset for event in host.of(CommitPublished) for offset in event.checkpoint.offsets.values()]
        assert set(covered) <= {"-1"}  # where it began, and nothing after that
        cluster.topic(target)
        host.await_offset(source, 0, 39)
        assert 40 <= cluster.end(target, 0)
        host.stop()

    assert expected(0, KEYS, 40) == state_of(settings, place, names(1)).counts


def test_a_missing_topic_is_told_at_the_start(cluster, place):
    """A job on a topic that does not exist ends at once and says to create it; topics of unequal width likewise."""
    missing, narrow, wide = unique("missing"), cluster.topic(), cluster.topic(partitions=2)
    for topics, words in (([missing], f"'{missing}' does not exist"), ([narrow, wide], "unequal numbers")):
        with hosting(config(place, cluster.address, topics)) as host:
            host.join()
            (error,) = host.errors
        assert isinstance(error, ConfigError)
        assert words in str(error)
