"""`millpond gc`: it finds what nobody needs, says why, and harms nobody."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import blobs
import pytest
from click.testing import CliRunner, Result

import millpond
from millpond.cli import main
from millpond.errors import TransientError
from millpond.local import escape_name

Objects = Callable[..., dict[int, str]]
Restored = Callable[..., tuple[int, dict[str, dict[object, object]]]]
Expected = Callable[[int], dict[str, dict[object, object]]]

FAILED = "1-1795996442237-201230-{:016x}"
EWR = escape_name("EWR")
DAY_S = 86_400


def run(*args: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["gc", *map(str, args)], input=answer, env={"MILLPOND_CONFIG": None})


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def age(path: Path) -> None:
    """Make a file, and all below a folder, a day old."""
    for each in [path, *path.rglob("*")]:
        with suppress(FileNotFoundError):  # a live job removes files too
            os.utime(each, (time.time() - DAY_S,) * 2)


def leave(root: Path, *names: str, old: bool = True) -> set[str]:
    """Put objects of nine bytes where a failed commit would have left them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"left over")
        if old:
            age(root / name)
    return set(names)


@pytest.fixture
def bucket(object_config: Callable[..., Path], commit_objects: Objects) -> tuple[Path, Path]:
    """A job with three commits that are a day old: its configuration and its bucket."""
    config = object_config()
    commit_objects(config, range(1, 4))
    age(config.parent / "bucket")
    return config, config.parent / "bucket"


def test_a_dry_run_shows_each_object_with_its_reason_and_removes_none(bucket: tuple[Path, Path]):
    """What a failed commit left is shown with place, size and reason, and summed up; every file stays."""
    config, root = bucket
    left = leave(root, *(f"flights/{EWR}/data/cloud/{FAILED.format(number)}" for number in range(3)))
    before = files(root)

    plainly, as_json = run("--dry-run", "-c", config), run("--dry-run", "-c", config, "--json")

    assert (0, 0) == (plainly.exit_code, as_json.exit_code), plainly.output
    assert before == files(root)
    said = json.loads(as_json.stdout)
    assert {f"file://{root}/{name}" for name in left} == {each["name"] for each in said["objects"]}
    assert (27, 0, 3600.0, True) == (said["size"], said["removed"], said["grace_s"], said["dry_run"])
    assert {("cloud", 9)} == {(each["backend"], each["size"]) for each in said["objects"]}
    assert all("no retained checkpoint needs it" in each["reason"] for each in said["objects"])
    assert "would remove 3 objects, 27 B" in plainly.stdout
    assert f"in file://{root}/flights/{EWR}/data/cloud/" in plainly.stdout
    assert all(f"9 B  {Path(name).name}" in plainly.stdout for name in left)


def test_it_removes_what_it_shows_and_nothing_else(
    bucket: tuple[Path, Path], restored_objects: Restored, expected_after: Expected
):
    """Old leftovers go, of a dead task too; young ones, other jobs' and strange files stay, and the job is whole."""
    config, root = bucket
    gone = leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(1)}", f"flights/dead/data/cloud/{FAILED.format(2)}")
    leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(3)}", old=False)
    leave(
        root,
        f"flights-2/{EWR}/data/cloud/{FAILED.format(4)}",
        f"flights2/{EWR}/data/cloud/{FAILED.format(5)}",
        f"flights/{EWR}/data/cloud2/{FAILED.format(6)}",
        f"flights/{EWR}/data/cloud/notes.txt",
        FAILED.format(7),
    )
    before = files(root)

    result = run("--yes", "-c", config)

    assert 0 == result.exit_code, result.output
    assert "removed 2 objects, 18 B" in result.stdout
    assert before - gone == files(root)
    shutil.rmtree(config.parent / "disk of job")
    assert (3, expected_after(3)) == restored_objects(config)
    assert "nothing to remove" in run("--yes", "-c", config).stdout


def test_it_asks_before_it_removes(bucket: tuple[Path, Path]):
    """A no removes nothing, a yes does, and where nobody answers the command says which options there are."""
    config, root = bucket
    leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(1)}")
    before = files(root)

    nobody = run("-c", config)
    assert 2 == nobody.exit_code
    assert "--yes or --dry-run" in nobody.stderr
    assert 0 == run("-c", config, answer="n\n").exit_code
    assert before == files(root)
    assert "removed 1 object, 9 B" in run("-c", config, answer="y\n").stdout
    assert before != files(root)


def test_what_came_back_while_it_asked_stays(bucket: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    """An object that somebody put anew before the answer is young then, and stays."""
    config, root = bucket
    (name,) = leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(1)}")

    def answer(*_: object, **__: object) -> bool:
        leave(root, name, old=False)
        return True

    monkeypatch.setattr("click.confirm", answer)

    assert "removed 0 objects" in run("-c", config).stdout
    assert name in files(root)


def test_a_savepoint_keeps_what_it_needs(
    object_config: Callable[..., Path],
    commit_objects: Objects,
    restored_objects: Restored,
    expected_after: Expected,
):
    """However old, what only a pinned checkpoint needs stays until it is unpinned, and is restored exactly."""
    config = object_config()
    config.write_text(config.read_text().replace("cleanup_every = 1", "cleanup_every = 1\nchanges = false"))
    commit_objects(config, range(1, 4))
    pinned = CliRunner().invoke(main, ["checkpoints", "pin", "kept", "-c", str(config)])
    commit_objects(config, range(4, 16))
    age(config.parent / "bucket")

    collected = run("--yes", "-c", config)

    assert (0, 0) == (pinned.exit_code, collected.exit_code)
    shutil.rmtree(config.parent / "disk of job")
    assert (3, expected_after(3)) == restored_objects(config, at="kept")
    age(config.parent / "bucket")
    CliRunner().invoke(main, ["checkpoints", "unpin", "kept", "-c", str(config)])
    assert "removed" in run("--yes", "-c", config).stdout


