"""`millpond savepoint`: what it keeps, and that a copy needs nothing of where it came from."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from services import moto_server
from services.s3_server import S3Server

import millpond
from millpond.blob.savepoint import keep_record
from millpond.cli import main

Objects = Callable[..., dict[int, str]]
Restored = Callable[..., tuple[int, dict[str, dict[object, object]]]]
Expected = Callable[[int], dict[str, dict[object, object]]]


def run(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], env={"MILLPOND_CONFIG": None})


def done(*args: object) -> str:
    result = run(*args)
    assert 0 == result.exit_code, result.output
    return result.stdout


def refused(*args: object) -> str:
    result = run(*args)
    assert 2 == result.exit_code, result.output
    return result.stderr


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with moto_server.serve(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def kept(object_config: Callable[..., Path], commit_objects: Objects) -> tuple[Path, dict[int, str]]:
    """A job with a savepoint of its second commit, and two commits after it."""
    config = object_config()
    ids = commit_objects(config, range(1, 3))
    done("savepoint", "create", "before", "-c", config)
    return config, ids | commit_objects(config, range(3, 5))


def test_a_savepoint_outlives_later_commits(
    kept: tuple[Path, dict[int, str]], restored_objects: Restored, expected_after: Expected
):
    """A savepoint of a job that keeps one checkpoint is restored exactly, while the newest goes on beside it."""
    config, ids = kept

    said = json.loads(done("savepoint", "list", "-c", config, "--json"))

    assert [("before", "EWR", ids[2])] == [(each["name"], each["task"], each["id"]) for each in said["savepoints"]]
    assert ids[2] in done("savepoint", "list", "-c", config)
    assert (4, expected_after(4)) == restored_objects(config)
    shutil.rmtree(config.parent / "disk of job")
    assert (2, expected_after(2)) == restored_objects(config, at="before")


def test_a_copy_in_another_folder_needs_nothing_of_the_source(
    kept: tuple[Path, dict[int, str]],
    object_config: Callable[..., Path],
    commit_objects: Objects,
    restored_objects: Restored,
    expected_after: Expected,
):
    """With the source's bucket and disk gone, the copy opens at the savepoint exactly, and the job goes on there."""
    config, _ = kept
    other = object_config("other", "elsewhere", name="moved")

    said = json.loads(done("savepoint", "copy", "before", "-c", config, "--to", other, "--json"))
    again = json.loads(done("savepoint", "copy", "before", "-c", config, "--to", other, "--json"))
    shutil.rmtree(config.parent / "bucket")
    shutil.rmtree(config.parent / "disk of job")

    assert said == again
    assert said["tasks"][0]["objects"] > 0
    assert (2, expected_after(2)) == restored_objects(other, at="before")
    commit_objects(other, range(3, 6))
    shutil.rmtree(config.parent / "disk of other")
    assert (5, expected_after(5)) == restored_objects(other)
    shutil.rmtree(config.parent / "disk of other")
    assert (2, expected_after(2)) == restored_objects(other, at="before")


def test_a_copy_goes_to_s3_and_to_a_directory_of_records(
    kept: tuple[Path, dict[int, str]],
    object_config: Callable[..., Path],
    restored_objects: Restored,
    expected_after: Expected,
    moto: S3Server,
):
    """From files to a bucket, with the records in a directory and a backend of another name, it restores exactly."""
    from millpond_s3.client import make_client
    from millpond_s3.settings import S3Settings

    config, _ = kept
    client = make_client(S3Settings(bucket="copies", **moto.settings), 4, lambda **_: None)
    client.create_bucket(Bucket="copies")
    client.close()
    settings = "".join(f'{name} = "{value}"\n' for name, value in moto.settings.items())
    other = object_config(
        "other",
        records=f'manager = "directory"\npath = "{config.parent}/records"',
        data=f'type = "s3"\nbucket = "copies"\n{settings}',
    )
    other.write_text(other.read_text().replace("cloud", "amazon"))

    done("savepoint", "copy", "before", "-c", config, "--to", other)
    shutil.rmtree(config.parent / "bucket")

    assert (2, expected_after(2)) == restored_objects(other, at="before")
    assert ["copies"] == [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]


