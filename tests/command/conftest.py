"""A real job on RocksDB for the command and the reader: two tasks, two stores, two backends."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import millpond
from millpond import SystemStreamPartition

CONFIG = """
[job]
name = "flights"
state_dir = "{root}/state dir"
tasks = ["EWR", "Partition 0"]

[checkpoint]
manager = "directory"
path = "{root}/records"
retain = 3

[backends.archive]
type = "rocksdb-local"
path = "{root}/archive"

[backends.second]
type = "rocksdb-local"

[stores.delays]
engine = "rocksdb"
key = "str"
value = "json"
backup = ["archive", "second"]
restore = ["archive", "second"]

[stores.raw]
engine = "rocksdb"
backup = ["archive"]
restore = ["archive"]

[stores.days]
engine = "rocksdb"
key = "int"
value = "msgspec"
backup = ["archive"]
restore = ["archive"]

[restore]
attempts = 1
"""

SOURCE = SystemStreamPartition("kafka", "flights.2013", 0)


def write_config(root: Path, text: str = CONFIG) -> Path:
    path = root / "job.toml"
    path.write_text(text.format(root=root))
    return path


def fill(config: Path, commits: int = 4, task: str = "EWR") -> list[str]:
    """Commit a few times; of each commit all values tell its number. Gives the ids."""
    ids = []
    with millpond.open_job(config) as job, job.open_task(task) as opened:
        for number in range(commits):
            for plane in range(50):
                opened.store("delays")[f"UA{plane:02}"] = {"commit": number}
            opened.store("raw").put(bytes([number, 0, 255]), b"x" * number)
            opened.store("raw").put(b"plain", b"text")
            opened.store("days").put(number - 2, {"at": b"\xff", "sum": number})
            opened.processed(SOURCE, number)
            ids.append(str(opened.commit_now(60).id))
    return ids


@pytest.fixture(scope="module")
def still_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A job that nobody runs any more: its configuration, and the ids of its four commits. Not to be damaged."""
    root = tmp_path_factory.mktemp("still job")
    config = write_config(root)
    return config, fill(config)


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, list[str]]:
    """A job of the test's own: its configuration, and the ids of its four commits."""
    config = write_config(tmp_path)
    return config, fill(config)


@pytest.fixture(name="fill")
def fill_fixture() -> Callable[..., list[str]]:
    """Commit a few times to a job that nobody runs."""
    return fill


@pytest.fixture
def readable_job() -> Iterator[Path]:
    """A job whose files nobody may write, where somebody else than root can reach it: its configuration."""
    root = Path(tempfile.mkdtemp(prefix="millpond read only "))
    config = write_config(root)
    fill(config, 1)
    for path in [*root.rglob("*"), root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield config
    for path in [root, *root.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(root)


@pytest.fixture
def images() -> Callable[[Path, str], list[Path]]:
    """Find the complete images of a store below a folder, oldest first."""

    def find(root: Path, store: str) -> list[Path]:
        return sorted(path.parent for path in root.rglob("MANIFEST") if path.parent.parent.name == store)

    return find


OBJECT_CONFIG = """
[job]
name = "{name}"
state_dir = "{root}/{disk}"
{layout}

[checkpoint]
retain = 1
{records}

[backends.cloud]
cleanup_every = 1
{data}

[stores.counts]
engine = "rocksdb"
key = "str"
value = "json"
backup = ["cloud"]

[stores.raw]
engine = "rocksdb"
backup = ["cloud"]
{more}

[restore]
attempts = 1
"""


@pytest.fixture
def object_config(tmp_path: Path) -> Callable[..., Path]:
    """Write a configuration whose records and data lie in one object store, a folder unless it is told otherwise."""

    def write(file: str = "job", place: str = "bucket", **given: str) -> Path:
        url = f'url = "file://{tmp_path}/{place}"\n'
        filled = {
            "name": "flights",
            "disk": f"disk of {file}",
            "layout": "",
            "records": f'manager = "fsspec"\ntidy_every = 1\n{url}',
            "data": f'type = "fsspec"\n{url}',
            "more": "",
            **given,
        }
        path = tmp_path / f"{file}.toml"
        path.write_text(OBJECT_CONFIG.format(root=tmp_path, **filled))
        return path

    return write


def expected_after(number: int) -> dict[str, dict[object, object]]:
    """Give both stores as they are after the commit *number*."""
    counts = {f"plane {plane}": max(plane, number - number % 2) for plane in range(40) if plane <= number * 10}
    return {"counts": counts, "raw": {b"%03d" % each: b"x" * each for each in range(number // 2, number + 1)}}


def commit_objects(config: Path, numbers: range, task: str = "EWR") -> dict[int, str]:
    """Bring both stores to what they are after each of *numbers*, a commit each. Gives the ids."""
    ids = {}
    with millpond.open_job(config) as job, job.open_task(task) as opened:
        for number in numbers:
            for name, wanted in expected_after(number).items():
                store = opened.store(name)
                held = dict(store.scan())
                for key in held.keys() - wanted.keys():
                    store.delete(key)
                for key, value in wanted.items():
                    if held.get(key) != value:
                        store.put(key, value)
            opened.processed(SOURCE, number)
            ids[number] = str(opened.commit_now(20).id)
    return ids


def restored_objects(config: Path, task: str = "EWR", **at: str) -> tuple[int, dict[str, dict[object, object]]]:
    """Open a task, and give the number of its last commit and both stores."""
    with millpond.open_job(config) as job, job.open_task(task, **at) as opened:
        return int(opened.offsets[SOURCE]), {name: dict(opened.store(name).scan()) for name in ("counts", "raw")}


@pytest.fixture(name="commit_objects")
def commit_objects_fixture() -> Callable[..., dict[int, str]]:
    """Commit to a job of `object_config`."""
    return commit_objects


@pytest.fixture(name="restored_objects")
def restored_objects_fixture() -> Callable[..., tuple[int, dict[str, dict[object, object]]]]:
    """Open a task of a job of `object_config`, and look."""
    return restored_objects


@pytest.fixture(name="expected_after")
def expected_after_fixture() -> Callable[[int], dict[str, dict[object, object]]]:
    """Give both stores of a job of `object_config` as they are after a commit."""
    return expected_after
