"""A whole job whose state and records are on one file system: killed, and continued on an empty disk."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from fsspec_places import every_place, exclusive_places, shared_places
from services.file_system_server import FileSystemServer

import millpond
from millpond.errors import ConfigError
from millpond_fsspec.opening import open_store

PROGRAM = Path(__file__).resolve().parents[3] / "tests" / "programs" / "killed_job.py"
sys.path.insert(0, str(PROGRAM.parent))
import killed_job  # noqa: E402 - the program is also the model

POINTS = ("commit.before-upload", "commit.uploaded", "commit.written", "restore.store-sealed")

CONFIG = """
[job]
name = "killed"
state_dir = "{root}/state dir"

[checkpoint]
retain = 2
{manager}

[backends.cloud]
type = "fsspec"
grace = "11m"
cleanup_every = 1
url = "{url}"
prefix = "state"
options = {options}

[defaults.stores]
engine = "rocksdb"
key = "str"
value = "json"
{ephemeral}

[stores.counts]
[stores.seen]
[stores.open]

[commit]
interval = "1h"
"""


def toml(options: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items()) + "}"


def config_on(root: Path, place: FileSystemServer, *, manager: str = "fsspec", ephemeral: str = "") -> Path:
    """Write a configuration whose backend is on *place*, and its records too unless *manager* says otherwise."""
    there = f'url = "{place.url}"\nprefix = "records"\noptions = {toml(place.options)}'
    records = f'manager = "{manager}"\n' + (there if manager == "fsspec" else f'path = "{root}/records"')
    path = root / "job.toml"
    path.write_text(
        CONFIG.format(root=root, manager=records, url=place.url, options=toml(place.options), ephemeral=ephemeral)
    )
    return path


def restored(config: Path) -> tuple[int, dict[str, dict[str, object]]]:
    """Open the task once more and give its offset and all its stores."""
    with millpond.open_job(config) as job, job.open_task(killed_job.TASK) as task:
        offset = int(task.offsets.get(killed_job.SOURCE, -1)) + 1
        return offset, {name: dict(task.store(name).scan()) for name in ("counts", "seen", "open")}


def run_until_killed(config: Path, until: int, point: str, passes: int) -> int:
    """Run the program in a child that dies at *point*; give the last offset that it called durable."""
    command = [sys.executable, str(PROGRAM), str(config), str(until), point, str(passes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr or "the point was not reached"
    said = [line.split() for line in done.stdout.splitlines()]
    return max((int(number) for word, number in said if word == "durable"), default=0)


@shared_places
def test_a_killed_job_continues_on_an_empty_disk(place: FileSystemServer, tmp_path: Path):
    """Killed before an upload, after it, after a publication and in a restore, it loses nothing durable."""
    config, at_least = config_on(tmp_path, place), 0
    with millpond.open_job(config) as job:
        job.prepare()

    for round_, point in enumerate(
        ("commit.before-upload", "commit.uploaded", "commit.written", "restore.store-sealed")
    ):
        durable = run_until_killed(config, 100 * (round_ + 1) + 60, point, 0 if point.startswith("restore") else 1)
        shutil.rmtree(tmp_path / "state dir")
        at_least = max(at_least, durable)
        offset, stores = restored(config)

        assert at_least <= offset
        assert killed_job.expected(offset) == stores
        shutil.rmtree(tmp_path / "state dir")

    assert at_least <= killed_job.run(str(config), 600)
    assert (600, killed_job.expected(600)) == restored(config)


@shared_places
def test_a_job_killed_at_random_continues_on_an_empty_disk(place: FileSystemServer, tmp_path: Path):
    """Killed without regard to steps, again and again, a job never goes back before what it called durable."""
    config, chance, durable = config_on(tmp_path, place), random.Random(place.name), 0
    for _ in range(3):
        command = [sys.executable, str(PROGRAM), str(config), "100000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            said = [child.stdout.readline() for _ in range(chance.randrange(1, 6))]
            child.kill()
            said += child.stdout.readlines()
        words = [line.split() for line in said if line.startswith("durable")]
        durable = max([durable, *(int(number) for _, number in words)])
        shutil.rmtree(tmp_path / "state dir", ignore_errors=True)

    offset, stores = restored(config)

    assert durable <= offset
    assert killed_job.expected(offset) == stores


@pytest.mark.parametrize("place", ["sftp"], indirect=True)
def test_a_job_keeps_its_state_over_sftp_and_its_records_elsewhere(place: FileSystemServer, tmp_path: Path):
    """With records in a directory, a job's state over SFTP comes back to an empty disk."""
    config = config_on(tmp_path, place, manager="directory")
    durable = run_until_killed(config, 200, "commit.uploaded", 2)
    shutil.rmtree(tmp_path / "state dir")

    offset, stores = restored(config)

    assert durable <= offset
    assert killed_job.expected(offset) == stores


@pytest.mark.parametrize("place", ["sftp"], indirect=True)
def test_a_job_with_records_over_sftp_does_not_open(place: FileSystemServer, tmp_path: Path):
    """A job that would keep its records over SFTP is refused when it is prepared and when a task is opened."""
    config = config_on(tmp_path, place)

    with millpond.open_job(config) as job:
        for attempt in (job.prepare, lambda: job.open_task(killed_job.TASK)):
            with pytest.raises(ConfigError, match="keep the records elsewhere"):
                attempt()


@exclusive_places
def test_a_replaced_writer_is_fenced(place: FileSystemServer, tmp_path: Path):
    """Of two jobs that open one task the earlier one's next commit is refused, and the later one's state stands."""
    ephemeral = "ephemeral = true" if place.name == "memory" else ""
    config = config_on(tmp_path, place, ephemeral=ephemeral)
    other = tmp_path / "other.toml"
    other.write_text(config.read_text().replace("state dir", "other dir"))

    with millpond.open_job(config) as first, first.open_task(killed_job.TASK) as early:
        early.store("counts").put("a", 1)
        early.processed(killed_job.SOURCE, 1)
        early.commit_now(60)
        with millpond.open_job(other) as second, second.open_task(killed_job.TASK) as late:
            assert 1 == late.store("counts").get("a")
            early.store("counts").put("a", 2)
            early.processed(killed_job.SOURCE, 2)
            with pytest.raises(millpond.FencedError):
                early.commit_now(60)
            late.store("counts").put("a", 3)
            late.processed(killed_job.SOURCE, 3)
            late.commit_now(60)
        first_is_over = pytest.raises(millpond.MillpondError)
        with first_is_over:
            early.commit_now(60)
        early.close()


@every_place
def test_what_the_store_promises_is_tried(place: FileSystemServer, tmp_path: Path):
    """`prepare` tries each promise, a race among them, and leaves nothing behind."""
    manager = "directory" if place.name == "sftp" else "fsspec"
    config = config_on(tmp_path, place, manager=manager, ephemeral="ephemeral = true" if place.name == "memory" else "")

    with millpond.open_job(config) as job:
        job.prepare()

    store = open_store(place.url, place.options)
    assert [] == [entry.key for entry in store.list("")]
    assert [] == list(store.unfinished(""))
    store.close()
