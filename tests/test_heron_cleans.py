"""Cleans and saves of one topology at the same time: a clean harms no save but those of what it cleans."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from heron_servers import COUNT0, COUNT1, NAME, REQID, SAY0, TIMEOUT_S, TOPOLOGY, key, save_packet, serving

from millpond.blob import BytesBody
from millpond.blob.memory import MemoryBlobStore
from millpond.errors import ConfigError, TransientError
from millpond.heron import events, folder, peers, whole
from millpond.heron.folder import FolderStore
from millpond.heron.messages import NOTOK, OK
from millpond.heron.peers import Instance, Topology
from millpond.heron.rules import StateRules


class Rival:
    """Removes files of another checkpoint, on a thread of its own, whenever a folder of the store is made."""

    def __init__(self, store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.threads = store, list[threading.Thread]()
        self._mkdir = Path.mkdir

        def mkdir(path: Path, *given: Any, **more: Any) -> None:
            if path.parent == store.root / NAME and threading.current_thread() not in self.threads:
                self._remove_another()
            self._mkdir(path, *given, **more)

        monkeypatch.setattr(Path, "mkdir", mkdir)

    def _remove_another(self) -> None:
        other = self.store.root / NAME / "0-1"
        if not other.exists():
            self._mkdir(other)
        (other / "file").write_bytes(b"x")
        thread = threading.Thread(target=self.store.delete, args=([f"{NAME}/0-1/file"],))
        self.threads.append(thread)
        thread.start()
        thread.join(0.2)  # it ends at once where nothing keeps it from taking the folder away

    def join(self) -> None:
        for thread in self.threads:
            thread.join(TIMEOUT_S)


def test_a_removal_takes_no_folder_from_under_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A topology's folder that a clean finds empty stays while a save makes another checkpoint's folder in it."""
    store = FolderStore(tmp_path)
    rival = Rival(store, monkeypatch)
    try:
        assert store.put(f"{NAME}/9-9/count/0", BytesBody(b"mine"))
    finally:
        rival.join()
        store.close()

    assert rival.threads
    assert store.get(f"{NAME}/9-9/count/0") == b"mine"
    assert [path.name for path in (tmp_path / NAME).iterdir()] == ["9-9"]


@pytest.mark.parametrize("losses", [3, 100], ids=["now and then", "always"])
def test_another_process_that_removes_folders_costs_a_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: int):
    """A folder that another process removes is made again; a save gives up, and says why, only if that never ends."""
    store = FolderStore(tmp_path)
    left, sync = [losses], folder.fsync_directory

    def lose(path: Path) -> None:
        sync(path)
        if path == tmp_path / NAME and left[0]:
            left[0] -= 1
            (path / "9-9").rmdir()

    monkeypatch.setattr(folder, "fsync_directory", lose)
    if losses > 10:
        with pytest.raises(TransientError, match="it is gone"):
            store.put(f"{NAME}/9-9/count/0", BytesBody(b"mine"))
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [store.scratch.folder / "LOCK"]
    else:
        store.put(f"{NAME}/9-9/count/0", BytesBody(b"mine"))
        assert store.get(f"{NAME}/9-9/count/0") == b"mine"
    store.close()


def test_a_file_where_a_folder_must_be_is_told(tmp_path: Path):
    """A file with the name of a checkpoint makes its saves a ConfigError, and they do not try for ever."""
    store = FolderStore(tmp_path)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "9-9").write_bytes(b"in the way")
    with pytest.raises(ConfigError, match="a file is where a folder must be"):
        store.put(f"{NAME}/9-9/count/0", BytesBody(b"mine"))
    store.close()


