"""What an object store promises: objects whole or not at all, one winner, fresh listings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Barrier, Event

from millpond.blob.store import BlobCapabilities, BlobStore, BytesBody, FileBody
from millpond.errors import StateNotFoundError
from millpond.testing.kit.bench import at_once, on_worker
from millpond.testing.kit.blob_bench import BlobBench, FailingBody, noise
from millpond.testing.kit.contract import Cases, Level, expect, expect_equal, expect_error

cases: Cases[BlobBench] = Cases()

_NAMES = ("a", "A", "a/b", "a-b", "A-B", "a.b/c", ".a", "a.", "..a", "a..", "a%2fb", "a%20b", "a+b", "a@b",
          "(a)", "!a", "a_b", "x" * 200, "/".join(["deep"] * 12), "records/999999999999999-1")  # fmt: skip


@cases("store.declares", "capabilities say what the store really promises, and why something is missing.")
def declares(bench: BlobBench) -> None:
    """See its own words."""
    can = bench.store.capabilities
    expect(isinstance(can, BlobCapabilities), "capabilities is no BlobCapabilities")
    expect((can.conditional_put and can.fresh_listing) or can.reason, "a capability is missing without a reason")
    expect(can.max_object_bytes is None or can.max_object_bytes > 0, f"max_object_bytes is {can.max_object_bytes}")


@cases("put.whole", "put makes the object, and get gives it back: empty ones, small ones, any bytes.")
def put_whole(bench: BlobBench) -> None:
    """Put and get; by this store and another one."""
    for name, data in {"empty": b"", "one": b"\x00", "text": "é\r\n".encode(), "some": noise(100_000)}.items():
        expect_equal(True, bench.put(name, data), f"put of {name}")
        expect_equal(data, bench.get(name), f"get of {name}")
        expect_equal(data, bench.another().get(bench.key(name)), f"get of {name} by another store")


@cases("put.large", "A large body goes in parts, in parallel, and is one object.")
def put_large(bench: BlobBench) -> None:
    """Put a body of some ten MiB from memory, and one from a file."""
    data = noise(bench.profile.large_value * 5 + 17)
    file = bench.folder / "body"
    file.write_bytes(data)
    for name, body in {"memory": BytesBody(data), "file": FileBody(file, len(data))}.items():
        expect(bench.store.put(bench.key(name), body), "put of a large body gives False")
        expect(bench.get(name) == data, f"a large object, put from {name}, is not what was put")
        expect_equal(data[-100:], bench.get(name, len(data) - 100), "the end of a large object")
    expect_equal(["file", "memory"], bench.names(), "the listing after large puts")


@cases("put.replaces", "put without if_absent replaces what is there, whole.")
def put_replaces(bench: BlobBench) -> None:
    """Replace a long object by a short one and back."""
    for data in (noise(5000), b"short", noise(7000), b""):
        expect_equal(True, bench.put("a", data), "put of an object that is there")
        expect_equal(data, bench.get("a"), "get of a replaced object")
        expect_equal([len(data)], [entry.size for entry in bench.store.list(bench.prefix)], "its size in the listing")


@cases("put.if-absent", "if_absent: True when it made the object, False when it exists already, which stays as it is.",
       needs=("conditional_put",))  # fmt: skip
def put_if_absent(bench: BlobBench) -> None:
    """Put, put again by this store and another, delete, put again."""
    expect_equal(True, bench.put("a", b"first", if_absent=True), "the first put")
    expect_equal(False, bench.put("a", b"second", if_absent=True), "the second put")
    other = bench.another().put(bench.key("a"), BytesBody(b"third"), if_absent=True)
    expect_equal(False, other, "a put by another store")
    expect_equal(b"first", bench.get("a"), "what is there after two refused puts")
    bench.store.delete([bench.key("a")])
    expect_equal(True, bench.put("a", b"", if_absent=True), "a put after delete")
    expect_equal(False, bench.put("a", b"x", if_absent=True), "a put over an empty object")


@cases("put.one-winner", "Of several that put one absent key at once exactly one gets True, and its body is there.",
       needs=("conditional_put",))  # fmt: skip
def put_one_winner(bench: BlobBench) -> None:
    """Race six stores for one key, many times; small bodies, and some that are large."""
    stores = [bench.another() for _ in range(6)]
    for number in range(bench.profile.rounds):
        size = bench.profile.large_value * 2 if number == bench.profile.rounds - 1 else 300
        bodies = [bytes([number]) * 100 + bytes([at]) * size for at in range(len(stores))]
        start = Barrier(len(stores))
        won = at_once([_putting(s, bench.key(f"race-{number}"), b, start) for s, b in zip(stores, bodies, strict=True)])
        expect_equal(1, sum(won), "how many of six puts at once made the object")
        expect(bench.get(f"race-{number}") == bodies[won.index(True)], "the object is not the winner's")


def _putting(store: BlobStore, key: str, body: bytes, start: Barrier) -> Callable[[], bool]:
    def put() -> bool:
        start.wait(30)
        return store.put(key, BytesBody(body), if_absent=True)

    return put


@cases("put.one-winner-of-processes", "Exactly one winner also among processes.",
       level=Level.FULL, needs=("conditional_put", "shared"))  # fmt: skip
def put_one_winner_of_processes(bench: BlobBench) -> None:
    """Let three children put the same keys as fast as they can."""
    recipe = bench.other_process()
    told = [{"job": bench.job, "rounds": 20, "me": number} for number in range(3)]
    answers = recipe.ask_all("millpond.testing.kit.blob_child:put_all", *told)
    for number in range(20):
        winners = [me for me, won in enumerate(answers) if won[number]]
        expect_equal(1, len(winners), f"how many processes made the object {number}")
        expect_equal(b"%d" % winners[0], bench.get(f"race-{number}"), "the winner's body")


@cases(
    "put.fails-whole",
    "A put that fails makes no object, and leaves the one that was there; no half-written one appears.",
)
def put_fails_whole(bench: BlobBench) -> None:
    """Let bodies fail at their start, within and near their end; small and large."""
    bench.put("kept", b"kept")
    for size in (1000, bench.profile.large_value * 3):
        for fails_at in (0, size // 2, size - 1):
            for name in ("new", "kept"):
                put = partial(bench.store.put, bench.key(name), FailingBody(size, fails_at))
                expect_error(Exception, put, f"put of a body that fails at {fails_at} of {size} bytes")
    expect_error(StateNotFoundError, lambda: bench.get("new"), "get of an object whose put failed")
    expect_equal(b"kept", bench.get("kept"), "an object whose replacement failed")
    expect_equal(["kept"], bench.names(), "the listing after puts that failed")


@cases(
    "put.leaves-nothing", "A failed upload leaves nothing but what `unfinished` lists; abort drops it, again is fine."
)
def put_leaves_nothing(bench: BlobBench) -> None:
    """Let a large body fail, abort what is listed, twice."""
    body = FailingBody(bench.profile.large_value * 5, bench.profile.large_value * 4)
    expect_error(Exception, lambda: bench.store.put(bench.key("big"), body), "put of a body that fails")
    for upload in bench.store.unfinished(bench.prefix):
        expect(upload.key.startswith(bench.prefix), f"unfinished() lists {upload.key}, which is not below its prefix")
        bench.store.abort(upload)
        bench.store.abort(upload)
    expect_equal([], list(bench.store.unfinished(bench.prefix)), "unfinished() after abort")
    expect_equal([], bench.names(), "the listing after an upload that failed")


@cases(
    "put.appears-whole", "An object appears whole: whoever reads meanwhile finds nothing, the old one or the new one."
)
def put_appears_whole(bench: BlobBench) -> None:
    """Read with two threads while large objects replace one another."""
    size = bench.profile.large_value
    bodies = [bytes([number]) * size for number in range(1, 7)]
    done = Event()
    other = bench.another()

    def write() -> None:
        try:
            for body in bodies:
                bench.put("a", body)
        finally:
            done.set()

    def read() -> None:
        while not done.is_set():
            try:
                found = other.get(bench.key("a"))
            except StateNotFoundError:
                continue
            expect(len(found) == size, f"an object of {size} bytes is read with {len(found)} while it is put")

    at_once([write, read, read])
    expect(bench.get("a") == bodies[-1], "the last of several puts is not what is there")


@cases("put.killed", "A process killed while it puts leaves no object.", level=Level.FULL, needs=("shared",))
def put_killed(bench: BlobBench) -> None:
    """Let a child die in the middle of a large body."""
    bench.put("kept", b"kept")
    told = {"job": bench.job, "size": bench.profile.large_value * 5}
    bench.other_process().ask("millpond.testing.kit.blob_child:die_within_put", killed=True, **told)
    expect_equal(["kept"], bench.names(), "the listing after a process was killed within a put")
    expect_error(StateNotFoundError, lambda: bench.get("big"), "get of what a killed process was putting")
    expect_equal(b"kept", bench.get("kept"), "an object that a killed process was replacing")


@cases("get.ranges", "get gives length bytes from start on, fewer only at the object's end; None: all.")
def get_ranges(bench: BlobBench) -> None:
    """Read all kinds of parts, beyond the end too."""
    data = noise(10_000)
    bench.put("a", data)
    for start in (0, 1, 5000, 9999, 10_000, 20_000):
        for length in (None, 0, 1, 4999, 10_000, 50_000):
            wanted = data[start:] if length is None else data[start : start + length]
            expect_equal(wanted, bench.get("a", start, length), f"get of {length} bytes from {start} of 10,000")
    bench.put("empty", b"")
    expect_equal(b"", bench.get("empty", 0, 10), "get of ten bytes of an empty object")


@cases("get.missing", "get of an object that is not there raises StateNotFoundError, and says which.")
def get_missing(bench: BlobBench) -> None:
    """Ask for keys beside, below and above one that is there."""
    bench.put("a/b", b"1")
    for name in ("a", "a/b/c", "a/bc", "a/B", "none"):
        error = expect_error(StateNotFoundError, partial(bench.get, name), f"get of {name}")
        expect(name.rpartition("/")[2] in str(error), f"the error does not name the key: {error}")
        expect_error(StateNotFoundError, partial(bench.get, name, 5, 3), f"get of a part of {name}")


@cases("list.sorted", "list gives the objects in the order of their keys, as texts; with key, size and time.")
def list_sorted(bench: BlobBench) -> None:
    """Put keys whose order is easily wrong."""
    names = ["b", "a/b", "a.b", "a-b", "a0", "a/a/z", "a", "B", "a!", "a10", "a9", "ab"]
    names.remove("a")
    bench.put_many(names)
    entries = list(bench.store.list(bench.prefix))
    expect_equal(sorted(names), [entry.key.removeprefix(bench.prefix) for entry in entries], "the listing")
    expect_equal([len(name) for name in sorted(names)], [entry.size for entry in entries], "the sizes in the listing")


@cases("list.prefix", "list: the key begins with the prefix, which may end within a name, and is greater than `after`.")
def list_prefix(bench: BlobBench) -> None:
    """List with prefixes and starts of all kinds."""
    names = ["a/1", "a/10", "a/2", "ab/1", "b", "c/d/e", "c/d/f"]
    bench.put_many(names)
    for prefix in ("", "a", "a/", "a/1", "ab", "c/", "c/d", "c/d/f", "d", "a/10/"):
        for after in ("", "a", "a/1", "a/1x", "b", "c/d/e", "z"):
            wanted = [name for name in names if name.startswith(prefix) and (not after or name > after)]
            expect_equal(wanted, bench.names(prefix, after), f"the listing of {prefix!r} after {after!r}")


@cases("list.many", "A listing of more objects than one answer of a store holds is complete.")
def list_many(bench: BlobBench) -> None:
    """Put over a thousand, list all, and from the middle on; delete all with one call."""
    names = [f"n/{number:05d}" for number in range(1100)]
    bench.put_many(names)
    expect_equal(names, bench.names("n/"), "a listing of 1,100 objects")
    expect_equal(names[501:], bench.names("n/", names[500]), "a listing from the middle on")
    bench.store.delete([bench.key(name) for name in names[:-1]])
    expect_equal(names[-1:], bench.names(), "the listing after 1,099 were deleted")


@cases("list.fresh", "fresh_listing: a listing shows every object whose put has returned, and none whose delete has.",
       needs=("fresh_listing",))  # fmt: skip
def list_fresh(bench: BlobBench) -> None:
    """Put and delete by two stores in turns, and list with both."""
    stores = [bench.store, bench.another()]
    for number in range(bench.profile.rounds):
        writer, reader = stores[number % 2], stores[1 - number % 2]
        writer.put(bench.key(f"d/{number}"), BytesBody(b"x"))
        for each in (writer, reader):
            expect(f"d/{number}" in bench.names("d/", store=each), "a listing lacks an object whose put has returned")
        if number % 3 == 0:
            reader.delete([bench.key(f"d/{number}")])
            for each in (writer, reader):
                gone = f"d/{number}" not in bench.names("d/", store=each)
                expect(gone, "a listing shows an object whose delete has returned")


@cases("list.nothing", "A listing of nothing is empty, of a place that never was too.")
def list_nothing(bench: BlobBench) -> None:
    """List before anything, and after all was deleted."""
    expect_equal([], bench.names(), "the listing of a prefix that never was")
    bench.put("a/b/c", b"1")
    bench.store.delete([bench.key("a/b/c")])
    expect_equal([], bench.names(), "the listing after all was deleted")
    expect_equal(True, bench.put("a/b/c", b"2"), "a put where one was deleted")


@cases("delete.named", "delete removes the objects that are named and no other; missing ones and none at all are fine.")
def delete_named(bench: BlobBench) -> None:
    """Delete some of several with like names, twice."""
    names = ["a/1", "a/10", "a/2", "ab", "b/c"]
    bench.put_many(names)
    for _ in range(2):
        bench.store.delete([bench.key(name) for name in ("a/1", "b/c", "none", "a/10/x")])
        bench.store.delete([])
    expect_equal(["a/10", "a/2", "ab"], bench.names(), "the listing after delete")
    expect_error(StateNotFoundError, partial(bench.get, "a/1"), "get of a deleted object")


@cases(
    "keys.any",
    "Keys hold letters, digits and ! - _ . + % @ ( ), with / between parts; case counts, and nothing is decoded.",
)
def keys_any(bench: BlobBench) -> None:
    """Put under such keys, read, list and delete each."""
    names = [name for name in _NAMES if name != "a"]
    bench.put_many(names)
    for name in names:
        expect_equal(name.encode(), bench.get(name), f"get of {name!r:.60}")
        expect(name in bench.names(name), f"the listing of {name!r:.60} lacks it")
    expect_equal(sorted(names), bench.names(), "the listing of all")
    bench.store.delete([bench.key(name) for name in names[::2]])
    expect_equal(sorted(names[1::2]), bench.names(), "the listing after every other one was deleted")


@cases("clock.millis", "now and an object's time are one clock, the store's, in milliseconds since 1970.")
def clock(bench: BlobBench) -> None:
    """Compare an object's time with the clock before and after its put; some stores round to seconds."""
    before = bench.store.now()
    bench.put("a", b"1")
    after = bench.store.now()
    expect(1_500_000_000_000 < before <= after + 1000, f"now() gives {before}, then {after}")
    (entry,) = bench.store.list(bench.prefix)
    expect(
        before - 2000 <= entry.millis <= after + 2000, f"put between {before} and {after}, listed with {entry.millis}"
    )


