"""Bringing the files of an image to another folder: by hard links where they work, else by copies that are verified."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from millpond.errors import StateCorruptError
from millpond.formats.digest import Digester, algorithm_of
from millpond.local import explained, links_fail

_PIECE = 1 << 20


@frozen
class Piece:
    """
    A file that is to be brought.

    Attributes:
        source: Where it is.
        target: Where it will be; its folder exists.
        size: In bytes, as its manifest says.
        digest: As its manifest says.
    """

    source: Path
    target: Path
    size: int
    digest: str


Held = Mapping[tuple[str, int], Path]
"""Files that lie on the target's device already, by digest and size."""


def link(piece: Piece, held: Held) -> bool:
    """
    Link *piece*, or a file of *held* with its content; False: it has to be copied.

    Raises:
        StateCorruptError: The source is no plain file, or not of its size.
        FileNotFoundError: The source is gone.
        TransientError, ConfigError: The file system refuses.
    """
    return _link(piece.source, piece) or _link_held(piece, held)


def _link_held(piece: Piece, held: Held) -> bool:
    earlier = held.get((piece.digest, piece.size))
    if earlier is None:
        return False
    try:
        return _link(earlier, piece)
    except (FileNotFoundError, StateCorruptError):  # an older image is only a short cut
        return False


def _link(source: Path, piece: Piece) -> bool:
    """Link *source* if the file system can; a source of the wrong kind or size is damage."""
    status = source.lstat()
    if not stat.S_ISREG(status.st_mode):
        raise StateCorruptError(f"{source} is no plain file: an image holds nothing else")
    if status.st_size != piece.size:
        raise StateCorruptError(f"{source} is damaged: it has {status.st_size} bytes and should have {piece.size}")
    try:
        os.link(source, piece.target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError as error:
        if links_fail(error):
            return False
        with explained("link", piece.target):
            raise
    return True


def copy(piece: Piece, check: Callable[[], None], *, durable: bool) -> None:
    """
    Copy *piece*, calling *check* between its parts; with *durable*, it is on stable storage when this returns.

    Raises:
        StateCorruptError: What was copied is not what the digest says.
        FileNotFoundError: The source is gone.
        TransientError, ConfigError: The file system refuses.
    """
    digester = Digester(algorithm_of(piece.digest))
    buffer = memoryview(bytearray(_PIECE))
    with (
        piece.source.open("rb", buffering=0) as source,
        explained("copy to", piece.target),
        piece.target.open("xb", buffering=0) as target,
    ):
        while size := source.readinto(buffer):
            check()
            digester.update(buffer[:size])
            _write_all(target.fileno(), buffer[:size])
        if durable:
            os.fsync(target.fileno())
    if digester.text() != piece.digest:
        raise StateCorruptError(
            f"{piece.source} is damaged: its digest is {digester.text()}, and its manifest says {piece.digest}"
        )


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
