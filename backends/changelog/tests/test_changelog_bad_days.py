"""Bad days of a changelog: what the log cannot prove to be whole is not restored, and each message has the mend."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

import millpond
from millpond.checkpoint import CheckpointId, SystemStreamPartition
from millpond.errors import ConfigError, FormatError, StateCorruptError, StateNotFoundError
from millpond.events import RestoreProgress
from millpond.formats.changelog_marker import FACTORY
from millpond.log import Extent, Topic
from millpond.spi import Size
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.bench import Profile
from millpond.testing.kit.targets import KitTarget
from millpond_changelog import headers
from millpond_changelog.backend import ChangelogBackend
from millpond_changelog.embedded.log import EmbeddedLog
from millpond_changelog.marker import Marker, Origin, decode, encode
from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.source import Facts, local_place, refuse_unless_whole, restore_from
from millpond_changelog.topics import problems

SOURCE = SystemStreamPartition("kafka", "flights", 0)
TASK = "Partition 0"
TOPIC = "delays.log"


class Job:
    """A job with one store on an embedded log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = {"topics": {"delays": TOPIC}}
        self.events: list[object] = []

    def open(self) -> millpond.Job:
        config = {
            "job": {"name": "flights", "state_dir": str(self.folder / "state"), "tasks": [TASK]},
            "checkpoint": {"manager": "directory", "path": str(self.folder / "records")},
            "backends": {"log": {"type": "changelog", "directory": str(self.folder / "log"), **self.settings}},
            "stores": {"delays": {"engine": "memory", "key": "str", "value": "str"}},
        }
        return millpond.open_job(config, listeners=[self.events.append])

    def commit(self, **values: str | None) -> dict[str, str]:
        """Open, change, commit, close; give what the store then holds."""
        with self.open() as job, job.open_task(TASK) as task:
            for key, value in values.items():
                if value is None:
                    task.store("delays").delete(key)
                else:
                    task.store("delays")[key] = value
            task.commit_now(30)
            return dict(task.store("delays").scan())

    def contents(self) -> dict[str, str]:
        with self.open() as job, job.open_task(TASK) as task:
            return dict(task.store("delays").scan())

    def lose_disk(self) -> None:
        shutil.rmtree(self.folder / "state")

    def log(self) -> EmbeddedLog:
        return EmbeddedLog(self.folder / "log")


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def records(log: EmbeddedLog, topic: str = TOPIC) -> list[tuple[bytes, bytes | None]]:
    """Give all records that a reader sees."""
    extent = log.extent(topic, 0)
    return [change for batch in log.read(topic, 0, extent.start, extent.end) for change in batch.changes()]


# A topic that is not what it was


def test_a_topic_that_was_made_anew_is_never_read_as_all_gone(job: Job) -> None:
    """With the disk lost too, a restore says that the topic is another one; nothing opens empty."""
    job.commit(a="1", b="2")
    job.lose_disk()
    job.log().delete(TOPIC)

    with pytest.raises(StateNotFoundError, match="deleted and made anew"):
        job.contents()


def test_a_topic_that_was_made_anew_is_filled_again_from_the_local_disk(job: Job) -> None:
    """While the disk has the store, the first commit writes all of it to the new topic."""
    job.commit(a="1", b="2")
    job.log().delete(TOPIC)
    job.commit(c="3")
    job.lose_disk()

    assert {"a": "1", "b": "2", "c": "3"} == job.contents()


def test_a_topic_that_is_made_anew_between_two_commits_is_noticed(job: Job) -> None:
    """The commit that meets it fails, and the next one writes the whole store."""
    with job.open() as opened, opened.open_task(TASK) as task:
        for number in range(5):
            task.store("delays")[f"k{number}"] = "x"
            task.commit_now(30)
        log = job.log()
        settings = log.describe(TOPIC).settings
        log.delete(TOPIC)
        log.create(TOPIC, 1, settings)
        task.store("delays")["new"] = "y"
        with pytest.raises(millpond.CommitError, match="made anew"):
            task.commit_now(30)
        task.commit_now(30)
    job.lose_disk()

    assert {"new": "y", **{f"k{number}": "x" for number in range(5)}} == job.contents()


