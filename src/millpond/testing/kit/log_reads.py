"""What a log promises to readers: exactly the committed records of a range, never a silent jump."""

from __future__ import annotations

from functools import partial

from millpond.errors import StateNotFoundError
from millpond.log import Batch
from millpond.spi import Change
from millpond.testing.kit.bench import at_once
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.log_bench import GaveUpError, Giving, LogBench, checked

cases: Cases[LogBench] = Cases()


@cases(
    "read.range", "read gives the committed records with start <= offset < stop, until the position is stop or beyond."
)
def ranges(bench: LogBench) -> None:
    """Read every range of a partition with a few appends, one of them aborted."""
    name, writer = bench.topic(), bench.writer()
    for number in range(4):
        with writer.append() as append:
            append.add(name, 0, [(b"%d/%d" % (number, at), b"v") for at in range(3)])
            append.flush()
            if number != 1:
                append.commit()
    every, extent = bench.read(name), bench.log.extent(name, 0)
    for start in range(extent.start, extent.end + 1):
        for stop in range(start, extent.end + 1):
            found = bench.read(name, 0, start, stop)
            wanted = [o for o in every.offsets if start <= o < stop]
            expect_equal(wanted, list(found.offsets), f"the offsets of a read from {start} up to {stop}")
            wanted_changes = [c for o, c in zip(every.offsets, every.changes, strict=True) if start <= o < stop]
            expect_equal(wanted_changes, list(found.changes), f"the records of a read from {start} up to {stop}")


