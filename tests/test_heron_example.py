"""The example of a topology with its state in a bucket: it runs, and its kills cost nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "heron" / "run.py"


@pytest.mark.timeout(400)
def test_a_topology_survives_the_kills_of_its_checkpoint_manager(tmp_path: Path):
    """Checkpoints, a kill within one, restores and cleans against S3 end with every byte as it was saved."""
    pytest.importorskip("moto.server", reason="the bucket is served by moto: pip install 'moto[server]'")
    arguments = ["--checkpoints", "6", "--kills", "1", "--size", "40000", "--keep", str(tmp_path)]
    command = [sys.executable, str(SCRIPT), *arguments]
    said = subprocess.run(command, capture_output=True, text=True, timeout=360, check=False)

    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.rstrip().endswith("bytes compared: all right")
    assert "the bucket holds 50 states of 5 checkpoints" in said.stdout
    assert "cleaned" in said.stdout
