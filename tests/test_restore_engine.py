"""Restores: exactly what the checkpoint says, from the nearest place that still has it, or an error."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from engines import SOURCE, TASK, Rig, Section, expected, idle, offset_of, state_of, write

from millpond.checkpoint import CheckpointId
from millpond.errors import (
    ConfigError,
    FormatError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.events import (
    MarkerIgnored,
    OlderCheckpointChosen,
    Quarantined,
    RestoreFailedOver,
    StoreIsNew,
    StoreRestored,
)
from millpond.stores.memory import MemoryEngine
from millpond.testing.faults import Fault


@pytest.fixture
def disks(rig) -> Rig:
    """The job with two backends that keep images on disks of their own."""
    rig.sections = {"main": Section("rocksdb-local"), "second": Section("rocksdb-local")}
    return rig


def committed(rig: Rig, until: int, *stores: str) -> list[CheckpointId]:
    """Open the task, commit each record up to *until*, and close everything; give the new ids."""
    task = rig.open()
    ids = []
    for number in range(offset_of(task) + 1, until + 1):
        write(task, number, *stores)
        ids.append(idle(task).commit_now(30).id)
    idle(task)
    rig.close()
    rig.events.clear()
    return ids


def images(root: Path) -> list[Path]:
    """Give the folders of all images below *root*."""
    return sorted(path.parent for path in root.rglob("MANIFEST") if not path.parent.name.startswith("live-"))


def flip(path: Path) -> None:
    """Flip a byte in the middle of *path*, leaving its size and its other links alone."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.unlink()
    path.write_bytes(data)


def damage(root: Path, store: str = "*") -> None:
    """Flip a byte in every data file of every image of *store* below *root*."""
    found = [path for path in root.rglob(f"{store}/*/data.changes") if "live-" not in str(path)]
    assert found
    for path in found:
        flip(path)


def sources(rig: Rig) -> dict[str, str]:
    return {event.store: event.source for event in rig.told(StoreRestored)}


# ------------------------------------------------------------------------------------------------------- local images


def test_an_intact_disk_asks_no_backend(disks):
    """The local image that the checkpoint names is taken; no byte is fetched."""
    committed(disks, 2)

    assert expected(2) == disks.restored()

    assert {"a": "local", "b": "local"} == sources(disks)
    assert 0 == disks.fault("main").calls["restore"] == disks.fault("second").calls["restore"]


def test_a_new_disk_asks_the_first_backend(disks):
    """Everything comes from the first of the restore list, and lies on the local disk afterwards."""
    committed(disks, 2)
    disks.state = "another disk"

    assert expected(2) == disks.restored() and {"a": "main", "b": "main"} == sources(disks)
    disks.events.clear()
    assert expected(2) == disks.restored() and {"a": "local", "b": "local"} == sources(disks)


def test_an_image_of_another_writer_is_not_taken(disks):
    """An image of the same commit id by another writer is another image, whatever its name begins with."""
    committed(disks, 2)
    for image in images(disks.root / "state"):
        id, _, _ = image.name.rpartition("-")
        image.rename(image.with_name(f"{id}-{'f' * 32}"))

    assert expected(2) == disks.restored() and {"a": "main", "b": "main"} == sources(disks)


@pytest.mark.parametrize("how", ["truncated", "lost", "manifest", "stranger"])
def test_a_damaged_local_image_goes_to_quarantine(disks, how):
    """It is moved aside with the reason, the backend is asked, and the next start is local again."""
    committed(disks, 2)
    image = next(image for image in images(disks.root / "state") if image.parent.name == "a")
    if how == "truncated":
        data = image / "data.changes"
        content = data.read_bytes()
        data.unlink()
        data.write_bytes(content[:-1])
    elif how == "lost":
        (image / "data.changes").unlink()
    elif how == "manifest":
        flip(image / "MANIFEST")
    else:
        (image / "data.changes").rename(image / "other.changes")

    assert expected(2) == disks.restored()

    assert {"a": "main", "b": "local"} == sources(disks)
    (quarantined,) = disks.told(Quarantined)
    assert quarantined.path.exists() and (quarantined.path.parent / "REASON").read_text()
    assert ["local"] == [event.source for event in disks.told(RestoreFailedOver)]
    disks.events.clear()
    assert expected(2) == disks.restored() and {"a": "local", "b": "local"} == sources(disks)