def test_every_folder_on_the_way_is_durable_before_a_save_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also a folder that another save has made and not synced yet is synced before this one is answered."""
    store, synced = FolderStore(tmp_path), list[Path]()
    (tmp_path / NAME / "9-9" / "count").mkdir(parents=True)  # as a save of another process has just done
    sync = folder.fsync_directory
    monkeypatch.setattr(folder, "fsync_directory", lambda path: (synced.append(path), sync(path)))
    store.put(f"{NAME}/9-9/count/0", BytesBody(b"mine"))
    first, synced[:] = list(synced), []
    store.put(f"{NAME}/9-9/count/1", BytesBody(b"mine"))
    store.close()

    place = tmp_path / NAME / "9-9" / "count"
    assert first == [tmp_path, tmp_path / NAME, tmp_path / NAME / "9-9", place]
    assert synced == [place]


def test_cleans_beside_saves_fail_none_of_them(tmp_path: Path):
    """While one client saves to old checkpoints and cleans them, every save of another to a newer one is OK."""
    alone = Topology(TOPOLOGY.name, TOPOLOGY.id, (COUNT0,))
    stop = threading.Event()
    with serving(tmp_path, FolderStore(tmp_path / "states")) as served, served.stmgr(topology=alone) as mine:
        old = served.raw()

        def save_and_clean() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                old.send(save_packet(SAY0, f"0-{number}", b"x") + peers.clean(f"0-{number + 1}", REQID))
                assert old.answer()[0] == "SaveInstanceStateResponse"
                assert old.answer()[2].status.status == OK

        cleaner = threading.Thread(target=save_and_clean)
        cleaner.start()
        try:
            for number in range(40):
                assert mine.save({COUNT0: b"%d" % number}, f"9-{number}") == {COUNT0}, served.ear.of(
                    events.RequestFailed
                )
                assert mine.restore(f"9-{number}") == {COUNT0: b"%d" % number}
        finally:
            stop.set()
            cleaner.join(TIMEOUT_S)
        assert not served.ear.of(events.RequestFailed)


class Interleaved(MemoryBlobStore):
    """A store in which a save of *late* is put right after a clean has removed what it saw, and before it looks."""

    def __init__(self, late: str) -> None:
        super().__init__()
        self.begun, self.removed, self.put_again, self.looked = (threading.Event() for _ in range(4))
        self._late = late
        self.before, self.after = self._before, self._after

    def _before(self, verb: str, name: str) -> None:
        if (verb, name) == ("put", self._late):
            self.begun.set()
            assert self.removed.wait(TIMEOUT_S)
        if (verb, name) == ("delete", self._late):
            self.looked.set()

    def _after(self, verb: str, name: str) -> None:
        if (verb, name) == ("put", self._late):
            self.put_again.set()
            assert self.looked.wait(TIMEOUT_S)
        if verb == "delete" and name and not self.removed.is_set():
            self.removed.set()
            assert self.put_again.wait(TIMEOUT_S)


def test_a_save_that_comes_in_between_is_refused_and_the_clean_is_right(tmp_path: Path):
    """A save that was at work when its checkpoint was cleaned is NOTOK, leaves nothing, and does not fail the clean."""
    blobs = Interleaved(key(COUNT1, "1-1").path)
    with serving(tmp_path, blobs) as served, served.stmgr() as stmgr, served.coordinator() as coordinator:
        served.states.instant = False
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}
        late = stmgr.begin_save(COUNT1, "1-1", b"late")
        assert blobs.begun.wait(TIMEOUT_S)
        answer = coordinator.clean("1-2")
        blobs.looked.set()
        refused = stmgr.answer(late).message.status

        assert (answer.status.status, list(answer.cleaned_checkpoint_ids)) == (OK, ["1-1"]), answer
        assert (refused.status, "has been cleaned" in refused.message) == (NOTOK, True)
        assert served.states.checkpoints(NAME) == []


# What a node keeps by itself


def fill(served: Any, numbers: range) -> None:
    """Make whole checkpoints."""
    with served.stmgr() as one, served.stmgr("stmgr-2") as two:
        for number in numbers:
            assert one.save({COUNT0: b"x", COUNT1: b"x"}, f"1-{number}") == {COUNT0, COUNT1}
            assert two.save({SAY0: b"x"}, f"1-{number}") == {SAY0}


def test_old_checkpoints_that_cannot_be_removed_fail_no_save(tmp_path: Path):
    """Saves are OK while the store removes nothing, an event says why, and the next one removes what is too much."""
    blobs, refuse = MemoryBlobStore(), threading.Event()

    def fail(verb: str, _name: str) -> None:
        if verb == "delete" and refuse.is_set():
            raise TransientError("the store removes nothing today")

    blobs.before = fail
    with serving(tmp_path, blobs, StateRules(keep=1)) as served:
        refuse.set()
        fill(served, range(3))
        assert "nothing today" in str(served.ear.of(events.RetentionFailed)[0].error)
        refuse.clear()
        fill(served, range(3, 5))
        assert served.states.checkpoints(NAME) == ["1-4"]


def test_a_damaged_note_fails_no_save_of_another_checkpoint(tmp_path: Path):
    """A checkpoint with a damaged note counts as one that is not whole; saves of others are OK, and old ones go."""
    blobs = MemoryBlobStore()
    with serving(tmp_path, blobs, StateRules(keep=2)) as served:
        fill(served, range(1))
        note = f"{whole.prefix(NAME, '1-0')}stmgr-1"
        blobs.objects[note] = (blobs.objects[note][0][:-1] + b"?", 0)
        fill(served, range(1, 4))

        assert not served.states.is_whole(NAME, "1-0")
        assert served.states.checkpoints(NAME) == ["1-2", "1-3"]


def test_a_plan_with_a_name_that_cannot_be_stored_fails_no_save(tmp_path: Path):
    """A plan that names a component whose notes no store could hold is left aside; the states of others are saved."""
    odd = Topology(TOPOLOGY.name, TOPOLOGY.id, (COUNT0, Instance("x" * 300, 0, 9, "stmgr-2")))
    with serving(tmp_path) as served, served.stmgr(topology=odd) as stmgr:
        assert stmgr.await_registration()
        assert stmgr.save({COUNT0: b"x"}, "1-1") == {COUNT0}
        assert served.ear.of(events.PlanIgnored)