def test_a_move_leaves_no_savepoint_behind(kept: tuple[Path, dict[int, str]], object_config: Callable[..., Path]):
    """After a move the savepoint is there and not here; deleting it there too leaves none."""
    config, ids = kept
    other = object_config("other", "elsewhere")

    assert ids[2] in done("savepoint", "move", "before", "-c", config, "--to", other)

    assert [] == json.loads(done("savepoint", "list", "-c", config, "--json"))["savepoints"]
    (moved,) = json.loads(done("savepoint", "list", "-c", other, "--json"))["savepoints"]
    assert ids[2] == moved["id"]
    done("savepoint", "delete", "before", "-c", other)
    assert "no savepoint" in done("savepoint", "list", "-c", other)
    assert 3 == run("savepoint", "delete", "before", "-c", other).exit_code


def test_a_savepoint_is_of_every_task(object_config: Callable[..., Path], commit_objects: Objects):
    """Without --task every task with a checkpoint is pinned and copied; with it, that one."""
    config, other = object_config(layout='tasks = ["EWR", "JFK", "LGA"]'), object_config("other", "elsewhere")
    commit_objects(config, range(1, 2), "EWR")
    commit_objects(config, range(1, 2), "JFK")

    said = json.loads(done("savepoint", "create", "all", "-c", config, "--to", other, "--json"))
    one = json.loads(done("savepoint", "create", "one", "-t", "JFK", "-c", config, "--json"))

    assert ["EWR", "JFK"] == [each["task"] for each in said["tasks"]]
    assert ["JFK"] == [each["task"] for each in one["tasks"]]
    assert (None, None) == (one["to"], one["tasks"][0]["size"])
    there = json.loads(done("savepoint", "list", "-c", other, "--json"))["savepoints"]
    assert [("all", "EWR"), ("all", "JFK")] == [(each["name"], each["task"]) for each in there]


def test_a_savepoint_of_a_checkpoint_that_one_task_lacks_pins_none(
    object_config: Callable[..., Path], commit_objects: Objects
):
    """--at is looked up in every task before one is pinned."""
    config = object_config()
    (id,) = commit_objects(config, range(1, 2), "EWR").values()
    commit_objects(config, range(1, 2), "JFK")

    assert 3 == run("savepoint", "create", "sp", "--at", id, "-c", config).exit_code
    assert "no savepoint" in done("savepoint", "list", "-c", config)
    done("savepoint", "create", "sp", "--at", id, "-t", "EWR", "-c", config)


def test_a_damaged_savepoint_is_not_copied(kept: tuple[Path, dict[int, str]], object_config: Callable[..., Path]):
    """One turned bit ends the copy with 4, and there is nothing that a task could be opened from."""
    config, ids = kept
    other = object_config("other", "elsewhere")
    (damaged, *_) = [path for path in (config.parent / "bucket").rglob("*") if path.is_file() and ids[2] in path.name]
    content = bytearray(damaged.read_bytes())
    content[10] ^= 1
    damaged.write_bytes(content)

    result = run("savepoint", "move", "before", "-c", config, "--to", other)

    assert 4 == result.exit_code
    assert damaged.name in result.stderr
    assert 3 == run("savepoint", "list", "-c", other).exit_code
    assert "before" in done("savepoint", "list", "-c", config)


def test_what_cannot_be_copied_is_refused_with_the_reason(
    kept: tuple[Path, dict[int, str]], object_config: Callable[..., Path], tmp_path: Path
):
    """The same place, data beside the source's, another layout, a taken name, no object store: each is told, with 2."""
    config, _ = kept
    records = f'manager = "directory"\npath = "{tmp_path}/records"'
    memory = 'manager = "fsspec"\nurl = "memory://copies"'
    near = '[backends.near]\ntype = "rocksdb-local"\n'
    cases = {
        "where they are": object_config("same"),
        "two jobs would tidy": object_config("beside", records=records),
        "'memory' keeps nothing beyond": object_config("gone", "elsewhere", records='manager = "memory"'),
        "'fsspec' keeps nothing beyond": object_config("mortal", "elsewhere", records=memory),
        "names no object store": object_config(
            "local", "elsewhere", data=f'type = "fsspec"\nurl = "file://{tmp_path}/x"\n{near}'
        ),
    }
    cases["names no object store"].write_text(
        cases["names no object store"].read_text().replace('backup = ["cloud"]', 'backup = ["near"]')
    )

    for reason, other in cases.items():
        assert reason in refused("savepoint", "copy", "before", "-c", config, "--to", other), reason
    assert not (tmp_path / "elsewhere").exists()
    assert not (tmp_path / "records").exists()


