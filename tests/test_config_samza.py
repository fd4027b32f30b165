"""Tests of Samza's flat keys: the model that they give, and what is said about keys that mean nothing here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, field, frozen

from millpond import plugins
from millpond.config import JobConfig, load
from millpond.errors import ConfigError
from millpond.memory import MemoryBackend
from millpond.plugins import BACKENDS, CHECKPOINTS
from millpond.spi import ManagerCapabilities

KV = "org.apache.samza.storage.kv."
ROCKSDB = f"{KV}RocksDbKeyValueStorageEngineFactory"
IN_MEMORY = f"{KV}inmemory.InMemoryKeyValueStorageEngineFactory"
CHANGELOG = "org.apache.samza.storage.KafkaChangelogStateBackendFactory"
BLOB = "org.apache.samza.storage.blobstore.BlobStoreStateBackendFactory"


@frozen
class LogSettings:
    """What a changelog needs."""

    bootstrap_servers: tuple[str, ...] = ()
    topics: Mapping[str, str] = field(factory=dict)


class Log(MemoryBackend):
    """Stands for the changelog backend."""

    config_class = LogSettings
    marker_key = CHANGELOG
    capabilities = evolve(MemoryBackend.capabilities, durable=True, checkpoint_v1=True)


@frozen
class KafkaSettings:
    """What a Kafka manager needs."""

    bootstrap_servers: tuple[str, ...] = ()


class Kafka(plugins.checkpoints_class("memory")):  # type: ignore[misc]
    """Stands for the Kafka checkpoint manager."""

    config_class = KafkaSettings
    capabilities = ManagerCapabilities(versions=frozenset({1, 2}))


SAMZA: Mapping[str, object] = {
    "job.name": "flights",
    "job.default.system": "kafka",
    "job.logged.store.base.dir": "/var/flights",
    "systems.kafka.producer.bootstrap.servers": "b1:9092,b2:9092",
    "task.checkpoint.factory": "org.apache.samza.checkpoint.kafka.KafkaCheckpointManagerFactory",
    "stores.delays.factory": ROCKSDB,
    "stores.delays.key.serde": "string",
    "stores.delays.msg.serde": "json",
    "stores.delays.changelog": "kafka.flights.delays-log",
}


@pytest.fixture(autouse=True)
def kafka_plugins() -> Iterator[None]:
    """Register stand-ins for the plugins that talk to Kafka."""
    with plugins.registered(BACKENDS, "changelog", Log), plugins.registered(CHECKPOINTS, "kafka", Kafka):
        yield


def loaded(**changes: object) -> JobConfig:
    """Load the Samza configuration, with ``__`` for dots in changed keys; None removes a key."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return load({key: value for key, value in {**SAMZA, **named}.items() if value is not None}, {})


def error_of(**changes: object) -> str:
    """Give the text of the error that changes lead to."""
    with pytest.raises(ConfigError) as caught:
        loaded(**changes)
    return str(caught.value)


def test_a_usual_samza_job_gives_the_model() -> None:
    """A job as Samza users have it: engine, serdes, changelog, manager, brokers and Samza's own defaults."""
    config = loaded()
    store, log = config.stores["delays"], config.backends["changelog"]
    settings: Any = log.settings

    assert ("rocksdb", "str", "json") == (store.engine, store.key, store.value)
    assert (("changelog",), ("changelog",)) == (store.backup, store.restore)
    assert CHANGELOG == log.marker_key
    assert ("b1:9092", "b2:9092") == settings.bootstrap_servers
    assert {"delays": "flights.delays-log"} == settings.topics
    assert ("b1:9092", "b2:9092") == config.checkpoint.settings.bootstrap_servers  # type: ignore[attr-defined]
    assert Path("/var/flights") == config.state_dir


def test_samzas_defaults_come_with_samzas_keys() -> None:
    """Versions, commit interval, timeout and restores in parallel are Samza's where its file says nothing."""
    config = loaded()

    assert ((1, 2), (1,)) == (config.checkpoint.versions.write, config.checkpoint.versions.read)
    assert (timedelta(seconds=60), timedelta(minutes=30)) == (config.commit.interval, config.commit.timeout)
    assert (0, 0, 2) == (config.commit.tolerated_failures, config.commit.tolerated_timeouts, config.restore.parallel)
    assert "Samza's default" == str(config.origins["commit", "timeout"])


