"""Killed at any named step, a job resumes at its last durable commit or after it, exactly."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import millpond
from millpond.points import ENGINE_POINTS, POINTS

PROGRAM = Path(__file__).parent / "programs" / "killed_job.py"
sys.path.insert(0, str(PROGRAM.parent))
import killed_job  # noqa: E402 - the program is also the model

CONFIG = """
[job]
name = "killed"
state_dir = "{root}/state dir"

[checkpoint]
manager = "directory"
path = "{root}/records"
retain = 2

[backends.disk]
type = "rocksdb-local"
path = "{root}/backup"
grace = "0s"

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


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text(CONFIG.format(root=tmp_path))
    return path


def run_until_killed(config: Path, until: int, point: str, passes: int) -> tuple[int, int]:
    """Run the program in a child that dies at *point*; give where it resumed, and the last offset called durable."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(config), str(until), point, str(passes)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr or "the point was not reached"
    said = dict.fromkeys(("resumed", "durable"), 0)
    said.update({word: int(number) for word, number in map(str.split, done.stdout.splitlines())})
    return said["resumed"], said["durable"]


def restored(config: Path) -> tuple[int, dict[str, dict[str, object]]]:
    """Open the task once more and give its offset and all its stores."""
    with millpond.open_job(config) as job, job.open_task(killed_job.TASK) as task:
        offset = int(task.offsets.get(killed_job.SOURCE, -1)) + 1
        return offset, {name: dict(task.store(name).scan()) for name in ("counts", "seen", "open")}


def leftovers(root: Path) -> list[str]:
    """Give what no retained checkpoint needs, on the local disk and in the backup."""
    state, backup = root / "state dir" / "killed", root / "backup"
    staged = [path for base in (state, backup) for path in base.rglob("*") if path.name.endswith(".new")]
    live = [path for path in state.glob("*/live-*") if any(path.iterdir())]
    images = [shelf for shelf in state.glob("*/images/*") if len(list(shelf.iterdir())) > 1]
    kept = [shelf for shelf in backup.glob("*/*/*/*") if len(list(shelf.iterdir())) > 2]
    return [str(path) for path in (*staged, *live, *images, *kept)]


@pytest.mark.parametrize("wiped", [False, True], ids=["same-disk", "wiped-disk"])
@pytest.mark.parametrize("point", ENGINE_POINTS)
def test_a_job_killed_at_a_point_resumes_exactly(config: Path, point: str, wiped: bool) -> None:
    """Whatever step it dies at, nothing durable is lost, and every store is what its offsets say."""
    assert 0 == killed_job.run(str(config), 100)
    if point == "restore.store-filled":
        shutil.rmtree(config.parent / "state dir")  # else every store comes from its local image
    passes = random.Random(point).randrange(3) if not point.startswith("restore") else 0

    resumed, durable = run_until_killed(config, 300, point, passes)

    assert resumed in (0, 100)
    if wiped:
        shutil.rmtree(config.parent / "state dir")
    offset, stores = restored(config)
    assert max(100, durable) <= offset <= 300
    assert killed_job.expected(offset) == stores
    assert offset == killed_job.run(str(config), 400)
    assert (400, killed_job.expected(400)) == restored(config)
    assert [] == leftovers(config.parent)


def killed_after(config: Path, lines: int) -> int:
    """Run the program, kill it when it has said so many *lines*; give the last offset that it called durable."""
    command = [sys.executable, str(PROGRAM), str(config), "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.readlines()
    words = [line.split() for line in said]
    return max((int(number) for word, number in words if word == "durable"), default=0)


@pytest.mark.parametrize("seed", range(6))
def test_a_job_killed_at_a_random_moment_resumes_exactly(config: Path, seed: int) -> None:
    """Killed again and again without regard to steps, a job never goes back before what it called durable."""
    chance, durable = random.Random(seed), 0
    for _ in range(3):
        durable = max(durable, killed_after(config, chance.randrange(1, 12)))
        if chance.random() < 0.5:
            shutil.rmtree(config.parent / "state dir")

    offset, stores = restored(config)

    assert durable <= offset
    assert killed_job.expected(offset) == stores


def test_every_point_is_passed_somewhere() -> None:
    """A point that no code reaches is not in the list, and no code reaches a point that is not."""
    root = Path(__file__).parents[1]
    if not (root / "backends").is_dir():
        pytest.skip("the backends' sources are not here")
    reached = {
        piece.split('"')[1]
        for path in [*root.glob("src/**/*.py"), *root.glob("backends/*/src/**/*.py")]
        for piece in path.read_text().split("reached(")[1:]
        if piece.startswith('"')
    }

    assert set(POINTS) == reached
