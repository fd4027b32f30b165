"""What a log promises of its topics: made once, looked at anew, gone when deleted."""

from __future__ import annotations

from functools import partial

from millpond.errors import StateNotFoundError
from millpond.log import LogCapabilities
from millpond.testing.kit.bench import at_once, on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.log_bench import LogBench

cases: Cases[LogBench] = Cases()


@cases("log.declares", "capabilities say what the log really promises.")
def declares(bench: LogBench) -> None:
    """See its own words."""
    expect(isinstance(bench.log.capabilities, LogCapabilities), "capabilities is no LogCapabilities")


@cases("create.usable", "create: make a topic that can be written at once; it is as it was asked for.")
def usable(bench: LogBench) -> None:
    """Make topics of one and several partitions; write to each partition, and look."""
    for partitions in (1, 3):
        name = bench.topic(partitions)
        bench.write(name, [(b"k", b"v")], partitions - 1)
        topic = bench.log.describe(name)
        expect_equal((name, partitions), (topic.name, topic.partitions), "name and partitions of a topic")
        for partition in range(partitions - 1):
            expect_equal([], bench.changes(name, partition), "the records of a partition that nobody wrote to")
        expect_equal([(b"k", b"v")], bench.changes(name, partitions - 1), "the records of a new topic")


@cases("create.keeps", "create: a topic that exists stays as it is, whatever it is like.")
def keeps(bench: LogBench) -> None:
    """Make a topic again, with other partitions and settings, by this log and another one."""
    name = bench.topic(2, {"cleanup.policy": "compact"})
    bench.write(name, [(b"k", b"v")], 1)
    before = bench.log.describe(name)
    for log in (bench.log, bench.another()):
        log.create(name, 5, {"cleanup.policy": "delete"})
        expect_equal(before, log.describe(name), "a topic that was to be made again")
    expect_equal([(b"k", b"v")], bench.changes(name, 1), "its records")


@cases("create.settings", "settings are Kafka's; describe gives those in force, by Kafka's names.")
def settings(bench: LogBench) -> None:
    """Make topics with settings that every log has a word for."""
    wanted = {"cleanup.policy": "compact", "max.message.bytes": "300000"}
    found = bench.log.describe(bench.topic(1, wanted)).settings
    expect_equal(wanted, {name: found.get(name) for name in wanted}, "the settings of a topic")


@cases("create.at-once", "Any thread: of several that make one topic at once none fails, and there is one topic.")
def create_at_once(bench: LogBench) -> None:
    """Let four logs make one topic at the same time."""
    name = bench.new_name()
    logs = [bench.another() for _ in range(4)]
    at_once([partial(log.create, name, 1, {}) for log in logs])
    identities = {log.describe(name).identity for log in logs}
    expect_equal(1, len(identities), "how many identities a topic has that several made at once")


@cases(
    "topic.identity",
    "identity: made when the topic is, printable ASCII; every log sees the same, and no other topic has it.",
)
def identity(bench: LogBench) -> None:
    """Look several times, through several logs, before and after records."""
    one, two = bench.topic(), bench.topic()
    first = bench.log.describe(one).identity
    expect(first and first.isascii() and first.isprintable(), f"the identity of a topic is {first!r}")
    bench.write(one, [(b"k", b"v")])
    for log in (bench.log, bench.another()):
        expect_equal(first, log.describe(one).identity, "the identity of a topic, a second time")
        expect(log.describe(two).identity != first, "two topics have one identity")


@cases("topic.names", "A topic is the one that was named, and no other whose name is like it.")
def names(bench: LogBench) -> None:
    """Make topics whose names begin alike, or differ by case."""
    base = bench.new_name("Name")
    made = [base, base + "1", base + "-1", base.swapcase(), base + "-0"]
    for at, name in enumerate(made):
        if at:
            bench.at_end(partial(bench.log.delete, name))
        bench.log.create(name, 1, {})
        bench.write(name, [(name.encode(), b"v")])
    for name in made:
        expect_equal([(name.encode(), b"v")], bench.changes(name), f"the records of {name}")
    bench.log.delete(made[0])
    expect_equal([(made[1].encode(), b"v")], bench.changes(made[1]), "the records of a topic beside a deleted one")


@cases(
    "delete.removes", "delete: remove a topic and all its records; clears: its name is free at once.", needs=("clears",)
)
def removes(bench: LogBench) -> None:
    """Delete a topic with records, look for it through two logs, and make it anew: it is another one, and empty."""
    name, other = bench.topic(2), bench.another()
    before = other.describe(name).identity
    bench.write(name, [(b"k", b"v")] * 10, 1)
    bench.log.delete(name)
    for log in (bench.log, other):
        expect_error(StateNotFoundError, partial(log.describe, name), "describe of a deleted topic")
        expect_error(StateNotFoundError, partial(log.extent, name, 1), "extent of a deleted topic")
    other.create(name, 2, {})
    for log in (bench.log, other):
        expect(log.describe(name).identity != before, "a topic that was deleted and made anew has its old identity")
        expect_equal([], bench.changes(name, 1, log), "the records of a topic that was made anew")
    bench.write(name, [(b"new", b"v")], 1)
    expect_equal([(b"new", b"v")], bench.changes(name, 1), "what is written to a topic that was made anew")