def test_our_own_dotted_keys_bring_our_defaults() -> None:
    """Dotted keys that Samza does not have, or shares with us, keep our defaults."""
    config = load(
        {
            "job.name": "x",
            "job.state_dir": "/x",
            "checkpoint.manager": "memory",
            "stores.a.b.engine": "memory",
            "stores.a.b.ephemeral": "true",
            "stores.a.b.options.size": "3",
            "millpond.commit.timeout": "1m",
        }
        | {"stores.a.b.options.size": None},
        {},
    )

    assert ["a.b"] == list(config.stores)
    assert (2,) == config.checkpoint.versions.write
    assert timedelta(minutes=1) == config.commit.timeout


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        ({"task__commit__ms": "1500"}, "commit.interval", timedelta(milliseconds=1500)),
        ({"task__commit__ms": "-1"}, "commit.interval", None),
        ({"task__commit__ms": " "}, "commit.interval", timedelta(seconds=60)),
        ({"task__commit__timeout__ms": 60000}, "commit.timeout", timedelta(minutes=1)),
        ({"task__commit__skip__commit__during__failures__enabled": "TRUE"}, "commit.tolerated_failures", 5),
        ({"task__commit__skip__commit__during__failures__enabled": "TRUE"}, "commit.tolerated_timeouts", 2),
        ({"task__commit__skip__commit__during__failures__enabled": "yes"}, "commit.tolerated_failures", 0),
        (
            {"task__checkpoint__write__versions": "2", "task__checkpoint__read__versions": "2, 1"},
            "checkpoint.retain",
            1,
        ),
        ({"task__live__checkpoint__max__age": "1000"}, "checkpoint.versions.max_age", timedelta(seconds=1)),
        ({"job__id": "7"}, "id", "7"),
    ],
)
def test_single_keys_are_translated(changes: dict[str, object], path: str, expected: object) -> None:
    """Each of Samza's keys with a counterpart sets it, by Samza's rules for texts."""
    found: Any = loaded(**changes)
    for name in path.split("."):
        found = getattr(found, name)

    assert expected == found


def test_limits_need_the_switch() -> None:
    """Samza's limits for failures count only while its switch is on."""
    limit = {"task__commit__skip__commit__exception__max__limit": "9"}
    switch = {"task__commit__skip__commit__during__failures__enabled": "true"}

    assert (0, 9) == (loaded(**limit).commit.tolerated_failures, loaded(**limit, **switch).commit.tolerated_failures)


V2 = {"task__checkpoint__write__versions": "2", "task__checkpoint__read__versions": "2"}
DISK = {"millpond__backends__disk__type": "rocksdb-local"}


@pytest.mark.parametrize(
    ("changes", "backup", "restore"),
    [
        ({"stores__backup__factories": "disk"}, ("disk",), ("disk",)),
        ({"stores__backup__factories": f"disk, {CHANGELOG}"}, ("disk", "changelog"), ("disk", "changelog")),
        ({"stores__delays__backup__factories": "disk", "stores__backup__factories": CHANGELOG}, ("disk",), ("disk",)),
        (
            {"stores__delays__backup__factories": f"disk,{CHANGELOG}", "stores__delays__restore__factories": CHANGELOG},
            ("disk", "changelog"),
            ("changelog",),
        ),
        ({"stores__backup__factories": "", "stores__restore__factories": " "}, ("changelog",), ("changelog",)),
    ],
)
def test_the_order_of_factories_is_samzas(
    changes: dict[str, object], backup: tuple[str, ...], restore: tuple[str, ...]
) -> None:
    """A store's own list, else the job's if it is not empty, else the changelog."""
    store = loaded(**DISK, **V2, **changes).stores["delays"]

    assert (backup, restore) == (store.backup, store.restore)


def test_an_empty_list_of_the_job_disables_nothing() -> None:
    """A blank list for the whole job counts as absent: the only backend stays every store's."""
    lists = {"stores__backup__factories": "", "stores__restore__factories": ""}

    assert ("disk",) == loaded(**DISK, **V2, **lists, stores__delays__changelog=None).stores["delays"].backup


def test_an_empty_list_of_a_store_means_no_backup() -> None:
    """A store whose own list is empty has no backup, and has to say that it is ephemeral."""
    empty = {"stores__delays__backup__factories": ""}

    assert "stores.delays.backup: the store has no backend" in error_of(**V2, **empty)
    assert () == loaded(**V2, **empty, stores__delays__ephemeral="true").stores["delays"].backup


def test_rocksdb_options_and_ttl_are_translated() -> None:
    """RocksDB's options reach the engine in RocksDB's words; a short time to live is Samza's shortest."""
    store = loaded(
        stores__delays__rocksdb__compression="bzip2",
        stores__delays__rocksdb__block__size__bytes="8192",
        stores__delays__rocksdb__ttl__ms="10",
    ).stores["delays"]

    assert {"compression": "bz2", "block_size": 8192} == store.options
    assert timedelta(seconds=1) == store.ttl