WRITER = """
import sys
import millpond
from millpond import SystemStreamPartition
with millpond.open_job(sys.argv[1]) as job, job.open_task("EWR") as task:
    number = 3
    print("ready", flush=True)
    for order in sys.stdin:
        number += 1
        for plane in range(200):
            task.store("counts")[f"plane {plane}"] = [number, "x" * (plane % (number + 1))]
        task.processed(SystemStreamPartition("kafka", "flights.2013", 0), number)
        task.commit_now(20)
        print(number, flush=True)
"""


def test_a_live_writer_notices_nothing(bucket: tuple[Path, Path]):
    """Between the commits of a live job everything ages by a day and is collected; the job goes on, and is whole."""
    config, root = bucket
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, config], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert "ready\n" == writer.stdout.readline()
        removed = 0
        for number in range(4, 12):
            writer.stdin.write("commit\n")
            writer.stdin.flush()
            assert f"{number}\n" == writer.stdout.readline()
            leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(number)}")
            age(root)
            result = run("--yes", "-c", config, "--json")
            assert 0 == result.exit_code, result.output
            removed += json.loads(result.stdout)["removed"]
        writer.stdin.close()
        assert 0 == writer.wait(30)

    assert removed >= 8
    shutil.rmtree(config.parent / "disk of job")
    with millpond.open_job(config) as job, job.open_task("EWR") as task:
        expected = {f"plane {plane}": [11, "x" * (plane % 12)] for plane in range(200)}
        assert expected == dict(task.store("counts").scan())


def test_images_on_a_disk_are_found_too(job: tuple[Path, list[str]], images: Callable[[Path, str], list[Path]]):
    """Of a backend that keeps images, one that no checkpoint names is shown and removed, and the others stay."""
    config, ids = job
    (image, *_) = images(config.parent / "archive", "delays")
    stray = image.with_name(f"1-2-{'0' * 32}")
    shutil.copytree(image, stray)
    age(stray)

    said = json.loads(run("--yes", "-c", config, "--backend", "archive", "--json").stdout)

    assert [("archive", str(stray))] == [(each["backend"], each["name"]) for each in said["objects"]]
    assert image.is_dir()
    assert not stray.exists()
    with millpond.open_job(config) as opened, opened.open_task("EWR", at=ids[1]) as task:
        assert ids[1] == str(task.last.id)


def test_what_cannot_be_right_is_a_wrong_usage(bucket: tuple[Path, Path], object_config: Callable[..., Path]):
    """A grace that a live commit may exceed, no duration, JSON without a decision, records in a process: 2; why."""
    config, root = bucket
    leave(root, f"flights/{EWR}/data/cloud/{FAILED.format(1)}")
    before = files(root)
    cases = {
        "twice commit.timeout": ["--grace", "9m59s", "--yes"],
        "expected a duration": ["--grace", "soon", "--yes"],
        "add --yes or --dry-run": ["--json"],
    }

    for reason, options in cases.items():
        result = run("-c", config, *options)
        assert (2, True) == (result.exit_code, reason in result.stderr), result.output
    other = object_config("other", records='manager = "memory"')
    assert 2 == run("--yes", "-c", other).exit_code
    assert before == files(root)
    assert 0 == run("-c", config, "--grace", "10m", "--yes").exit_code


def test_without_any_record_nothing_is_looked_for(bucket: tuple[Path, Path], object_config: Callable[..., Path]):
    """Records in the wrong place would make everything garbage: the command ends with 3 and removes nothing."""
    config, root = bucket
    wrong = object_config("wrong", records=f'manager = "directory"\npath = "{root.parent}/nothing"')
    before = files(root)

    assert 3 == run("--yes", "-c", wrong).exit_code
    assert 3 == run("--yes", "-c", config, "--backend", "clud").exit_code
    assert before == files(root)


def test_a_store_that_stops_answering_ends_it_with_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """When the second batch of removals fails, the command ends with 5 and tells how many had gone."""
    world = blobs.World(tmp_path, stores={"a": "memory"})
    blobs.commit(world.open(), 0)
    world.close()
    for number in range(1_500):
        key = f"flights/{escape_name(blobs.TASK)}/data/main/{FAILED.format(number)}"
        world.store.objects[key] = b"x", 1_000
    config = tmp_path / "job.toml"
    config.write_text(
        f"""
[job]
name = "flights"
state_dir = "{tmp_path}/disk"
[checkpoint]
manager = "blobs:Checkpoints"
bucket = "{world.bucket}"
[backends.main]
type = "blobs:Backend"
bucket = "{world.bucket}"
[stores.a]
engine = "memory"
backup = ["main"]
"""
    )
    deletes = []

    def stop(verb: str, key: str) -> None:
        if verb == "delete":
            deletes.append(key)
            if len(deletes) > 1:
                raise TransientError("slow down")

    world.store.before = stop

    result = run("--yes", "-c", config)

    assert 5 == result.exit_code, result.output
    assert "removed 1,000 objects, 1000 B of 1,500 objects" in result.stderr
    assert 2 == len(deletes)
