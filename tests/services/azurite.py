"""
Azurite: Azure Blob Storage for tests, by Microsoft.

    python tests/services/azurite.py        installs it with npm, once, into the checkout's build folder
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services.file_system_server import CACHE, FileSystemServer
from services.processes import free_port, running

VERSION = "3.35.0"
PLACE = CACHE / f"azurite-{VERSION}"
PROGRAM = PLACE / "node_modules" / ".bin" / "azurite-blob"
LONGEST_INSTALL_S = 180
ATTEMPTS = 2
# npm waits ten seconds and more between its own attempts otherwise, for each of some hundred packages.
PATIENCE = (
    "--fetch-retries=4",
    "--fetch-retry-mintimeout=500",
    "--fetch-retry-maxtimeout=4000",
    "--fetch-timeout=30000",
)
CONTAINER = "millpond"
ACCOUNT = "devstoreaccount1"
# Not a secret: it is printed in Azurite's manual, and the same everywhere.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    if shutil.which("node") is None:
        return "Azurite needs Node.js: install it, then run `python tests/services/azurite.py`"
    if not PROGRAM.exists():
        return "Azurite is not there: install it with `python tests/services/azurite.py` (npm)"
    return None


def install() -> None:
    """Install it, unless it is there; nothing half-installed is left."""
    if PROGRAM.exists():
        return
    for left in reversed(range(ATTEMPTS)):
        try:
            _install()
        except subprocess.SubprocessError:
            if not left:
                raise
        else:
            return


def _install() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = PLACE.with_name(f".{PLACE.name}-{os.getpid()}")
    try:
        folder.mkdir()
        command = ["npm", "install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", f"azurite@{VERSION}"]
        subprocess.run([*command, *PATIENCE, "--prefix", str(folder)], check=True, timeout=LONGEST_INSTALL_S)
        folder.rename(PLACE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connection_string(port: int) -> str:
    """Give what a client needs to reach a running one."""
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"


@contextmanager
def serve(root: Path) -> Iterator[FileSystemServer]:
    """Serve one new container out of *root* until the block ends."""
    from azure.storage.blob import BlobServiceClient

    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(root)]
    with running([*command, "--silent", "--skipApiVersionCheck"], port, root / "azurite.log"):
        with BlobServiceClient.from_connection_string(connection_string(port)) as client:
            client.create_container(CONTAINER)
        yield FileSystemServer("azure", f"abfs://{CONTAINER}/state", {"connection_string": connection_string(port)})


def main() -> int:
    """Install it; 0 also where Node.js is missing, since the tests say so themselves."""
    if shutil.which("npm") is None:
        print("Node.js is not installed: the tests that need Azurite will say so")
        return 0
    install()
    print(f"azurite {VERSION}: {PLACE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
