"""What goes in comes out: round trips, restores of every retained checkpoint, markers that name nothing."""

from __future__ import annotations

from collections.abc import Mapping

from millpond.checkpoint import Checkpoint
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.testing.kit.backend_bench import BackendBench
from millpond.testing.kit.backend_owner import STORE, numbered
from millpond.testing.kit.bench import on_worker
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error

cases: Cases[BackendBench] = Cases()

LOST = (StateNotFoundError, StateCorruptError, FormatError)
_HOSTILE = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"\xff",
    b"\xff\xff\xff",
    b"a\x00b",
    b"\n",
    b"..",
    b"/",
    "é".encode(),
    b"a" * 1000,
)
_NAMES = ("delays", "delays ", "Delays", "delays/x", "..", ".", "a.b", "ä ö/ü", "a%2fb", "a:b*c?", "MANIFEST", "x" * 60)


@cases("roundtrip.empty-store", "A store without an entry is restored as such, and is not a missing one.")
def empty_store(bench: BackendBench) -> None:
    """Commit an empty store, fill it, and empty it again."""
    owner = bench.owner()
    bench.expect_restored(owner.commit({}))
    bench.expect_restored(owner.commit({STORE: {b"a": b"1", b"b": b"2"}}))
    bench.expect_restored(owner.commit({STORE: {b"a": None, b"b": None}}))


@cases("roundtrip.empty-value", 'b"" is a value: it is neither a deletion nor a missing key.')
def empty_value(bench: BackendBench) -> None:
    """Commit empty values, first as new keys, then in place of others."""
    owner = bench.owner()
    bench.expect_restored(owner.commit({STORE: {b"a": b"", b"b": b"1", b"c": b"2"}}))
    bench.expect_restored(owner.commit({STORE: {b"a": b"3", b"b": b"", b"c": None}}))


@cases("roundtrip.any-bytes", "Keys and values are any bytes: empty, zero, no text, with line ends.")
def any_bytes(bench: BackendBench) -> None:
    """Commit all hostile keys with all hostile values."""
    owner = bench.owner()
    pairs = {key: _HOSTILE[(n * 7 + 3) % len(_HOSTILE)] for n, key in enumerate(_HOSTILE)}
    bench.expect_restored(owner.commit({STORE: pairs}))
    bench.expect_restored(owner.commit({STORE: {bytes([n]): bytes(range(n, 256)) for n in range(256)}}))


@cases("roundtrip.deletes", "A deleted key is gone from every later checkpoint, and one put again has its new value.")
def deletes(bench: BackendBench) -> None:
    """Delete, put again and delete again over several commits and another owner."""
    owner = bench.owner()
    owner.commit({STORE: {b"a": b"1", b"b": b"1", b"c": b"1"}})
    owner.commit({STORE: {b"a": None, b"b": None}})
    bench.expect_restored(owner.commit({STORE: {b"b": b"2"}}))
    owner.close()
    after = bench.owner()
    bench.expect_restored(after.commit({STORE: {b"b": None, b"never": None}}))
    bench.expect_restored(after.commit({STORE: {b"d": b"1"}}))


