"""What a child process does for the cases of a checkpoint manager."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from millpond.errors import FencedError
from millpond.testing.kit.child import answer
from millpond.testing.kit.manager_bench import TASK, ManagerBench
from millpond.testing.kit.suite import Suite


def claim_write_die(suite: Suite[Any], folder: Path, job: str) -> NoReturn:
    """Claim, read, write, say what, and die before anything can be closed or flushed."""
    bench: ManagerBench = suite.bench(folder, job=job)
    claim = bench.first.claim(TASK)
    made = bench.write(claim, bench.first.read_last(TASK))
    answer({"epoch": claim.epoch, "id": str(made.id)})
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a killed process does not get here")


def contend(suite: Suite[Any], folder: Path, job: str, rounds: int) -> dict[str, list[Any]]:
    """Claim and write, again and again, while another does the same; give the epochs and what was written."""
    bench: ManagerBench = suite.bench(folder, job=job)
    epochs, written = [], []
    for number in range(rounds):
        claim = bench.first.claim(TASK)
        epochs.append(claim.epoch)
        last = bench.first.read_last(TASK)
        try:
            for _ in range(1 + number % 3):
                last = bench.write(claim, last)
                written.append(str(last.id))
        except FencedError:
            continue
    bench.close()
    return {"epochs": epochs, "written": written}
