"""The backend that keeps images on a local disk."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

import millpond
from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError
from millpond.local import escape_name
from millpond.spi import StoreSpec
from millpond_rocksdb.local import RocksDBLocal, RocksDBLocalConfig
from millpond_rocksdb.shelf import ImageName, Shelf

OTHER = "b" * 32
FILES = {"000008.sst": b"sst" * 1000, "CURRENT": b"MANIFEST-000005\n", "sub/000009.blob": b"blob", "empty": b""}


@pytest.fixture
def elsewhere():
    """Give a folder on another device than the tests' own."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == Path(tempfile.gettempdir()).stat().st_dev:
        pytest.skip("there is no other device")
    folder = Path(tempfile.mkdtemp(dir=shm))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=["own folder", "a path", "another device"])
def factory(request, tmp_path):
    """Give the backend without a path, with one on the same device, and with one on another."""
    path = None
    if request.param == "a path":
        path = tmp_path / "päth with spaces"
    elif request.param == "another device":
        path = request.getfixturevalue("elsewhere")
    made = RocksDBLocal("disk", RocksDBLocalConfig(path=path))
    made.where = path
    return made


@pytest.fixture
def local(tmp_path):
    """Give the backend with a path on the same device."""
    return RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "kept"))


def id(n):
    return CheckpointId(n, 0)


def shelf(bench, factory, store="delays", **context):
    return Shelf.of(factory._root(bench.context(**context)), store)


def shown(bench, factory, store="delays"):
    return [str(name) for name in shelf(bench, factory, store).images()]


def upload(bench, snapshot_of, manager, n, files=FILES, store="delays", base=None):
    image = bench.image(f"{n}", files, store, id(n))
    return manager.upload(snapshot_of(id(n), {store: image}, {store: base} if base else {}), {})[store]


def test_what_was_uploaded_comes_back(bench, snapshot_of, factory, read_folder):
    """An image of any engine, with folders and empty files, comes back byte for byte, and is adopted."""
    manager = factory.backup_manager(bench.context(), [])
    marker = upload(bench, snapshot_of, manager, 1)
    shutil.rmtree(bench.root / "images", ignore_errors=False) if factory.where else None
    target = bench.target("delays", marker)
    factory.restore_manager(bench.context(None), []).restore(target)
    got = read_folder(target.directory)
    got.pop("MANIFEST")
    assert got == FILES
    assert target.adopted
    assert target.size == target.total == sum(map(len, FILES.values()))


def test_files_are_linked_on_one_device_and_copied_to_another(bench, snapshot_of, factory, elsewhere):
    """Uploading and restoring cost links where they can, and a verified copy where they cannot."""
    manager = factory.backup_manager(bench.context(), [])
    marker = upload(bench, snapshot_of, manager, 1)
    source = bench.root / "images" / "delays" / "1"
    kept = shelf(bench, factory).path / marker
    target = bench.target("delays", marker)
    factory.restore_manager(bench.context(None), []).restore(target)
    same_device = factory.where != elsewhere
    for name in FILES:
        assert (kept / name).samefile(source / name) is same_device
        assert (target.directory / name).samefile(kept / name) is same_device
    assert target.verified is not same_device


def test_an_unchanged_file_costs_a_link_on_another_device_too(bench, snapshot_of, elsewhere, monkeypatch):
    """A file that the last published image has, by content and not by name, is linked and not copied again."""
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=elsewhere))
    manager = factory.backup_manager(bench.context(), [])
    first = upload(bench, snapshot_of, manager, 1)
    changed = {"000008.sst": b"new content, same name", "000099.sst": FILES["000008.sst"]}
    second = upload(bench, snapshot_of, manager, 2, {**FILES, **changed}, base=(id(1), first))
    kept = shelf(bench, factory).path
    assert (kept / second / "000099.sst").samefile(kept / first / "000008.sst")
    assert (kept / second / "000008.sst").read_bytes() == b"new content, same name"
    assert (kept / first / "000008.sst").read_bytes() == FILES["000008.sst"]
    again = factory.backup_manager(bench.context(OTHER), [])  # after a restart there is no base yet
    again.init(bench.checkpoint(id(2), {"delays": second}))
    third = upload(bench, snapshot_of, again, 3, {**FILES, **changed})
    assert (kept / third / "000099.sst").samefile(kept / first / "000008.sst")


