"""Stored states: their layout, their seal, what Heron wrote, whole checkpoints, and what a clean removes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from heron_servers import COUNT0, COUNT1, NAME, SAY0, TOPOLOGY, key
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.blob import BlobStore, BytesBody
from millpond.blob.memory import MemoryBlobStore
from millpond.errors import ConfigError, StateCorruptError, StateNotFoundError, TransientError
from millpond.heron import whole
from millpond.heron.checkpoints import CleanedCheckpointError
from millpond.heron.folder import FolderStore
from millpond.heron.ids import next_id, number_order, text_order
from millpond.heron.messages import message
from millpond.heron.names import LONGEST_NAME, OWN, NameRefusedError, StateKey, name_of, segment
from millpond.heron.plan import Plan, read_plan
from millpond.heron.retention import cleaned_by, outnumbered
from millpond.heron.rules import StateRules
from millpond.heron.scratch import Scratch, Spool
from millpond.heron.sealed import LEAD, SEAL_SIZE, Seal, peek, seal, unseal
from millpond.heron.states import StateStore

PLAN: Plan = read_plan(TOPOLOGY.plan())
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def stored(checkpoint: str, state: bytes | None) -> bytes:
    """Give what Heron itself stores."""
    made = message("InstanceStateCheckpoint")(checkpoint_id=checkpoint)
    if state is not None:
        made.state = state
    return bytes(made.SerializeToString())


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    """A scratch folder for stores that have none of their own."""
    made = Scratch(tmp_path / "scratch")
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[FolderStore]:
    """An empty folder."""
    made = FolderStore(tmp_path / "states")
    yield made
    made.close()


def states_in(blobs: BlobStore, scratch: Scratch, also: tuple[BlobStore, ...] = (), **rules: object) -> StateStore:
    return StateStore(blobs, scratch, StateRules(**rules), also)  # type: ignore[arg-type]


# The stored form


@settings(max_examples=60, deadline=None)
@given(state=st.none() | st.binary(max_size=300), checkpoint=names, component=names, index=st.integers(-1, 9))
def test_heron_reads_what_we_store(state: bytes | None, checkpoint: str, component: str, index: int):
    """Heron's own parser finds the id and the state in a sealed file, and so do we."""
    place = StateKey(NAME, checkpoint, component, index)
    data, _ = seal(place, state)
    read = message("InstanceStateCheckpoint").FromString(data)

    assert read.checkpoint_id == checkpoint
    assert read.HasField("state") == (state is not None)
    assert read.state == (state or b"")
    assert unseal(data, place, "", unsealed_too=False)[0] == state
    assert peek(data[:SEAL_SIZE], data[-SEAL_SIZE:]) == unseal(data, place, "", unsealed_too=False)[1]


@settings(max_examples=60, deadline=None)
@given(state=st.none() | st.binary(max_size=100), checkpoint=names)
def test_we_read_what_heron_stores_where_it_has_stored(state: bytes | None, checkpoint: str):
    """A file without a seal is read where the operator says that Heron wrote some, and refused elsewhere."""
    place, data = StateKey(NAME, checkpoint, "c", 0), stored(checkpoint, state)

    assert unseal(data, place, "", unsealed_too=True) == (state, Seal(None if state is None else len(state), ""))
    with pytest.raises(StateCorruptError, match="no seal"):
        unseal(data, place, "", unsealed_too=False)


@settings(max_examples=150, deadline=None)
@given(state=st.none() | st.binary(max_size=60), at=st.integers(0, 10_000), bit=st.integers(0, 7), legacy=st.booleans())
def test_every_flipped_bit_is_found(state: bytes | None, at: int, bit: int, legacy: bool):
    """A sealed file with any one bit changed is damaged, also where files without a seal are accepted."""
    place = StateKey(NAME, "7-1", "c", 0)
    data = bytearray(seal(place, state)[0])
    at %= len(data)
    data[at] ^= 1 << bit
    if legacy and at < len(LEAD):
        return  # what does not begin as ours is read as Heron's: its seal is then a field that nobody knows
    with pytest.raises(StateCorruptError):
        unseal(bytes(data), place, "", unsealed_too=legacy)