@cases("threads.any", "Any thread may call, several at once.")
def threads_any(bench: BlobBench) -> None:
    """Put, get, list and delete from eight threads."""

    def work(me: int) -> None:
        for number in range(6):
            name, data = f"t{me}/{number}", noise(2000, seed=me * 100 + number)
            bench.put(name, data)
            expect_equal(data, bench.get(name), "get while others work")
        expect_equal(6, len(bench.names(f"t{me}/")), "how many objects a thread finds of its own")
        bench.store.delete([bench.key(f"t{me}/0")])

    at_once([partial(work, me) for me in range(8)])
    expect_equal(40, len(bench.names()), "how many objects there are in the end")


@cases("where.names", "where gives a text for messages, with the key.", level=Level.FULL)
def where(bench: BlobBench) -> None:
    """Ask about a key and about the store."""
    expect("some-key" in bench.store.where("some-key"), f"where() of some-key is {bench.store.where('some-key')!r}")
    expect(type(bench.store.where()) is str, "where() gives no text")


@cases("close.idempotent", "close: let go of connections; idempotent, from any thread; what was put stays.")
def close(bench: BlobBench) -> None:
    """Close stores that did something, and some that did nothing."""
    for number in range(4):
        store = bench.another()
        if number % 2:
            store.put(bench.key(f"{number}"), BytesBody(b"x"))
        on_worker(store.close)
        store.close()
    expect_equal(["1", "3"], bench.names(), "the listing after other stores were closed")
