"""The crash lab run as a process of its own beside a server: what ``crash_s3.py`` and its siblings share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from millpond.testing.lab.seeds import in_memory

Serve = Callable[[Path], AbstractContextManager[tuple[str, Mapping[str, str]]]]
"""Serves out of a folder until the block ends; gives the lab's template and what the lab's environment needs beyond."""


def run_beside(name: str, serve: Serve, arguments: Sequence[str]) -> int:
    """
    Run the lab on the backend *name* with *arguments* while *serve* serves; give its exit code.

    ``--module flips`` and the like come first and choose another module of the lab.
    """
    module = "millpond.testing.lab"
    if arguments[:1] == ["--module"]:
        module, arguments = f"{module}.{arguments[1]}", arguments[2:]
    place = tempfile.TemporaryDirectory(prefix=f"millpond-crash-{name}-", dir=in_memory())
    with place as folder, serve(Path(folder)) as (template, environment):
        file = Path(folder) / f"{name}.toml"
        file.write_text(template, "utf-8")
        command = [sys.executable, "-m", module, "--backend", name, "--config-template", str(file), *arguments]
        return _run(command, {**os.environ, **environment})


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    """Run the lab; told to end, let it tell what it has run by then, and end the server too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with subprocess.Popen(command, env=environment) as lab:
        try:
            return lab.wait()
        except KeyboardInterrupt:
            lab.terminate()
            return lab.wait()
