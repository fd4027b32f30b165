"""What a child process does for the cases of a checkpoint manager."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from millpond.checkpoint import CheckpointId
from millpond.errors import FencedError, TransientError
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
    epochs, written, is_unsure = [], [], False
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
        except TransientError:  # nobody knows whether it was written
            is_unsure = True
    if is_unsure:  # behind one more claim nothing of ours is on its way, and the history knows
        epochs.append(bench.first.claim(TASK).epoch)
        written = [str(id) for id in bench.first.ids(TASK) if _epoch_of(bench, id) in epochs]
    bench.close()
    return {"epochs": epochs, "written": written}


def _epoch_of(bench: ManagerBench, id: CheckpointId) -> int | None:
    claim = bench.first.read(TASK, id).claim
    return None if claim is None else claim.epoch
