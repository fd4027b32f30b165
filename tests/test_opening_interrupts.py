"""Ctrl-C while a task is opened: the host gets it, and whatever was begun is let go."""

from __future__ import annotations

import pytest
from engines import TASK, committed, expected
from interrupts import Interrupting

STRIDE = 43
"""Places between two tries: all of them would take minutes, and each run meets every step of an opening."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a listing that was cut short
@pytest.mark.parametrize("wiped", [False, True], ids=["local", "from-the-backend"])
def test_an_interrupt_anywhere_in_open_task(disks, wiped):
    """Wherever it hits, the job closes in its time, and the next opening is exact."""
    committed(disks, 1)
    place, interrupted = 1, True
    while interrupted:
        if wiped:
            disks.state = f"disk {place}"
        job = disks.open_job()
        interrupted = Interrupting(place).around(lambda job=job: job.open_task(TASK))
        job.close(10)  # raises if something was left at work
        place += STRIDE

        assert expected(1) == disks.restored(), place - STRIDE
    assert place > 10 * STRIDE