@cases("roundtrip.large-value", "A record of the largest size that is declared, or of some MiB, is restored.")
def large_value(bench: BackendBench) -> None:
    """Commit one, beside small ones."""
    size = bench.profile.large_value
    limit = bench.capabilities.max_record_bytes
    size = size if limit is None else min(size, limit)
    value = bytes(range(251)) * (size // 251 + 1)
    owner = bench.owner()
    bench.expect_restored(owner.commit({STORE: {b"k": value[: size - 1], b"small": b"1"}}))
    bench.expect_restored(owner.commit({STORE: {b"small": b"2"}}))


@cases("roundtrip.largest-record", "max_record_bytes: a key and value of that size together are taken.",
       level=Level.FULL, needs=("max_record_bytes",))  # fmt: skip
def largest_record(bench: BackendBench) -> None:
    """Commit a record of exactly the limit; without a limit there is nothing that could fail."""
    limit = bench.capabilities.max_record_bytes
    expect(limit is not None, "no limit is declared")
    size = limit or 0
    bench.expect_restored(
        bench.owner().commit({STORE: {b"k" * min(size // 2, 100): b"v" * (size - min(size // 2, 100))}})
    )


@cases("roundtrip.many-keys", "A store of many entries is restored whole.")
def many_keys(bench: BackendBench) -> None:
    """Commit many, then change some of them."""
    many: dict[bytes, bytes | None] = {b"k%07d" % n: b"%d" % n for n in range(bench.profile.many)}
    owner = bench.owner()
    owner.commit({STORE: many})
    bench.expect_restored(owner.commit({STORE: dict.fromkeys(list(many)[::7]) | numbered(1)}))


@cases("roundtrip.many-stores", "A task's stores are committed and restored together, several at once.")
def many_stores(bench: BackendBench) -> None:
    """Commit twelve stores, each with other content; then only some of them again."""
    stores = tuple(f"store {number}" for number in range(12))
    owner = bench.owner(stores)
    owner.commit({name: {b"me": name.encode()} for name in stores})
    bench.expect_restored(owner.commit({name: numbered(n) for n, name in enumerate(stores[::3])}))


@cases("roundtrip.many-commits", "A long row of commits, each on the last one, is restored exactly.")
def many_commits(bench: BackendBench) -> None:
    """Commit seventy times, with a clean-up after each: a chain of changes has to end somewhere."""
    owner = bench.owner()
    checkpoints = [owner.commit({STORE: numbered(number)}, retain=2) for number in range(70)]
    bench.expect_restored(checkpoints[-1])
    bench.owner()


@cases("roundtrip.names", "Stores, tasks and jobs may have any name: spaces, slashes, dots, capitals, other scripts.")
def names(bench: BackendBench) -> None:
    """Commit stores with such names in a task and a job with such names; each has its own content."""
    place = bench.place(job=f"{bench.job} ../Ä.b", task="Partition 0/é ..", job_id="2/b")
    owner = bench.owner(_NAMES, place=place)
    owner.commit({name: {b"me": name.encode()} for name in _NAMES})
    checkpoint = owner.commit({name: {b"me again": name.encode()} for name in _NAMES})
    bench.expect_restored(checkpoint, place)
    owner.cleanup()
    bench.expect_restored(checkpoint, place)


@cases("restore.every-retained", "point_in_time: every retained checkpoint is restored, not the newest alone.",
       needs=("point_in_time",))  # fmt: skip
def every_retained(bench: BackendBench) -> None:
    """Commit eight times keeping four, and restore all that are kept after each clean-up."""
    owner = bench.owner(("a", "b"))
    for number in range(8):
        owner.commit({"a": numbered(number), **({"b": numbered(number)} if number % 3 == 0 else {})}, retain=4)
        if number > 4:
            for checkpoint in bench.published[bench.place()]:
                bench.expect_restored(checkpoint)


@cases("restore.exactly", "restore leaves a store exactly as its marker says, whatever was uploaded after it.")
def exactly(bench: BackendBench) -> None:
    """Upload more without publishing, under this owner and the next; the published one stays what it was."""
    owner = bench.owner()
    first = owner.commit({STORE: {b"a": b"1", b"b": b"1"}})
    owner.upload({STORE: {b"a": b"2", b"b": None, b"c": b"2"}})
    bench.expect_restored(first)
    owner.close()
    after = bench.owner(at=first)
    bench.expect_restored(after.commit({STORE: {b"d": b"3"}}))


@cases("restore.repeatable", "A restore changes nothing: the same again gives the same.")
def repeatable(bench: BackendBench) -> None:
    """Restore one checkpoint three times."""
    checkpoint = bench.owner().commit({STORE: numbered(1)})
    for _ in range(3):
        bench.expect_restored(checkpoint)


@cases("restore.older", "Going back to an older checkpoint: the next commit builds on it, not on the newest.",
       needs=("point_in_time",))  # fmt: skip
def older(bench: BackendBench) -> None:
    """Go back by two, commit; all four stay restorable, with what they had."""
    owner = bench.owner()
    checkpoints = [owner.commit({STORE: numbered(number)}) for number in range(3)]
    owner.close()
    after = bench.owner(at=checkpoints[0])
    checkpoints.append(after.commit({STORE: {b"other": b"way"}}))
    after.cleanup()
    for checkpoint in checkpoints:
        bench.expect_restored(checkpoint)


@cases("restore.reader", "claim = None: reading only; nothing is claimed, fenced or locked, and the owner goes on.")
def reader(bench: BackendBench) -> None:
    """Restore as a reader while the owner commits."""
    owner = bench.owner()
    for number in range(3):
        checkpoint = owner.commit({STORE: numbered(number)})
        bench.expect_restored(checkpoint)


@cases(
    "restore.unknown-marker",
    "A marker that names nothing raises StateNotFoundError or StateCorruptError; never an empty store.",
)
def unknown_marker(bench: BackendBench) -> None:
    """Restore from markers that nobody gave."""
    owner = bench.owner()
    checkpoint = owner.commit({STORE: numbered(1)})
    good = checkpoint.markers["main"][STORE]
    middle = len(good) // 2
    other = "1" if good[middle : middle + 1] == "0" else "0"
    wrong = ("", "x", "..", "../../../etc/passwd", "/etc/passwd", "0-0", "\x00", "ä" * 40, good * 2,
             good[:middle], good[:middle] + other + good[middle + 1 :])  # fmt: skip
    for marker in wrong:
        _expect_lost(bench, checkpoint, marker)


def _expect_lost(bench: BackendBench, checkpoint: Checkpoint, marker: str) -> None:
    target = bench.target(STORE, marker)

    def restore() -> Mapping[bytes, bytes] | str:
        bench.restore_into([target], checkpoint, bench.place())
        content = target.content()
        return content or "an empty store"

    expect_error(LOST, restore, f"restore from the marker {marker!r:.60}")


@cases("restore.never-committed", "What was never uploaded for this task is not found, whoever has it.")
def never_committed(bench: BackendBench) -> None:
    """Take a good marker to another task, another job and another store."""
    checkpoint = bench.owner().commit({STORE: numbered(1)})
    marker = checkpoint.markers["main"][STORE]
    for place in (bench.place(task="Partition 1"), bench.place(job=bench.job + "2"), bench.place(backend="main2")):
        target = bench.target(STORE, marker)
        expect_error(LOST, lambda t=target, p=place: bench.restore_into([t], checkpoint, p), f"restore in {place}")  # type: ignore[misc]


@cases("restore.interrupted", "restore calls target.check(): one that is interrupted before it begins raises.")
def interrupted(bench: BackendBench) -> None:
    """Interrupt at once."""
    checkpoint = bench.owner().commit({STORE: numbered(1)})
    target = bench.target(STORE, checkpoint.markers["main"][STORE], interrupt_at=0)
    expect_error(
        Exception, lambda: bench.restore_into([target], checkpoint, bench.place()), "a restore that is interrupted"
    )
    bench.expect_restored(checkpoint)


@cases("restore.interrupted-within", "check() is called between pieces of work: an interrupted restore ends soon.",
       level=Level.FULL)  # fmt: skip
def interrupted_within(bench: BackendBench) -> None:
    """Interrupt a large restore after some records; an image in one piece is interrupted at once only."""
    owner = bench.owner()
    checkpoint = owner.commit({STORE: {b"k%07d" % n: b"v" * 10 for n in range(bench.profile.many)}})
    target = bench.target(STORE, checkpoint.markers["main"][STORE], interrupt_at=2000)
    try:
        bench.restore_into([target], checkpoint, bench.place())
    except Exception:  # noqa: BLE001 - any error says that it was not restored
        expect(target.after_end <= 10_000, f"after it was interrupted, restore still wrote {target.after_end} records")
        return
    expect(target.adopted, "a restore that was interrupted in the middle returned as if it were whole")


@cases(
    "restore.progress",
    "progress: report what was done since the last call.",
    level=Level.FULL,
)
def progress(bench: BackendBench) -> None:
    """Restore a store of some entries, and see that something was said of it."""
    checkpoint = bench.owner().commit({STORE: {b"k%03d" % n: b"v" * 100 for n in range(500)}})
    target = bench.target(STORE, checkpoint.markers["main"][STORE])
    bench.restore_into([target], checkpoint, bench.place())
    expect(target.records or target.size, "restore reports no progress")
    expect(target.total is None or target.size <= target.total, f"{target.size} bytes of {target.total} are reported")


@cases("restore.close", "A restore manager's close is idempotent, and fine when nothing was restored.")
def restore_close(bench: BackendBench) -> None:
    """Close one that did nothing, twice, from two threads."""
    manager = bench.factory.restore_manager(bench.context(bench.place(), None), [])
    manager.close()
    on_worker(manager.close)


@cases("restore.v1-markers", "v1_markers finds this backend's own entries among a V1's offsets, and nothing in others.")
def v1_markers(bench: BackendBench) -> None:
    """Ask about a V1 that has none."""
    manager = bench.factory.restore_manager(bench.context(bench.place(), None), [])
    try:
        expect_equal(
            {}, dict(manager.v1_markers(Checkpoint(bench.next_id()))), "v1_markers of a checkpoint without any"
        )
    finally:
        manager.close()