def test_after_a_reboot_a_flipped_byte_is_found(disks, monkeypatch):
    """An image that was sealed before this boot is compared byte by byte."""
    committed(disks, 2)
    damage(disks.root / "state", "a")
    monkeypatch.setattr("millpond.local.task.current_boot", lambda: "another-boot")

    assert expected(2) == disks.restored()

    assert {"a": "main", "b": "local"} == sources(disks) and 1 == len(disks.told(Quarantined))


def test_an_image_that_its_engine_cannot_open_goes_to_quarantine(disks):
    """Names and sizes are right, and the engine says no: the backend is asked in the same opening."""
    committed(disks, 2)
    damage(disks.root / "state", "a")

    assert expected(2) == disks.restored()

    assert 1 == len(disks.told(Quarantined)) and "main" == sources(disks)["a"]


def test_what_no_engine_can_open_is_an_error_and_not_a_loop(disks):
    """The backends give the same bytes that the engine refused: the second refusal is the answer."""
    committed(disks, 1)
    disks.sections.pop("second")
    opened = MemoryEngine.open.__func__

    def refuses(cls, directory, store, **more):
        if store.name == "a" and any(directory.iterdir()):
            raise StateCorruptError("bad block")
        return opened(cls, directory, store, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryEngine, "open", classmethod(refuses))
        with pytest.raises(StateCorruptError, match="bad block"):
            disks.open()
    disks.close()
    assert expected(1) == disks.restored()


# ----------------------------------------------------------------------------------------------------------- backends


@pytest.mark.parametrize("error", [StateNotFoundError("gone"), StateCorruptError("flipped")])
def test_the_next_backend_is_asked(disks, error):
    """Not found and corrupt lead to the next backend of the list, with an event for each store."""
    committed(disks, 2)
    disks.state = "another disk"
    disks.fault("main").add("restore", Fault(error), Fault(error))

    assert expected(2) == disks.restored()

    assert {"a": "second", "b": "second"} == sources(disks)
    told = disks.told(RestoreFailedOver)
    assert {("a", "main", "second"), ("b", "main", "second")} == {(e.store, e.source, e.following) for e in told}


def test_a_flipped_byte_in_a_backend_leads_to_the_next_one(disks):
    """What was restored is compared with the image's own manifest, not trusted."""
    committed(disks, 2)
    disks.state = "another disk"
    damage(disks.root / "backup main")

    assert expected(2) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


@pytest.mark.parametrize("error", [TransientError("busy"), OSError("reset"), RuntimeError("who knows"), SystemExit(1)])
def test_what_may_go_away_is_tried_again(disks, error):
    """One failure is passed over; no other backend is asked."""
    committed(disks, 2)
    disks.state = "another disk"
    disks.fault("main").add("restore", Fault(error))

    assert expected(2) == disks.restored() and {"a": "main", "b": "main"} == sources(disks)


@pytest.mark.parametrize("error", [TransientError("busy"), OSError("reset"), RuntimeError("who knows"), SystemExit(1)])
def test_what_does_not_go_away_fails_the_opening(disks, error):
    """Never an empty store, and never silently the second backend: the attempts are over, and it is raised."""
    committed(disks, 2)
    disks.state = "another disk"
    disks.fault("main").add("restore", *[Fault(error)] * 4)

    with pytest.raises((type(error), TransientError)) as raised:
        disks.open()

    assert "backend 'main'" in str(raised.value) + "".join(raised.value.__notes__)
    disks.fault("main").clear()
    assert expected(2) == disks.restored()


