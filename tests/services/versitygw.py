"""versitygw: S3 over a folder, with real signatures, checksums, versions, and one winner in every race."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.go_tools import VERSITYGW
from services.processes import free_port, running
from services.s3_server import S3Server

ACCESS_KEY = "millpond-tests"
SECRET_KEY = "millpond-tests-secret"


@contextmanager
def serve(root: Path, *, port: int | None = None, access_log: Path | None = None) -> Iterator[S3Server]:
    """Serve what is below *root* until the block ends; with *access_log*, each request is noted there."""
    binary = VERSITYGW.find()
    if binary is None:
        raise FileNotFoundError(VERSITYGW.missing())
    data, versions = root.resolve() / "data", root.resolve() / "versions"
    for folder in (data, versions):
        folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    account = ["--access", ACCESS_KEY, "--secret", SECRET_KEY]
    noted = [] if access_log is None else ["--access-log", str(access_log)]
    served = ["posix", "--versioning-dir", str(versions), str(data)]
    command = [str(binary), *account, "--port", f"127.0.0.1:{port}", "-q", *noted, *served]
    with running(command, port, root / "versitygw.log"):
        yield S3Server(f"http://127.0.0.1:{port}", ACCESS_KEY, SECRET_KEY, "versitygw")
