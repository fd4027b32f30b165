"""What a store engine promises: reads, writes, scans, threads, closing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from threading import Event

from millpond.errors import ConfigError, StoreClosedError
from millpond.spi import BATCH, Change, StoreSpec
from millpond.testing.kit.bench import at_once, on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error
from millpond.testing.kit.engine_bench import EngineBench, apply, expect_content

cases: Cases[EngineBench] = Cases()

KEYS = (b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"a\x00b", b"aa", b"ab", b"b", b"\x7f", b"\x80", b"\xff",
        b"\xff\xff", "é".encode(), b"k" * 3000)  # fmt: skip
_BOUNDS = (None, b"", b"\x00", b"a", b"a\x00", b"ab", b"c", b"\xff", b"\xff\xff", b"\xff\xff\xff")


@cases("engine.declares", "spi_version and config_class say what the engine is; immutable and transient are patterns.")
def declares(bench: EngineBench) -> None:
    """See the class's own words; validate needs no I/O and gives sentences."""
    kind = type(bench.open())
    version = getattr(kind, "spi_version", None)
    expect(isinstance(version, tuple) and len(version) == 2, f"spi_version is {version!r}, not a pair of numbers")
    expect(hasattr(kind.config_class, "__attrs_attrs__"), "config_class is no attrs class")
    expect(all(type(each) is str for each in (*kind.immutable, *kind.transient)), "a pattern is no text")
    expect(
        not list(kind.validate(StoreSpec("kit", "kit", settings=kind.config_class()))), "no options are wrong options"
    )
    wrong = StoreSpec("kit", "kit", {"no such option": 1}, kind.config_class())
    expect(list(kind.validate(wrong)), "validate() says nothing of an option that does not exist")


@cases("get.values", 'get gives the value or None, get_many the values in order; b"" is a value; any bytes are keys.')
def get_values(bench: EngineBench) -> None:
    """Write hostile keys, and read them, others, and some twice."""
    content = {key: key[::-1] for key in KEYS} | {b"empty": b""}
    engine = bench.filled(content)
    expect_content(content, engine, "a new store")
    for absent in (b"\x00\x01", b"a\x01", b"empty\x00", b"emp"):
        expect_equal(None, engine.get(absent), f"get of the absent {absent!r}")
    asked = [b"b", b"none", b"a", b"b", b"", b"empty"]
    expect_equal([content.get(key) for key in asked], engine.get_many(asked), "get_many in any order, some twice")
    expect_equal([], engine.get_many([]), "get_many of nothing")


@cases("apply.changes", "apply: puts and deletes, in one sorted batch; a deleted key is gone, a missing one is fine.")
def apply_changes(bench: EngineBench) -> None:
    """Put, change, delete and put again."""
    engine = bench.filled({b"a": b"1", b"b": b"1", b"c": b"1"})
    engine.apply([(b"a", b"2"), (b"b", None), (b"d", b"2"), (b"never", None)])
    expect_content({b"a": b"2", b"c": b"1", b"d": b"2"}, engine, "after a batch")
    engine.apply([(b"b", b""), (b"d", None)])
    expect_content({b"a": b"2", b"b": b"", b"c": b"1"}, engine, "after another batch")
    engine.apply([])
    expect_content({b"a": b"2", b"b": b"", b"c": b"1"}, engine, "after an empty batch")


@cases("apply.repeatable", "apply: the same changes may be applied again, whole or a part of them.")
def apply_repeatable(bench: EngineBench) -> None:
    """Apply a half, then all, then all again."""
    engine = bench.filled({b"k%03d" % n: b"old" for n in range(100)})
    changes: list[Change] = [(b"k%03d" % n, None if n % 3 == 0 else b"%d" % n) for n in range(50, 150)]
    wanted = {b"k%03d" % n: b"old" for n in range(50)} | {key: value for key, value in changes if value is not None}
    for part in (changes[:50], changes, changes):
        engine.apply(part)
    expect_content(wanted, engine, "after the same changes three times")


