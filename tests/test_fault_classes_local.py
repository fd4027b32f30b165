"""Classes of faults on the local disk, each with its own trigger: see docs/faults.md."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import engines
import pytest
from engines import Rig, Section, expected, write

import millpond
from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.events import MarkerIgnored, RestoreFailedOver, RestoreProgress, StoreRestored, TaskRestored
from millpond.local import MANIFEST, read_manifest
from millpond.local.task import task_root
from millpond.plugins import engine_class
from millpond.spi import StoreEngine, StoreSpec
from millpond.testing.faults import Fault
from millpond.testing.kit.leaks import Held

pytest.importorskip("rocksdict")

Place = Callable[[Path, Path], None]


@pytest.fixture
def disk(rig: Rig) -> Rig:
    """A job with RocksDB stores and one backend that keeps images on another part of the disk."""
    rig.sections, rig.engine = {"main": Section("rocksdb-local")}, "rocksdb"
    return rig


def faces(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Give for each file below *folder* its inode, mode, time of change and content's digest."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, digest)
    return found


def faces_of_images(root: Path) -> dict[str, tuple[int, int, int, str]]:
    return {name: face for image in engines.images(root) for name, face in faces(image).items()}


def live_of(rig: Rig, store: str = "a") -> Path:
    """Give the folder of the store's open database."""
    found = [path for path in (rig.root / rig.state).glob(f"*/*/live-*/{store}*") if path.is_dir()]
    assert 1 == len(found)
    return found[0]


def open_engine(name: str, folder: Path, **options: object) -> StoreEngine:
    kind = engine_class(name)
    return kind.open(folder, StoreSpec("s", name, options, kind.config_class()))


def test_whoever_restores_leaves_the_source_as_it_was(disk: Rig):
    """Three openings that write, flush, fail and end badly change no file of an image that is kept."""
    engines.committed(disk, 5)
    before = faces_of_images(disk.root)
    for _ in range(3):
        task = disk.open()
        for number in range(3_000):
            task.store("a")[f"other {number}"] = "x" * 50
        task.store("a").delete("k001")
        disk.fault().add("upload", Fault(error=millpond.TransientError("no upload today")))
        with pytest.raises(millpond.CommitError):
            task.commit_now(30)  # its image was made: all of it was flushed
        disk.crash()
    disk.fault().add("init", Fault(error=millpond.TransientError("no beginning today")))
    with pytest.raises(millpond.TransientError):
        disk.open()
    disk.close()

    assert before
    assert before.items() <= faces_of_images(disk.root).items()
    assert expected(5) == disk.restored()


def test_a_backup_is_no_workplace(disk: Rig):
    """A restore from a backend's image, and whatever is written afterwards, changes no file of that image."""
    engines.committed(disk, 5)
    backup = disk.root / "backup main"
    before = faces_of_images(backup)
    for number in range(3):
        disk.state = f"state {number}"
        task = disk.open()
        assert engines.offset_of(task) == 5
        task.store("a").delete("k001")
        disk.fault().add("upload", Fault(error=millpond.TransientError("no upload today")))
        task.processed(engines.SOURCE, 6)
        with pytest.raises(millpond.CommitError):
            task.commit_now(30)
        disk.crash()

    assert before
    assert before == faces_of_images(backup)


def an_older_database(live: Path, image: Path) -> None:
    shutil.copytree(image, live / "a", ignore=shutil.ignore_patterns(MANIFEST))


def a_half_written_table(live: Path, image: Path) -> None:
    table = next(path for path in sorted(image.glob("*.sst")))
    (live / "a").mkdir(parents=True)
    (live / "a" / "999999.sst").write_bytes(table.read_bytes()[:-40])


def an_empty_folder(live: Path, image: Path) -> None:
    (live / "a").mkdir(parents=True)


def a_lock_alone(live: Path, image: Path) -> None:
    an_empty_folder(live, image)
    (live / "a" / "LOCK").touch()


LEFT = [an_older_database, a_half_written_table, an_empty_folder, a_lock_alone]