def test_nobody_left_is_an_error_that_names_all(disks):
    """Both backends lost it: the error says what each of them said, and nothing was changed."""
    committed(disks, 2)
    disks.state = "another disk"
    shutil.rmtree(disks.root / "backup main")
    damage(disks.root / "backup second")

    with pytest.raises(StateCorruptError) as raised:
        disks.open()

    assert "main: " in str(raised.value) and "second: " in str(raised.value)


def test_an_older_checkpoint_takes_everything_back_together(disks):
    """One store of the newest checkpoint is lost everywhere: all stores and the offsets go to the one before it."""
    disks.retain, disks.restore = 3, {"on_damage": "older"}
    ids = committed(disks, 2)
    disks.state = "another disk"
    for backend in ("main", "second"):
        (newest,) = (p for p in images(disks.root / f"backup {backend}") if p.parent.name == "a" and str(ids[2]) in p.name)
        shutil.rmtree(newest)

    task = disks.open()

    assert expected(1) == (offset_of(task), state_of(task)) and ids[1] == task.last.id
    (chosen,) = disks.told(OlderCheckpointChosen)
    assert (ids[2], ids[1]) == (chosen.damaged, chosen.chosen)
    write(task, 2)
    checkpoint = task.commit_now(30)
    assert ids[1] == checkpoint.parent and checkpoint.id > ids[2]
    assert expected(2) == disks.restored()


def test_without_leave_no_older_checkpoint_is_taken(disks):
    """The default is to stop: a silent step back would process what was acknowledged again."""
    disks.retain = 3
    ids = committed(disks, 2)
    disks.state = "another disk"
    for backend in ("main", "second"):
        for image in images(disks.root / f"backup {backend}"):
            if str(ids[2]) in image.name:
                shutil.rmtree(image)

    with pytest.raises(StateNotFoundError):
        disks.open()


def test_an_ended_history_is_never_gone_back_to(disks):
    """After time travel the damaged checkpoint's predecessor is what it built on, not what is listed before it."""
    disks.retain, disks.restore = 5, {"on_damage": "older"}
    ids = committed(disks, 2)
    task = disks.open(at=ids[0])
    write(task, 7)
    newest = task.commit_now(30)
    idle(task)
    disks.close()
    disks.state = "another disk"
    for backend in ("main", "second"):
        for image in images(disks.root / f"backup {backend}"):
            if str(newest.id) in image.name:
                shutil.rmtree(image)

    assert expected(0) == disks.restored()

    assert [ids[0]] == [event.chosen for event in disks.told(OlderCheckpointChosen)]


# --------------------------------------------------------------------------------------------------------- time travel


@pytest.mark.parametrize("named", [lambda id: id, str, lambda _: "before the upgrade"], ids=["id", "text", "pin"])
def test_time_travel(disks, named):
    """An older checkpoint, by id, text or pin; the next commit builds on it, and a restart resumes there."""
    disks.retain = 3
    ids = committed(disks, 2)
    disks.open_job()._parts.manager.pin(TASK, ids[0], "before the upgrade")
    disks.close()

    task = disks.open(at=named(ids[0]))
    assert expected(0) == (offset_of(task), state_of(task))
    write(task, 1, "a")
    checkpoint = task.commit_now(30)

    assert ids[0] == checkpoint.parent and checkpoint.id > ids[2]
    offset, stores = disks.restored()
    assert (1, expected(1)[1]["a"], expected(0)[1]["b"]) == (offset, stores["a"], stores["b"])


def test_what_a_time_traveller_builds_on_is_kept_though_it_is_old(disks):
    """With a smaller retain than the travelled way, the clean-up at the start spares what the next commit builds on."""
    disks.retain = 3
    ids = committed(disks, 2)
    disks.retain = 1
    task = disks.open(at=ids[0])
    idle(task)
    write(task, 1, "a")
    task.commit_now(30)
    idle(task)
    disks.close()

    disks.state = "another disk"
    offset, stores = disks.restored()
    assert (1, expected(1)[1]["a"], expected(0)[1]["b"]) == (offset, stores["a"], stores["b"])


