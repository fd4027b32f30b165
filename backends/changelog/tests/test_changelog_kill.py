"""Killed between any two steps of a commit to the log, a job resumes at or after its last durable commit, exactly."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import millpond
from millpond.points import POINTS

pytest.importorskip("rocksdict")

PROGRAM = Path(__file__).parents[3] / "tests" / "programs" / "killed_job.py"
sys.path.insert(0, str(PROGRAM.parent))
import killed_job  # noqa: E402 - the program is also the model

STEPS = [point for point in POINTS if point.startswith("changelog.")]

RARE = ("changelog.claimed", "changelog.compacted", "changelog.segment-sealed")

CONFIG = """
[job]
name = "killed"
state_dir = "{root}/state"

[checkpoint]
manager = "directory"
path = "{root}/records"

[backends.log]
type = "changelog"
directory = "{root}/log"
min_compaction_lag = "0s"
segment_bytes = "6KiB"

[defaults.stores]
engine = "rocksdb"
key = "str"
value = "json"

[stores.counts]
[stores.seen]
[stores.open]

[commit]
interval = "1h"
"""

DRIVER = """
import sys
from millpond_changelog.embedded import compaction
compaction.WORTH = 4096
sys.path.insert(0, {folder!r})
import killed_job
from millpond.testing.crash import kill_at
if len(sys.argv) > 3:
    kill_at(sys.argv[3], int(sys.argv[4]))
killed_job.run(sys.argv[1], int(sys.argv[2]))
"""


def run(config: Path, until: int, *death: str) -> tuple[int, int, int]:
    """Run the program in a child; give how it ended, where it resumed, and the last offset called durable."""
    driver = DRIVER.format(folder=str(PROGRAM.parent))
    done = subprocess.run(
        [sys.executable, "-c", driver, str(config), str(until), *death],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    said = dict.fromkeys(("resumed", "durable"), 0)
    said.update({words[0]: int(words[1]) for words in map(str.split, done.stdout.splitlines()) if len(words) == 2})
    assert not done.stderr or done.returncode < 0, done.stderr
    return done.returncode, said["resumed"], said["durable"]


@pytest.mark.parametrize("point", STEPS)
def test_a_job_killed_within_a_commit_to_the_log_resumes_exactly(tmp_path: Path, point: str) -> None:
    """Whatever step it dies at, twice, on the same disk or another one, every store is what its offsets say."""
    config = tmp_path / "job.toml"
    config.write_text(CONFIG.format(root=tmp_path))
    chance = random.Random(point)
    durable = 100 if run(config, 100)[0] == 0 else -1
    assert durable == 100
    for _ in range(2):
        passes = 0 if point in RARE else chance.randrange(5)
        ended, resumed, said = run(config, 300, point, str(passes))
        assert ended == -signal.SIGKILL, "the point was not reached"
        assert resumed == 0 or resumed >= durable, "0: it died before it said anything"
        durable = max(durable, said)
        if chance.random() < 0.6:
            shutil.rmtree(tmp_path / "state")

    with millpond.open_job(config) as job, job.open_task(killed_job.TASK) as task:
        offset = int(task.offsets.get(killed_job.SOURCE, -1)) + 1
        stores = {name: dict(task.store(name).scan()) for name in ("counts", "seen", "open")}

    assert durable <= offset <= 300
    assert killed_job.expected(offset) == stores