def test_every_translated_option_is_one_of_the_engine() -> None:
    """Each of RocksDB's options in the table is one that the engine knows."""
    options = pytest.importorskip("millpond_rocksdb.options")
    from millpond.config.samza_keys import ROCKSDB_OPTIONS

    assert set() == set(ROCKSDB_OPTIONS.values()) - set(options.OPTIONS)


def test_serdes_are_found_in_the_registry() -> None:
    """A serde's name is Samza's registry's, and its class decides."""
    registry = {"serializers__registry__mine__class": "org.apache.samza.serializers.ByteSerdeFactory"}

    assert "bytes" == loaded(stores__delays__key__serde="mine", **registry).stores["delays"].key


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"stores__delays__bakup__factories": "x"}, 'unknown key, did you mean "backup.factories"?'),
        ({"task__commit__mss": "1"}, 'task.commit.mss: unknown key, did you mean "task.commit.ms"?'),
        ({"stores__delays__key__serde": "integer"}, 'no serde of ours reads what Samza\'s "integer" wrote'),
        ({"stores__delays__factory": "com.example.MyFactory"}, "no counterpart to the class com.example.MyFactory"),
        ({"task__checkpoint__factory": "com.example.MyFactory"}, "checkpoint.manager: no counterpart to the class"),
        ({"stores__delays__backup__factories": "com.example.MyFactory"}, "no counterpart to the class"),
        ({"stores__delays__backup__factories": BLOB}, "Samza's blob store needs a section here"),
        ({"task__commit__ms": "soon"}, "commit.interval: expected a whole number of milliseconds"),
        ({"task__commit__ms": "9" * 30}, "beyond all calendars"),
        ({"stores__other__changelog": "x"}, "there is no store other: stores.other.factory is missing"),
        (
            {"stores__other__factory": IN_MEMORY, "stores__other__changelog": "kafka.flights.delays-log"},
            "has the same changelog as store delays",
        ),
        (
            {"stores__other__factory": IN_MEMORY, "stores__other__changelog": "second.log"},
            "changelogs in several systems have no counterpart: kafka, second",
        ),
        ({"backend__x__type": "y"}, 'backend.x.type: unknown key, did you mean "backends.x.type"?'),
        ({"task__checkpoint__write__versions": "2"}, "checkpoint.read_versions: names no version that is written"),
    ],
)
def test_what_cannot_be_translated_is_refused(changes: dict[str, object], text: str) -> None:
    """A key or a class without a counterpart that matters is a problem that says what to do."""
    assert text in error_of(**changes)


def test_keys_that_mean_nothing_here_are_noted() -> None:
    """Samza's keys that we know and have no use for are accepted, each with a remark; foreign ones are counted."""
    config = loaded(
        stores__delays__write__batch__size="5", yarn__am__x="1", app__mine="2", stores__delays__changelog__kafka__x="3"
    )

    assert any("stores.delays.write.batch.size means nothing here" in note for note in config.notes)
    assert any("stores.delays.changelog.kafka.x means nothing here" in note for note in config.notes)
    assert any("yarn.am.x" in note and "app.mine" in note for note in config.notes)


def test_a_properties_file_has_lines(tmp_path: Path) -> None:
    """A problem in a properties file names the line and the key as it stands there; a double key names both lines."""
    path = tmp_path / "job.properties"
    path.write_text("# a job\njob.name=x\njob.name=y\ntask.commit.ms=soon\n")

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert f"{path}:3: job.name: is set twice, at {path}:2 too" in str(caught.value)
    assert f"{path}:4 (task.commit.ms): commit.interval: expected a whole number" in str(caught.value)


def test_samzas_variable_for_the_folder_wins() -> None:
    """LOGGED_STORE_BASE_DIR wins over the key, as in Samza, and says so."""
    config = load(SAMZA, {"LOGGED_STORE_BASE_DIR": "/data"})

    assert Path("/data") == config.state_dir
    assert "environment (LOGGED_STORE_BASE_DIR)" == str(config.origins["job", "state_dir"])


def test_our_own_keys_win_over_samzas() -> None:
    """A key of ours beside Samza's wins."""
    config = loaded(commit__timeout="3m", stores__delays__value="msgspec", stores__delays__msg__serde="integer")

    assert timedelta(minutes=3) == config.commit.timeout
    assert "msgspec" == config.stores["delays"].value
