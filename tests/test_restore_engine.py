"""Restores: exactly what the checkpoint says, from the nearest place that still has it, or an error."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest
from attrs import evolve
from engines import (
    TASK,
    Section,
    committed,
    damage,
    expected,
    flip,
    images,
    offset_of,
    sources,
    state_of,
)

from millpond.errors import (
    ConfigError,
    FormatError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.events import (
    MarkerIgnored,
    Quarantined,
    RestoreFailedOver,
    StoreIsNew,
)
from millpond.stores.memory import MemoryEngine
from millpond.testing.faults import Fault


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


def test_a_second_pass_asks_again_where_the_record_names_no_images(disks, monkeypatch):
    """An image that its engine cannot open is fetched again, beside one that was restored well the first time."""
    committed(disks, 2)
    disks.state = "another state"
    engine = disks.config().stores["b"].engine_class
    opened, refused = engine.open.__func__, []

    def refuse_once(cls, directory, store, *, read_only=False):
        if store.name == "b" and "live-" in str(directory) and not refused:
            refused.append(directory)
            raise StateCorruptError("a block of it is damaged")
        return opened(cls, directory, store, read_only=read_only)

    monkeypatch.setattr(engine, "open", classmethod(refuse_once))
    disks.records.add("read_last", Fault(instead=lambda record: evolve(record, images={})))
    disks.records.add("read_last", Fault(instead=lambda record: evolve(record, images={})))

    assert expected(2) == disks.restored()
    assert 1 == len(refused)


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


def test_another_serde_is_noticed_where_records_are_written_back(rig):
    """A backend that keeps keys and values has no manifest: the checkpoint says by which rules they were written."""
    committed(rig, 1)
    rig.state = "another disk"
    rig.value = "str"

    with pytest.raises(ConfigError, match=r"stores\.[ab]\.value"):
        rig.open()

    rig.value = "json"
    assert expected(1) == rig.restored()


def test_a_time_to_live_that_is_added_later_is_noticed(rig):
    """The values were written without an end: they are not read as if they had one, and the mend names the setting."""
    committed(rig, 1)
    rig.state = "another disk"
    rig.changes = {"a": {"ttl": timedelta(hours=1)}}

    with pytest.raises(ConfigError, match=r"set stores\.a\.ttl back"):
        rig.open()


def test_another_layout_is_a_mistake_of_the_configuration(disks):
    """More tasks place the keys elsewhere: both layouts are named."""
    disks.job = {"tasks": (TASK, "Partition 1")}
    committed(disks, 1)
    disks.job = {"tasks": (TASK, "Partition 1", "Partition 2")}

    with pytest.raises(ConfigError, match=r"2 tasks.*3 tasks"):
        disks.open()


@pytest.mark.parametrize(("before", "after"), [("memory", "rocksdb"), ("rocksdb", "memory")])
@pytest.mark.parametrize("wiped", [False, True], ids=["same-disk", "wiped"])
def test_a_store_moves_to_another_engine(disks, before, after, wiped):
    """It is filled entry by entry, and from the next commit on its images are the new engine's."""
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
