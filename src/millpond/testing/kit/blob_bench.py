"""A world for one object store: a prefix of its own, bodies that fail, objects that are removed in the end."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from attrs import frozen

from millpond.blob.store import BlobStore, Body, BytesBody
from millpond.testing.kit.bench import Bench, Profile, at_once

_AT_ONCE = 8


class BlobBench(Bench):
    """
    One case's world.

    Attributes:
        store: The store that the case uses.
        prefix: What all keys of the case begin with; it ends with a slash.
    """

    def __init__(self, folder: Path, profile: Profile, make: Callable[[], BlobStore], job: str = "") -> None:
        """Make the world of one case; *make* gives a store that shows what earlier ones put."""
        super().__init__(folder, profile, None, job)
        self._make = make
        self.prefix = f"{self.job}/"
        self.store = self.another()
        self.at_end(self._remove_all)

    def another(self) -> BlobStore:
        """Make another store over the same place, as another process would; it is closed twice in the end."""
        made = self._make()
        self.at_end(made.close)
        self.at_end(made.close)
        return made

    def key(self, name: str) -> str:
        """Give the whole key of *name*."""
        return self.prefix + name

    def put(self, name: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Put *data* under *name*."""
        return self.store.put(self.key(name), BytesBody(data), if_absent=if_absent)

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Get what is under *name*."""
        return self.store.get(self.key(name), start, length)

    def put_many(self, names: Sequence[str]) -> None:
        """Put small objects, several at once; each holds its own name."""
        for at in range(0, len(names), _AT_ONCE):
            at_once([partial(self.put, name, name.encode()) for name in names[at : at + _AT_ONCE]])

    def names(self, prefix: str = "", after: str = "", store: BlobStore | None = None) -> list[str]:
        """List the names below *prefix* that are greater than *after*."""
        listed = (store or self.store).list(self.key(prefix), after=self.key(after) if after else "")
        return [entry.key.removeprefix(self.prefix) for entry in listed]

    def _remove_all(self) -> None:
        for upload in self.store.unfinished(self.prefix):
            self.store.abort(upload)
        self.store.delete([entry.key for entry in self.store.list(self.prefix)])


@frozen
class FailingBody(Body):
    """A body that can be read up to a place, every time."""

    size: int
    fails_at: int

    def open(self) -> BinaryIO:
        """Give a stream that fails."""
        return io.BufferedReader(_Failing(self.fails_at))


class _Failing(io.RawIOBase):
    def __init__(self, left: int) -> None:
        super().__init__()
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        if not self._left:
            raise OSError(5, "the kit lets this body fail")
        count = min(len(buffer), self._left)
        buffer[:count] = bytes(count)
        self._left -= count
        return count


def noise(size: int, seed: int = 1) -> bytes:
    """Give *size* bytes that look like noise, always the same."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - content of a test