def test_what_retention_removed_is_missed(job: Job) -> None:
    """A log that begins behind the store's first record is refused, however whole the rest is."""
    for number in range(5):
        job.commit(**{f"k{number}": "x"})
    job.lose_disk()
    job.log().trim(TOPIC, 0, 2)

    with pytest.raises(StateNotFoundError, match="retention removed"):
        job.contents()


def test_a_store_that_was_written_whole_does_not_need_what_was_before(job: Job) -> None:
    """After a rewrite the log may lose what is older, and reading begins where the rewrite did."""
    for number in range(5):
        job.commit(**{f"k{number}": "x"})
    job.log().trim(TOPIC, 0, 2)
    expected = job.commit(new="y")
    job.log().trim(TOPIC, 0, 5)
    job.lose_disk()

    assert expected == job.contents()


def test_a_marker_beyond_the_end_is_refused(job: Job) -> None:
    """A log that lost its newest records is refused, and says where it ends."""
    job.commit(a="1")
    copy = job.folder / "copy"
    shutil.copytree(job.folder / "log", copy)
    job.commit(b="2")
    job.lose_disk()
    shutil.rmtree(job.folder / "log")
    copy.rename(job.folder / "log")

    with pytest.raises(StateNotFoundError, match="beyond the end"):
        job.contents()


def test_offsets_that_were_given_twice_are_noticed(job: Job) -> None:
    """A log that went back to a copy and was written by another history is not the one that the marker names."""
    job.commit(a="1")
    copy, records_then = job.folder / "copy", job.folder / "records-then"
    shutil.copytree(job.folder / "log", copy)
    shutil.copytree(job.folder / "records", records_then)
    job.commit(b="theirs")
    records_now = job.folder / "records-now"
    (job.folder / "records").rename(records_now)
    records_then.rename(job.folder / "records")
    shutil.rmtree(job.folder / "log")
    copy.rename(job.folder / "log")
    job.lose_disk()
    job.commit(b="ours")
    shutil.rmtree(job.folder / "records")
    records_now.rename(job.folder / "records")
    job.lose_disk()

    with pytest.raises(StateCorruptError, match="is of commit"):
        job.contents()


# What a topic has to be


def topic(settings: Mapping[str, str], partitions: int = 4) -> Topic:
    fine = {
        "cleanup.policy": "compact",
        "max.message.bytes": "1000012",
        "min.compaction.lag.ms": "14400000",
        "delete.retention.ms": "86400000",
        "min.insync.replicas": "2",
    }
    return Topic("log", "x", partitions, {**fine, **settings})


@pytest.mark.parametrize(
    ("found", "partitions", "told"),
    [
        ({}, 4, ()),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}, 4, ()),
        ({"max.message.bytes": "2000000"}, 4, ()),
        ({}, 8, ("4 partitions", "8 tasks", "raise it")),
        ({}, 2, ("4 partitions", "2 tasks")),
        ({"cleanup.policy": "delete"}, 4, ("set it to compact",)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "60000"}, 4, ("retention.ms = 60000", "to compact")),
        ({"max.message.bytes": "1000"}, 4, ("max.message.bytes = 1000", "max_message_bytes", "raise")),
        ({"min.compaction.lag.ms": "0"}, 4, ("min.compaction.lag.ms = 0", "min_compaction_lag")),
        ({"delete.retention.ms": "1"}, 4, ("delete.retention.ms = 1", "delete_retention")),
        ({"min.insync.replicas": "1"}, 4, ("min.insync.replicas = 1", "min_insync_replicas")),
    ],
)
def test_a_mismatch_says_what_to_alter(found: dict[str, str], partitions: int, told: tuple[str, ...]) -> None:
    """Each setting that loses state, or that the backend reckons with otherwise, is one sentence; nothing else is."""
    settings = ChangelogSettings(directory=Path("x"), min_insync_replicas=2)

    said = list(problems(topic(found), partitions, settings))

    assert bool(told) == len(said)
    assert all(word in said[0] for word in told)


