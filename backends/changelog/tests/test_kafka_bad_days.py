"""Bad days of a real broker: it is down, it comes back, it refuses; and the checkpoint manager beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Kind
from services import kafka
from services.kafka_fixtures import OwnKafka, need_kafka

from millpond.checkpoint import Checkpoint, CheckpointId, SystemStreamPartition
from millpond.clock import SystemClock
from millpond.errors import ConfigError, FencedError, StateNotFoundError, TransientError
from millpond.points import POINTS
from millpond.spi import JobContext, Secret, VersionPolicy
from millpond_changelog.checkpoints.manager import KafkaCheckpoints
from millpond_changelog.checkpoints.settings import KafkaCheckpointsSettings
from millpond_changelog.kafka.log import KafkaLog

_numbers = count(1)
SSP = SystemStreamPartition("kafka", "dotted.input.topic", 0)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker that this module's tests stop, kill and start again; it runs between them."""
    need_kafka()
    if os.environ.get(kafka.EXTERNAL):
        pytest.skip(f"these tests kill their broker, and {kafka.EXTERNAL} names one that is not ours")
    with kafka.serve(tmp_path_factory.mktemp("kafka-bad-days")) as made:
        yield made


@pytest.fixture
def running(broker: kafka.Broker) -> Iterator[kafka.Broker]:
    """The broker, running; and running again afterwards."""
    yield broker
    broker.thaw() if broker.is_running() else broker.restart()


def manager_of(address: str, job: str, **settings: object) -> KafkaCheckpoints:
    """Make a manager with short deadlines."""
    context = JobContext(job, "1", None, lambda event: None, SystemClock(), None)  # type: ignore[arg-type]
    told = {"replication_factor": 1, "timeout": timedelta(seconds=10), **settings}
    config = KafkaCheckpointsSettings(bootstrap_servers=address, **told)  # type: ignore[arg-type]
    return KafkaCheckpoints(config, context, VersionPolicy())


@pytest.fixture
def manager(running: kafka.Broker) -> Iterator[KafkaCheckpoints]:
    """A manager of a new job on the broker, with its topic."""
    made = manager_of(running.address, f"bad.day-{next(_numbers)}")
    made.create_resources()
    yield made
    made.close()


def another(manager: KafkaCheckpoints, **settings: object) -> KafkaCheckpoints:
    """Make a second manager of the same job."""
    return manager_of(manager.config.bootstrap_servers[0], manager.job.job, **settings)


def checkpoint(number: int) -> Checkpoint:
    """Make a checkpoint whose offset is its number."""
    return Checkpoint(CheckpointId(number, 0), {SSP: str(number)})


def again(call: Callable[[], object]) -> object:
    """Call it until it does not fail for a passing reason."""
    for _ in range(20):
        with suppress(TransientError):
            return call()
    return call()


def test_a_broker_that_is_down_at_the_start_is_transient_and_then_it_is_used(running: kafka.Broker) -> None:
    """Every call fails within its deadline; the same objects work when the broker is there."""
    with closing(manager_of(running.address, f"bad.day-{next(_numbers)}", timeout=timedelta(seconds=2))) as early:
        running.stop()
        for call in (early.create_resources, lambda: early.claim("t"), lambda: early.read_last("t"), early.tasks):
            began = time.monotonic()
            with pytest.raises(TransientError):
                call()
            assert time.monotonic() - began < 10
        running.restart()
        again(early.create_resources)
        claim = again(lambda: early.claim("t"))
        again(lambda: early.write(claim, checkpoint(1), after=None))
        assert again(lambda: early.ids("t")) == [CheckpointId(1, 0)]


def test_a_commit_without_an_answer_is_found_out_when_the_broker_is_back(
    manager: KafkaCheckpoints, running: kafka.Broker
) -> None:
    """The broker dies before the commit: unknown, then settled by reading, and the next commit goes on."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    running.kill()
    with pytest.raises(TransientError):
        manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    with pytest.raises(TransientError):
        manager.read_last("t")
    running.restart()
    found = again(lambda: manager.read_last("t"))
    assert isinstance(found, Checkpoint)
    assert found.id in (CheckpointId(1, 0), CheckpointId(2, 0))
    again(lambda: manager.write(claim, checkpoint(3), after=found.id))
    with closing(another(manager)) as other:
        newest = again(lambda: other.read_last("t"))
        assert isinstance(newest, Checkpoint)
        assert newest.id == CheckpointId(3, 0)
        assert other.ids("t") in ([CheckpointId(n, 0) for n in (3, 1)], [CheckpointId(n, 0) for n in (3, 2, 1)])


def test_a_commit_whose_answer_is_lost_is_not_lost(manager: KafkaCheckpoints, running: kafka.Broker) -> None:
    """The broker stops answering in the middle of the commit, and answers later: it is there, once."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    running.freeze()
    thaw = threading.Timer(13, running.thaw)
    thaw.start()
    outcome: object = None
    try:
        manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    except TransientError as error:
        outcome = error
    finally:
        thaw.join()
    found = again(lambda: manager.read_last("t"))
    assert isinstance(found, Checkpoint)
    assert outcome is not None or found.id == CheckpointId(2, 0)
    again(lambda: manager.write(claim, checkpoint(2), after=found.id))
    assert again(lambda: manager.ids("t")) == [CheckpointId(2, 0), CheckpointId(1, 0)]