def test_a_damaged_earlier_copy_is_not_passed_on(bench, snapshot_of, elsewhere):
    """A file of the last image that was cut short is copied anew, not linked."""
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=elsewhere))
    manager = factory.backup_manager(bench.context(), [])
    first = upload(bench, snapshot_of, manager, 1)
    kept = shelf(bench, factory).path
    os.truncate(kept / first / "000008.sst", 5)
    second = upload(bench, snapshot_of, manager, 2, base=(id(1), first))
    assert (kept / second / "000008.sst").read_bytes() == FILES["000008.sst"]


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_where_links_fail_files_are_copied(bench, snapshot_of, local, monkeypatch, read_folder, caplog, code):
    """Each way in which a file system refuses a link ends in a copy, and is told once."""

    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    manager = local.backup_manager(bench.context(), [])
    with caplog.at_level(logging.INFO, "millpond.rocksdb"):
        markers = [upload(bench, snapshot_of, manager, n) for n in (1, 2)]
    for marker in markers:
        kept = read_folder(shelf(bench, local).path / marker)
        assert {name: kept[name] for name in FILES} == FILES
    assert len([r for r in caplog.records if "copied, not linked" in r.getMessage()]) == 1


def test_a_source_that_is_not_what_its_manifest_says_is_no_backup(bench, snapshot_of, elsewhere):
    """A flipped bit in the source is found while it is copied; no image appears."""
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=elsewhere))
    image = bench.image("1", FILES)
    (image / "CURRENT").write_bytes(b"MANIFEST-000006\n")
    manager = factory.backup_manager(bench.context(), [])
    with pytest.raises(StateCorruptError, match="damaged"):
        manager.upload(snapshot_of(id(1), {"delays": image}), {})
    assert shown(bench, factory) == []


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "more", "manifest", "no manifest", "link"])
def test_a_damaged_image_is_not_restored(bench, snapshot_of, factory, damage):
    """Any difference between an image and its manifest is StateCorruptError, and nothing is adopted."""
    marker = upload(bench, snapshot_of, factory.backup_manager(bench.context(), []), 1)
    kept = shelf(bench, factory).path / marker
    sst = kept / "000008.sst"
    if damage == "flip":
        data = bytearray(sst.read_bytes())
        data[100] ^= 1
        sst.write_bytes(data)
    elif damage == "cut":
        os.truncate(sst, 100)
    elif damage == "gone":
        sst.unlink()
    elif damage == "link":
        sst.rename(kept.parent / "outside")
        sst.symlink_to(kept.parent / "outside")
    elif damage == "manifest":
        os.truncate(kept / "MANIFEST", 40)
    elif damage == "no manifest":
        (kept / "MANIFEST").unlink()
    elif damage == "more":
        (kept / "stray").write_bytes(b"passed over: the manifest does not name it")
    target = bench.target("delays", marker)
    manager = factory.restore_manager(bench.context(None), [])
    if damage == "more":
        manager.restore(target)
        assert not (target.directory / "stray").exists()
        return
    with pytest.raises((StateCorruptError, StateNotFoundError)):
        manager.restore(target)
    assert not target.adopted


@pytest.mark.parametrize("marker", ["1-0-" + "c" * 32, "", "x", "../../etc", "1-0-a/../b", "/etc", "01-0-a", "1-0-é"])
def test_a_marker_that_names_nothing_is_not_found(bench, snapshot_of, local, marker):
    """Unknown markers, and such that would lead elsewhere, are StateNotFoundError."""
    upload(bench, snapshot_of, local.backup_manager(bench.context(), []), 1)
    with pytest.raises(StateNotFoundError):
        local.restore_manager(bench.context(None), []).restore(bench.target("delays", marker))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "Ünïcode name", "UPPER", "upper", "a", "ab", "1-0-" + "a" * 32])
def test_no_name_leads_out_of_the_folder_or_onto_another(bench, snapshot_of, tmp_path, name):
    """Jobs, tasks and stores with any name come back from inside the path, apart from one another."""
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "kept"))
    bench.job = name
    manager = factory.backup_manager(bench.context(task=name), [])
    marker = upload(bench, snapshot_of, manager, 1, store=name, files={"f": name.encode()}) if "/" not in name else None
    if marker is None:
        image = bench.image("1", {"f": name.encode()}, "plain", id(1))
        marker = manager.upload(snapshot_of(id(1), {name: image}), {})[name]
    images = list((tmp_path / "kept").rglob("MANIFEST"))
    assert len(images) == 1
    assert images[0].resolve().is_relative_to((tmp_path / "kept").resolve())
    assert images[0].parent.parent.name == escape_name(name)


