"""What is sent, as a file that the SDK can rewind; and what comes back, read whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from millpond.blob.store import Body, BrokenBodyError

_BLOCK = 1 << 20
_TURN = 256 << 10


class Window(io.RawIOBase):
    """
    *size* bytes of *body* from *start* on, as a file. One thread.

    A body promises that it can be opened again, not that its stream can go back: then it is opened again.
    """

    def __init__(self, body: Body, start: int, size: int) -> None:
        self._body, self._start, self._size = body, start, size
        self._stream, self._at = body.open(), 0
        self._skip(start)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill *buffer* as far as the window goes."""
        data = self._take(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int | None = -1) -> bytes:
        """
        Give the next *size* bytes or more, fewer only at the end.

        The SDK asks for 16 KiB and sends whatever it gets. In a busy interpreter each turn of that loop waits for the
        lock that all threads share: larger turns keep an upload fast, and the job's own thread too.
        """
        return self._take(self._size if size is None or size < 0 else max(size, _TURN))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to *offset*: the SDK goes back to the start before it repeats a request."""
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        at = min(max(0, origin + offset), self._size)
        if at != self._at:
            self._go_to(at)
        return at

    def tell(self) -> int:
        """Say where it is."""
        return self._at

    def close(self) -> None:
        """Close it and the stream."""
        if not self.closed:
            self._stream.close()
        super().close()

    def _take(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._size - self._at))
        self._at += len(data)
        return data

    def _go_to(self, at: int) -> None:
        if self._stream.seekable():
            self._stream.seek(self._start + at)
        else:
            self._stream.close()
            self._stream = self._body.open()
            self._skip(self._start + at)
        self._at = at

    def _skip(self, size: int) -> None:
        """Pass over *size* bytes of a stream that is at its start."""
        if self._stream.seekable():
            self._stream.seek(size)
            return
        while size > 0 and (passed := len(self._stream.read(min(size, _BLOCK)))):
            size -= passed


def whole(window: Window) -> dict[str, object]:
    """
    Give the parameters that send all of *window* from memory, with its MD5.

    Some servers keep what came of a body whose connection broke, unless a hash tells them. A data object of that kind
    is of no harm: nothing names it. A record under its final name would be.
    """
    data = window.read()
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {"Body": data, "ContentMD5": base64.b64encode(digest).decode()}


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
