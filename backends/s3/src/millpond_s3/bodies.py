"""What is sent, as a file that the SDK can rewind; and what comes back, read whole or not at all."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any, BinaryIO

from millpond.blob.store import BrokenBodyError


class Window(io.RawIOBase):
    """*size* bytes of *stream* from *start* on. One thread; closing it closes *stream*."""

    def __init__(self, stream: BinaryIO, start: int, size: int) -> None:
        self._stream, self._start, self._size, self._at = stream, start, size, 0
        stream.seek(start)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill *buffer* as far as the window goes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """Give the next *size* bytes, fewer at the end."""
        left = self._size - self._at
        data = self._stream.read(left if size is None or size < 0 else min(size, left))
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to *offset*; the SDK goes back to the start before it repeats a request, and to the end for the length."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = min(max(0, origin + offset), self._size)
        self._stream.seek(self._start + self._at)
        return self._at

    def tell(self) -> int:
        """Say where it is."""
        return self._at

    def close(self) -> None:
        """Close it and the stream."""
        if not self.closed:
            self._stream.close()
        super().close()


def read_whole(answer: Mapping[str, Any], place: str) -> bytes:
    """Read the body of an *answer* about *place*; BrokenBodyError if it breaks off."""
    from botocore.exceptions import BotoCoreError

    promised = int(answer["ContentLength"])
    try:
        with closing(answer["Body"]) as stream:  # its own `with` gives the raw stream, which checks nothing
            data: bytes = stream.read()
    except (BotoCoreError, OSError) as error:
        raise BrokenBodyError(f"{place}: the body broke off: {error}") from error
    if len(data) != promised:
        raise BrokenBodyError(f"{place}: the body broke off: {len(data)} bytes of {promised}")
    return data