def test_a_path_that_a_link_leads_out_of_is_refused(bench, tmp_path):
    """A symbolic link in the path that leads out of it is not followed."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "flights").symlink_to(tmp_path)
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "kept"))
    with pytest.raises(ConfigError, match="symbolic link"):
        factory.backup_manager(bench.context(), [])


def test_two_sections_with_one_path_keep_apart(bench, snapshot_of, tmp_path):
    """Two backends of this type with the same path neither collide nor clean up after one another."""
    image = bench.image("1", FILES)
    for backend in ("disk", "second"):
        factory = RocksDBLocal(backend, RocksDBLocalConfig(path=tmp_path / "kept"))
        manager = factory.backup_manager(bench.context(backend=backend), [])
        manager.upload(snapshot_of(id(1), {"delays": image}), {})
        manager.cleanup([bench.checkpoint(id(5), {})])
    first = RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "kept"))
    assert shown(bench, first) == []
    assert len(list((tmp_path / "kept").rglob("MANIFEST"))) == 0
    manager = first.backup_manager(bench.context(), [])
    manager.upload(snapshot_of(id(6), {"delays": image}), {})
    second = RocksDBLocal("second", RocksDBLocalConfig(path=tmp_path / "kept"))
    second.backup_manager(bench.context(backend="second"), []).cleanup([bench.checkpoint(id(9), {})])
    assert len(shown(bench, first)) == 1


def test_cleanup_keeps_what_retained_checkpoints_name_and_removes_the_rest(bench, snapshot_of, factory):
    """Of five images, the two of retained checkpoints stay, a pinned old one among them; again changes nothing."""
    manager = factory.backup_manager(bench.context(), [])
    markers = {n: upload(bench, snapshot_of, manager, n) for n in range(1, 6)}
    retained = [bench.checkpoint(id(n), {"delays": markers[n]}) for n in (5, 2)]
    manager.cleanup(retained)
    assert shown(bench, factory) == [markers[2], markers[5]]
    manager.cleanup(retained)
    assert shown(bench, factory) == [markers[2], markers[5]]
    manager.cleanup(retained[:1])
    assert shown(bench, factory) == [markers[5]]


def test_cleanup_keeps_a_clean_store_s_old_image(bench, snapshot_of, local):
    """A store that did not change since keeps the image that newer checkpoints still name."""
    manager = local.backup_manager(bench.context(), [])
    old = upload(bench, snapshot_of, manager, 1, store="rarely")
    for n in range(2, 5):
        new = upload(bench, snapshot_of, manager, n, store="often")
        manager.cleanup([bench.checkpoint(id(n), {"rarely": old, "often": new})])
    assert shown(bench, local, "rarely") == [old]
    assert shown(bench, local, "often") == [new]


def test_cleanup_looks_only_where_something_may_have_changed(bench, snapshot_of, local, monkeypatch):
    """Of a hundred stores, a commit that changed one looks at one."""
    manager = local.backup_manager(bench.context(), [])
    markers = {f"s{n}": upload(bench, snapshot_of, manager, 1, {"f": b""}, f"s{n}") for n in range(100)}
    manager.cleanup([bench.checkpoint(id(1), markers)])
    looked = []
    images = Shelf.images
    monkeypatch.setattr(Shelf, "images", lambda self: looked.append(self.path.name) or images(self))
    markers["s7"] = upload(bench, snapshot_of, manager, 2, {"f": b""}, "s7")
    manager.cleanup([bench.checkpoint(id(2), markers)])
    assert set(looked) == {"s7"}


def test_what_earlier_owners_left_goes_a_grace_period_after_the_claim(bench, snapshot_of, local):
    """Images and stagings of an earlier writer lie until the grace period is over, and are then removed."""
    earlier = local.backup_manager(bench.context(OTHER), [])
    kept = upload(bench, snapshot_of, earlier, 1)
    upload(bench, snapshot_of, earlier, 2)
    staging = shelf(bench, local).stage(ImageName(id(3), OTHER))
    manager = local.backup_manager(bench.context(), [])
    new = upload(bench, snapshot_of, manager, 9)
    retained = [bench.checkpoint(id(9), {"delays": new}), bench.checkpoint(id(1), {"delays": kept}, OTHER)]
    manager.cleanup(retained)
    assert len(shown(bench, local)) == 3
    assert staging.is_dir()
    bench.clock.now_s += 601
    manager.cleanup(retained)
    assert shown(bench, local) == [kept, new]
    assert not staging.exists()


def test_a_staging_that_another_writer_fills_is_left_alone(bench, snapshot_of, local):
    """Long after the claim, a staging that changed within the grace period is still somebody's."""
    manager = local.backup_manager(bench.context(), [])
    bench.clock.now_s += 3600
    staging = shelf(bench, local).stage(ImageName(id(3), OTHER))
    os.utime(staging, (bench.clock.now_s - 60, bench.clock.now_s - 60))
    manager.cleanup([bench.checkpoint(id(9), {})])
    assert staging.is_dir()
    os.utime(staging, (bench.clock.now_s - 700, bench.clock.now_s - 700))
    manager.cleanup([bench.checkpoint(id(9), {})])
    assert not staging.exists()


