"""The RocksDB engine as a store sees it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from millpond.errors import ConfigError, StateCorruptError, StoreClosedError, TransientError
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine

SPEC = StoreSpec("delays", "rocksdb")


def entries(count, tag=b""):
    return [(b"%06d" % i, b"value %d " % i + tag) for i in range(count)]


def fill(engine, changes):
    for at in range(0, len(changes), 1000):
        engine.apply(changes[at : at + 1000])


def test_importing_the_engine_and_the_backend_loads_no_driver():
    """The modules that entry points name do not load rocksdict."""
    code = "import sys, millpond_rocksdb.engine, millpond_rocksdb.local; sys.exit('rocksdict' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_applied_is_read_and_what_is_deleted_is_gone(open_engine):
    """Empty keys and values are keys and values; None deletes; the same changes may come twice."""
    engine = open_engine()
    changes = [(b"", b"empty key"), (b"a", b""), (b"b", None), (b"c", b"3")]
    engine.apply([(b"b", b"2")])
    engine.apply(changes)
    engine.apply(changes)
    assert engine.get(b"") == b"empty key"
    assert engine.get(b"a") == b""
    assert engine.get(b"b") is None
    assert list(engine.scan(None, None, False)) == [(b"", b"empty key"), (b"a", b""), (b"c", b"3")]


def test_get_many_keeps_the_order_that_was_asked_for(open_engine):
    """Values come in the order of the keys, doubled and missing ones too."""
    engine = open_engine()
    fill(engine, entries(100))
    keys = [b"000050", b"nowhere", b"000007", b"000050", b""]
    assert engine.get_many(keys) == [b"value 50 ", None, b"value 7 ", b"value 50 ", None]
    assert engine.get_many([]) == []


def test_more_than_a_batch_is_refused(open_engine):
    """A batch that would hold the interpreter is refused, and changes nothing."""
    engine = open_engine()
    with pytest.raises(ConfigError, match="1000"):
        engine.apply(entries(1001))
    assert list(engine.scan(None, None, False)) == []


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_scan_includes_its_start_and_excludes_its_stop(open_engine, tmp_path, reverse, flushed):
    """In both directions, with bounds that are keys, lie between keys, or lie outside."""
    engine = open_engine()
    have = entries(1200)[::2]
    fill(engine, have)
    if flushed:
        engine.checkpoint(tmp_path / "image")
    bounds = [None, b"", b"000000", b"000001", b"000002", b"000599", b"000600", b"001198", b"001199", b"9"]
    for start in bounds:
        for stop in bounds:
            want = [e for e in have if (start is None or e[0] >= start) and (stop is None or e[0] < stop)]
            assert list(engine.scan(start, stop, reverse)) == (want[::-1] if reverse else want), (start, stop)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_shows_the_moment_of_the_call(open_engine, tmp_path, reverse):
    """What is applied between the call and the first step, or between two steps, does not show."""
    engine = open_engine()
    have = entries(2000)
    fill(engine, have)
    scan = engine.scan(None, None, reverse)
    fill(engine, [(key, None) for key, _ in have[:1000]] + entries(2000, b"new")[1000:])
    got = [next(scan)]
    engine.apply([(b"zzz", b"later"), *[]])
    engine.checkpoint(tmp_path / "image")
    got += list(scan)
    assert got == (have[::-1] if reverse else have)


def test_a_scan_bounds_what_it_holds_of_large_values(open_engine):
    """Chunks shrink as values grow: a scan of 1 MiB values fetches them one by one after the first few."""
    from millpond_rocksdb.scan import _next_size

    large = [(b"k", bytes(1 << 20))] * 16
    assert _next_size(16, large) == 1
    assert _next_size(16, [(b"k", b"v")] * 16) == 32
    assert _next_size(512, [(b"k", b"v")] * 512) == 512
    engine = open_engine()
    have = [(b"%03d" % i, bytes([i]) * (1 << 18)) for i in range(40)]
    fill(engine, have)
    assert list(engine.scan(None, None, False)) == have


def test_close_ends_open_scans_and_lets_the_directory_be_opened_again(open_engine):
    """Scans that were open at close raise at their next step, and hold no lock on the directory."""
    engine = open_engine()
    fill(engine, entries(3000))
    begun, fresh = engine.scan(None, None, False), engine.scan(None, None, True)
    next(begun)
    engine.close()
    engine.close()
    for scan in (begun, fresh):
        with pytest.raises(StoreClosedError):
            next(scan)
    again = open_engine()  # would find the lock held if a scan kept the old database open
    assert again.get(b"000001") is None or again.get(b"000001") == b"value 1 "
    for call in (
        lambda: engine.get(b"x"),
        lambda: engine.get_many([b"x"]),
        lambda: engine.scan(None, None, False),
        lambda: engine.apply([(b"x", b"")]),
        lambda: engine.load([(b"x", b"")]),
        lambda: engine.checkpoint(Path("nowhere")),
    ):
        with pytest.raises(StoreClosedError):
            call()


def test_a_scan_that_is_dropped_or_closed_lets_go_of_the_database(open_engine):
    """A scan that nobody finishes does not keep the directory locked."""
    engine = open_engine()
    fill(engine, entries(3000))
    scan = engine.scan(None, None, False)
    next(scan)
    scan.close()
    dropped = engine.scan(None, None, False)
    del dropped
    gc.collect()
    engine.close()
    open_engine()


def test_exit_with_open_scans_is_no_crash(tmp_path):
    """A process that exits with scans open, one of them stepping in a daemon thread, ends with code 0."""
    code = f"""