def test_a_name_that_is_taken_there_is_refused(
    kept: tuple[Path, dict[int, str]], object_config: Callable[..., Path], commit_objects: Objects
):
    """A savepoint of the same name and another checkpoint stays as it is."""
    config, _ = kept
    other = object_config("other", "elsewhere")
    commit_objects(other, range(1, 2))
    done("savepoint", "create", "before", "-c", other)
    before = done("savepoint", "list", "-c", other, "--json")

    assert "there already" in refused("savepoint", "copy", "before", "-c", config, "--to", other)

    assert (
        json.loads(before)["savepoints"][0]["id"]
        == json.loads(done("savepoint", "list", "-c", other, "--json"))["savepoints"][0]["id"]
    )


def test_a_copy_for_other_tasks_is_refused(object_config: Callable[..., Path], commit_objects: Objects):
    """State is placed by task: a savepoint does not go to a job of another layout."""
    config = object_config(layout='tasks = ["EWR", "JFK"]')
    other = object_config("other", "elsewhere", layout='tasks = ["EWR", "JFK", "LGA"]')
    commit_objects(config, range(1, 2))

    assert "layout" in refused("savepoint", "create", "sp", "-c", config, "--to", other)


def test_state_on_a_local_disk_is_pinned_and_not_copied(
    job: tuple[Path, list[str]], object_config: Callable[..., Path]
):
    """A savepoint of rocksdb-local's images keeps them; a copy is refused, and says which backend has it."""
    config, ids = job
    other = object_config("other", "elsewhere", more='[stores.delays]\nengine = "rocksdb"\nkey = "str"\nvalue = "json"')

    done("savepoint", "create", "sp", "-c", config)
    told = refused("savepoint", "copy", "sp", "-c", config, "--to", other)

    assert "archive (rocksdb-local)" in told
    assert "the pin itself keeps it" in told
    with millpond.open_job(config) as opened, opened.open_task("EWR", at="sp") as task:
        assert ids[-1] == str(task.last.id)


def test_what_a_live_owner_tidies_before_the_pin_is_there_goes_over_again(
    kept: tuple[Path, dict[int, str]],
    object_config: Callable[..., Path],
    restored_objects: Restored,
    expected_after: Expected,
    monkeypatch: pytest.MonkeyPatch,
):
    """Objects that vanish between their copy and the record are found missing, and the copy is whole all the same."""
    config, _ = kept
    other = object_config("other", "elsewhere")
    vanished = []

    def tidied(*args: Any) -> None:
        for path in (config.parent / "elsewhere").rglob("data/cloud/*"):
            vanished.append(path.name)
            path.unlink()
        keep_record(*args)

    monkeypatch.setattr("millpond.reading.savepoints.keep_record", tidied)

    done("savepoint", "copy", "before", "-c", config, "--to", other)

    assert vanished
    assert (2, expected_after(2)) == restored_objects(other, at="before")


def test_an_interrupted_copy_says_what_is_there(
    kept: tuple[Path, dict[int, str]], object_config: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """Ctrl-C ends a copy with 130, the truth about what was done, and nothing that could be opened."""
    config, _ = kept
    other = object_config("other", "elsewhere")

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("millpond.reading.savepoints.keep_record", interrupt)
        result = run("savepoint", "move", "before", "-c", config, "--to", other)

    assert 130 == result.exit_code
    assert "before was copied of no task" in result.stderr
    assert 3 == run("savepoint", "list", "-c", other).exit_code
    done("savepoint", "move", "before", "-c", config, "--to", other)