@settings(max_examples=60, deadline=None)
@given(state=st.none() | st.binary(max_size=60), cut=st.integers(1, 10_000))
def test_every_cut_is_found(state: bytes | None, cut: int):
    """A sealed file that is cut anywhere is damaged; Heron takes one that is cut behind its id for "no state"."""
    place = StateKey(NAME, "7-1", "c", 0)
    data, _ = seal(place, state)
    for legacy in (False, len(data) - cut % len(data) >= len(LEAD)):
        with pytest.raises(StateCorruptError):
            unseal(data[: len(data) - cut % len(data) - 1], place, "", unsealed_too=legacy and cut < len(data) - 6)


@pytest.mark.parametrize(
    "other", [StateKey(NAME, "7-2", "c", 0), StateKey(NAME, "7-1", "d", 0), StateKey(NAME, "7-1", "c", 1)]
)
def test_a_file_in_another_ones_place_is_found(other: StateKey):
    """A sealed file is refused under another checkpoint, another component and another index."""
    data, _ = seal(StateKey(NAME, "7-1", "c", 0), b"state")

    with pytest.raises(StateCorruptError):
        unseal(data, other, "", unsealed_too=False)


@pytest.mark.parametrize("data", [b"", b"\x0a\x037-1\x12\xff", b"\xff" * 30, b"\x12\x01a", stored("7-1", b"a") * 2])
def test_what_is_no_state_is_damage(data: bytes):
    """Empty, cut and random files, one without an id and one with two states are damage, never "no state"."""
    with pytest.raises(StateCorruptError):
        unseal(data, StateKey(NAME, "7-1", "c", 0), "", unsealed_too=True)


# Names


@settings(max_examples=60, deadline=None)
@given(one=names, two=names)
def test_names_are_reversible_and_lead_nowhere(one: str, two: str):
    """A name's part of a path gives the name back, is one part, is not hidden, and is nobody else's."""
    for name in (one, two):
        try:
            part = segment(name)
        except NameRefusedError:
            assert len(name.encode()) * 3 >= LONGEST_NAME
            return
        assert name_of(part) == name
        assert part not in ("", ".", "..", OWN)
        assert not set(part) & set("/\\\0 ")
        assert len(part) <= LONGEST_NAME
    assert (segment(one) == segment(two)) == (one == two)


def test_plain_names_stay_as_heron_writes_them():
    """Heron's usual names make Heron's own path: root, topology, checkpoint, component, index."""
    assert (
        StateKey("word-count", "1717000000-1717", "count.v2_b", 12).path == "word-count/1717000000-1717/count.v2_b/12"
    )


@pytest.mark.parametrize("name", ["..", ".", "../../etc", "/etc/passwd", "a/../../b", "a\0b", "", ".hidden", "%2e%2e"])
def test_no_name_leaves_the_folder(folder: FolderStore, tmp_path: Path, name: str):
    """A state under a name with slashes, dots or zeros lies in its topology's folder, and comes back."""
    states = states_in(folder, folder.scratch)
    place = StateKey(NAME, "7-1", name, 0)
    states.save(place, b"inside")

    assert states.fetch(place).data == b"inside"
    (made,) = [path for path in (tmp_path / "states" / NAME).rglob("*") if path.is_file()]
    assert len(made.relative_to(tmp_path / "states").parts) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["states"]


def test_a_symbolic_link_does_not_lead_out(folder: FolderStore, tmp_path: Path):
    """A component's folder that is a link to elsewhere is refused: nothing is read or written behind it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "states" / NAME / "7-1").mkdir(parents=True)
    (tmp_path / "states" / NAME / "7-1" / "count").symlink_to(outside)
    states = states_in(folder, folder.scratch)

    with pytest.raises(ConfigError, match="leads out"):
        states.save(key(COUNT0, "7-1"), b"x")
    assert list(outside.iterdir()) == []


# What Heron wrote


def heron_writes(root: Path, checkpoint: str, component: str, index: int, state: bytes | None) -> None:
    path = root / NAME / checkpoint / component / str(index)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stored(checkpoint, state))


@pytest.mark.parametrize("size", [0, 5, 3_000_000])
def test_herons_local_files_are_found(folder: FolderStore, tmp_path: Path, size: int):
    """States that Heron's local storage wrote, small, empty and large ones, are read as they are."""
    heron_writes(tmp_path / "states", "7-1", "count", 0, b"h" * size)
    states = states_in(folder, folder.scratch, unsealed_too=True)

    found = states.fetch(key(COUNT0, "7-1"))
    assert b"".join(found.chunks(1 << 20)) == b"h" * size
    assert found.seal == Seal(size, "")
    found.close()