@cases("apply.batch", "apply takes BATCH changes at once, with keys and values of any size.")
def apply_batch(bench: EngineBench) -> None:
    """Apply full batches, and one value of some MiB."""
    engine = bench.open()
    content = {b"k%06d" % n: b"v%d" % n for n in range(BATCH * 3)} | {b"large": bytes(bench.profile.large_value)}
    apply(engine, content)
    expect_content(content, engine, "after three full batches")


@cases("load.order", "load: fills a fresh store in bulk, in the order of the records: the later wins, None deletes.")
def load_order(bench: EngineBench) -> None:
    """Load records that are not sorted, with changes and deletions of one key far apart."""
    engine = bench.open()
    engine.load(iter(_unsorted(3000)))
    wanted: dict[bytes, bytes] = {}
    for key, value in _unsorted(3000):
        if value is None:
            wanted.pop(key, None)
        else:
            wanted[key] = value
    expect_content(wanted, engine, "after a load")
    engine.apply([(b"after", b"1")])
    expect_content(wanted | {b"after": b"1"}, engine, "after a load and a batch")


def _unsorted(count: int) -> Iterator[Change]:
    for number in range(count):
        yield b"k%05d" % (number * 7919 % count), b"%d" % number
        if number % 4 == 0:
            yield b"k%05d" % (number * 31 % count), None
        if number % 10 == 0:
            yield b"same", b"%d" % number
    yield b"deleted", b"1"
    yield b"deleted", None
    yield b"back", None
    yield b"back", b"1"


@cases("load.sorted", "load takes a long sorted stream, which it reads once; an empty one leaves an empty store.")
def load_sorted(bench: EngineBench) -> None:
    """Load many entries; load nothing."""
    content = {b"k%07d" % n: b"%d" % n for n in range(bench.profile.many)}
    engine = bench.open()
    engine.load((key, value) for key, value in content.items())
    expect_content(content, engine, "after a load of many")
    empty = bench.open()
    empty.load(iter(()))
    expect_content({}, empty, "after a load of nothing")


@cases("load.error", "An error of the stream that load reads is raised.")
def load_error(bench: EngineBench) -> None:
    """Let the stream fail after some records."""

    def failing() -> Iterator[Change]:
        for number in range(2500):
            yield b"k%05d" % number, b"v"
        raise ConfigError("the kit lets this stream fail")

    engine = bench.open()
    expect_error(ConfigError, lambda: engine.load(failing()), "load of a stream that fails")


@cases(
    "scan.bounds",
    "scan: start inclusive, stop exclusive, in the order of the keys' bytes; in reverse the same entries.",
)
def scan_bounds(bench: EngineBench) -> None:
    """Scan between all pairs of bounds in both directions."""
    content = {key: b"v" + key for key in KEYS}
    engine = bench.filled(content)
    for start in _BOUNDS:
        for stop in _BOUNDS:
            wanted = [
                (k, v)
                for k, v in sorted(content.items())
                if (start is None or k >= start) and (stop is None or k < stop)
            ]
            expect_equal(wanted, list(engine.scan(start, stop, False)), f"scan from {start!r} to {stop!r}")
            expect_equal(
                wanted[::-1], list(engine.scan(start, stop, True)), f"scan from {start!r} to {stop!r} in reverse"
            )


@cases("scan.moment", "scan shows the state as it was when the call was made, not at the first next, and not later.")
def scan_moment(bench: EngineBench) -> None:
    """Begin scans, change everything, and read them then; some were begun to be read before."""
    content = {b"k%05d" % n: b"old" for n in range(3000)}
    engine = bench.filled(content)
    scans = [engine.scan(None, None, reverse) for reverse in (False, True, False, True)]
    heads = [list(islice(scan, 10)) for scan in scans[2:]]
    apply(
        engine, {key: None if n % 2 else b"new" for n, key in enumerate(content)} | {b"k00000+": b"new", b"z": b"new"}
    )
    bench.image(engine)
    wanted = sorted(content.items())
    for scan, head, reverse in zip(scans, [[], [], *heads], (False, True, False, True), strict=True):
        expect_equal(wanted[:: -1 if reverse else 1], [*head, *scan], "a scan that was begun before everything changed")
    expect_equal(engine.get(b"k00000"), b"new", "get after the change")


