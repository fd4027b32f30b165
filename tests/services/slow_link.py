"""A link of limited speed in front of a server: all connections share it, each way; Toxiproxy limits each by itself."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from services.processes import free_port, running

BLOCK = 1 << 16
MOST_AHEAD_S = 0.002


@contextmanager
def before(endpoint: str, kb_s: int, folder: Path) -> Iterator[str]:
    """Put a link of *kb_s* thousand bytes a second in front of *endpoint*; its log goes to *folder*."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "services.slow_link", str(port), urlsplit(endpoint).netloc, str(kb_s)]
    tests = str(Path(__file__).parents[1])
    with running(command, port, folder / "slow-link.log", PYTHONPATH=tests):
        yield f"http://127.0.0.1:{port}"


class Pipe:
    """One direction of the link: bytes go through one after another, whichever connection they belong to."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s, self._free_at = bytes_s, 0.0

    async def take(self, size: int) -> None:
        """Wait until *size* bytes have gone through."""
        self._free_at = max(self._free_at, time.monotonic()) + size / self._bytes_s
        ahead = self._free_at - time.monotonic()
        if ahead > MOST_AHEAD_S:
            await asyncio.sleep(ahead)


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, pipe: Pipe) -> None:
    """Pass on what comes, until it ends."""
    with suppress(OSError):
        while data := await source.read(BLOCK):
            await pipe.take(len(data))
            target.write(data)
            await target.drain()
    with suppress(OSError, RuntimeError):
        target.write_eof()


async def serve(port: int, host: str, far_port: int, bytes_s: float) -> None:
    """Listen for ever."""
    up, down = Pipe(bytes_s), Pipe(bytes_s)

    async def connected(near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        far_in, far_out = await asyncio.open_connection(host, far_port)
        try:
            await asyncio.gather(copy(near_in, far_out, up), copy(far_in, near_out, down))
        finally:
            near_out.close()
            far_out.close()

    async with await asyncio.start_server(connected, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    far_host, far_port = sys.argv[2].split(":")
    asyncio.run(serve(int(sys.argv[1]), far_host, int(far_port), float(sys.argv[3]) * 1000))
