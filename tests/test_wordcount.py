"""The word count of the examples, with processes that are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = os.environ.get("MILLPOND_WORDCOUNT_KILLS", "4")
"""How often a process of the word count is killed; 200 at night."""


@pytest.mark.timeout(660 + 20 * int(KILLS))
def test_words_are_counted_exactly_though_processes_are_killed() -> None:
    """The three-stage word count of ``examples/wordcount``, killed here and there: exact, and never back."""
    run = Path(__file__).parents[1] / "examples" / "wordcount" / "run.py"
    done = subprocess.run(
        [sys.executable, str(run), "--kills", KILLS, "--seed", "3", "--interval", "0.2"],
        capture_output=True,
        text=True,
        timeout=600 + 20 * int(KILLS),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "counted exactly" in done.stdout and "none went back" in done.stdout
