"""Digests of content: how they are computed, and their text ``"<algorithm>:<hex>"``."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from millpond.errors import FormatError

DEFAULT_ALGORITHM = "blake3"
"""What is used unless a configuration says otherwise."""

_CHUNK = 1 << 20
_TEXT = re.compile(r"(blake3|sha256):[0-9a-f]{64}")


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> object: ...

    def hexdigest(self) -> str: ...


_MAKERS: dict[str, Callable[[], _Hash]] = {"blake3": blake3, "sha256": hashlib.sha256}


class Digester:
    """
    Digests a stream piece by piece. One thread at a time; large pieces are digested without the interpreter's lock.

    Raises:
        FormatError: The algorithm is not ``"blake3"`` or ``"sha256"``.
    """

    def __init__(self, algorithm: str = DEFAULT_ALGORITHM) -> None:
        maker = _MAKERS.get(algorithm)
        if maker is None:
            raise FormatError(f"unknown digest algorithm {algorithm!r} (known: {', '.join(_MAKERS)})")
        self.algorithm = algorithm
        self._hash = maker()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add *data* to what has been digested."""
        self._hash.update(data)

    def text(self) -> str:
        """Give the digest of all pieces so far; more may follow."""
        return f"{self.algorithm}:{self._hash.hexdigest()}"


def digest_bytes(data: bytes | bytearray | memoryview, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """Give the digest of *data*, e.g. ``"blake3:af13…"``."""
    digester = Digester(algorithm)
    digester.update(data)
    return digester.text()


def digest_file(path: str | os.PathLike[str], algorithm: str = DEFAULT_ALGORITHM) -> str:
    """
    Give the digest of a file's content; in pieces of 1 MiB, on the calling thread alone.

    Raises:
        FormatError: The algorithm is unknown.
        OSError: The file cannot be read.
    """
    digester = Digester(algorithm)
    buffer = memoryview(bytearray(_CHUNK))
    with Path(path).open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digester.update(buffer[:size])
    return digester.text()


def check_digest(text: str) -> str:
    """
    Give *text* back if it is a digest of a known kind.

    Raises:
        FormatError: It is not.
    """
    if _TEXT.fullmatch(text) is None:
        raise FormatError(f"not a digest: {text[:80]!r} (expected blake3:<64 hex digits> or sha256:<64 hex digits>)")
    return text


def algorithm_of(text: str) -> str:
    """Give the algorithm of a digest's text; raises FormatError as ``check_digest`` does."""
    return check_digest(text).partition(":")[0]
