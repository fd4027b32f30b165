"""Runs of the crash lab, each in a process of its own: the lab forks, and a process of tests has threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
slow = pytest.mark.timeout(600)  # seconds on a quiet machine; a busy one makes minutes of them


def run(*arguments: str, module: str = "", patch: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a module of the lab in a process of its own, which has no thread yet, after *patch*."""
    script = f"{patch}\nimport runpy; runpy.run_module('millpond.testing.lab{module}', run_name='__main__')"
    return _ended([sys.executable, "-c", script, *arguments], code)


def lab(*arguments: str, module: str = "", patch: str = "", code: int = 0) -> dict:
    """Run a module of the lab after *patch*; give its JSON."""
    return json.loads(run(*arguments, module=module, patch=patch, code=code).stdout)


def program(name: str, *arguments: str) -> dict:
    """Run one of the programs that bring their own server along; give its JSON."""
    return json.loads(_ended([sys.executable, str(PROGRAMS / name), *arguments], 0).stdout)


def _ended(command: list[str], code: int) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)
    assert ended.returncode == code and ended.stdout, ended.stderr[-2000:] + ended.stdout[-2000:]
    return ended