import threading
from pathlib import Path
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
engine = RocksDBEngine.open(Path({str(tmp_path / "live")!r}), StoreSpec("s", "rocksdb"))
for at in range(50):
    engine.apply([(b"%06d" % i, b"x" * 100) for i in range(at * 1000, at * 1000 + 1000)])
scans = [engine.scan(None, None, reverse) for reverse in (False, True, False)]
[next(scan) for scan in scans]
started = threading.Event()
def step():
    while True:
        for _ in engine.scan(None, None, False):
            started.set()
threading.Thread(target=step, daemon=True).start()
started.wait(10)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_close_races_reads_without_a_crash(open_engine):
    """Threads that read and scan while the store closes get values or StoreClosedError, and nothing else."""
    engine = open_engine()
    fill(engine, entries(5000))
    reading, wrong = threading.Barrier(5), []

    def read(work):
        reading.wait()
        try:
            while True:
                work()
        except StoreClosedError:
            return
        except BaseException as error:
            wrong.append(error)

    works = [
        lambda: engine.get(b"000100"),
        lambda: engine.get_many([b"000100", b"000200"]),
        lambda: list(engine.scan(None, None, False)),
        lambda: list(engine.scan(b"001000", None, True)),
    ]
    threads = [threading.Thread(target=read, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    reading.wait()
    engine.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []


def test_an_image_has_all_that_was_applied_and_never_changes(open_engine, tmp_path, read_folder):
    """An image holds what was applied before it, no lock and no log, and later writes do not reach it."""
    engine, image = open_engine(), tmp_path / "image"
    have = entries(5000)
    fill(engine, have)
    engine.checkpoint(image)
    before = read_folder(image)
    fill(engine, entries(5000, b"changed"))
    engine.checkpoint(tmp_path / "second")
    engine._database.compact_range(None, None)
    engine.close()
    assert read_folder(image) == before
    assert not [name for name in before if name.startswith(("LOCK", "LOG"))]
    assert all(not content for name, content in before.items() if name.endswith(".log"))
    copy = open_engine(image, read_only=True)
    assert list(copy.scan(None, None, False)) == have


def test_an_image_of_an_empty_store_opens(open_engine, tmp_path):
    """A store without a record has an image too."""
    open_engine().checkpoint(tmp_path / "image")
    assert list(open_engine(tmp_path / "image").scan(None, None, False)) == []


def test_two_images_without_a_change_between_are_the_same_files(open_engine, tmp_path, read_folder):
    """An image of an unchanged store has the same bytes, so that nothing needs to be uploaded."""
    engine = open_engine()
    fill(engine, entries(100))
    engine.checkpoint(tmp_path / "first")
    engine.checkpoint(tmp_path / "second")
    assert read_folder(tmp_path / "first") == read_folder(tmp_path / "second")


def test_an_image_that_exists_or_has_no_parent_is_refused(open_engine, tmp_path):
    """Nothing is written over."""
    engine = open_engine()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"mine")
    with pytest.raises(Exception):  # noqa: B017 - any error will do
        engine.checkpoint(tmp_path / "there")
    assert (tmp_path / "there" / "file").read_bytes() == b"mine"


def test_all_files_and_folders_of_an_image_are_synced(tmp_path):
    """By the end of checkpoint() each file of the image, its folder and the parent have been synced, as strace sees."""
    strace = next((p for p in ("/usr/bin/strace", "/bin/strace") if os.access(p, os.X_OK)), None)
    if strace is None:
        pytest.skip("strace is not installed")
    code = f"""
from pathlib import Path
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
engine = RocksDBEngine.open(Path({str(tmp_path / "live")!r}), StoreSpec("s", "rocksdb"))
engine.apply([(b"k%d" % i, b"v") for i in range(9)])
engine.checkpoint(Path({str(tmp_path / "image")!r}))
"""
    trace = tmp_path / "trace"
    command = [strace, "-f", "-y", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", str(trace)]
    done = subprocess.run([*command, sys.executable, "-c", code], capture_output=True, check=False)
    if b"ptrace" in done.stderr and done.returncode:
        pytest.skip("this machine does not allow tracing")
    assert done.returncode == 0, done.stderr
    synced = {line.split("<", 1)[1].split(">", 1)[0] for line in trace.read_text().splitlines() if "sync(" in line}
    for path in (tmp_path / "image").iterdir():
        live = tmp_path / "live" / path.name
        assert {str(path), str(live)} & synced, path.name
    assert {str(tmp_path / "image"), str(tmp_path)} <= synced


def test_reading_only_changes_no_file(open_engine, tmp_path, read_folder):
    """A read-only engine leaves every data file as it is, and refuses to make a database."""
    engine, image = open_engine(), tmp_path / "image"
    fill(engine, entries(100))
    engine.checkpoint(image)
    before = read_folder(image)
    reader = open_engine(image, read_only=True)
    assert len(list(reader.scan(None, None, False))) == 100
    reader.close()
    after = {name: data for name, data in read_folder(image).items() if not name.startswith(("LOG", "LOCK"))}
    assert after == before
    (tmp_path / "empty").mkdir()
    with pytest.raises(StateCorruptError, match="no RocksDB database"):
        open_engine(tmp_path / "empty", read_only=True)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_directory_that_is_open_elsewhere_is_for_later(open_engine, tmp_path):
    """A second opening in this process, and one in another, are refused as something that may pass."""
    engine = open_engine()
    engine.apply([(b"k", b"v")])
    with pytest.raises(TransientError, match="lock"):
        open_engine()
    code = f"""
from pathlib import Path
from millpond.errors import TransientError
from millpond.spi import StoreSpec
from millpond_rocksdb.engine import RocksDBEngine
try:
    RocksDBEngine.open(Path({str(tmp_path / "live")!r}), StoreSpec("s", "rocksdb"))
except TransientError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert "LOCK" in said.stdout
    assert engine.get(b"k") == b"v"


def test_a_lock_file_that_nobody_holds_is_nothing(open_engine, tmp_path):
    """LOCK and LOG that a killed process left neither make a directory a database nor keep one shut."""
    live = tmp_path / "live"
    live.mkdir()
    (live / "LOCK").touch()
    (live / "LOG.old.17").write_bytes(b"...")
    engine = open_engine()
    engine.apply([(b"k", b"v")])
    assert engine.get(b"k") == b"v"


def test_what_another_program_wrote_raw_can_be_read(open_engine, tmp_path):
    """A raw database that rocksdict made by itself, with a log, opens with all its records."""
    options = Options(raw_mode=True)
    database = Rdict(str(tmp_path / "live"), options)
    database[b"k"] = b"v"
    database.close()
    assert open_engine().get(b"k") == b"v"


KEYS = st.binary(max_size=3)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), max_size=30)


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["apply", "load", "reopen"]), CHANGES), min_size=1, max_size=6),
    start=st.none() | KEYS,
    stop=st.none() | KEYS,
)
def test_an_engine_is_a_sorted_map(tmp_path_factory, steps, start, stop):
    """Whatever is applied, loaded and carried over by images, the engine gives what a dict would."""
    folder, model = tmp_path_factory.mktemp("model"), {}
    engine = RocksDBEngine.open(folder / "0", SPEC)
    for number, (step, changes) in enumerate(steps, 1):
        if step == "apply":
            engine.apply(sorted(dict(changes).items()))
        else:
            engine.load(changes)
        for key, value in changes:
            model.pop(key, None) if value is None else model.update({key: value})
        if step == "reopen":
            engine.checkpoint(folder / str(number))
            engine.close()
            engine = RocksDBEngine.open(folder / str(number), SPEC)
    try:
        want = [
            entry
            for entry in sorted(model.items())
            if (start is None or entry[0] >= start) and (stop is None or entry[0] < stop)
        ]
        assert list(engine.scan(start, stop, False)) == want
        assert list(engine.scan(start, stop, True)) == want[::-1]
        keys = [*model, b"zzzz", *model]
        assert engine.get_many(keys) == [model.get(key) for key in keys] == [engine.get(key) for key in keys]
    finally:
        engine.close()