def test_a_pin_outlives_its_record_and_its_data(disks):
    """Three commits later with retain 1 the pinned checkpoint is restored exactly, on another disk."""
    task = disks.open()
    write(task, 0)
    first = task.commit_now(30)
    disks.open_job()._parts.manager.pin(TASK, first.id, "kept")
    for number in range(1, 4):
        write(task, number)
        idle(task).commit_now(30)
    idle(task)
    disks.state = "another disk"

    assert expected(0) == disks.restored(at="kept")
    assert expected(3) == disks.restored()


@pytest.mark.parametrize(
    ("at", "error"), [("no such pin", ConfigError), ("17-4", StateNotFoundError), (CheckpointId(17, 4), StateNotFoundError)]
)
def test_time_travel_to_nowhere_is_an_error(disks, at, error):
    """A pin or an id that is not there is never taken for the newest, nor for an empty state."""
    committed(disks, 1)

    with pytest.raises(error):
        disks.open(at=at)


# --------------------------------------------------------------------------------------------------- what does not fit


def test_an_unreadable_record_is_an_error(disks):
    """The newest record is damaged: no older one, and no empty store, stands in for it."""
    disks.retain = 3
    committed(disks, 2)
    newest = max((disks.root / "records").rglob("records/*"), key=lambda path: int(path.name.rpartition("-")[2]))
    newest.write_bytes(newest.read_bytes()[:-9])

    with pytest.raises((StateCorruptError, FormatError), match="cannot be read"):
        disks.open()


def test_a_new_store_begins_empty_and_a_removed_one_is_left_alone(disks):
    """Both are told; what is left is exact."""
    committed(disks, 1)
    disks.stores = ("b", "c")

    task = disks.open()

    assert (1, {"b": expected(1)[1]["b"], "c": {}}) == (offset_of(task), state_of(task))
    assert ["c"] == [event.store for event in disks.told(StoreIsNew)]
    assert {("a", "main"), ("a", "second")} == {(e.store, e.backend) for e in disks.told(MarkerIgnored)}


def test_a_renamed_section_is_a_mistake_of_the_configuration(disks):
    """The markers are there under the old name: nothing is taken for new."""
    committed(disks, 1)
    disks.sections = {"renamed": Section("rocksdb-local")}

    with pytest.raises(ConfigError, match="was the section renamed"):
        disks.open()


def test_a_marker_only_elsewhere_is_a_mistake_of_the_configuration(disks):
    """Only a backend that the restore list does not name holds it: the error says which."""
    disks.changes = {"a": {"backup": ("second",), "restore": ("second",)}}
    committed(disks, 1)
    disks.changes = {"a": {"backup": ("main", "second"), "restore": ("main",)}}

    with pytest.raises(ConfigError, match="holds it in second"):
        disks.open()


@pytest.mark.parametrize("wiped", [False, True])
def test_another_serde_is_a_mistake_of_the_configuration(disks, wiped):
    """Bytes are never read by other rules than those by which they were written, from the local disk or a backend."""
    committed(disks, 1)
    disks.value = "str"
    if wiped:
        disks.state = "another disk"

    with pytest.raises(ConfigError, match=r"stores\.[ab]\.value"):
        disks.open()


def test_another_layout_is_a_mistake_of_the_configuration(disks):
    """More tasks place the keys elsewhere: both layouts are named."""
    disks.job = {"tasks": (TASK, "Partition 1")}
    committed(disks, 1)
    disks.job = {"tasks": (TASK, "Partition 1", "Partition 2")}

    with pytest.raises(ConfigError, match="2 tasks.*3 tasks"):
        disks.open()


