"""moto: a stand-in for AWS that knows nearly every call, and checks neither signatures nor checksums."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.processes import free_port, running
from services.s3_server import S3Server


@contextmanager
def serve(root: Path) -> Iterator[S3Server]:
    """Serve out of memory until the block ends; *root* gets the log."""
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, root / "moto.log"):
        yield S3Server(f"http://127.0.0.1:{port}", "any", "any-secret", "moto")