@cases("read.position", "position: the offset to read on from; it grows, and may be behind what a reader does not see.")
def position(bench: LogBench) -> None:
    """Read a part, go on from the position of each batch, and get the rest each time."""
    name, writer, count = bench.topic(), bench.writer(), min(bench.profile.many, 3000)
    for number in range(3):
        bench.write(name, ((b"%d/%d" % (number, at), b"v") for at in range(count // 3)), writer=writer)
        with writer.append() as append:
            append.add(name, 0, [(b"aborted", b"v")] * 50)
            append.flush()
    every = bench.read(name)
    for place in (*every.positions[:-1][:5], every.offsets[count // 2] + 1):
        rest = bench.read(name, 0, place)
        wanted = [offset for offset in every.offsets if offset >= place]
        expect(list(rest.offsets) == wanted, f"a read that goes on from {place} gives other records than the first one")


@cases(
    "read.outside", "StateNotFoundError: start is not yet in the log, or stop lies beyond its end; never a silent jump."
)
def outside(bench: LogBench) -> None:
    """Read beyond the end, of an empty partition and of one with records, also of what is not committed yet."""
    name = bench.topic(2)
    bench.write(name, [(b"k", b"v")] * 5)
    for partition in (0, 1):
        extent = bench.log.extent(name, partition)
        for start, stop in (
            (extent.start, extent.end + 1),
            (extent.end, extent.end + 1),
            (extent.end + 10, extent.end + 10),
            (extent.end + 10, extent.end + 20),
            (extent.start, extent.end + 1000),
        ):
            read = partial(_drained, bench, name, partition, start, stop)
            expect_error(StateNotFoundError, read, f"read from {start} up to {stop} where {extent} is")
        expect_equal(
            [], list(bench.read(name, partition, extent.end, extent.end).changes), "a read of nothing at the end"
        )


def _drained(bench: LogBench, name: str, partition: int, start: int, stop: int) -> list[Batch]:
    return list(bench.log.read(name, partition, start, stop))


@cases("read.check", "check is called while reading, and may raise.")
def check(bench: LogBench) -> None:
    """Give up at the first call."""
    name, giving = bench.topic(), Giving(1)
    bench.write(name, [(b"k", b"v")] * 100)
    extent = bench.log.extent(name, 0)

    def read() -> None:
        list(bench.log.read(name, 0, extent.start, extent.end, giving))

    expect_error(GaveUpError, read, "a read whose check raises")
    expect_equal(100, len(bench.changes(name)), "how many records are read after a read was given up")


@cases("read.closed", "Closing the iterator frees what it holds; others go on.")
def closed(bench: LogBench) -> None:
    """Begin several reads, close some in the middle, and drain the others."""
    name, count = bench.topic(), min(bench.profile.many, 5000)
    bench.write(name, ((b"%d" % number, b"v" * 40) for number in range(count)))
    extent = bench.log.extent(name, 0)
    reads = [bench.log.read(name, 0, extent.start, extent.end) for _ in range(6)]
    firsts = [next(read) for read in reads]
    for read in reads[:4]:
        read.close()  # type: ignore[attr-defined]
    for first, read in zip(firsts[4:], reads[4:], strict=True):
        rest = checked(read, first.position, extent.end) if first.position < extent.end else None
        found = len(first) + (len(rest.changes) if rest is not None else 0)
        expect_equal(count, found, "how many records a read gives beside others that were closed")
        read.close()  # type: ignore[attr-defined]


@cases("read.at-once", "Several may read one partition at once, each for itself.")
def reads_at_once(bench: LogBench) -> None:
    """Let four threads read the same records through one log."""
    name, count = bench.topic(), min(bench.profile.many, 5000)
    bench.write(name, ((b"%d" % number, b"v") for number in range(count)))
    wanted = [(b"%d" % number, b"v") for number in range(count)]
    for found in at_once([partial(bench.changes, name) for _ in range(4)]):
        expect(found == wanted, f"one of four readers at once got {len(found)} records, not {count}")


@cases("read.gaps", "Offsets grow, and need not be dense: a read may begin and stop at an offset that holds no record.")
def gaps(bench: LogBench) -> None:
    """Begin and stop a read at each offset around an append that was given up."""
    name, writer = bench.topic(), bench.writer()
    bench.write(name, [(b"a", b"v")], writer=writer)
    with writer.append() as append:
        append.add(name, 0, [(b"aborted", b"v")] * 5)
        append.flush()
    bench.write(name, [(b"b", b"v")], writer=writer)
    every, extent = bench.read(name), bench.log.extent(name, 0)
    for place in range(extent.start, extent.end + 1):
        before, after = bench.read(name, 0, extent.start, place), bench.read(name, 0, place, extent.end)
        expect_equal(list(every.changes), [*before.changes, *after.changes], f"two reads that meet at {place}")


@cases(
    "compact.newest",
    "Compaction never removes the newest record of a key, unless that is a tombstone, and nothing beyond `compacted`.",
)
def compact(bench: LogBench) -> None:
    """Overwrite and delete keys, let the log compact, and put the records over one another."""
    name, writer = bench.topic(1, {"cleanup.policy": "compact"}), bench.writer()
    state: dict[bytes, bytes] = {}
    for number in range(30):
        part: list[Change] = [(b"%d" % ((number * 7 + at) % 11), b"%d" % number) for at in range(3)]
        part.append((b"%d" % (number % 5), None))
        bench.write(name, part, writer=writer)
        _apply(state, part)
    before = bench.read(name)
    bench.compact(name)
    for log in (bench.log, bench.another()):
        found = bench.read(name, log=log)
        left: dict[bytes, bytes] = {}
        _apply(left, found.changes)
        expect_equal(state, left, "what the records say after compaction")
        expect(set(found.offsets) <= set(before.offsets), "compaction has given records other offsets")
        compacted = log.extent(name, 0).compacted
        gone = [offset for offset in before.offsets if offset not in found.offsets and offset >= (compacted or 0)]
        expect(
            compacted is None or not gone, f"records are gone beyond {compacted}, up to where it is compacted: {gone}"
        )
    bench.write(name, [(b"new", b"v")], writer=writer)
    expect_equal((b"new", b"v"), bench.changes(name)[-1], "what is appended after compaction")


def _apply(state: dict[bytes, bytes], changes: object) -> None:
    for key, value in changes:  # type: ignore[attr-defined]
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


@cases("cut.start", "StateNotFoundError: start is no longer in the log; extent tells the first offset that still is.")
def cut(bench: LogBench) -> None:
    """Let the log remove its beginning; a read from there on gives the rest, one from before it raises."""
    name, writer = bench.topic(), bench.writer()
    for number in range(6):
        bench.write(name, [(b"%d" % number, b"v")] * 10, writer=writer)
    every, before = bench.read(name), bench.log.extent(name, 0)
    place = every.offsets[35]
    bench.cut(name, 0, place)
    for log in (bench.log, bench.another()):
        extent = log.extent(name, 0)
        expect(before.start < extent.start <= place, f"after a cut before {place} the extent is {extent}")
        expect_equal(before.end, extent.end, "the end after the beginning was cut")
        found = bench.read(name, log=log)
        expect_equal([o for o in every.offsets if o >= extent.start], list(found.offsets), "what a cut has left")
        for start in (before.start, extent.start - 1):
            expect_error(
                StateNotFoundError,
                partial(_drained, bench, name, 0, start, extent.end),
                f"read from {start}, which was cut",
            )


@cases(
    "cut.while-reading", "StateNotFoundError also when start goes out of the log while it is read.", level=Level.FULL
)
def cut_while_reading(bench: LogBench) -> None:
    """Let the log remove records that a read has not reached: it gives each of them, or raises."""
    name, count = bench.topic(), bench.profile.many
    bench.write(name, ((b"%d" % number, b"v" * 100) for number in range(count)))
    extent = bench.log.extent(name, 0)
    read = bench.log.read(name, 0, extent.start, extent.end)
    keys = [key for key, _ in next(read).changes()]
    bench.cut(name, 0, extent.end)
    try:
        for batch in read:
            keys += [key for key, _ in batch.changes()]
    except StateNotFoundError:
        count = len(keys)
    expect(
        keys == [b"%d" % number for number in range(count)], f"a read has jumped over what was cut: {len(keys)} records"
    )