def test_a_restart_of_the_broker_ends_nobody(manager: KafkaCheckpoints, running: kafka.Broker) -> None:
    """The same claim goes on writing with the broker's new process: a leader that came back."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    running.stop()
    running.restart()
    again(lambda: manager.write(claim, checkpoint(2), after=CheckpointId(1, 0)))
    again(lambda: manager.write(claim, checkpoint(3), after=CheckpointId(2, 0)))
    assert manager.ids("t")[0] == CheckpointId(3, 0)


def fill(address: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Make a topic of twenty megabytes, and give what is in it."""
    many = [(b"%06d" % number, os.urandom(1000)) for number in range(20_000)]
    with closing(KafkaLog([address], timeout_s=60)) as log:
        log.create(topic, 1, {"cleanup.policy": "compact"})
        with closing(log.writer(topic)) as writer, writer.append() as append:
            append.add(topic, 0, many)
            append.flush()
            append.commit()
    return many


def test_a_reading_outlives_a_broker_that_dies_and_comes_back(running: kafka.Broker) -> None:
    """In the middle of a restore: every record once, in order, within the deadline."""
    many = fill(running.address, "restore.me")
    with closing(KafkaLog([running.address], {"queued.max.messages.kbytes": 1024}, timeout_s=60)) as log:
        reading = log.read("restore.me", 0, 0, 20_000)
        got = list(next(reading).changes())
        running.kill()
        running.restart()
        for batch in reading:
            got += batch.changes()
        assert got == many


def test_a_reading_of_a_broker_that_stays_away_ends(running: kafka.Broker) -> None:
    """It is transient, and comes within the deadline."""
    fill(running.address, "gone.for.good")
    with closing(KafkaLog([running.address], {"queued.max.messages.kbytes": 1024}, timeout_s=6)) as log:
        reading = log.read("gone.for.good", 0, 0, 20_000)
        next(reading)
        running.kill()
        began = time.monotonic()
        with pytest.raises(TransientError):
            list(reading)
        assert time.monotonic() - began < 30


def dies_soon(broker: kafka.Broker) -> threading.Thread:
    """Let *broker* answer nobody any more, then die with what it was asked, and come back."""

    def die() -> None:
        broker.kill()
        broker.restart()

    broker.freeze()
    soon = threading.Timer(0.5, die)
    soon.start()
    return soon


def test_a_broker_that_dies_while_it_is_asked_for_the_end_gives_no_other_end(running: kafka.Broker) -> None:
    """The driver then gives offsets below zero, and no error: the log must not seem to be empty."""
    topic = f"asked.in.vain.{next(_numbers)}"
    with closing(KafkaLog([running.address], timeout_s=60)) as log:
        log.create(topic, 1, {"cleanup.policy": "compact"})
        with closing(log.writer(topic)) as writer, writer.append() as append:
            append.add(topic, 0, [(b"key", b"value")])
            append.flush()
            append.commit()
        before = log.extent(topic, 0)
        back = dies_soon(running)
        try:
            found = log.extent(topic, 0)
        finally:
            back.join()
        assert found.start == 0 and found.end >= before.end  # its coordinator may mark the append once more


@pytest.mark.parametrize("verb", ["describe", "create", "delete"])
def test_a_topic_is_asked_for_again_when_the_connection_broke(verb: str, running: kafka.Broker) -> None:
    """To ask twice is as good as once, so a broker that is restarted in the midst of it ends no opening."""
    topic = f"asked.again.{next(_numbers)}"
    with closing(KafkaLog([running.address], timeout_s=60)) as log:
        log.create(topic, 1, {})
        back = dies_soon(running)
        try:
            if verb == "describe":
                assert log.describe(topic).partitions == 1
            elif verb == "create":
                log.create(f"{topic}.more", 1, {})
            else:
                log.delete(topic)
        finally:
            back.join()


