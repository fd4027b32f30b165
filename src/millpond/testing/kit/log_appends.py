"""What a log promises of an append: all of it in order, or nothing of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from threading import Event

from millpond.errors import ConfigError, StateNotFoundError
from millpond.spi import Change
from millpond.testing.kit.bench import at_once
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.log_bench import GaveUpError, Giving, LogBench

cases: Cases[LogBench] = Cases()

_VALUES: list[Change] = [
    (b"k", b"v"),
    (b"empty", b""),
    (b"gone", None),
    (b"", b"under an empty key"),
    (bytes(range(256)), bytes(range(255, -1, -1))),
    ("ключ".encode(), b"\x00\xff"),
    (b"k", b"again"),
    (b"gone", None),
]
_CLOCKS_APART_S = 600


@cases("append.any-bytes", "add: the changes, in order; any bytes, and a value of None is a tombstone.")
def any_bytes(bench: LogBench) -> None:
    """Append all kinds of keys and values, in one add and in several, and read them through another log."""
    name = bench.topic()
    bench.write(name, _VALUES)
    with bench.writer("second").append() as append:
        for change in _VALUES:
            append.add(name, 0, iter([change]))
        append.flush()
        append.commit()
    for log in (bench.log, bench.another()):
        expect_equal(_VALUES * 2, bench.changes(name, log=log), "what was appended")


@cases("append.partitions", "An append to several partitions: each record is where it was sent, in order.")
def partitions(bench: LogBench) -> None:
    """Append to two topics and three partitions in turns."""
    one, two = bench.topic(2), bench.topic()
    places = ((one, 0), (two, 0), (one, 1))
    with bench.writer().append() as append:
        for number in range(30):
            append.add(*places[number % 3], [(b"%d" % number, b"v")])
        append.flush()
        append.commit()
    for at, place in enumerate(places):
        wanted = [(b"%d" % number, b"v") for number in range(at, 30, 3)]
        expect_equal(wanted, bench.changes(*place), f"the records of partition {place[1]}")


@cases("append.headers", "headers: each record has those of its add; any bytes, none too.")
def headers(bench: LogBench) -> None:
    """Append with several headers, one after the other in one append."""
    name = bench.topic()
    kinds: list[dict[str, bytes]] = [{}, {"a": b"", "b": bytes(range(256))}, {"a": b"other"}, {"ä.b-c": b"1"}]
    with bench.writer().append() as append:
        for each in kinds:
            append.add(name, 0, [(b"k", b"v"), (b"l", None)], headers=each)
        append.flush()
        append.commit()
    found = [dict(each) for each in bench.read(name).headers]
    expect_equal([each for each in kinds for _ in range(2)], found, "the headers of records")


@cases("append.millis", "millis: a record's time in milliseconds since 1970, by the log's clock or its writer's.")
def millis(bench: LogBench) -> None:
    """Compare a record's time with this machine's."""
    name, before = bench.topic(), time.time() - _CLOCKS_APART_S
    bench.write(name, [(b"k", b"v")])
    (found,) = bench.read(name).millis
    expect(before * 1000 <= found <= (time.time() + _CLOCKS_APART_S) * 1000, f"a record of now has the time {found}")


@cases("append.large", "A value as large as the topic takes comes back whole.")
def large(bench: LogBench) -> None:
    """Append values of up to nearly a megabyte, several times."""
    size = min(bench.profile.large_value, 900_000)
    name = bench.topic(1, {"max.message.bytes": "1000000"})
    wanted: list[Change] = [(b"%d" % number, bytes([number]) * size) for number in range(4)]
    bench.write(name, wanted)
    expect(bench.changes(name) == wanted, "large values are not what was appended")


@cases("append.many", "Many records go in one append, and are read in order; a full queue is waited for.")
def many(bench: LogBench) -> None:
    """Append many small records from a generator."""
    name, count = bench.topic(), bench.profile.many
    last = bench.write(name, ((b"%d" % number, b"v" * (number % 50)) for number in range(count)))
    found = bench.read(name)
    expect_equal(count, len(found.changes), "how many records are read")
    expect(
        [key for key, _ in found.changes] == [b"%d" % number for number in range(count)], "they are in another order"
    )
    expect_equal(last, found.offsets[-1], "the offset of the last record, as flush said")


@cases("append.too-large", "ConfigError for a record larger than the topic takes: with its size and the setting.")
def too_large(bench: LogBench) -> None:
    """Append one record that is too large among others; nothing of the append is read."""
    name = bench.topic(1, {"max.message.bytes": "50000"})
    noise = bytes((number * 7919) % 251 for number in range(200_000))
    append = bench.writer().append()

    def send() -> None:
        append.add(name, 0, [(b"before", b"v"), (b"large", noise), (b"after", b"v")])
        append.flush()

    error = expect_error(ConfigError, send, "an append of a record of 200,000 bytes where 50,000 are taken")
    append.abort()
    sizes = [int(text) for text in re.findall(r"\d+", re.sub(r"(?<=\d)[,_](?=\d)", "", str(error)))]
    expect(any(size >= 200_000 for size in sizes), f"the error does not tell the record's size: {error}")
    expect("max.message.bytes" in str(error), f"the error does not name the setting: {error}")
    if bench.log.capabilities.fencing:
        expect_equal([], bench.changes(name), "what is read of an append that was refused")
    bench.write(name, [(b"fits", b"v")])
    expect((b"fits", b"v") in bench.changes(name), "a record that fits is missing after one that did not")


@cases("append.no-topic", "StateNotFoundError for a topic that is not there.")
def no_topic(bench: LogBench) -> None:
    """Append to a topic and to a partition that never were."""
    for topic, partition in ((bench.new_name("never"), 0), (bench.topic(), 7)):
        append = bench.writer().append()

        def send(append: object = append, topic: str = topic, partition: int = partition) -> None:
            append.add(topic, partition, [(b"k", b"v")])  # type: ignore[attr-defined]
            append.flush()  # type: ignore[attr-defined]

        expect_error(StateNotFoundError, send, "an append to what is not there")
        append.abort()


@cases(
    "flush.offsets", "flush gives the highest offset of one's own in each partition; one that got nothing is missing."
)
def flush_offsets(bench: LogBench) -> None:
    """Compare what flush gives with the offsets that a reader sees, over several appends."""
    name, writer = bench.topic(3), bench.writer()
    for count in (1, 3, 2):
        with writer.append() as append:
            append.add(name, 0, [(b"k", b"v")] * count)
            append.add(name, 2, [])
            append.add(name, 1, [(b"l", b"v")])
            last = append.flush()
            append.commit()
        expect_equal({(name, 0), (name, 1)}, set(last), "the partitions of which flush tells an offset")
        for partition in (0, 1):
            expect_equal(last[name, partition], bench.read(name, partition).offsets[-1], "the offset that flush gave")


@cases("append.nothing", "An append of nothing is fine, and changes nothing.")
def nothing(bench: LogBench) -> None:
    """Commit without an add, abort without one, and commit after an add of nothing."""
    name, writer = bench.topic(), bench.writer()
    bench.write(name, [(b"k", b"v")])
    for adds in (False, True):
        with writer.append() as append:
            if adds:
                append.add(name, 0, [])
            expect_equal({}, dict(append.flush()), "what flush gives when nothing was added")
            append.commit()
    writer.append().abort()
    expect_equal([(b"k", b"v")], bench.changes(name), "the records after appends of nothing")


@cases(
    "append.unread-before-commit",
    "Nothing of an append is read by anybody before commit has begun; an open append lies beyond the end.",
    needs=("fencing",),
)
def unread_before_commit(bench: LogBench) -> None:
    """Look through two logs before, within and after an append, and commit another one beside it."""
    name, other = bench.topic(), bench.another()
    bench.write(name, [(b"before", b"v")])
    extent = bench.log.extent(name, 0)
    with bench.writer("open").append() as append:
        append.add(name, 0, [(b"open", b"v")] * 10)
        for log in (bench.log, other):
            expect_equal(extent.end, log.extent(name, 0).end, "the end while an append is open")
        append.flush()
        for log in (bench.log, other):
            expect_equal(extent.end, log.extent(name, 0).end, "the end after a flush")
            expect_equal([(b"before", b"v")], bench.changes(name, log=log), "the records before a commit")
        bench.write(name, [(b"beside", b"v")])
        expect((b"open", b"v") not in bench.changes(name), "an open append is read when another one is committed")
        append.commit()
    wanted = [(b"before", b"v"), *[(b"open", b"v")] * 10, (b"beside", b"v")]
    for log in (bench.log, other):
        expect_equal(sorted(wanted), sorted(bench.changes(name, log=log)), "the records after the commit")


@cases("append.read-after-commit", "commit: make all of it readable; when it returns, every log sees it.")
def read_after_commit(bench: LogBench) -> None:
    """Commit, and look at once, with two logs, many times."""
    name, other, writer = bench.topic(2), bench.another(), bench.writer()
    for number in range(bench.profile.rounds):
        with writer.append() as append:
            for partition in (0, 1):
                append.add(name, partition, [(b"%d" % number, b"v")] * 2)
            append.flush()
            append.commit()
        for log in (other, bench.log):
            for partition in (0, 1):
                found = bench.changes(name, partition, log)
                expect_equal(2 * (number + 1), len(found), "how many records are read after a commit has returned")


@cases("append.whole", "Appends are atomic: a reader sees all records of one in a partition, or none.",
       needs=("fencing",))  # fmt: skip
def whole(bench: LogBench) -> None:
    """Read a partition again and again while appends of a hundred records are committed."""
    name, done, reader = bench.topic(), Event(), bench.another()

    def write() -> None:
        writer = bench.writer()
        try:
            for number in range(bench.profile.rounds):
                with writer.append() as append:
                    for _ in range(10):
                        append.add(name, 0, [(b"%d" % number, b"v" * 50)] * 10)
                    append.flush()
                    append.commit()
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            count = len(bench.changes(name, log=reader))
            expect(count % 100 == 0, f"{count} records are read while appends of a hundred are committed")

    at_once([write, read])
    expect_equal(100 * bench.profile.rounds, len(bench.changes(name)), "how many records there are in the end")


@cases("abort.unread", "abort: give it up; what was aborted is never read, and what follows is.", needs=("fencing",))
def aborted(bench: LogBench) -> None:
    """Abort appends before and after a flush, by leaving the block, and by an error in it; commit others between."""
    name, writer = bench.topic(2), bench.writer()
    wanted: list[Change] = []

    def one(number: int, way: str) -> None:
        with writer.append() as append:
            for partition in (0, 1):
                append.add(name, partition, [(b"%s %d" % (way.encode(), number), b"v")] * 3)
            if way == "before flush":
                append.abort()
                return
            append.flush()
            if way == "abort":
                append.abort()
                append.abort()
            elif way == "error":
                raise GaveUpError("an error in the block")

    for number, way in enumerate(("before flush", "abort", "leave", "error")):
        if way == "error":
            expect_error(GaveUpError, partial(one, number, way), "an append whose block raises")
        else:
            one(number, way)
        bench.write(name, [(b"after %d" % number, b"v")], writer=writer)
        wanted.append((b"after %d" % number, b"v"))
        for log in (bench.log, bench.another()):
            expect_equal(wanted, bench.changes(name, log=log), "the records after an append was given up")
            expect_equal(
                [], bench.changes(name, 1, log), "the records of a partition with nothing but what was given up"
            )


@cases("abort.after-commit", "abort is idempotent, and nothing after commit.")
def abort_after_commit(bench: LogBench) -> None:
    """Abort what is committed, twice, and leave the block; the records stay."""
    name = bench.topic()
    with bench.writer().append() as append:
        append.add(name, 0, [(b"k", b"v")])
        append.flush()
        append.commit()
        append.abort()
        append.abort()
    expect_equal([(b"k", b"v")], bench.changes(name), "the records after an abort that came too late")


@cases(
    "append.check", "check is called between pieces, and may raise: the append can be aborted, and another one made."
)
def check(bench: LogBench) -> None:
    """Give up at the first and at a later call, within an add of many records."""
    name, writer = bench.topic(), bench.writer()

    def send(giving: Giving) -> None:
        with writer.append() as append:
            append.add(name, 0, ((b"%d" % number, b"v" * 100) for number in range(bench.profile.many)), check=giving)

    for at in (1, 2):
        expect_error(GaveUpError, partial(send, Giving(at)), f"an add whose check raises at its call {at}")
    bench.write(name, [(b"k", b"v")], writer=writer)
    found = bench.changes(name)
    expect((b"k", b"v") in found, "what was appended after one that was given up is missing")
    expect(len(found) == 1 or not bench.log.capabilities.fencing, f"{len(found)} records are read, not 1")


@cases(
    "append.failing-changes",
    "An error of the changes is the caller's; the append can be aborted, and another one made.",
)
def failing_changes(bench: LogBench) -> None:
    """Let a generator of changes raise."""
    name, writer = bench.topic(), bench.writer()

    def failing() -> Iterator[Change]:
        yield from [(b"%d" % number, b"v") for number in range(1500)]
        raise GaveUpError("the changes end here")

    def send() -> None:
        with writer.append() as append:
            append.add(name, 0, failing())

    expect_error(GaveUpError, send, "an add whose changes raise")
    bench.write(name, [(b"k", b"v")], writer=writer)
    found = bench.changes(name)
    expect(found[-1:] == [(b"k", b"v")], "what was appended after one that failed is missing")
    expect(len(found) == 1 or not bench.log.capabilities.fencing, f"{len(found)} records are read, not 1")


@cases("append.survives-kill", "What commit made readable is durable: it survives the process.",
       level=Level.CORE, needs=("shared",))  # fmt: skip
def survives_kill(bench: LogBench) -> None:
    """Let a child commit and die at once."""
    name, told = bench.topic(), {"owner": bench.owner("child"), "count": 500}
    bench.other_process().ask("millpond.testing.kit.log_child:commit_and_die", killed=True, topic=name, **told)
    wanted = [b"%d" % number for number in range(500)]
    expect_equal(wanted, [key for key, _ in bench.changes(name)], "the records of a process that was killed")
