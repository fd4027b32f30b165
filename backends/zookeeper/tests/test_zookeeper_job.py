"""Whole jobs with their records in ZooKeeper: the one in the docs, one that is taken over, and what is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from zookeeper_managers import connection_of, manager_at, metadata_at

import millpond
from millpond.coordinator import open_metadata
from millpond.errors import CommitError, ConfigError, FencedError

PAGE = Path(__file__).parents[3] / "docs" / "zookeeper.md"
SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)


@pytest.fixture
def job_file(tmp_path: Path, hosts: str, root: str) -> Path:
    """The job of the docs, on the test's server and disks."""
    text = PAGE.read_text("utf-8").split("```toml\n")[1].split("```")[0]
    for told, given in {
        "zk1:2181,zk2:2181,zk3:2181": hosts,
        "/millpond/flights": root,
        "/var/lib": f"{tmp_path}/lib",
        "/mnt": f"{tmp_path}/mnt",
    }.items():
        assert told in text
        text = text.replace(told, given)
    path = tmp_path / "job.toml"
    path.write_text(text, "utf-8")
    return path


def count_one(task: millpond.Task) -> int:
    delays = task.store("delays")
    number = int(task.offsets.get(SOURCE, "-1")) + 1
    delays["EWR"] = delays.get("EWR", 0) + 1
    task.processed(SOURCE, number)
    task.commit_now(60)
    return delays["EWR"]


def test_the_job_of_the_docs_runs_and_resumes(job_file):
    """As pasted it is prepared, commits once in each of five openings, and each time goes on where it was."""
    for number in range(1, 6):
        with millpond.open_job(job_file) as job:
            job.prepare()
            with job.open_task("Partition 0") as task:
                assert number == count_one(task)
    with millpond.open_job(job_file) as job, job.open_task("Partition 0") as task:
        assert {SOURCE: "4"} == dict(task.offsets)
        assert 5 == task.store("delays")["EWR"]


def test_the_command_tells_of_it(job_file):
    """`millpond checkpoints list` shows what is retained, and `millpond doctor` finds nothing wrong."""
    with millpond.open_job(job_file) as job, job.open_task("Partition 0") as task:
        for _ in range(4):
            count_one(task)
        last = task.last
    listed = said_by("checkpoints", "list", "--json", "--config", str(job_file))
    examined = said_by("doctor", "--config", str(job_file))

    assert last is not None
    assert 0 == listed.returncode, listed.stdout + listed.stderr
    assert str(last.id) in listed.stdout
    assert 0 == examined.returncode, examined.stdout + examined.stderr


def test_a_coordinator_of_the_job_finds_its_place(job_file):
    """The coordinator's record lies in the same ZooKeeper, found by the job's configuration alone."""
    with open_metadata(job_file) as place:
        place.write(place.lead("one", 30.0), b"the record", None)
    with open_metadata(job_file) as place:
        stored = place.read()
        assert stored is not None
        assert stored.data == b"the record"
        assert place.leader() == (1, "one")


def said_by(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "millpond", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_a_task_that_another_job_takes_over_is_fenced(job_file, tmp_path):
    """A second process opens the task; the first one's next commit is refused, and the history is the second one's."""
    other = tmp_path / "other.toml"
    other.write_text(job_file.read_text("utf-8").replace(f"{tmp_path}/lib", f"{tmp_path}/other"), "utf-8")
    with millpond.open_job(job_file) as job, millpond.open_job(other) as second:
        old = job.open_task("Partition 0")
        assert 1 == count_one(old)
        new = second.open_task("Partition 0")
        assert 2 == count_one(new)
        with pytest.raises((FencedError, CommitError)):
            count_one(old)
        assert 3 == count_one(new)
        new.close()
        old.close()


def test_nothing_imports_the_driver_before_it_is_used():
    """Loading the plugin, as listing plugins does, leaves kazoo alone."""
    code = "import sys, json, millpond_zookeeper; print(json.dumps([m for m in sys.modules if m.startswith('kazoo')]))"

    assert [] == json.loads(subprocess.check_output([sys.executable, "-c", code], timeout=60))


def test_all_threads_end_with_a_manager(hosts, root):
    """Neither a manager nor a place that led leaves a thread or a descriptor."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    threads = threading.active_count()
    for _ in range(5):
        manager = manager_at(hosts, root)
        manager.claim("t")
        manager.close()
        with metadata_at(hosts, root) as metadata:
            metadata.lead("a", 30)
            assert connection_of(metadata).session

    assert threads == threading.active_count()
    assert before >= len(list(Path("/proc/self/fd").iterdir()))


def test_a_wrong_section_is_explained(tmp_path, hosts):
    """A typo in the section is named with what would be right."""
    config = {
        "job": {"name": "j", "state_dir": str(tmp_path)},
        "checkpoint": {"manager": "zookeeper", "hosts": hosts, "pasword": "x"},
        "stores": {"s": {"engine": "memory", "ephemeral": True}},
    }

    with pytest.raises(ConfigError, match="pasword"):
        millpond.open_job(config)