def test_a_missing_topic_is_never_taken_for_no_checkpoints(running: kafka.Broker) -> None:
    """Reading and claiming say that the topic is not there, and who makes it."""
    with closing(manager_of(running.address, "nobody.prepared.me")) as early:
        for call in (lambda: early.read_last("t"), lambda: early.claim("t"), early.tasks, early.validate_resources):
            with pytest.raises(StateNotFoundError, match="nobody"):
                call()


def test_a_topic_that_was_deleted_and_made_anew_is_noticed(manager: KafkaCheckpoints) -> None:
    """By the process that knew the old one: its checkpoints are not taken for gone."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    assert manager.read_last("t") is not None
    with closing(another(manager)) as operator:
        operator._opened()[0].delete(manager.topic)
        operator.create_resources()
    with pytest.raises(StateNotFoundError, match="made anew"):
        manager.claim("t")


@pytest.mark.parametrize(
    ("partitions", "settings", "said"),
    [
        (2, {}, "2 partitions"),
        (1, {"cleanup.policy": "delete"}, r"cleanup\.policy=delete"),
        (1, {"cleanup.policy": "compact,delete"}, "alter it to compact"),
        (1, {"cleanup.policy": "compact", "max.message.bytes": "1000"}, r"max\.message\.bytes=1000"),
    ],
)
def test_a_topic_that_loses_checkpoints_is_refused(
    running: kafka.Broker, partitions: int, settings: dict[str, str], said: str
) -> None:
    """Each wrong topic, with what to alter."""
    with closing(manager_of(running.address, f"bad.day-{next(_numbers)}")) as made:
        made._opened()[0].create(made.topic, partitions, settings)
        made.create_resources()
        with pytest.raises(ConfigError, match=said):
            made.validate_resources()


def test_a_checkpoint_that_the_topic_does_not_take_names_the_setting(running: kafka.Broker) -> None:
    """The size, the limit and the setting; nothing was written, and a smaller one goes."""
    small = {"max_message_bytes": 20_000, "topic_settings": {"max.message.bytes": "20000"}}
    with closing(manager_of(running.address, f"bad.day-{next(_numbers)}", **small)) as made:
        made.create_resources()
        claim = made.claim("t")
        big = Checkpoint(CheckpointId(1, 0), {SSP: "1"}, {"b": {"s": os.urandom(20_000).hex()}})
        with pytest.raises(ConfigError, match=r"20,000.*max\.message\.bytes"):
            made.write(claim, big, after=None)
        assert made.read_last("t") is None
        again(lambda: made.write(claim, checkpoint(2), after=None))


def test_behind_an_open_transaction_of_a_dead_task_a_claim_sees_everything(manager: KafkaCheckpoints) -> None:
    """A task died in the middle of its commit; another one's checkpoint behind that is not overlooked."""
    claims = {task: manager.claim(task) for task in ("dying", "living")}
    writer = manager._of("dying").writer
    hanging = writer._writers[claims["dying"].writer].append()
    hanging.add(manager.topic, 0, [(writer.keys.kept(CheckpointId(9, 9)), b"never committed")])
    hanging.flush()
    manager.write(claims["living"], checkpoint(1), after=None)
    with closing(another(manager)) as other:
        claim = other.claim("living")
        found = other.read_last("living")
        assert found is not None
        assert found.id == CheckpointId(1, 0)
        other.write(claim, checkpoint(2), after=found.id)
    hanging.abort()
    manager.write(claims["dying"], checkpoint(3), after=None)
    assert manager.ids("dying") == [CheckpointId(3, 0)]


def test_a_transaction_that_timed_out_ends_no_owner(running: kafka.Broker) -> None:
    """The owner looks, finds its claim still the newest, and takes its place again; a replaced one does not."""
    short = {"transaction_timeout": timedelta(seconds=2)}
    with closing(manager_of(running.address, f"bad.day-{next(_numbers)}", **short)) as made:
        made.create_resources()
        claim = made.claim("t")
        again(lambda: made.write(claim, checkpoint(1), after=None))
        task = made._of("t").writer
        hanging = task._writers[claim.writer].append()
        hanging.add(made.topic, 0, [(task.keys.kept(CheckpointId(9, 9)), b"never")])
        hanging.flush()
        await_end_of_transactions(made)
        with pytest.raises(TransientError, match=r"gives? a transaction up"):
            hanging.commit()
        again(lambda: made.write(claim, checkpoint(2), after=CheckpointId(1, 0)))
        assert made.ids("t") == [CheckpointId(2, 0), CheckpointId(1, 0)]
        with closing(another(made)) as other:
            other.claim("t")
            with pytest.raises(FencedError):
                made.write(claim, checkpoint(3), after=CheckpointId(2, 0))


