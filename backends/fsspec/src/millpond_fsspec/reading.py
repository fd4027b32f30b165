"""Reading a body as its size says, whatever its stream gives at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from millpond.blob import Body
from millpond.errors import TransientError

COPY_SIZE = 1 << 20
"""Bytes that are moved at a time."""


class WholeStream:
    """
    A stream over a body: each read is as long as it was asked for, but for the last, and a short body raises.

    Attributes:
        len: What is left, in bytes; requests sends it as the length, where it would send chunks otherwise.
    """

    def __init__(self, stream: BinaryIO, size: int) -> None:
        """Read *stream*, which has to have *size* bytes."""
        self._stream = stream
        self.len = size

    def read(self, size: int = -1) -> bytes:
        """
        Give *size* bytes, or all that are left.

        Raises:
            TransientError: The stream ended before its size.
        """
        wanted = self.len if size < 0 else min(size, self.len)
        pieces = []
        while wanted:
            piece = self._stream.read(wanted)
            if not piece:
                raise TransientError(f"the body ended {self.len:,} bytes before its size: its file was cut meanwhile")
            pieces.append(piece)
            wanted -= len(piece)
            self.len -= len(piece)
        return b"".join(pieces)

    def __iter__(self) -> Iterator[bytes]:
        """Give the rest, piece by piece."""
        while piece := self.read(COPY_SIZE):
            yield piece


@contextmanager
def whole(body: Body) -> Iterator[WholeStream]:
    """Open *body* for the block."""
    with body.open() as stream:
        yield WholeStream(stream, body.size)
