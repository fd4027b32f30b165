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
            ids.append(str(opened.commit_now(10).id))
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
