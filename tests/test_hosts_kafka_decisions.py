"""What the Kafka host decides, as tables: what to open, to leave, to pause and to refuse, and where to begin."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import hosts_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.config import host_settings, load
from millpond.errors import ConfigError, FormatError
from millpond.hosts.kafka import KafkaSettings, SourceGoneError
from millpond.hosts.kafka import decisions as d
from millpond.hosts.kafka.settings import connection, consumer_config, is_incremental, producer_config

OPEN, WAIT, RUN = d.Phase.OPENING, d.Phase.WAITING, d.Phase.RUNNING
PARTS = st.sets(st.tuples(st.sampled_from(["a", "b.c"]), st.integers(0, 5)))


@pytest.mark.parametrize(
    ("assigned", "topics", "tasks"),
    [
        ([], ["a"], set()),
        ([("a", 0), ("a", 7)], ["a"], {0, 7}),
        ([("a", 0), ("b", 0), ("a", 1)], ["a", "b"], {0}),
        ([("a", 0), ("b", 1)], ["a", "b"], set()),
        ([("a", 0), ("b", 0), ("b", 1), ("a", 1)], ["b", "a"], {0, 1}),
    ],
)
def test_a_task_runs_where_its_partition_of_every_topic_is(assigned, topics, tasks):
    """A task that lacks a partition of one topic is not opened."""
    assert tasks == d.whole_tasks(assigned, topics)


@pytest.mark.parametrize(
    ("wanted", "phases", "opened", "given_up", "left"),
    [
        ({0, 1}, {}, {0, 1}, set(), set()),
        ({0}, {0: RUN}, set(), set(), set()),
        ({0}, {0: OPEN}, set(), set(), set()),
        ({0}, {0: WAIT}, set(), set(), set()),
        ({1}, {0: RUN}, {1}, set(), {0}),
        (set(), {0: OPEN, 1: WAIT, 2: RUN}, set(), {0, 1}, {2}),
    ],
)
def test_an_assignment_opens_what_is_missing_and_lets_go_of_the_rest(wanted, phases, opened, given_up, left):
    """What runs or is being opened stays; what nobody wants is handed over if it runs, and else given up."""
    assert d.Steps(frozenset(opened), frozenset(given_up), frozenset(left)) == d.steps(wanted, phases)


@pytest.mark.parametrize(("saved", "found"), [("x", "x"), (None, "x"), ("x", None), (None, None)])
def test_a_topic_is_the_same_unless_its_ids_differ(saved, found):
    """A checkpoint without an id, or a cluster that gives none, is no reason to stop."""
    d.check_identity(("clicks", 3), saved, found, "t")


def test_a_topic_of_another_id_is_another_topic():
    """The error names the topic, the partition, the task and both ids."""
    with pytest.raises(SourceGoneError, match=r"'clicks', partition 3.*'t' has read.* the id x, .* has y now"):
        d.check_identity(("clicks", 3), "x", "y", "t")


@given(st.sets(st.integers(0, 8)), st.dictionaries(st.integers(0, 8), st.sampled_from(list(d.Phase))))
def test_steps_lead_to_what_is_wanted(wanted, phases):
    """After the steps there is a task for each that is wanted, no other, and none is both opened and let go."""
    todo = d.steps(wanted, phases)

    assert wanted == (set(phases) - todo.leave - todo.give_up) | todo.open
    assert not todo.open & set(phases)
    assert not todo.leave & todo.give_up


@given(PARTS, st.sets(st.integers(0, 5)), PARTS)
def test_only_partitions_of_tasks_that_may_read_flow(assigned, readable, paused):
    """After pausing and resuming exactly the partitions of readable tasks flow, and nothing else is touched."""
    paused &= assigned
    pause, resume = d.flow(assigned, readable, paused)

    assert (paused | set(pause)) - set(resume) == {part for part in assigned if part[1] not in readable}
    assert not set(pause) & paused
    assert set(resume) <= paused


@pytest.mark.parametrize(
    ("saved", "low", "high", "begin", "first"),
    [
        (None, 0, 0, "earliest", 0),
        (None, 5, 9, "earliest", 5),
        (None, 5, 9, "latest", 9),
        ("4", 5, 9, "earliest", 5),
        ("8", 5, 9, "latest", 9),
        ("-1", 0, 9, "latest", 0),
        ("6", 5, 9, "earliest", 7),
    ],
)
def test_a_task_reads_on_after_what_its_checkpoint_says(saved, low, high, begin, first):
    """The next offset is the one after the saved one, also at either end; only a task without one begins anywhere."""
    assert first == d.first_offset(("t", 0), saved, low, high, begin, "Partition 0")


@pytest.mark.parametrize(
    ("saved", "low", "high", "words"),
    [
        ("3", 5, 9, ["from offset 4 on", "5 to 9", "the 1 offsets before 5 were removed", "retention"]),
        ("9", 5, 9, ["from offset 10 on", "5 to 9", "deleted and made again"]),
        ("-1", 1, 1, ["from offset 0 on", "1 to 1"]),
    ],
)
def test_an_offset_that_is_gone_names_all_and_says_what_to_do(saved, low, high, words):
    """The error names task, topic, partition, what was wanted, what is there, and the ways out."""
    with pytest.raises(SourceGoneError) as raised:
        d.first_offset(("in.put", 3), saved, low, high, "earliest", "Partition 3")

    for word in ["'Partition 3'", "'in.put', partition 3", "Nothing was skipped", "another job name", *words]:
        assert word in str(raised.value)


def test_an_offset_of_another_system_is_an_error():
    """A saved offset that is no number is refused, and not taken for none."""
    with pytest.raises(FormatError, match="no number"):
        d.first_offset(("t", 0), "first", 0, 9, "earliest", "Partition 0")


@pytest.mark.parametrize(
    ("counts", "tasks", "words"),
    [
        ({"a": 2, "b": 2}, None, []),
        ({"a": 2}, ["x", "y"], []),
        ({"a": None, "b": 1}, None, ["'a' does not exist"]),
        ({"a": 2, "b": 3}, None, ["unequal numbers", "'a' 2, 'b' 3"]),
        ({"a": 3}, ["x", "y"], ["3 partitions", "job.tasks names 2", "pin_partitions = false"]),
    ],
)
def test_topics_that_do_not_fit_are_refused(counts, tasks, words):
    """Missing topics, unequal partition numbers and another number than the job has are told at the start."""
    problems = "\n".join(d.topic_problems(counts, tasks))

    assert bool(words) == bool(problems)
    assert all(word in problems for word in words)


def test_a_partition_beyond_the_jobs_tasks_is_refused():
    """A topic that grew while the job runs is noticed at the first partition that has no task."""
    d.check_task_number(1, ["x", "y"], {"a": 2})
    d.check_task_number(5, None, {"a": 6})
    with pytest.raises(ConfigError, match=r"have 3 partitions .* began with 2"):
        d.check_task_number(2, ["x", "y"], {"a": 3})


def test_retries_double_up_to_a_minute():
    """The pause before a task is opened again doubles, and has an end."""
    assert [0.5, 1.0, 2.0] == [d.retry_after_s(n, 0.5) for n in (1, 2, 3)]
    assert d.retry_after_s(500, 0.5) == 60.0


def test_tasks_are_called_as_samza_calls_them():
    """Without names of their own tasks are Samza's "Partition N"; a named task has its partition's place."""
    assert d.task_name(3, None) == "Partition 3"
    assert d.task_name(1, ["EWR", "JFK"]) == "JFK"


# ------------------------------------------------------------------------------------------------------------- settings


def settings(topics: tuple[str, ...] = ("t",), **words: Any) -> KafkaSettings:
    """Give settings."""
    return KafkaSettings(bootstrap_servers=("b:9092",), topics=topics, **words)


def job(tmp_path: Path, **more: Any) -> Any:
    """Give a checked configuration."""
    return load(hosts_kafka.config(tmp_path, "b:9092", ["t"], **more))


def test_one_topic_is_assigned_cooperatively_and_several_by_range(tmp_path):
    """Rebalances move single partitions, unless several topics have to stay together, which range alone does."""
    one = consumer_config(settings(), job(tmp_path))
    two = consumer_config(settings(("t", "u")), job(tmp_path))
    new = consumer_config(settings(("t", "u"), client={"group.protocol": "consumer"}), job(tmp_path))

    assert "cooperative-sticky" == one["partition.assignment.strategy"]
    assert "range" == two["partition.assignment.strategy"]
    assert "range" == new["group.remote.assignor"]
    assert "partition.assignment.strategy" not in new
    assert [True, False, True] == [is_incremental(each) for each in (one, two, new)]


def test_offsets_are_never_the_clients(tmp_path):
    """The client neither commits nor resets offsets by itself, and an operator cannot make it."""
    config = consumer_config(settings(), job(tmp_path))

    assert config["enable.auto.commit"] is False
    assert "error" == config["auto.offset.reset"]
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset cannot be set here: .*hosts\.kafka\.begin"):
        consumer_config(settings(client={"auto": {"offset": {"reset": "earliest"}}}), job(tmp_path))


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        ({"client": {"max.poll.interval.ms": 9_000}}, {}, "hosts.kafka.handover (30 s) has to be less"),
        ({"client": {"max.poll.interval.ms": 31_000}}, {"job": {"put_timeout": "40s"}}, "job.put_timeout (40 s)"),
    ],
)
def test_nothing_may_take_longer_than_the_group_waits(tmp_path, words, more, told):
    """A hand-over or a put that may outlast max.poll.interval.ms is refused with both figures."""
    with pytest.raises(ConfigError) as raised:
        consumer_config(settings(**words), job(tmp_path, **more))

    assert told in str(raised.value)


def test_several_topics_refuse_an_assignor_that_parts_them(tmp_path):
    """Equal partition numbers of several topics belong together, and sticky assignment does not keep them."""
    with pytest.raises(ConfigError, match="equal partition numbers"):
        consumer_config(
            settings(("t", "u"), client={"partition.assignment.strategy": "cooperative-sticky"}), job(tmp_path)
        )


def test_dotted_names_may_be_tables(tmp_path):
    """What TOML makes of an unquoted dotted name is the same setting; connection settings reach every client."""
    secure = settings(client={"security": {"protocol": "SSL"}, "ssl.ca.location": "/ca", "fetch.min.bytes": 2})

    assert "SSL" == consumer_config(secure, job(tmp_path))["security.protocol"]
    assert {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca",
    }.items() <= producer_config(secure, job(tmp_path)).items()
    assert "fetch.min.bytes" not in connection(consumer_config(secure, job(tmp_path)))


def test_mistakes_in_the_section_are_told_with_their_places(tmp_path):
    """Every mistake in [hosts.kafka] is in one error, with its key and the nearest known one; no secret is shown."""
    file = tmp_path / "job.toml"
    file.write_text(
        '[job]\nname = "j"\nstate_dir = "/srv/j"\n'
        '[checkpoint]\nmanager = "memory"\n[stores.s]\nengine = "memory"\nephemeral = true\n'
        '[hosts.kafka]\ntopic = ["a"]\nbootstrap_servers = "b:9092"\nhandover = 3\n'
        '[hosts.kafka.client]\n"sasl.password" = "hush-hush"\n'
    )
    with pytest.raises(ConfigError) as raised:
        host_settings(load(file), "kafka", KafkaSettings)

    text = str(raised.value)
    assert 'job.toml:10: hosts.kafka.topic: unknown key, did you mean "topics"?' in text
    assert "job.toml:11: hosts.kafka.bootstrap_servers: expected a list, found text" in text
    assert 'hosts.kafka.handover: expected a duration, found a bare number: write its unit, such as "3s"' in text
    assert "hush" not in text


def test_a_section_is_explained_without_its_secrets(tmp_path):
    """`millpond config` shows what the host was told, and no password."""
    from millpond.config.explain import explain

    shown = {row.key: row.value for row in explain(job(tmp_path, kafka={"client": {"sasl.password": "hush-hush"}}))}

    assert "b:9092" in shown["hosts.kafka.bootstrap_servers"]
    assert "***" == shown['hosts.kafka.client."sasl.password"']


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"topics": []}, "topics"),
        ({"topics": ["a", "a"]}, "twice"),
        ({"batch": 0}, "batch"),
        ({"handover": "0s"}, "handover"),
        ({"begin": "somewhere"}, "begin"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, words, told):
    """Empty, doubled and non-positive values are problems of their keys."""
    with pytest.raises(ConfigError, match=told):
        host_settings(job(tmp_path, kafka=words), "kafka", KafkaSettings)


def test_the_group_is_the_job(tmp_path):
    """Without a name of its own the group is called as the job, with the job's id where it has one."""
    own = job(tmp_path, kafka={"group": None})

    assert "counting" == consumer_config(settings(), own)["group.id"]
    assert "counting-2" == consumer_config(settings(), job(tmp_path, job={"id": "2"}))["group.id"]
    assert settings().shutdown < timedelta(seconds=30)  # what a container's stop leaves by default


def test_the_client_is_not_loaded_before_it_is_used():
    """Importing the host loads no Kafka client, and without one the message says how to get it."""
    code = """
import sys
sys.modules["confluent_kafka"] = None
import millpond.hosts.kafka as host
try:
    host.KafkaHost({config!r}, print)
except Exception as error:
    print(type(error).__name__, error)
"""
    config = hosts_kafka.config(Path("/nowhere/at-all"), "b:9092", ["t"])
    said = subprocess.run(
        [sys.executable, "-c", code.format(config=config)], capture_output=True, text=True, timeout=60, check=True
    )

    assert 'ConfigError the Kafka host needs confluent-kafka: pip install "millpond[kafka]"' in said.stdout