@pytest.mark.parametrize("component", ["word count", "a/b", "zählen", "x~y"])
def test_herons_names_are_found_as_they_are(folder: FolderStore, tmp_path: Path, component: str):
    """A state under a name that we write otherwise is found where Heron put it, and cleaned from there."""
    heron_writes(tmp_path / "states", "7-1", component, 3, b"old")
    states = states_in(folder, folder.scratch, unsealed_too=True)
    place = StateKey(NAME, "7-1", component, 3)

    assert states.fetch(place).data == b"old"
    states.save(place, b"new")
    assert states.fetch(place).data == b"new"
    assert states.clean_all(NAME) == ["7-1"]
    assert not (tmp_path / "states" / NAME).exists()


def test_herons_layout_is_read_over_another_file_system_too(tmp_path: Path, scratch: Scratch):
    """The layout that Heron's HDFS storage writes is read through fsspec's stores, as the HDFS driver is one."""
    opening = pytest.importorskip("millpond_fsspec.opening")
    heron_writes(tmp_path / "hdfs", "7-1", "count", 0, b"h" * 700_000)
    blobs = opening.open_store((tmp_path / "hdfs").as_uri())
    states = states_in(blobs, scratch, unsealed_too=True)

    found = states.fetch(key(COUNT0, "7-1"))
    assert b"".join(found.chunks(1 << 20)) == b"h" * 700_000
    found.close()
    states.save(key(COUNT0, "7-2"), b"ours")
    assert states.checkpoints(NAME) == ["7-1", "7-2"]
    assert states.clean(NAME, "7-2") == ["7-1"]
    blobs.close()


def test_a_name_that_the_file_system_cannot_be_asked_for_is_told(tmp_path: Path, scratch: Scratch):
    """Where fsspec would read a name as a pattern, the get says where the state is, and a clean takes all others."""
    opening = pytest.importorskip("millpond_fsspec.opening")
    for component in ("count", "what?"):
        heron_writes(tmp_path / "hdfs", "7-1", component, 0, b"old")
        heron_writes(tmp_path / "hdfs", "7-2", component, 0, b"old")
    blobs = opening.open_store((tmp_path / "hdfs").as_uri())
    states = states_in(blobs, scratch, unsealed_too=True)

    with pytest.raises(StateNotFoundError, match=r"Heron would have it at 'word-count/7-1/what\?/0'"):
        states.fetch(StateKey(NAME, "7-1", "what?", 0))
    with pytest.raises(ConfigError, match="is no key of an object"):
        states.clean(NAME, "7-2")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("0")) == [
        f"hdfs/{NAME}/7-1/what?/0",
        f"hdfs/{NAME}/7-2/count/0",
        f"hdfs/{NAME}/7-2/what?/0",
    ]
    blobs.close()


def test_older_states_are_looked_for_elsewhere(folder: FolderStore, tmp_path: Path, scratch: Scratch):
    """A topology that moved finds the states of its old folder, writes to the new store, and leaves the old alone."""
    heron_writes(tmp_path / "states", "7-1", "count", 0, b"old")
    states = states_in(MemoryBlobStore(), scratch, also=(folder,))
    states.save(key(COUNT0, "7-2"), b"new")

    assert states.fetch(key(COUNT0, "7-1")).data == b"old"
    assert states.fetch(key(COUNT0, "7-2")).data == b"new"
    assert states.clean(NAME, "7-2") == []
    assert (tmp_path / "states" / NAME / "7-1" / "count" / "0").exists()
    with pytest.raises(StateNotFoundError):
        states.fetch(key(COUNT0, "7-3"))


# The folder


def test_a_state_in_a_folder_is_whole_or_not_at_all(folder: FolderStore, tmp_path: Path):
    """While a state is overwritten again and again, every reader gets one of the written ones, whole."""
    states, place, stop = states_in(folder, folder.scratch), key(COUNT0, "7-1"), threading.Event()
    states.save(place, b"0" * 50_000)

    def write() -> None:
        for number in range(25):
            states.save(place, str(number % 10).encode() * 50_000)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        data = states.fetch(place).data
        assert data is not None
        assert len(set(data)) == 1
    writer.join()
    assert not list((tmp_path / "states").rglob("*.new*"))