@cases("delete.missing", "delete: a missing topic is fine.")
def delete_missing(bench: LogBench) -> None:
    """Delete what never was, and a topic twice."""
    bench.log.delete(bench.new_name("never"))
    name = bench.topic()
    bench.log.delete(name)
    bench.log.delete(name)


@cases("errors.missing", "StateNotFoundError for a topic or a partition that is not there, and it says which.")
def missing(bench: LogBench) -> None:
    """Look at and read topics and partitions that never were."""
    never, name = bench.new_name("never"), bench.topic(2)
    for topic, partition in ((never, 0), (name, 2), (name, 700)):
        expect_error(StateNotFoundError, partial(bench.log.extent, topic, partition), "extent of what is not there")
        reading = partial(_drain, bench, topic, partition)
        error = expect_error(StateNotFoundError, reading, f"read of {topic}, partition {partition}")
        expect(topic in str(error), f"the error does not name the topic: {error}")
    expect_error(StateNotFoundError, partial(bench.log.describe, never), "describe of a topic that is not there")


def _drain(bench: LogBench, topic: str, partition: int) -> int:
    return len(list(bench.log.read(topic, partition, 0, 1)))


@cases("extent.grows", "extent: look anew; start is equal to end where nothing is, and end is behind the last record.")
def extent(bench: LogBench) -> None:
    """Look before and after appends, through another log too."""
    name, other = bench.topic(2), bench.another()
    empty = bench.log.extent(name, 0)
    expect_equal(empty.start, empty.end, "the end of an empty partition")
    for count in (1, 5):
        last = bench.write(name, [(b"k", b"v")] * count)
        for log in (bench.log, other):
            found = log.extent(name, 0)
            expect_equal(empty.start, found.start, "the start of a partition from which nothing was removed")
            expect(found.end > last, f"end is {found.end}, and the last record has the offset {last}")
    other_one = bench.log.extent(name, 1)
    expect_equal(other_one.start, other_one.end, "the end of the other partition")


@cases("threads.any", "Any thread may call, several at once.")
def threads(bench: LogBench) -> None:
    """Let six owners append to one partition and one of their own, and read, all at once."""
    name = bench.topic(7)

    def work(me: int) -> None:
        writer = bench.log.writer(bench.owner(f"thread {me}"))
        try:
            for number in range(4):
                with writer.append() as append:
                    for partition in (0, me):
                        append.add(name, partition, [(b"%d/%d" % (me, number), b"v")] * 3)
                    append.flush()
                    append.commit()
                expect_equal(3 * (number + 1), len(bench.changes(name, me)), "how many records a thread has appended")
        finally:
            writer.close()

    at_once([partial(work, me) for me in range(1, 7)])
    found = [key for key, _ in bench.changes(name)]
    expect_equal(72, len(found), "how many records six threads have appended to one partition")
    for me in range(1, 7):
        wanted = [b"%d/%d" % (me, number) for number in range(4) for _ in range(3)]
        expect_equal(wanted, [key for key in found if key.startswith(b"%d/" % me)], "one thread's records, in order")


@cases("close.idempotent", "close: close readers and writers; idempotent, from any thread; what was committed stays.")
def close(bench: LogBench) -> None:
    """Close logs that did nothing, that read, and that have an append open."""
    name = bench.topic()
    for doing in range(4):
        log = bench.another()
        if doing == 1:
            bench.write(name, [(b"kept", b"v")], writer=bench.writer("closing", log))
        elif doing == 2:
            next(log.read(name, 0, *_bounds(bench, name)))
        elif doing == 3:
            append = bench.writer("closing", log).append()
            append.add(name, 0, [(b"dropped", b"v")])
            append.flush()
        on_worker(log.close)
        log.close()
    bench.writer("closing")  # its owner's next writer: an open append is never committed
    wanted = [(b"kept", b"v")]
    found = bench.changes(name)
    expect(found == wanted or not bench.log.capabilities.fencing, f"the records after logs were closed: {found}")


def _bounds(bench: LogBench, name: str) -> tuple[int, int]:
    found = bench.log.extent(name, 0)
    return found.start, found.end


@cases("damage.any", "StateCorruptError for stored bytes that are damaged; whatever is read is what was committed.",
       level=Level.CORE)  # fmt: skip
def damage(bench: LogBench) -> None:
    """Damage each kept thing in several ways: a reader gets exactly what was committed, or one of our errors."""
    from millpond.testing.kit.log_damage import try_damages

    try_damages(bench)
