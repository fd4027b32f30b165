"""`millpond doctor`: each step tells the truth about the part it was tried on, and leaves nothing behind."""

import json
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blobs
import pytest
from click.testing import CliRunner, Result

from millpond.blob import AccessDeniedError, BlobCapabilities, Body
from millpond.blob.memory import MemoryBlobStore
from millpond.cli import main
from millpond.errors import TransientError

OBJECT_STEPS = ["write an object", "read it", "read a part of it", "miss what is not there", "list it"]
AFTER = ["remove it", "list unfinished uploads", "compare clocks"]


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, args)], env={"MILLPOND_CONFIG": None})


def steps(config: Path, part: str, code: int) -> dict[str, tuple[str, str]]:
    """Give state and detail of each step that was tried on *part*."""
    result = run("-c", config, "--json")
    assert code == result.exit_code, result.output
    said = json.loads(result.stdout)
    assert (code == 0) == said["ok"]
    return {each["step"]: (each["state"], each["detail"] or "") for each in said["steps"] if each["part"] == part}


def states(found: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {name: state for name, (state, _) in found.items()}


@pytest.fixture
def world(tmp_path: Path) -> tuple[Path, MemoryBlobStore]:
    """A job whose records and data are in a bucket of this process: its configuration and that bucket."""
    made = blobs.World(tmp_path)
    config = tmp_path / "job.toml"
    section = f'bucket = "{made.bucket}"'
    config.write_text(
        f"""
[job]
name = "flights"
state_dir = "{tmp_path}/disk"
[checkpoint]
manager = "blobs:Checkpoints"
{section}
[backends.main]
type = "blobs:Backend"
{section}
[stores.a]
engine = "memory"
backup = ["main"]
"""
    )
    blobs.BUCKETS[made.bucket] = MemoryBlobStore()
    return config, made.store


def test_a_healthy_job_is_told_what_was_tried(
    object_config: Callable[..., Path], commit_objects: Callable[..., object]
):
    """On real files every step is named and ok, and afterwards there is not one file or folder more or less."""
    config = object_config()
    commit_objects(config, range(1, 3))
    before = {path: path.stat().st_size for path in config.parent.rglob("*") if path.name != "OWNER"}

    records, data = steps(config, "checkpoints", 0), steps(config, "backend cloud", 0)
    disk, versions = steps(config, "state_dir", 0), steps(config, "plugin fsspec", 0)

    race = "8 races of two creations"
    assert ["open the store", "can hold records", *OBJECT_STEPS, race, *AFTER, "read the newest records"] == [*records]
    assert ["open the store", *OBJECT_STEPS, *AFTER] == [*data]
    assert {"ok"} == {*states(records).values(), *states(data).values(), *states(versions).values()}
    disk.pop("free space")
    assert ["make a folder", "write and sync a file", "link a file", "lock out another process"] == [*disk]
    assert {"ok"} == set(states(disk).values())
    assert "of 1 task" == records["read the newest records"][1]
    assert "millpond-fsspec 0." in versions["version"][1]
    assert before == {path: path.stat().st_size for path in config.parent.rglob("*") if path.name != "OWNER"}


@pytest.mark.parametrize(
    ("verb", "failing", "skipped"),
    [
        ("put", "write an object", True),
        ("get", "read it", False),
        ("list", "list it", False),
        ("delete", "remove it", False),
    ],
)
def test_a_missing_permission_is_named(world: tuple[Path, MemoryBlobStore], verb: str, failing: str, skipped: bool):
    """The step that needs the permission fails with the store's own words; without a write the rest is skipped."""
    config, store = world

    def refuse(asked: str, key: str) -> None:
        if asked == verb and ".probe-" in key:
            raise AccessDeniedError(f"s3:{verb} is denied on {key}")

    store.before = refuse

    found = steps(config, "backend main", 1)

    state, detail = found[failing]
    assert "failed" == state
    assert f"s3:{verb} is denied" in detail
    assert skipped == ("skipped" in states(found).values())
    assert 1 == run("-c", config).exit_code
    assert "did not hold: checkpoints, backend main" in run("-c", config).stdout


class TwoWinners(MemoryBlobStore):
    """A store that ignores the condition of a put."""

    def put(self, key: str, body: Body, *, if_absent: bool = False) -> bool:
        return super().put(key, body)


@pytest.mark.parametrize(
    ("store", "step", "word"),
    [
        (TwoWinners(), "8 races of two creations", "conditional writes are not"),
        (MemoryBlobStore(lambda: 1_000), "compare clocks", "set the clock"),
        (
            MemoryBlobStore(capabilities=BlobCapabilities(conditional_put=False, reason="use S3")),
            "can hold records",
            "use S3",
        ),
    ],
    ids=["race", "clock", "capability"],
)
def test_a_store_that_cannot_hold_records_is_found_out(
    world: tuple[Path, MemoryBlobStore], store: MemoryBlobStore, step: str, word: str
):
    """Two winners of one creation, a clock far off, a store that never promised: each fails, with the mend."""
    config, _ = world
    (bucket,) = [name for name, held in blobs.BUCKETS.items() if held is world[1]]
    blobs.BUCKETS[bucket] = store

    state, detail = steps(config, "checkpoints", 1)[step]

    assert "failed" == state
    assert word in detail
    assert [] == [key for key in store.objects if ".probe-" in key]


def test_a_store_that_does_not_answer_ends_it_with_5(world: tuple[Path, MemoryBlobStore]):
    """If all that is wrong may go away, the exit code says: try again."""
    config, store = world

    def refuse(verb: str, key: str) -> None:
        raise TransientError("slow down")

    store.before = refuse

    found = steps(config, "backend main", 5)

    assert ("unreachable", "slow down; try again") == found["write an object"]


def test_a_record_that_cannot_be_read_is_found(
    object_config: Callable[..., Path], commit_objects: Callable[..., object]
):
    """A damaged newest record is a failed step that names it."""
    config = object_config()
    commit_objects(config, range(1, 2))
    newest = min((config.parent / "bucket").rglob("records/*"), key=lambda path: path.name)
    newest.write_bytes(newest.read_bytes()[:-5])

    state, detail = steps(config, "checkpoints", 1)["read the newest records"]

    assert "failed" == state
    assert newest.name in detail


def test_a_disk_that_is_not_fit_is_found(job: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Little room is a note, none a failure; no links is a note; a lock that two can hold is a failure."""
    config, _ = job
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 - what shutil gives

    def free(size: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 40, 0, size))

    free(200 << 20)
    assert "note" == steps(config, "state_dir", 0)["free space"][0]
    free(1 << 20)
    assert "failed" == steps(config, "state_dir", 1)["free space"][0]
    free(1 << 39)
    with monkeypatch.context() as patched:
        patched.setattr(os, "link", _no_links)
        assert "note" == steps(config, "state_dir", 0)["link a file"][0]
    with monkeypatch.context() as patched:
        patched.setattr("millpond.reading.disk.OwnerLock", _NoLock)
        assert "failed" == steps(config, "state_dir", 1)["lock out another process"][0]


def _no_links(*_: Any, **__: Any) -> None:
    import errno

    raise OSError(errno.ENOTSUP, "no links")


class _NoLock:
    def __init__(self, folder: Path, timeout_s: float) -> None:
        pass

    def release(self) -> None:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="/proc, where even root makes nothing, is Linux'")
def test_a_state_dir_where_nothing_can_be_made_is_found(object_config: Callable[..., Path]):
    """The first step fails with what to do, and those that need it are not tried."""
    config = object_config(disk="../../../../../../../../proc/millpond")

    found = steps(config, "state_dir", 1)

    assert "failed" == found["make a folder"][0]
    assert "job.state_dir" in found["make a folder"][1]
    assert "link a file" not in found


def test_create_makes_what_is_missing(object_config: Callable[..., Path], tmp_path: Path):
    """A backend's folder that does not exist yet is a failure without --create, and made with it."""
    near = f'type = "rocksdb-local"\npath = "{tmp_path}/images"'
    config = object_config(data=near.replace("cleanup_every = 1", ""))
    config.write_text(config.read_text().replace("cleanup_every = 1\n", ""))

    assert "failed" == steps(config, "backend cloud", 1)["the plugin's own check"][0]
    assert not (tmp_path / "images").exists()
    assert 0 == run("--create", "-c", config).exit_code
    assert (tmp_path / "images").is_dir()