@pytest.mark.parametrize(("before", "after"), [("memory", "rocksdb"), ("rocksdb", "memory")])
@pytest.mark.parametrize("wiped", [False, True], ids=["same-disk", "wiped"])
def test_a_store_moves_to_another_engine(disks, before, after, wiped):
    """It is filled entry by entry, deletes stay deleted, and from the next commit on its images are the new engine's."""
    disks.engine = before
    committed(disks, 2)
    disks.engine = after
    if wiped:
        disks.state = "another disk"

    assert expected(2) == disks.restored()
    committed(disks, 3)
    disks.state = "a third disk"
    assert expected(3) == disks.restored()


def test_a_store_on_another_engine_reaches_a_backend_that_lacks_it(disks):
    """A backend that reads entries is added in the same restart: it is served from an image of the new engine."""
    disks.sections.pop("second")
    committed(disks, 1)
    disks.engine, disks.sections["late"] = "rocksdb", Section("memory")

    task = disks.open()
    task.commit_now(30)

    disks.changes = {name: {"restore": ("late",)} for name in "ab"}
    disks.state = "another disk"
    assert expected(1) == disks.restored()


# ------------------------------------------------------------------------------------------ restore managers' bad days


def restoring(rig: Rig, fill) -> None:
    """Let *fill* stand in for every restore of the backend main."""

    class Filled:
        def init(self, checkpoint) -> None: ...
        def v1_markers(self, checkpoint) -> dict:
            return {}

        def close(self) -> None: ...
        def restore(self, target) -> None:
            fill(target)

    rig.config()
    rig.factories["main"]._inner.restore_manager = lambda task, stores: Filled()


def test_a_manager_that_adopts_garbage_is_found_out(disks):
    """Strange files without a manifest are no image: the next backend is asked."""
    committed(disks, 1)
    disks.state = "another disk"

    def garbage(target) -> None:
        (target.directory / "data.changes").write_bytes(b"garbage")
        target.adopt(verified=True)

    restoring(disks, garbage)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_a_manager_that_mixes_stores_up_is_found_out(disks):
    """A whole image of another store is refused by its manifest."""
    committed(disks, 1)
    disks.state = "another disk"
    others = {image.parent.name: image for image in images(disks.root / "backup main")}

    def mixed_up(target) -> None:
        shutil.copytree(others["b" if target.store == "a" else "a"], target.directory, dirs_exist_ok=True)
        target.adopt()

    restoring(disks, mixed_up)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_a_flipped_byte_is_found_by_adopt(disks):
    """A manager that did not verify while streaming has it done for it."""
    committed(disks, 1)
    disks.state = "another disk"
    whole = {image.parent.name: image for image in images(disks.root / "backup main")}

    def flipped(target) -> None:
        shutil.copytree(whole[target.store], target.directory, dirs_exist_ok=True)
        flip(target.directory / "data.changes")
        target.adopt(verified=False)

    restoring(disks, flipped)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)


def test_half_a_restore_leaves_nothing_behind(disks):
    """Records that were written before a failure are not part of what the next attempt, or the next backend, gives."""
    committed(disks, 1)
    disks.state = "another disk"
    tries = []

    def half(target) -> None:
        target.write([(b"stray", b"0")])
        tries.append(target.store)
        raise TransientError("reset") if tries.count(target.store) == 1 else StateNotFoundError("gone")

    restoring(disks, half)

    assert expected(1) == disks.restored() and {"a": "second", "b": "second"} == sources(disks)
    assert ["a", "a", "b", "b"] == sorted(tries)


def test_a_restore_that_writes_nothing_is_an_empty_store(disks):
    """The contract: a marker may name an empty store."""
    committed(disks, 1)
    disks.state = "another disk"
    restoring(disks, lambda target: None)

    assert (1, {"a": {}, "b": {}}) == disks.restored()


def test_a_restore_may_begin_from_an_older_local_image(disks):
    """`use_local` gives the state of this backend's own marker; what is written on top is the rest."""
    disks.retain = 3
    ids = committed(disks, 1)
    shutil.copytree(disks.root / "state", disks.root / "kept")
    committed(disks, 2)
    disks.state = "kept"
    used = []

    def on_top(target) -> None:
        used.append(target.local)
        target.use_local()
        target.write([(b"k002", b"2"), (b"last", b"2")])

    restoring(disks, on_top)

    assert expected(2) == disks.restored()
    assert 2 == len(used) and all(str(ids[1]) in local for local in used)


