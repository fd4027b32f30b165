"""A body made of pieces: files and bytes, one after another, without a copy of the whole in memory."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

from attrs import field, frozen

from millpond.blob.store import Body
from millpond.errors import TransientError

_BUFFER = 1 << 20


@frozen
class FilePiece:
    """
    A whole file that does not change.

    Attributes:
        path: Where it is.
        size: In bytes.
    """

    path: Path
    size: int


@frozen
class BytesPiece:
    """Some bytes."""

    data: bytes

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)


Piece = FilePiece | BytesPiece


def _frozen(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    return tuple(piece for piece in pieces if piece.size)


@frozen
class JoinedBody(Body):
    """Pieces one after another, as one body."""

    pieces: tuple[Piece, ...] = field(converter=_frozen)

    @property
    def size(self) -> int:  # type: ignore[override]
        """In bytes."""
        return sum(piece.size for piece in self.pieces)

    def open(self) -> BinaryIO:
        """Give a new stream over the whole, which can seek."""
        return io.BufferedReader(_Joined(self.pieces), _BUFFER)


class _Joined(io.RawIOBase):
    """Reads pieces one after another, with one file open at a time. One thread at a time."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__()
        self._pieces = pieces
        self._starts = [0, *accumulate(piece.size for piece in pieces)]
        self._at = 0
        self._open: tuple[int, BinaryIO] | None = None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._starts[-1]}[whence]
        if origin + offset < 0:
            raise ValueError(f"cannot seek to {origin + offset}")
        self._at = origin + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._at >= self._starts[-1] or not len(buffer):
            return 0
        number = bisect_right(self._starts, self._at) - 1
        within = self._at - self._starts[number]
        wanted = min(len(buffer), self._pieces[number].size - within)
        stream = self._stream(number)
        stream.seek(within)
        data = stream.read(wanted)
        if not data:
            raise TransientError(f"{self._pieces[number]} became shorter while it was uploaded")
        memoryview(buffer).cast("B")[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _stream(self, number: int) -> BinaryIO:
        if self._open is None or self._open[0] != number:
            self._close_piece()
            piece = self._pieces[number]
            stream: BinaryIO = (
                io.BytesIO(piece.data) if isinstance(piece, BytesPiece) else piece.path.open("rb", buffering=0)
            )
            self._open = number, stream
        return self._open[1]

    def _close_piece(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()

    def close(self) -> None:
        self._close_piece()
        super().close()
