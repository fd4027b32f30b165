"""
Three real servers: one killed in the middle of commits, again and again; two killed; a job that sees none of it.

``MILLPOND_ZOOKEEPER_KILLS`` says how often the ensemble's leader is killed in the long run (2).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from zookeeper_managers import TASK, checkpoint, ids_of, manager_at, metadata_at

from millpond.checkpoint import CheckpointId
from millpond.errors import TransientError

PROGRAM = Path(__file__).with_name("programs") / "counting_job.py"
KILLS = int(os.environ.get("MILLPOND_ZOOKEEPER_KILLS", "2"))
ENOUGH = 1_000_000
PATIENCE_S = 90


class Child:
    """The counting job in a process of its own, and what it says."""

    def __init__(self, config: dict[str, Any]) -> None:
        command = [sys.executable, str(PROGRAM), json.dumps(config), str(ENOUGH)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines: Queue[list[Any] | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                with suppress(ValueError):  # a line that the kill cut
                    self._lines.put(json.loads(line))
        self._lines.put(None)

    def hear(self) -> list[Any] | None:
        """Give the next thing that it says; None at its end."""
        return self._lines.get(timeout=PATIENCE_S)

    def hear_durable(self, at_least: int) -> tuple[int, float]:
        """Listen until a number of at least *at_least* is durable; give it, and the longest silence before."""
        longest, begun = 0.0, time.monotonic()
        while (said := self.hear()) is not None:
            longest, begun = max(longest, time.monotonic() - begun), time.monotonic()
            if said[0] == "durable" and said[1] >= at_least:
                return said[1], longest
        raise AssertionError("the job ended")

    def kill(self) -> int:
        """Kill it, and give the last number that it said to be durable; -1: none."""
        self.process.send_signal(signal.SIGKILL)
        last = -1
        while (said := self.hear()) is not None:
            last = said[1] if said[0] == "durable" else last
        self.process.wait(PATIENCE_S)
        return last


def config(hosts: str, root: str, folder: Path) -> dict[str, Any]:
    disk = {"type": "rocksdb-local", "path": str(folder / "backup")}
    return {
        "job": {"name": "flights", "state_dir": str(folder / "state")},
        "checkpoint": {"manager": "zookeeper", "hosts": hosts, "root": root, "session_timeout": "6s", "retain": 2},
        "backends": {"disk": disk},
        "stores": {
            "counts": {"engine": "memory", "key": "str", "value": "json", "backup": ["disk"], "restore": ["disk"]}
        },
        "commit": {"interval": "1h"},
    }


@pytest.mark.timeout(120 + 60 * KILLS)
def test_commits_go_on_though_the_leader_is_killed_again_and_again(own_ensemble, root, tmp_path, record_property):
    """A job commits through each SIGKILL of the leader, and one killed with it resumes at or after what was durable."""
    ensemble = own_ensemble(3)
    given = config(ensemble.hosts, root, tmp_path)
    child, silences = Child(given), list[float]()
    try:
        said = child.hear()
        for number in range(KILLS):
            durable, _ = child.hear_durable(0)
            leader = ensemble.leader()
            leader.kill()
            if number % 2:
                durable = max(durable, child.kill())
                child = Child(given)
                said = child.hear()
                assert said is not None
                assert said[1] >= durable, f"resumed at {said[1]}, though {durable} was durable"
                assert [said[1] + 1, said[1] * (said[1] + 1) // 2] == said[2:], "the state is not that of the offset"
            durable, silence = child.hear_durable(durable + 50)
            silences.append(silence)
            leader.start()
            leader.await_ready()
        last = max(durable, child.kill())
        child = Child(given)
        said = child.hear()
        assert said is not None
        assert said[1] >= last
        assert [said[1] + 1, said[1] * (said[1] + 1) // 2] == said[2:]
    finally:
        child.kill()
    record_property("longest_silence_s", round(max(silences), 2))
    assert max(silences) < 30


@pytest.mark.timeout(240)
def test_a_task_goes_on_where_it_was_after_two_of_three_servers_died(own_ensemble, root):
    """Without a majority each call ends in time and says so; with it again, what was unknown is settled, once."""
    ensemble = own_ensemble(3)
    patient = manager_at(ensemble.hosts, root, timeout=timedelta(seconds=PATIENCE_S))
    hasty = manager_at(ensemble.hosts, root, timeout=timedelta(seconds=2))
    claim = patient.claim(TASK)
    patient.write(claim, checkpoint(1), after=None)
    for server in ensemble.servers[:2]:
        server.kill()

    for call in (
        lambda: hasty.write(claim, checkpoint(2), after=CheckpointId(1, 0)),
        lambda: hasty.read_last(TASK),
    ):
        begun = time.monotonic()
        with pytest.raises(TransientError, match=r"majority|may have happened"):
            call()
        assert time.monotonic() - begun < 10

    for server in ensemble.servers[:2]:
        server.start()
    ensemble.await_ready()
    newest = patient.read_last(TASK)
    assert newest is not None
    patient.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    assert ids_of(2, 1) == patient.ids(TASK)
    hasty.close()
    patient.close()


def test_a_server_that_lags_behind_shows_nobody_the_past(own_ensemble, root):
    """Whoever asks a follower that slept through writes gets the newest record, also at its very first look."""
    ensemble = own_ensemble(3)
    leader = ensemble.leader()
    lagging = next(server for server in ensemble.servers if server is not leader)
    writer, reader = manager_at(leader.address, root), manager_at(lagging.address, root)
    claim, last = writer.claim(TASK), None
    with ThreadPoolExecutor(1) as pool:
        for number in range(1, 151):
            if number % 50 == 1:
                assert last == reader.read_last(TASK)
                lagging.signal(signal.SIGSTOP)
                asking = pool.submit(reader.read_last, TASK)  # it waits in the follower's socket
            last = checkpoint(number, claim=claim)
            writer.write(claim, last, after=None)
            if number % 50 == 0:
                lagging.signal(signal.SIGCONT)
                assert last == asking.result(60)
    writer.close()
    reader.close()


def test_a_leadership_outlives_the_ensembles_leader(own_ensemble, root):
    """The ensemble's leader dies, the session moves to another server, and the coordinator leads and writes on."""
    ensemble = own_ensemble(3)
    with metadata_at(ensemble.hosts, root, session_timeout=timedelta(seconds=12)) as metadata:
        leadership = metadata.lead("a", 60)
        version = metadata.write(leadership, b"one", None)

        ensemble.leader().kill()
        version = metadata.write(leadership, b"two", version)

        leadership.check()
        record = metadata.read()
        assert record is not None
        assert (b"two", version) == (record.data, record.version)
        assert (1, "a") == metadata.leader()