def test_a_newer_local_image_is_no_beginning(disks):
    """Going back in time, what the local disk has of later is not offered to begin from."""
    disks.retain = 3
    ids = committed(disks, 2)
    used = []

    def look(target) -> None:
        used.append(target.local)
        raise StateNotFoundError("asked for the local image only")

    restoring(disks, look)

    assert expected(0) == disks.restored(at=ids[0])
    assert [None, None] == used


def test_a_restore_that_hangs_ends_in_time(disks):
    """The opening raises when its time is over; the folder stays taken until the straggler is gone, then all is well."""
    committed(disks, 1)
    disks.state = "another disk"
    gate = disks.fault("main").hang("restore")
    job = disks.open_job()

    with pytest.raises(TransientError, match="did not end in time") as raised:
        job.open_task(TASK, timeout_s=0.2)
    with pytest.raises(TransientError, match="already open in this process"):
        job.open_task(TASK)

    assert "still at work" in "".join(raised.value.__notes__)
    gate.set()
    assert expected(1) == opened_at_last(disks)


def opened_at_last(rig: Rig) -> object:
    """Open the task as soon as its folder is free."""
    import time

    end = time.monotonic() + 30
    while True:
        try:
            return rig.restored()
        except TransientError:
            assert time.monotonic() < end
            threading.Event().wait(0.05)


def test_one_stores_failure_stops_the_others(disks):
    """The other store's restore is told at its next check, and its error is not the one that is raised."""
    committed(disks, 1)
    disks.state = "another disk"
    begun = threading.Event()

    def one_fails(target) -> None:
        if target.store == "a":
            begun.wait(30)
            raise FormatError("of a later release")
        begun.set()
        while True:
            target.check()
            threading.Event().wait(0.01)

    restoring(disks, one_fails)

    with pytest.raises(FormatError, match="later release"):
        disks.open()


def test_two_tasks_are_restored_side_by_side(disks):
    """Each is at work before the other has ended, and both are exact."""
    job = disks.open_job()
    for name, number in (("one", 3), ("two", 5)):
        with job.open_task(name) as task:
            task.store("a")["number"] = number
            task.processed(SOURCE, number)
    disks.close()
    disks.state = "another disk"
    gates = [disks.fault("main").hang("restore") for _ in range(4)]
    job = disks.open_job()
    found: dict[str, object] = {}

    def opening(name: str) -> None:
        task = job.open_task(name)
        found[name] = (offset_of(task), task.store("a")["number"])

    threads = [threading.Thread(target=opening, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    disks.fault("main").await_call("restore", 4)
    for gate in gates:
        gate.set()
    for thread in threads:
        thread.join(30)

    assert {"one": (3, 3), "two": (5, 5)} == found


def test_a_restore_races_the_old_owners_clean_up(disks):
    """The old owner still tidies when its successor has restored and committed twice: nothing that is named goes."""
    disks.sections.pop("second")
    task = disks.open()
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    idle(task)
    gate = disks.fault("main").hang("cleanup")
    cleaned = disks.fault("main").calls["cleanup"]
    last = task.commit().result(30)
    disks.fault("main").await_call("cleanup", cleaned + 1)
    other = Rig(disks.root, disks.clock, name=disks.name, sections=disks.sections, state="state of another machine")
    successor = other.open()
    for number in (2, 3):
        write(successor, number, "a")
        idle(successor).commit_now(30)

    gate.set()
    idle(task)

    assert last == task.last
    disks.close()
    other.state = "a third machine"
    offset, stores = other.restored()
    assert (3, expected(3)[1]["a"], expected(1)[1]["b"]) == (offset, stores["a"], stores["b"])