def test_a_topic_that_loses_state_stops_the_job_before_it_opens(job: Job) -> None:
    """A topic with another policy, made by somebody else, is a configuration to correct."""
    job.log().create(TOPIC, 1, {"cleanup.policy": "delete"})

    with pytest.raises(ConfigError, match=r"cleanup\.policy = delete"):
        job.contents()


def test_two_stores_never_share_a_topic(tmp_path: Path) -> None:
    """Two stores with one topic are refused, by name."""
    bench = BackendBench(
        tmp_path,
        Profile(),
        None,
        lambda: ChangelogBackend(
            "main", ChangelogSettings(directory=tmp_path / "l", topics=dict.fromkeys("ab", "t"), partitions=1)
        ),
    )
    with pytest.raises(ConfigError, match="'a' and 'b' have one topic, t"):
        bench.owner(("a", "b"))
    bench.close()


def test_a_record_that_the_topic_does_not_take_is_refused_at_put(job: Job) -> None:
    """The message has store, key, size and the setting; what was there before stays and is committed."""
    job.settings["max_message_bytes"] = "2KiB"
    with job.open() as opened, opened.open_task(TASK) as task:
        delays = task.store("delays")
        delays["fits"] = "x" * 1000
        with pytest.raises(ValueError, match=r"'delays'.*'large'.*5005 bytes.*raise backends\.log\.max_message_bytes"):
            delays["large"] = "x" * 5000
        task.commit_now(30)
    job.lose_disk()

    assert {"fits": "x" * 1000} == job.contents()


# What is written, and what is not


def test_a_commit_without_changes_appends_nothing(job: Job) -> None:
    """Neither an empty store nor offsets alone cost a record."""
    with job.open() as opened, opened.open_task(TASK) as task:
        for number in range(3):
            task.processed(SOURCE, number)
            marker = decode(task.commit_now(30).markers[FACTORY]["delays"], owner_text())
            assert marker.offset is None
    assert 0 == job.log().extent(TOPIC, 0).end
    job.lose_disk()

    assert {} == job.contents()


def owner_text() -> str:
    return f"flights\0001\0{TASK}\0{FACTORY}\0delays"


def test_deletions_are_tombstones_and_headers_name_the_commit(job: Job) -> None:
    """In the log a deletion has no value, and each record says its format, its claim and its commit."""
    job.commit(a="1", b="2")
    job.commit(a=None)
    log = job.log()

    assert [(b"a", b"1"), (b"b", b"2"), (b"a", None)] == records(log)
    (batch,) = log.read(TOPIC, 0, 2, 3)
    version, epoch, commit = batch.headers(0)["millpond"].split()
    assert (b"1", True) == (version, int(epoch) > 0)
    assert CheckpointId.parse(commit.decode()).millis > 0


def test_a_restore_reports_its_progress(job: Job) -> None:
    """Records, bytes and the bytes in all are told while a store is restored."""
    job.commit(**{f"key{number:04}": "x" * 10 for number in range(2500)})
    job.lose_disk()
    job.events.clear()
    job.contents()

    told = [event for event in job.events if isinstance(event, RestoreProgress)]
    assert 2500 == told[-1].records
    assert told[-1].size == told[-1].total_size == 2500 * 17
    assert len(told) > 1


# After Samza's own test of a job that is stopped and started again, with an uncommitted end