def test_what_was_fetched_stays_when_it_is_overwritten(folder: FolderStore):
    """A large state that is being sent is the one that was verified, though its key is overwritten and cleaned."""
    states, place = states_in(folder, folder.scratch), key(COUNT0, "7-1")
    states.save(place, b"a" * 1_000_000)
    found = states.fetch(place)
    states.save(place, b"b" * 1_000_000)
    states.clean_all(NAME)

    assert b"".join(found.chunks(1 << 16)) == b"a" * 1_000_000
    found.close()


def test_saves_and_cleans_race_in_one_folder(folder: FolderStore):
    """A save whose folder a clean removes in the same moment is stored all the same."""
    states = states_in(folder, folder.scratch, refuse_cleaned=False)
    stop, errors = threading.Event(), []

    def clean() -> None:
        while not stop.is_set():
            try:
                states.clean_all(NAME)
            except TransientError:
                pass  # what was saved meanwhile is still there
            except Exception as error:
                errors.append(error)

    cleaner = threading.Thread(target=clean)
    cleaner.start()
    for _ in range(60):
        states.save(key(COUNT0, "7-1"), b"x")
    stop.set()
    cleaner.join()
    states.save(key(COUNT0, "7-1"), b"x")

    assert errors == []
    assert states.fetch(key(COUNT0, "7-1")).data == b"x"


def test_scratch_folders_of_dead_processes_go(tmp_path: Path):
    """A scratch folder whose process is gone is removed by the next one, and that of a living one stays."""
    dead, alive = Scratch(tmp_path / "s"), Scratch(tmp_path / "s")
    dead.new_path().write_bytes(b"left")
    dead._lock.release()

    third = Scratch(tmp_path / "s")

    assert not dead.folder.exists()
    assert alive.folder.exists()
    for each in (alive, third):
        each.close()
    assert list((tmp_path / "s").iterdir()) == []


def test_a_spooled_state_is_moved_and_not_copied(folder: FolderStore, tmp_path: Path):
    """A large state that was spooled on the same disk keeps its file when it is stored."""
    states, place = states_in(folder, folder.scratch), key(COUNT0, "7-1")
    spool = Spool(folder.scratch.new_path(), 3)
    spool.add([b"abc"])
    inode = spool.path.stat().st_ino
    states.save_spooled(place, spool)

    assert (tmp_path / "states" / place.path).stat().st_ino == inode
    assert [path.name for path in folder.scratch.folder.iterdir()] == ["LOCK"]


def test_a_save_that_fails_leaves_no_spool(scratch: Scratch):
    """Whatever a store raises, the spooled file is gone afterwards."""
    blobs = MemoryBlobStore()
    blobs.before = fail_put
    spool = Spool(scratch.new_path(), 3)
    spool.add([b"abc"])

    with pytest.raises(TransientError):
        states_in(blobs, scratch).save_spooled(key(COUNT0, "7-1"), spool)
    assert [path.name for path in scratch.folder.iterdir()] == ["LOCK"]


def fail_put(verb: str, _key: str) -> None:
    if verb == "put":
        raise TransientError("the store is away")


# Whole checkpoints


def save_all(states: StateStore, checkpoint: str) -> None:
    for instance in (COUNT0, COUNT1, SAY0):
        states.save(key(instance, checkpoint), checkpoint.encode(), PLAN)


def test_a_checkpoint_is_whole_when_its_last_instance_is_saved(scratch: Scratch):
    """No checkpoint is whole before the last instance of the last stream manager, and its notes say all of it then."""
    states = states_in(MemoryBlobStore(), scratch)
    for instance in (COUNT0, SAY0):
        states.save(key(instance, "7-1"), b"x", PLAN)
        assert not states.is_whole(NAME, "7-1")
    states.save(key(COUNT1, "7-1"), b"x", PLAN)

    assert states.is_whole(NAME, "7-1")
    parts = {part.stmgr: part for part in states.parts(NAME, "7-1")}
    assert set(parts) == {"stmgr-1", "stmgr-2"}
    assert set(parts["stmgr-1"].states) == {("count", 0), ("count", 1)}
    assert parts["stmgr-2"].states[("say", 0)].size == 1
    assert states.components(NAME) == {"count": 2, "say": 1}


