"""A job in service goes from one backend to another, and from V1 to V2 and back, by its configuration alone."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import millpond
from millpond.checkpoint import SystemStreamPartition
from millpond.errors import ConfigError, TransientError
from millpond.formats.changelog_marker import FACTORY
from millpond.points import arm

pytest.importorskip("rocksdict")

SOURCE = SystemStreamPartition("kafka", "flights.of.today", 0)
TASK = "Partition 0"


class Service:
    """A job that is started again and again, each time with an empty local disk and another configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: dict[str, int] = {}
        self.number = 0

    def config(self, backup: Sequence[str], restore: Sequence[str], checkpoint: Mapping[str, Any]) -> dict[str, Any]:
        sections = {
            "log": {"type": "changelog", "directory": str(self.folder / "log"), "topics": {"delays": "delays.log.v1"}},
            "archive": {"type": "fsspec", "url": f"file://{self.folder}/objects"},
        }
        return {
            "job": {"name": "flights", "state_dir": str(self.folder / "state"), "tasks": [TASK]},
            "checkpoint": {"manager": "kafka", "directory": str(self.folder / "log"), **checkpoint},
            "backends": {name: sections[name] for name in {*backup, *restore}},
            "stores": {
                "delays": {
                    "engine": "rocksdb",
                    "key": "str",
                    "value": "json",
                    "backup": list(backup),
                    "restore": list(restore),
                }
            },
        }

    def run(
        self, backup: Sequence[str], restore: Sequence[str], **checkpoint: Any
    ) -> tuple[Mapping[str, Mapping[str, str]], dict[str, int]]:
        """Start, compare with what was committed, commit something; give the markers, and what was found."""
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        with millpond.open_job(self.config(backup, restore, checkpoint)) as job, job.open_task(TASK) as task:
            delays = task.store("delays")
            found = dict(delays.scan())
            assert found == self.expected
            assert dict(task.offsets) == ({SOURCE: str(self.number)} if self.number else {})
            self.number += 1
            changed = {f"k{self.number % 4}": self.number, f"new{self.number}": 1}
            for key, value in changed.items():
                delays[key] = value
            delays.delete(f"new{self.number - 2}")
            self.expected.update(changed)
            self.expected.pop(f"new{self.number - 2}", None)
            task.processed(SOURCE, self.number)
            markers = task.commit_now(30).markers
        return markers, found


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service(tmp_path)


def test_from_the_changelog_to_an_object_store_and_back(service: Service) -> None:
    """Both are written for a while, then one alone; whichever is asked first has all of it."""
    log, both, archive = ["log"], ["log", "archive"], ["archive"]
    for backup, restore in (
        (log, log),
        (both, log),
        (both, ["archive", "log"]),
        (archive, archive),
        (archive, ["log", "archive"]),
        (both, ["log", "archive"]),
        (log, log),
        (log, ["archive", "log"]),
        (log, log),
    ):
        markers, _ = service.run(backup, restore)
        assert {FACTORY if name == "log" else name for name in backup} == set(markers)


def test_what_only_another_backend_holds_is_an_error_that_names_it(service: Service) -> None:
    """To leave a backend without a commit to the next one is refused: nothing is silently empty."""
    service.run(["log"], ["log"])

    with pytest.raises(ConfigError, match="log"):
        service.run(["archive"], ["archive"])


def test_the_next_backend_is_asked_when_the_first_has_lost_its_state(service: Service) -> None:
    """A deleted topic, or a deleted bucket, costs nothing while the other one is there; in any order."""
    service.run(["log", "archive"], ["log", "archive"])
    shutil.rmtree(service.folder / "log" / "topics" / "delays.log.v1")
    service.run(["log", "archive"], ["log", "archive"])
    service.run(["log", "archive"], ["log"])
    shutil.rmtree(service.folder / "objects")
    service.run(["log", "archive"], ["archive", "log"])
    service.run(["log", "archive"], ["archive"])


def test_v1_rolls_forward_to_v2_and_back(service: Service) -> None:
    """Samza's four stages, and back while V1 is still written: each start has the last commit, from either version."""
    log = ["log"]
    stages: Sequence[tuple[Sequence[int], Sequence[int]]] = (
        ([1], [1]), ([1, 2], [1]), ([1, 2], [1]), ([1, 2], [2, 1]), ([1, 2], [2]), ([1, 2], [1]), ([1, 2], [1, 2]),
        ([1, 2], [2]), ([2], [2]), ([2], [2, 1]),
    )  # fmt: skip
    for write, read in stages:
        service.run(log, log, write_versions=list(write), read_versions=list(read))


def test_v1_with_an_object_store_alone_is_refused(service: Service) -> None:
    """A V1 holds changelogs only: a configuration that would lose a store by it does not start."""
    with pytest.raises(ConfigError, match="would read version 1, which holds no marker of archive"):
        service.run(["archive"], ["archive"], write_versions=[1, 2], read_versions=[1])


def test_a_start_without_changes_writes_nothing_to_the_log(service: Service) -> None:
    """After a restore, from V1 or V2, a commit of the offsets alone appends no change."""
    from millpond_changelog.embedded.log import EmbeddedLog

    for read in ([1], [2]):
        service.run(["log"], ["log"], write_versions=[1, 2], read_versions=read)
        shutil.rmtree(service.folder / "state")
        log = EmbeddedLog(service.folder / "log")
        before = log.extent("delays.log.v1", 0)
        config = service.config(["log"], ["log"], {"write_versions": [1, 2], "read_versions": read})
        with millpond.open_job(config) as job, job.open_task(TASK) as task:
            service.number += 1
            task.processed(SOURCE, service.number)
            task.commit_now(30)
        assert before == log.extent("delays.log.v1", 0)
        log.close()


@pytest.mark.parametrize("misses", [3, 12])
def test_a_log_that_is_not_required_catches_up(service: Service, misses: int) -> None:
    """While its log fails, commits go on without it; then its changes since, or the whole store, follow."""
    config = service.config(["log", "archive"], ["log", "archive"], {})
    config["backends"]["log"]["required"] = False
    broken = [True]

    def fail(point: str) -> None:
        if point == "changelog.sent" and broken[0]:
            raise TransientError("the test lets this fail")

    with millpond.open_job(config) as job, job.open_task(TASK) as task:
        delays = task.store("delays")
        delays["before"] = 0
        task.commit_now(30)
        arm(fail)
        try:
            for number in range(misses):
                delays[f"k{number}"] = number
                delays.delete(f"k{number - 2}")
                assert FACTORY not in task.commit_now(30).markers
        finally:
            arm(None)
        broken[0] = False
        delays["after"] = 1
        assert FACTORY in task.commit_now(30).markers
        expected = dict(delays.scan())
    shutil.rmtree(service.folder / "state")
    shutil.rmtree(service.folder / "objects")

    with millpond.open_job(config) as job, job.open_task(TASK) as task:
        assert expected == dict(task.store("delays").scan())