@pytest.mark.parametrize("place", LEFT, ids=lambda place: place.__name__)
@pytest.mark.parametrize("wiped", [False, True], ids=["from-the-disk", "from-the-backend"])
def test_leftovers_where_databases_lie_mix_into_nothing(
    disk: Rig, place: Place, wiped: bool, monkeypatch: pytest.MonkeyPatch
):
    """Whatever a dead process left in the very folder that the next one works in, the state is the checkpoint's."""
    chosen = SimpleNamespace(token_hex=lambda size: "0" * (2 * size))
    monkeypatch.setattr("millpond.local.task.secrets", chosen)
    disk.retain = 5
    engines.committed(disk, 2)
    engines.committed(disk, 4)
    shelf = sorted(image for image in engines.images(disk.root / "backup main") if image.parent.name == "a")
    older = shelf[0]
    if wiped:
        shutil.rmtree(disk.root / disk.state)
    task_folder = task_root(disk.root / disk.state, disk.name, disk.config().id, engines.TASK)
    place(task_folder / "live-0000000000000000", older)
    (task_folder / "scratch" / "main").mkdir(parents=True, exist_ok=True)
    place(task_folder / "scratch" / "main", older)

    assert expected(4) == disk.restored()


def test_a_stray_file_in_an_image_is_taken_for_nothing(disk: Rig):
    """A half-written table that somebody laid into the images is no part of the state, and is not passed over."""
    engines.committed(disk, 3)
    for image in engines.images(disk.root / disk.state):
        table = next(iter(sorted(image.glob("*.sst"))))
        (image / "999999.sst").write_bytes(table.read_bytes()[:-40])

    assert expected(3) == disk.restored()
    assert {"main"} == {event.source for event in disk.told(StoreRestored)}


@pytest.mark.parametrize("name", ["*.sst", "CURRENT", "MANIFEST-*", "LOCK", "*"])
def test_a_file_that_is_taken_away_under_a_running_task_empties_no_checkpoint(disk: Rig, name: str):
    """What is published after files of an open database went is whole; otherwise the commit fails, and says where."""
    engines.committed(disk, 3)
    task = disk.open()
    gone = [path for path in live_of(disk, "a").glob(name) if path.is_file()]
    assert gone
    for path in gone:
        path.unlink()
    write(task, 4)
    error = task.commit().exception(30)
    published = 4 if error is None else 3
    disk.crash()

    disk.state = "another disk"
    assert error is None or "'a'" in str(error) or str(disk.root / "state") in str(error)
    assert expected(published) == disk.restored()


def test_what_was_flushed_and_not_committed_is_gone_after_a_crash(disk: Rig):
    """Writes that reached the disk for a commit that never ended are not in what the next process finds there."""
    engines.committed(disk, 3)
    task = disk.open()
    write(task, 4)
    gate, before = disk.fault().hang("upload"), disk.fault().calls["upload"]
    task.commit()
    disk.fault().await_call("upload", before + 1)  # the image is made and sealed: record 4 lies in tables on the disk
    shutil.copytree(disk.root / disk.state, disk.root / "as the crash left it", symlinks=True)
    disk.state = "as the crash left it"
    found = disk.open()
    state = engines.offset_of(found), engines.state_of(found)
    gate.set()

    assert expected(3) == state


def test_stores_of_different_ages_are_not_put_together(disk: Rig):
    """A backup of which one store was set back to an older copy is refused by name; the other store is not taken."""
    engines.committed(disk, 2)
    shelf = next(image.parent for image in engines.images(disk.root / "backup main") if image.parent.name == "a")
    shutil.copytree(shelf, disk.root / "older copy")
    engines.committed(disk, 4)
    shutil.rmtree(shelf)
    shutil.copytree(disk.root / "older copy", shelf)
    disk.state = "another disk"

    with pytest.raises(StateNotFoundError, match=r"store 'a'|/a/"):
        disk.open()
    assert [] == disk.told(TaskRestored)


def test_a_removed_stores_missing_data_keeps_nobody_from_starting(disk: Rig):
    """A store that the configuration no longer names is not asked for, though its data is gone everywhere."""
    engines.committed(disk, 3)
    for path in [path for path in disk.root.rglob("b") if path.is_dir()]:
        shutil.rmtree(path)
    disk.stores, disk.state = ("a",), "another disk"

    assert expected(3, "a") == disk.restored()
    assert {"b"} == {event.store for event in disk.told(MarkerIgnored)}