def test_a_replaced_writer_s_cleanup_cannot_reach_its_successor_s_images(bench, snapshot_of, local):
    """However late it comes, the clean-up of a writer that does not know that it is replaced harms nothing newer."""
    old = local.backup_manager(bench.context(OTHER), [])
    base = upload(bench, snapshot_of, old, 5)
    successor = local.backup_manager(bench.context(), [])
    new = upload(bench, snapshot_of, successor, 6)
    half = shelf(bench, local).stage(ImageName(id(7), "a" * 32))
    bench.clock.now_s += 10**6
    old.cleanup([bench.checkpoint(id(5), {"delays": base}, OTHER)])
    assert shown(bench, local) == [base, new]
    assert half.is_dir()


def test_without_a_checkpoint_nothing_is_removed(bench, snapshot_of, local):
    """The clean-up of a task that has no checkpoint yet removes nothing."""
    manager = local.backup_manager(bench.context(), [])
    marker = upload(bench, snapshot_of, manager, 1)
    bench.clock.now_s += 10**6
    manager.cleanup([])
    assert shown(bench, local) == [marker]


def test_abandon_drops_what_its_commit_left_and_nothing_else(bench, snapshot_of, factory):
    """Whole and half images of the given id and of this writer go; all others stay; again is fine."""
    manager = factory.backup_manager(bench.context(), [])
    kept = upload(bench, snapshot_of, manager, 1)
    upload(bench, snapshot_of, manager, 2)
    shelf(bench, factory).stage(ImageName(id(2), "a" * 32))
    foreign = upload(bench, snapshot_of, factory.backup_manager(bench.context(OTHER), []), 2)
    for _ in range(2):
        manager.abandon(id(2))
        assert shown(bench, factory) == [kept, foreign]
        assert shelf(bench, factory).staged() == []


def test_a_commit_that_is_given_up_stops_and_shows_no_image(bench, snapshot_of, elsewhere):
    """At each check of an upload, giving up stops it and no image is visible."""
    factory = RocksDBLocal("disk", RocksDBLocalConfig(path=elsewhere))
    image = bench.image("1", FILES)
    manager = factory.backup_manager(bench.context(), [])
    whole = snapshot_of(id(1), {"delays": image})
    manager.upload(whole, {})
    assert whole.checks >= 4
    for stop_at in range(1, whole.checks + 1):
        snapshot = snapshot_of(id(stop_at + 1), {"delays": image}, {}, 0, stop_at)
        with pytest.raises(RuntimeError, match="given up"):
            manager.upload(snapshot, {})
        assert len(shown(bench, factory)) == 1


def test_the_same_upload_again_is_fine(bench, snapshot_of, local):
    """An upload that is repeated after an error behind its rename replaces what it had made."""
    manager = local.backup_manager(bench.context(), [])
    assert upload(bench, snapshot_of, manager, 1) == upload(bench, snapshot_of, manager, 1)
    assert len(shown(bench, local)) == 1


def test_reading_only_cannot_upload(bench, snapshot_of, local):
    """Without a claim there is nothing to write under."""
    manager = local.backup_manager(bench.context(None), [])
    with pytest.raises(ConfigError, match="reading only"):
        upload(bench, snapshot_of, manager, 1)


def test_garbage_is_what_no_retained_checkpoint_names(bench, snapshot_of, local):
    """Old images, half made ones and half removed ones are found, once they are old enough, and can be removed."""
    manager = local.backup_manager(bench.context(), [])
    markers = [upload(bench, snapshot_of, manager, n) for n in (1, 2)]
    place = shelf(bench, local)
    place.stage(ImageName(id(3), OTHER))
    (place.path / f".removed-{id(4)}-{OTHER}").mkdir()
    upload(bench, snapshot_of, local.backup_manager(bench.context(task="Partition 1"), []), 1)
    admin = local.admin(bench.job_context(), [])
    retained = {"Partition 0": [bench.checkpoint(id(2), {"delays": markers[1]})]}
    bench.clock.now_s += 5
    recent = list(admin.garbage(retained, timedelta(hours=1)))
    assert [Path(g.name).name for g in recent] == [f".removed-{id(4)}-{OTHER}"]
    found = list(admin.garbage(retained, timedelta(0)))
    assert {Path(g.name).name for g in found} == {
        markers[0],
        f".staging-{id(3)}-{OTHER}",
        f".removed-{id(4)}-{OTHER}",
    }
    assert all(g.reason for g in found)
    assert place.path.joinpath(markers[0]).is_dir()
    for g in [*found, *found]:
        g.remove()
    assert [path.name for path in place.path.iterdir()] == [markers[1]]
    assert list(admin.garbage(retained, timedelta(0))) == []