def test_a_restarted_server_knows_what_was_saved_before(scratch: Scratch):
    """A checkpoint of which one process saved a part and the next one the rest is whole, with the right sizes."""
    blobs = MemoryBlobStore()
    states_in(blobs, scratch).save(key(COUNT0, "7-1"), b"before", PLAN)
    after = states_in(blobs, scratch)
    after.save(key(COUNT1, "7-1"), b"x", PLAN)
    after.save(key(SAY0, "7-1"), b"x", PLAN)

    assert after.is_whole(NAME, "7-1")
    (part,) = (part for part in after.parts(NAME, "7-1") if part.stmgr == "stmgr-1")
    assert part.states[("count", 0)].size == len(b"before")
    assert part.states[("count", 0)] == after.fetch(key(COUNT0, "7-1")).seal


def test_a_note_is_read_back_and_damage_is_found(scratch: Scratch):
    """A note about a part gives back what was written, and a changed byte in it is damage."""
    part = whole.Part("7-1", "s", ("s", "t"), {"c": 2}, {("c", 0): Seal(3, "ab"), ("c", 1): Seal(None, "")})
    data = whole.encode(part)

    assert whole.decode(data) == part
    assert not whole.are_whole([part])
    with pytest.raises(StateCorruptError):
        whole.decode(data[:-1] + b"?")


def test_a_note_that_cannot_be_written_fails_the_save(scratch: Scratch):
    """The save that would complete a part is not answered with OK while the part has no note."""
    blobs = MemoryBlobStore()
    blobs.before = lambda verb, name: fail_put(verb, name) if name.startswith(f"{OWN}/") else None
    states = states_in(blobs, scratch)
    states.save(key(COUNT0, "7-1"), b"x", PLAN)

    with pytest.raises(TransientError):
        states.save(key(COUNT1, "7-1"), b"x", PLAN)


# Cleaning and keeping


def test_a_late_save_for_a_cleaned_checkpoint_is_refused(scratch: Scratch):
    """After a clean nothing can be saved for what it removed, and a save that was under way then is undone."""
    blobs = MemoryBlobStore()
    states = states_in(blobs, scratch)
    save_all(states, "7-1")
    states.clean(NAME, "7-2")
    with pytest.raises(CleanedCheckpointError):
        states.save(key(COUNT0, "7-1"), b"late")

    states.save(key(COUNT0, "8-1"), b"first")
    blobs.after = lambda verb, name: (
        states.clean(NAME, "8-2") and None if (verb, "8-1" in name) == ("put", True) else None
    )
    with pytest.raises(CleanedCheckpointError):
        states.save(key(COUNT1, "8-1"), b"under way")
    assert states.checkpoints(NAME) == []


def test_a_clean_takes_the_notes_first(scratch: Scratch):
    """A clean that fails half-way leaves no checkpoint that looks whole, and the next one finishes it."""
    blobs = MemoryBlobStore()
    states = states_in(blobs, scratch)
    save_all(states, "7-1")

    def fail_state(verb: str, name: str) -> None:
        if verb == "delete" and not name.startswith(OWN):
            raise TransientError("gone away")

    blobs.before = fail_state
    with pytest.raises(TransientError):
        states.clean_all(NAME)
    assert not states.is_whole(NAME, "7-1")
    assert states.checkpoints(NAME) == ["7-1"]
    blobs.before = lambda verb, name: None
    assert states.clean_all(NAME) == ["7-1"]


def test_a_clean_that_leaves_something_says_so(scratch: Scratch):
    """A store that answers a removal and removes nothing is found out by a second look."""
    blobs = MemoryBlobStore()
    states = states_in(blobs, scratch)
    states.save(key(COUNT0, "7-1"), b"x")
    blobs.delete = lambda keys: None  # type: ignore[method-assign]

    with pytest.raises(TransientError, match="still there"):
        states.clean_all(NAME)