def await_end_of_transactions(manager: KafkaCheckpoints) -> None:
    """Wait until nothing is open in the topic."""
    log, pause = manager._opened()[0], threading.Event()
    for _ in range(800):
        extent = log.extent(manager.topic, 0)
        if extent.end == extent.tail:
            return
        pause.wait(0.05)
    raise AssertionError("a transaction is still open")


STEPS = [point for point in POINTS if point.startswith("checkpoints.")]


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_at_a_step_leaves_a_whole_topic(step: str, manager: KafkaCheckpoints) -> None:
    """Killed at each step of a claim and a commit: the successor claims at once, and finds what was committed."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    command = [sys.executable, str(Path(__file__).parent / "kafka_child.py"), manager.job.job, step]
    environment = {**os.environ, "MILLPOND_CHILD_KAFKA": manager.config.bootstrap_servers[0]}
    done = subprocess.run(command, timeout=90, env=environment, capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    with closing(another(manager)) as other:
        new = other.claim("t")
        found = other.read_last("t")
        assert found is not None
        assert found.id == CheckpointId(2 if step == "checkpoints.written" else 1, 0)
        other.write(new, checkpoint(3), after=found.id)
        with pytest.raises(FencedError):
            manager.write(claim, checkpoint(4), after=found.id)


JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin-pw" '
    'user_admin="admin-pw" user_weak="weak-pw";'
)
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
    "advertised.listeners": "SASL_PLAINTEXT://127.0.0.1:{port}",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


def options(user: str, password: str) -> dict[str, object]:
    """Give a client's options."""
    secret = {"sasl.username": user, "sasl.password": Secret(password)}
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **secret}


def test_access_that_is_refused_names_the_right_and_the_topic(own_kafka: OwnKafka) -> None:
    """A wrong password; and a user without each right in turn, against the brokers' own authorizer."""
    address = own_kafka(SASL).address
    with closing(KafkaLog([address], options("weak", "wrong-pw"), timeout_s=30)) as log:
        began = time.monotonic()
        with pytest.raises(ConfigError, match="do not accept who we are") as caught:
            log.describe("t")
        assert time.monotonic() - began < 25
        assert "wrong-pw" not in f"{caught.value!r} {caught.value.__cause__!r}"
    with closing(KafkaLog([address], options("admin", "admin-pw"), timeout_s=30)) as log:
        log.create("t", 1, {})
        with closing(log.writer("by admin")) as writer, writer.append() as append:
            append.add("t", 0, [(b"a", b"1")])
            append.flush()
            append.commit()
    with closing(KafkaLog([address], options("weak", "weak-pw"), timeout_s=15)) as log:
        refused: list[tuple[Callable[[], object], str]] = [
            (lambda: log.create("new", 1, {}), r"allow CREATE"),
            (lambda: log.describe("t"), r"allow DESCRIBE on the topic 't'"),
            (lambda: log.extent("t", 0), r"allow DESCRIBE on the topic 't'"),
            (lambda: log.delete("t"), r"allow DELETE on the topic 't'"),
            (lambda: log.writer("weak owner"), r"allow WRITE and DESCRIBE on the transactional id 'weak owner'"),
        ]
        for call, said in refused:
            with pytest.raises(ConfigError, match=said):
                call()
        allow(address, "DESCRIBE", "TOPIC", "t")
        with pytest.raises(ConfigError, match=r"allow DESCRIBE_CONFIGS on the topic 't'"):
            again(lambda: log.describe("t"))
        with pytest.raises(ConfigError, match=r"allow READ on the topic 't'"):
            list(log.read("t", 0, 0, 1))
        allow(address, "READ", "TOPIC", "t")
        assert [change for batch in log.read("t", 0, 0, 1) for change in batch.changes()] == [(b"a", b"1")]
        allow(address, "WRITE", "TRANSACTIONAL_ID", "weak owner")
        refusal = pytest.raises(ConfigError, match=r"allow WRITE on the topic 't'")
        with closing(log.writer("weak owner")) as writer, refusal, writer.append() as append:
            append.add("t", 0, [(b"b", b"2")])
            append.flush()
            append.commit()


def allow(address: str, operation: str, kind: str, name: str) -> None:
    """Give the weak user a right."""
    admin = AdminClient({"bootstrap.servers": address, **options("admin", ""), "sasl.password": "admin-pw"})
    where = (Kind[kind], name, ResourcePatternType.LITERAL, "User:weak", "*")
    binding = AclBinding(*where, AclOperation[operation], AclPermissionType.ALLOW)
    for answer in admin.create_acls([binding]).values():
        answer.result(20)