def test_what_came_after_the_marker_is_undone_in_the_log(tmp_path: Path) -> None:
    """The first commit writes restored values for the keys of a commit that never was, deletions for new ones."""
    settings = ChangelogSettings(directory=tmp_path / "log")
    bench = BackendBench(tmp_path, Profile(), None, lambda: ChangelogBackend("main", settings))
    owner = bench.owner()
    owner.commit({"delays": {b"1": b"1", b"2": b"2", b"3": b"3"}})
    owner.upload({"delays": {b"98": b"98", b"99": b"99", b"2": b"changed", b"1": None}})
    successor = bench.owner()
    successor.commit({"delays": {b"98": b"again"}})
    log = EmbeddedLog(tmp_path / "log")
    (name,) = log.names()

    undone = records(log, name)[-4:]

    assert [(b"1", b"1"), (b"2", b"2"), (b"98", b"again"), (b"99", None)] == undone
    bench.expect_restored(bench.published[bench.place()][0])
    bench.close()
    log.close()


# What compaction may have taken, on a log that compacts by itself

ORIGIN = Origin("id", 0, CheckpointId(1_000_000, 1), 3)
MARKER = Marker(SystemStreamPartition("kafka", "log", 2), 10, ORIGIN)


class CompactedByItself(EmbeddedLog):
    """An embedded log that does not say how far it is compacted, as Kafka does not."""

    capabilities = evolve(EmbeddedLog.capabilities, tidies=False)

    def extent(self, name: str, partition: int) -> Extent:
        return evolve(super().extent(name, partition), compacted=None)


