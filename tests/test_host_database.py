"""A host's own database takes part in commits, and comes back with the offsets that it reflects."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import millpond

SOURCE = millpond.SystemStreamPartition("s", "t", 0)


class Ledger:
    """A host's database: one file of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failing = False

    def checkpoint(self, directory: Path) -> None:
        """Write all lines into the new folder *directory*."""
        if self.failing:
            raise OSError("the host's disk is full")
        (directory / "deep").mkdir(parents=True)
        (directory / "deep" / "lines").write_text("\n".join(self.lines))

    def load(self, image: Path | None) -> None:
        """Read what a restored image holds."""
        self.lines = [] if image is None else (image / "deep" / "lines").read_text().split("\n")


@pytest.fixture
def config(tmp_path: Path) -> dict[str, object]:
    return {
        "job": {"name": "hosted", "state_dir": str(tmp_path / "state")},
        "checkpoint": {"manager": "directory", "path": str(tmp_path / "records"), "retain": 2},
        "backends": {"disk": {"type": "rocksdb-local", "path": str(tmp_path / "backup")}},
        "stores": {"ledger": {"engine": "host"}, "counts": {"engine": "memory", "key": "str", "value": "json"}},
    }


@pytest.mark.parametrize("wiped", [False, True], ids=["local", "backend"])
def test_a_hosts_database_comes_back_with_its_offsets(config, tmp_path: Path, wiped: bool) -> None:
    """What it had at the last commit is what its image holds, beside stores and offsets of the same commit."""
    for life in range(3):
        ledger = Ledger()
        with millpond.open_job(config) as job, job.open_task("t", databases={"ledger": ledger}) as task:
            ledger.load(task.image("ledger"))
            assert 5 * life == len(ledger.lines) == task.store("counts").get("lines", 0)
            assert str(5 * life - 1) == task.offsets.get(SOURCE, "-1")
            for number in range(5 * life, 5 * life + 5):
                ledger.lines.append(f"line {number}")
                task.store("counts")["lines"] = number + 1
                task.processed(SOURCE, number)
                task.commit_now(30)
        if wiped:
            shutil.rmtree(tmp_path / "state")


def test_a_failing_checkpoint_fails_its_commit_alone(config) -> None:
    """The host hears of it, and the next commit holds everything."""
    ledger = Ledger()
    with millpond.open_job(config) as job, job.open_task("t", databases={"ledger": ledger}) as task:
        ledger.lines.append("one")
        ledger.failing = True
        with pytest.raises(millpond.CommitFailedError, match="the host's disk is full"):
            task.commit_now(30)
        ledger.failing = False
        assert "ledger" in task.commit_now(30).images


@pytest.mark.parametrize(
    ("databases", "message"),
    [({}, "give its database to open_task"), ({"ledger": Ledger(), "counts": Ledger()}, "databases names 'counts'")],
)
def test_databases_and_configuration_must_agree(config, databases, message) -> None:
    """A store without its database, or a database without its store, is refused before anything is claimed."""
    with millpond.open_job(config) as job, pytest.raises(millpond.ConfigError, match=message):
        job.open_task("t", databases=databases)


def test_a_backend_that_reads_keys_is_refused(config) -> None:
    """Only a backend that keeps folders can keep a database that nobody else can read."""
    config["backends"]["memory"] = {"type": "memory", "required": False}
    config["stores"]["ledger"]["backup"] = ["disk", "memory"]
    config["stores"]["counts"]["backup"] = ["disk"]
    with millpond.open_job(config) as job, pytest.raises(millpond.ConfigError, match="reads no folders"):
        job.open_task("t", databases={"ledger": Ledger()})