@cases("scan.close", "The iterator of a scan has close(); a closed one gives nothing more, and holds nothing.")
def scan_close(bench: EngineBench) -> None:
    """Close scans before, in the middle and after the end."""
    engine = bench.filled({b"k%03d" % n: b"v" for n in range(100)})
    for steps in (0, 5, 200):
        scan = engine.scan(None, None, False)
        with closing(scan):  # type: ignore[type-var]
            list(islice(scan, steps))
        expect_equal([], list(scan), "a closed scan")


@cases("threads.reads", "Reads come from any thread, while one thread writes.")
def threads_read(bench: EngineBench) -> None:
    """Read and scan with three threads during a hundred batches."""
    engine = bench.filled({b"k%04d" % n: b"0" for n in range(1000)})
    done = Event()

    def write() -> None:
        try:
            for number in range(1, 60):
                engine.apply([(b"k%04d" % n, b"%d" % number) for n in range(1000)])
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            values = {value for _, value in engine.scan(None, None, False)}
            expect(len(values) == 1, f"a scan shows half of a batch: the values {sorted(values)[:3]}")
            expect(engine.get(b"k0500") is not None, "get finds nothing while the key is overwritten")
            expect(
                None not in engine.get_many([b"k0000", b"k0999"]), "get_many finds nothing while keys are overwritten"
            )

    at_once([write, read, read, read])
    expect_content({b"k%04d" % n: b"59" for n in range(1000)}, engine, "after all batches")


@cases("threads.worker", "An engine that one thread opened is written, imaged and closed by others.")
def threads_worker(bench: EngineBench) -> None:
    """Do every verb on a thread of its own."""
    engine = bench.open()
    on_worker(lambda: engine.apply([(b"a", b"1")]))
    image = on_worker(lambda: bench.image(engine))
    expect_equal([(b"a", b"1")], on_worker(lambda: list(engine.scan(None, None, False))), "a scan on another thread")
    on_worker(engine.close)
    expect_content({b"a": b"1"}, bench.open(bench.clone(image, engine)), "an image that another thread made")


@cases("close.scans", "close: open iterators raise StoreClosedError at their next step, whichever thread closes.")
def close_scans(bench: EngineBench) -> None:
    """Close under scans that were begun, half read and not read."""
    engine = bench.filled({b"k%05d" % n: b"v" * 50 for n in range(5000)})
    scans = [engine.scan(None, None, reverse) for reverse in (False, True) for _ in range(2)]
    next(scans[0])
    list(islice(scans[2], 1200))
    on_worker(engine.close)
    for scan in scans:
        expect_error(StoreClosedError, lambda s=scan: list(s), "the next step of a scan after close")  # type: ignore[misc]


@cases("close.idempotent", "close is idempotent; whatever else is called afterwards raises StoreClosedError.")
def close_idempotent(bench: EngineBench) -> None:
    """Close three times, then call everything."""
    engine = bench.filled({b"a": b"1"})
    for _ in range(3):
        engine.close()
    expect_error(StoreClosedError, lambda: engine.get(b"a"), "get after close")
    expect_error(StoreClosedError, lambda: engine.get_many([b"a"]), "get_many after close")
    expect_error(StoreClosedError, lambda: list(engine.scan(None, None, False)), "scan after close")
    expect_error(StoreClosedError, lambda: engine.apply([(b"a", b"2")]), "apply after close")
    expect_error(StoreClosedError, lambda: engine.checkpoint(bench.path()), "checkpoint after close")


@cases("close.frees", "After close nothing of the database is held: a new one takes its folder's image at once.",
       level=Level.FULL)  # fmt: skip
def close_frees(bench: EngineBench) -> None:
    """Open and close thirty databases, each on a clone of the last one's image, with a scan left open in each."""
    engine = bench.open()
    for number in range(30):
        engine.apply([(b"n", b"%d" % number)])
        scan = engine.scan(None, None, False)
        image = bench.image(engine)
        engine.close()
        engine = bench.open(bench.clone(image, engine))
        del scan
    expect_content({b"n": b"29"}, engine, "the last image")
