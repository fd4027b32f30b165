"""
What another process does with a store, for a test that watches it.

Run as ``fsspec_child.py VERB URL OPTIONS``, the options as JSON.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from typing import BinaryIO

from millpond.blob import BlobStore, Body, BytesBody
from millpond_fsspec.opening import open_store


def say(text: str) -> None:
    """Tell the parent, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def race(store: BlobStore) -> None:
    """Create each key that the parent names, as soon as it names it; say whether it was won."""
    store.now()
    say("ready")
    for line in sys.stdin:
        key = line.strip()
        say("won" if store.put(key, BytesBody(f"{os.getpid()}".encode() * 100), if_absent=True) else "lost")


class Halting(Body):
    """A body of 32 MiB that says so when half of it was read, and gives no more."""

    size = 32 << 20

    def open(self) -> BinaryIO:
        return _HaltingStream(self.size // 2)  # type: ignore[return-value]


class _HaltingStream(io.RawIOBase):
    def __init__(self, left: int) -> None:
        self.left = left

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self.left <= 0:
            say("half")
            threading.Event().wait()
        piece = min(self.left, 1 << 20 if size < 0 else size)
        self.left -= piece
        return bytes(piece)


def halt(store: BlobStore) -> None:
    """Stop for ever in the middle of an upload."""
    store.put("data/halted", Halting())


def fork(store: BlobStore) -> None:
    """Use the store, and then in a child of this process."""
    store.put("data/parent", BytesBody(b"parent"))
    child = os.fork()
    if child == 0:
        store.put("data/child", BytesBody(store.get("data/parent") + b" and child"))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    say(f"{status} {store.get('data/child').decode()}")


if __name__ == "__main__":
    {"race": race, "halt": halt, "fork": fork}[sys.argv[1]](open_store(sys.argv[2], json.loads(sys.argv[3])))