def test_a_job_can_be_moved_with_all_its_folders(disk: Rig, tmp_path: Path):
    """State, backup and records go on at another path, and no file of them names the one that they were made at."""
    engines.committed(disk, 3)
    place = tmp_path / "moved to here"
    place.mkdir()
    for name in ("state", "backup main", "records"):
        (disk.root / name).rename(place / name)
    said = [path for path in place.rglob("*") if path.is_file() and path.name != "LOG" and path.suffix != ".log"]
    naming = [path for path in said if str(disk.root).encode() in path.read_bytes() and "OPTIONS" not in path.name]
    moved = Rig(place, clock=disk.clock, name=disk.name, sections=disk.sections, engine="rocksdb")
    on_the_disk = moved.restored()
    moved.state = "another disk"

    assert [] == naming
    assert expected(3) == on_the_disk
    assert expected(3) == moved.restored()


def test_progress_counts_bytes_and_ends_at_the_total(disk: Rig):
    """What a restore tells is the size of the files that it brings, and its last word is the whole."""
    task = disk.open()
    for number in range(20_000):
        task.store("a")[f"k{number}"] = number
    task.commit_now(30)
    disk.close()
    disk.events.clear()
    images = [image for image in engines.images(disk.root / "backup main") if image.parent.name == "a"]
    size = sum(file.size for file in read_manifest(images[-1]).files)
    disk.state = "another disk"
    disk.restored()
    told = [event for event in disk.told(RestoreProgress) if event.store == "a"]

    assert (size, size) == (told[-1].size, told[-1].total_size)
    assert [size] == [event.size for event in disk.told(StoreRestored) if event.store == "a"]
    assert [] == disk.told(RestoreFailedOver)


def test_progress_counts_records_and_not_batches(rig: Rig):
    """A backend of records tells each of ten thousand, however many it hands over at once."""
    task = rig.open()
    for number in range(10_000):
        task.store("a")[f"k{number}"] = number
    task.commit_now(30)
    rig.close()
    rig.state = "another disk"
    rig.restored()

    assert 10_000 == [event.records for event in rig.told(RestoreProgress) if event.store == "a"][-1]


@pytest.mark.parametrize("name", ["memory", "rocksdb"])
def test_opening_and_closing_for_ever_holds_nothing(tmp_path: Path, name: str):
    """A hundred openings, half of which meet damage, leave no descriptor and no thread."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    engine = open_engine(name, tmp_path / "made")
    engine.apply([(b"k", b"v")])
    engine.checkpoint(good)
    engine.checkpoint(bad)
    engine.close()
    for path in [path for path in bad.iterdir() if path.stat().st_size]:
        engines.flip(path)
    before = Held.now()
    for number in range(50):
        shutil.copytree(good, tmp_path / f"copy {number}")
        opened = open_engine(name, tmp_path / f"copy {number}")
        scan = opened.scan(None, None, False)
        next(scan)
        opened.close()
        with pytest.raises(StateCorruptError):
            open_engine(name, bad)
    del opened, scan
    gc.collect()

    assert "" == before.leaks()


def test_descriptors_have_a_bound_however_many_tables_there_are(tmp_path: Path):
    """A database of a hundred tables that are all read holds no more files open than its option says."""
    engine = open_engine("rocksdb", tmp_path / "live", max_open_files=40, level0_file_num_compaction_trigger=1_000)
    for number in range(120):
        engine.apply([(b"%05d" % number, os.urandom(100))])
        engine.checkpoint(tmp_path / "image")
        shutil.rmtree(tmp_path / "image")
    tables = len(list((tmp_path / "live").glob("*.sst")))
    for number in random.Random(1).sample(range(120), 120):
        assert engine.get_many([b"%05d" % number]) != [None]
    held = [path for _, path in Held.now().descriptors if path.startswith(str(tmp_path))]
    engine.close()

    assert tables >= 100
    assert 0 < len(held) <= 40


@pytest.mark.parametrize("name", ["memory", "rocksdb"])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
@pytest.mark.parametrize("verb", ["apply", "load"])
def test_deletes_among_records_are_kept_in_their_order(tmp_path: Path, name: str, size: int, verb: str):
    """Deletes, of keys that never were too, and empty values are the same however the records are cut in batches."""
    log = [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", None), (b"b", None), (b"b", b"3"), (b"e", b"")]
    engine = open_engine(name, tmp_path / "live")
    for start in range(0, len(log), size):
        batch = log[start : start + size]
        if verb == "load":
            engine.load(iter(batch))
        else:
            engine.apply(sorted(dict(batch).items()))
    found = list(engine.scan(None, None, False))
    engine.close()

    assert [(b"b", b"3"), (b"e", b"")] == found