def test_a_clean_of_nothing_is_fine(folder: FolderStore):
    """Cleaning a topology that never saved anything removes nothing, and is no error."""
    states = states_in(folder, folder.scratch)

    assert states.clean(NAME, "9-1") == states.clean_all(NAME) == []


def test_stray_files_are_no_checkpoints(folder: FolderStore, tmp_path: Path):
    """A file beside the checkpoints counts as none: a clean leaves it, and retention does not see it."""
    states = states_in(folder, folder.scratch)
    states.save(key(COUNT0, "7-1"), b"x")
    (tmp_path / "states" / NAME / "0-README").write_text("hello")

    assert states.checkpoints(NAME) == ["7-1"]
    assert states.clean(NAME, "9-9") == ["7-1"]
    assert (tmp_path / "states" / NAME / "0-README").exists()


def test_keeping_counts_whole_checkpoints_only(scratch: Scratch):
    """With two to keep, two whole ones stay through any number of attempts, and older ones and attempts go."""
    clock = iter(range(1_000_000))
    states = states_in(MemoryBlobStore(lambda: next(clock)), scratch, keep=2)
    save_all(states, "1-1")
    for number in range(2, 14):
        states.save(key(COUNT0, f"{number}-1"), b"attempt", PLAN)
    assert states.is_whole(NAME, "1-1")
    save_all(states, "20-1")
    save_all(states, "21-1")

    assert states.checkpoints(NAME) == ["20-1", "21-1"]


ids = st.builds("{}-{}".format, st.integers(0, 30), st.integers(0, 300)) | names


@settings(max_examples=60, deadline=None)
@given(found=st.dictionaries(ids, st.integers(0, 5)), oldest=ids)
def test_cleans_by_text_are_herons(found: dict[str, int], oldest: str):
    """With ids as texts, and nothing but them, exactly the ids before the named one go."""
    gone = cleaned_by(found, oldest, text_order, by_age_too=False)

    assert set(gone) == {id for id in found if oldest and id.encode("utf-16-be") < oldest.encode("utf-16-be")}


@settings(max_examples=60, deadline=None)
@given(found=st.dictionaries(ids, st.integers(0, 5)), oldest=ids)
def test_no_clean_takes_what_is_newer(found: dict[str, int], oldest: str):
    """A clean never takes the named checkpoint, nor one whose numbers are larger, nor one that was written later."""
    for id in cleaned_by(found, oldest, number_order, by_age_too=True):
        assert id != oldest
        assert number_order(id) < number_order(oldest)
        assert found[id] <= found.get(oldest, 99)


@settings(max_examples=50, deadline=None)
@given(found=st.dictionaries(ids, st.integers(0, 5)), keep=st.integers(1, 4), data=st.data())
def test_keeping_never_takes_the_newest_whole_ones(found: dict[str, int], keep: int, data: st.DataObject):
    """Of the whole checkpoints the newest stay, and nothing goes while there are fewer than are to be kept."""
    complete = data.draw(st.sets(st.sampled_from(sorted(found)))) if found else set()
    gone = outnumbered(found, complete, keep, number_order)

    assert not set(gone) & set(sorted(complete, key=number_order)[-keep:])
    assert not gone or len(complete) >= keep


@settings(max_examples=60, deadline=None)
@given(
    known=st.lists(st.builds("{}-{}".format, st.integers(0, 10**19 - 1), st.integers(0, 10**10 - 1))),
    millis=st.integers(0, 10**13),
)
def test_a_new_id_is_after_all_others(known: list[str], millis: int):
    """Whatever the clock says, a new id is greater than those before it, as a number, and as a text among its like."""
    first = next_id(known, millis)
    second = next_id([*known, first], 0)

    assert all(number_order(id) < number_order(first) for id in known)
    assert number_order(first) < number_order(second)
    assert text_order(first) < text_order(second)


def test_saves_sync_before_they_return(folder: FolderStore, monkeypatch: pytest.MonkeyPatch):
    """A state in a folder is synced as a file, and its name in its folder, before the save returns."""
    synced: list[str] = []
    real = os.fsync

    def watch(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    folder.put(key(COUNT0, "7-1").path, BytesBody(b"x"))

    assert str(folder.scratch.folder) in synced[0] or any(str(folder.scratch.folder) in each for each in synced)
    assert synced[-1].endswith("/word-count/7-1/count")
