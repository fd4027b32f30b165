"""Ray actors carry the coordinator's messages: the word count on a real Ray, whose actors are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

KILLS = os.environ.get("MILLPOND_WORDCOUNT_KILLS", "4")
"""How often an actor's process is killed."""
RUN = Path(__file__).parents[1] / "examples" / "wordcount" / "run.py"

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not here: `tox run -e engines-ray` has it")


@pytest.mark.timeout(660 + 20 * int(KILLS))
def test_words_are_counted_exactly_though_actors_are_killed() -> None:
    """With tasks and coordinators as Ray actors, some of them killed, counts are exact, and none went back."""
    done = subprocess.run(
        [sys.executable, str(RUN), "--ray", "--kills", KILLS, "--seed", "3"],
        capture_output=True,
        text=True,
        timeout=600 + 20 * int(KILLS),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "counted exactly" in done.stdout
    assert "none went back" in done.stdout
