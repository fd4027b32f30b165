"""A whole job against a dict for each checkpoint, with the plugins that need no service."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from millpond.errors import MillpondError
from millpond.testing.model import JobModel

SHRUNK = bool(os.environ.get("MILLPOND_MODEL_SHRINKS"))  # takes minutes: a step opens a job

BOUNDED = settings(
    max_examples=int(os.environ.get("MILLPOND_MODEL", "8")),
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SHRUNK else [])],
    report_multiple_bugs=False,
)


class MemoryModel(JobModel):
    """Everything in memory."""

    ephemeral = True

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        return {"checkpoint": {"manager": "memory"}, "backends": {"main": {"type": "memory"}}}


class DirectoryModel(JobModel):
    """RocksDB, rocksdb-local and the directory manager."""

    engine = "rocksdb"

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        return {
            "checkpoint": {"manager": "directory", "path": folder / "records"},
            "backends": {"disk": {"type": "rocksdb-local", "path": folder / "images"}},
        }


class FsspecModel(JobModel):
    """The memory engine, and records and state on a file system's objects."""

    @classmethod
    def sections(cls, folder: Path) -> Mapping[str, Any]:
        url = f"file://{folder}/objects"
        return {
            "checkpoint": {"manager": "fsspec", "url": url, "prefix": "records", "tidy_every": 1},
            "backends": {"objects": {"type": "fsspec", "url": url, "prefix": "state", "cleanup_every": 1}},
        }


@pytest.mark.parametrize("model", [MemoryModel, DirectoryModel, FsspecModel])
def test_a_job_is_what_its_model_says(model: type[JobModel]):
    """Whatever is written, committed, failed, killed and restored, a task is what its last checkpoint says."""
    run_state_machine_as_test(model, settings=BOUNDED)


def test_pins_keep_what_they_pin(tmp_path: Path):
    """A script: pinned checkpoints outlive their retention and a collection, and go once they are unpinned."""
    state = DirectoryModel()
    state.put(store="a", key=b"k1", value=b"1")
    state.commit()
    state.pin(name="kept", back=0)
    pinned = state.pins["kept"]
    for value in (b"22", b"", b"1", b"22"):
        state.put(store="a", key=b"k1", value=value)
        state.commit()
    state.pin(name="kept", back=0)
    assert pinned == state.pins["kept"]
    assert pinned not in state.listed
    state.collect_garbage()
    state.look()
    state.second_owner()
    state.collect_garbage()
    state.zombie_wakes()
    state.go_back_to_a_pin(at=0, empty=True)
    assert {b"k1": b"1"} == state.stores["a"]
    state.commit()
    state.unpin(at=0)
    state.look()
    state.teardown()


@pytest.mark.parametrize("fault", ["write, answer lost, unreadable", "write, unreadable"])
def test_what_an_unknown_commit_published_is_gone_on_with(fault: str):
    """A script: the commit behind one of unknown outcome, with nothing new in it, comes back on an empty disk."""
    state = DirectoryModel()
    state.put(store="a", key=b"k1", value=b"1")
    state.commit()
    state.put(store="a", key=b"k1", value=b"22")
    state.commit_that_fails(fault=fault)
    state.commit()
    last = state.task.last
    assert last is not None
    assert last.images["a"] == last.markers["disk"]["a"]  # rocksdb-local's marker is the name of its image
    state.crash(empty=True)
    state.go_back(back=1, empty=True)
    state.teardown()


def test_the_model_finds_a_collection_that_takes_too_much(monkeypatch: pytest.MonkeyPatch):
    """The model fails on a collection that takes what a pin keeps."""
    from millpond.testing.lab import leftovers

    keep = leftovers._retained
    monkeypatch.setattr(leftovers, "_retained", lambda reader: {t: kept[:1] for t, kept in keep(reader).items()})
    state = DirectoryModel()
    state.put(store="a", key=b"k1", value=b"1")
    state.commit()
    state.pin(name="kept", back=0)
    for value in (b"22", b"", b"1", b"22"):
        state.put(store="a", key=b"k1", value=value)
        state.commit()
    state.collect_garbage()
    with pytest.raises(MillpondError):
        state.teardown()


def test_a_failure_is_a_script(monkeypatch: pytest.MonkeyPatch):
    """What a failure prints, behind an import, is a script that fails in the same way."""
    from millpond.stores.buffer import BufferedStore

    read = BufferedStore.get
    monkeypatch.setattr(
        BufferedStore, "get", lambda self, key, default=None: None if key == b"a" else read(self, key, default)
    )
    few = settings(BOUNDED, max_examples=20, stateful_step_count=6, phases=[Phase.generate], derandomize=True)
    with pytest.raises(AssertionError, match="b'a' in 'a") as failed:
        run_state_machine_as_test(MemoryModel, settings=few)

    lines = [line for note in failed.value.__notes__ for line in note.splitlines() if line.startswith("state")]
    assert ["state = MemoryModel()", "state.teardown()"] == [lines[0], lines[-1]]
    names: dict[str, Any] = {"MemoryModel": MemoryModel}
    with pytest.raises(AssertionError, match="b'a' in 'a"):
        exec("\n".join(lines), names)
    names["state"]._close()
    names["state"]._held.cleanup()
    names["state"]._close()


def test_the_model_finds_a_lost_delete(monkeypatch: pytest.MonkeyPatch):
    """The model itself can fail: a script of its steps finds a backend that forgets deletions."""
    from millpond import memory

    keep = memory._collect
    monkeypatch.setattr(
        memory, "_collect", lambda snapshot, changes: tuple(e for e in keep(snapshot, changes) if e[1] is not None)
    )
    state = MemoryModel()
    state.put(store="a", key=b"k1", value=b"1")
    state.commit()
    state.delete(store="a", at=0)
    state.commit()
    with pytest.raises(AssertionError, match="restored"):
        state.teardown()