@pytest.fixture
def kafka_like(tmp_path: Path) -> Iterator[CompactedByItself]:
    log = CompactedByItself(tmp_path / "log")
    log.create("log", 1, {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"})
    yield log
    log.close()


def append(log: EmbeddedLog, *changes: tuple[bytes, bytes | None]) -> int:
    with log.writer("test").append() as append:
        append.add("log", 0, changes)
        end = append.flush()[("log", 0)]
        append.commit()
    return end


@pytest.mark.parametrize(
    ("hours", "after", "refused"),
    [
        (0, [(b"new", b"9")], False),
        (2, [(b"old", b"9")], False),
        (2, [(b"old", None)], False),
        (2, [(b"new", b"9")], True),
        (2, [(b"new", None)], True),
        (2, [], False),
    ],
)
def test_nobody_tells_a_new_key_from_a_lost_one(
    kafka_like: CompactedByItself, tmp_path: Path, hours: int, after: list[tuple[bytes, bytes | None]], refused: bool
) -> None:
    """Records after the marker that are older than the lag are refused, if a key of theirs has none before it."""
    offset = append(kafka_like, (b"old", b"1"), (b"other", b"2"))
    if after:
        append(kafka_like, *after)
    marker = encode(Marker(SystemStreamPartition("kafka", "log", 0), offset), "")
    target = KitTarget("s", marker, tmp_path / "target")

    class Later:
        def millis(self) -> int:
            return kafka_like.clock.millis() + hours * 3_600_000

        def monotonic(self) -> float:
            return kafka_like.clock.monotonic()

    if refused:
        with pytest.raises(StateNotFoundError, match="nobody can tell a new key"):
            restore_from(kafka_like, target, "", Later())
    else:
        restore_from(kafka_like, target, "", Later())
        assert {b"old": b"1", b"other": b"2"} == target.content()


def test_compaction_beyond_the_marker_is_refused() -> None:
    """A log that says that it was compacted beyond the marker no longer has the values of that time."""
    facts = Facts(topic({}), Extent(0, 20, 12))
    with pytest.raises(StateNotFoundError, match="compacted up to 12"):
        refuse_unless_whole(evolve(MARKER, origin=None), facts)
    assert 0 == refuse_unless_whole(evolve(MARKER, origin=None), Facts(topic({}), Extent(0, 20, 11)))


def test_a_local_image_older_than_deletions_are_kept_is_not_gone_on_with() -> None:
    """It would bring back keys whose deletion compaction has forgotten; a younger one saves reading the whole log."""
    local = Marker(MARKER.ssp, 4, evolve(ORIGIN, id=CheckpointId(500_000, 0)))
    facts = Facts(topic({}), Extent(0, 20, None))

    assert 5 == local_place(local, MARKER, facts, 500_000 + 86_399_999)
    assert local_place(local, MARKER, facts, 500_000 + 86_400_000) is None
    assert local_place(evolve(local, offset=11), MARKER, facts, 500_001) is None
    other = evolve(local, origin=evolve(ORIGIN, identity="another"))
    assert local_place(other, MARKER, facts, 500_001) is None
    assert local_place(local, MARKER, Facts(topic({}), Extent(6, 20, None)), 500_001) is None


# Settings


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "nothing says where"),
        ({"directory": Path("x"), "bootstrap_servers": ("b:1",)}, "both"),
        ({"directory": Path("x"), "timeout": timedelta(0)}, "timeout"),
        ({"directory": Path("x"), "topic_settings": {"min.compaction.lag.ms": "1"}}, "min_compaction_lag"),
        ({"directory": Path("x"), "max_message_bytes": Size(100)}, "max_message_bytes"),
        ({"directory": Path("x"), "partitions": 0}, "partitions"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings: dict[str, Any], told: str) -> None:
    """Each is a ConfigError that names the setting."""
    with pytest.raises(ConfigError, match=told):
        ChangelogSettings(**settings)


def test_secrets_are_shown_nowhere() -> None:
    """Options of the driver that are texts are hidden, but for those that merely say how."""
    settings = ChangelogSettings(
        bootstrap_servers=("b:1",), kafka={"sasl.password": "hush", "security.protocol": "SASL_SSL", "linger.ms": 5}
    )

    assert "hush" not in repr(settings)
    assert "SASL_SSL" in repr(settings)


# A log without transactions


class Unfenced(EmbeddedLog):
    """An embedded log that says that it keeps nobody from writing; each of its writers is an owner of its own."""

    capabilities = evolve(EmbeddedLog.capabilities, fencing=False)
    claims = 0

    def writer(self, owner: str) -> Any:
        Unfenced.claims += 1
        return super().writer(f"{owner} {Unfenced.claims}")


class UnfencedBackend(ChangelogBackend):
    """The backend on such a log."""

    def open_log(self) -> Unfenced:
        assert self.config.directory is not None
        return Unfenced(self.config.directory)


def test_without_transactions_a_late_record_of_an_earlier_owner_is_skipped(tmp_path: Path) -> None:
    """A zombie's upload goes into the log behind the fence, and is not restored, before a commit and after it."""
    settings = ChangelogSettings(directory=tmp_path / "log")
    bench = BackendBench(tmp_path, Profile(), None, lambda: UnfencedBackend("main", settings))
    zombie = bench.owner()
    first = zombie.commit({"delays": {b"a": b"1", b"b": b"1"}})
    successor = bench.owner()
    zombie.upload({"delays": {b"a": b"zombie", b"new": b"zombie"}})
    bench.expect_restored(first)
    second = successor.commit({"delays": {b"c": b"2"}})

    bench.expect_restored(second)
    bench.expect_restored(bench.owner().commit({"delays": {b"d": b"3"}}))
    bench.close()


def test_headers_of_a_newer_release_are_refused() -> None:
    """A record of a format that is not known is no record to apply, nor one to pass over."""
    for text in (b"2 1 5-5", b"", b"x", b"1 1", b"1 1 x"):
        with pytest.raises(FormatError):
            headers.decode({headers.NAME: text})
    assert headers.decode({}) is None
    stamp = headers.Stamp(7, CheckpointId(5, 6))
    assert stamp == headers.decode(headers.encode(stamp))


@pytest.mark.parametrize("records", [0, 1, 2])
def test_no_record_is_left_out_at_either_end(tmp_path: Path, records: int) -> None:
    """Stores of none, one and two records come back whole, from a log that begins with them and one that does not."""
    settings = ChangelogSettings(directory=tmp_path / "log")
    bench = BackendBench(tmp_path, Profile(), None, lambda: ChangelogBackend("main", settings))
    owner = bench.owner()
    bench.expect_restored(owner.commit({"delays": {b"k%d" % n: b"v" for n in range(records)}}))
    bench.expect_restored(owner.commit({"delays": {b"more%d" % n: b"v" for n in range(records)}}))
    bench.close()