def test_preparing_makes_and_tries_the_path(bench, tmp_path):
    """The path is made, tried, and left empty; a file in its place is told with the section's name."""
    admin = RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "a" / "b")).admin(bench.job_context(), [])
    with pytest.raises(ConfigError, match=r"'disk'.*no folder"):
        admin.validate_resources()
    for _ in range(2):
        admin.create_resources()
        admin.validate_resources()
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "file").touch()
    admin = RocksDBLocal("disk", RocksDBLocalConfig(path=tmp_path / "file")).admin(bench.job_context(), [])
    with pytest.raises(ConfigError):
        admin.create_resources()
    with pytest.raises(ConfigError):
        admin.validate_resources()


def test_a_path_that_cannot_be_written_is_told(bench, tmp_path, monkeypatch):
    """A path that refuses a folder is a ConfigError that names the section and the path."""
    config = RocksDBLocalConfig(path=tmp_path)
    admin = RocksDBLocal("disk", config).admin(bench.job_context(), [])

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ConfigError, match=r"'disk'.*cannot hold images"):
        admin.validate_resources()


def test_without_a_path_there_is_nothing_to_prepare(bench):
    """The tasks' own folders are the core's."""
    admin = RocksDBLocal("disk", RocksDBLocalConfig()).admin(bench.job_context(), [])
    admin.create_resources()
    admin.validate_resources()
    assert list(admin.garbage({"Partition 0": []}, timedelta(0))) == []


def test_a_config_is_checked():
    """A relative path is taken from where the process stands; a negative grace period is refused."""
    assert RocksDBLocalConfig(path="kept").path == Path.cwd() / "kept"
    with pytest.raises(ConfigError, match="negative"):
        RocksDBLocalConfig(grace=timedelta(seconds=-1))


def test_a_real_database_goes_there_and_back(bench, snapshot_of, factory, open_engine, seal_image, tmp_path):
    """A RocksDB image, taken again after changes, restores to exactly what each commit had."""
    engine, manager = open_engine(), factory.backup_manager(bench.context(), [])
    states, markers = [], []
    for n in range(1, 4):
        engine.apply([(b"%03d" % i, b"%d" % n) for i in range(n * 10, n * 10 + 500)])
        (tmp_path / "images").mkdir(exist_ok=True)
        engine.checkpoint(tmp_path / "images" / str(n))
        seal_image(tmp_path / "images" / str(n), "delays", id(n))
        states.append(list(engine.scan(None, None, False)))
        markers.append(manager.upload(snapshot_of(id(n), {"delays": tmp_path / "images" / str(n)}), {})["delays"])
    for state, marker in zip(states, markers, strict=True):
        target = bench.target("delays", marker)
        factory.restore_manager(bench.context(None), [StoreSpec("delays", "rocksdb")]).restore(target)
        (target.directory / "MANIFEST").unlink()
        assert list(open_engine(target.directory, read_only=True).scan(None, None, False)) == state


def test_an_older_whole_image_under_a_newer_name_is_refused(tmp_path):
    """A backup in which somebody put an older image of the same store in the newer one's place is damage, not state."""
    source = millpond.SystemStreamPartition("test", "numbers", 0)
    settings = {
        "job": {"name": "swapped", "state_dir": str(tmp_path / "state")},
        "checkpoint": {"manager": "directory", "path": str(tmp_path / "records"), "retain": 2},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(tmp_path / "backup")}},
        "stores": {"counts": {"engine": "rocksdb", "key": "str", "value": "json"}},
        "commit": {"interval": "1h"},
    }
    with millpond.open_job(settings) as job, job.open_task("t") as task:
        for number in range(2):
            task.store("counts")["k"] = number
            task.processed(source, number)
            task.commit_now(30)
    older, newer = sorted(path.parent for path in (tmp_path / "backup").rglob("MANIFEST"))
    shutil.rmtree(tmp_path / "state")

    with millpond.open_job(settings) as job, job.open_task("t") as task:
        assert 1 == task.store("counts")["k"]
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(newer)
    shutil.copytree(older, newer)
    with millpond.open_job(settings) as job, pytest.raises(StateCorruptError, match="is another one"):
        job.open_task("t")
