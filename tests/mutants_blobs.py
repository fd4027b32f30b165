"""Object stores that are wrong in one way: the store in memory, each with one mistake."""

from __future__ import annotations

from threading import Event
from typing import Any
from urllib.parse import unquote

from attrs import evolve
from mutants import BlobMutants, caught_by

from millpond.blob.memory import MemoryBlobStore
from millpond.blob.store import BytesBody
from millpond.errors import StateNotFoundError


@caught_by("put.one-winner", BlobMutants)
class LooksThenPuts(MemoryBlobStore):
    """Looks whether a key is there and then puts it: two can win."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        if if_absent and key in self.objects:
            return False
        Event().wait(0.005)
        return super().put(key, body)


@caught_by("put.if-absent", BlobMutants)
class IgnoresTheCondition(MemoryBlobStore):
    """Ignores if_absent, as some imitations of S3 do."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        return super().put(key, body)


@caught_by("put.fails-whole", BlobMutants)
class PutsTheHalf(MemoryBlobStore):
    """Makes an object of what it could read of a body that failed."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        read = b""
        with body.open() as stream:
            try:
                while part := stream.read(100):
                    read += part
            except OSError:
                super().put(key, BytesBody(read))
                raise
        return super().put(key, BytesBody(read), if_absent=if_absent)


@caught_by("put.appears-whole", BlobMutants)
class AppearsInParts(MemoryBlobStore):
    """Lets an object be seen while it is written."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        with body.open() as stream:
            super().put(key, BytesBody(stream.read(body.size // 2)))
        Event().wait(0.005)
        return super().put(key, body, if_absent=if_absent)


@caught_by("put.large", BlobMutants)
class LosesAPart(MemoryBlobStore):
    """Loses the last part of a large body."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        with body.open() as stream:
            return super().put(key, BytesBody(stream.read(500_000)), if_absent=if_absent)


@caught_by("get.ranges", BlobMutants)
class IncludesTheEnd(MemoryBlobStore):
    """Gives a byte too many, as one that takes a length for a last place."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return super().get(key, start, None if length is None else length + 1)


@caught_by("get.missing", BlobMutants)
class MissingIsEmptyToo(MemoryBlobStore):
    """Takes a missing object for an empty one."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            return super().get(key, start, length)
        except StateNotFoundError:
            return b""


@caught_by("list.fresh", BlobMutants)
class CachesListings(MemoryBlobStore):
    """Gives a listing out of a cache."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        cache = self.__dict__.setdefault("cache", {})
        return iter(cache.setdefault((prefix, after), list(super().list(prefix, after=after))))


@caught_by("list.many", BlobMutants)
class ListsOnePage(MemoryBlobStore):
    """Gives the first thousand objects of a listing."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        return iter([*super().list(prefix, after=after)][:1000])


@caught_by("list.prefix", BlobMutants)
class ListsFolders(MemoryBlobStore):
    """Takes a prefix for a folder's name."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        folder = prefix if prefix.endswith("/") else prefix + "/"
        return super().list(folder, after=after)


@caught_by("list.prefix", BlobMutants)
class ListsFrom(MemoryBlobStore):
    """Begins a listing with the key after which it has to begin."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        return (e for e in super().list(prefix) if e.key >= after)


@caught_by("list.sorted", BlobMutants)
class SortsByParts(MemoryBlobStore):
    """Sorts a listing as folders are walked, not as texts."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        return iter(sorted(super().list(prefix, after=after), key=lambda entry: entry.key.split("/")))


@caught_by("delete.named", BlobMutants)
class DeletesBelow(MemoryBlobStore):
    """Deletes all whose key begins with one that was named."""

    def delete(self, keys: Any) -> None:
        super().delete([key for key in self.objects if any(key.startswith(one) for one in keys)])


@caught_by("delete.named", BlobMutants)
class DeletesOnce(MemoryBlobStore):
    """Fails when what it has to delete is not there."""

    def delete(self, keys: Any) -> None:
        for key in keys:
            del self.objects[key]


@caught_by("keys.any", BlobMutants)
class DecodesKeys(MemoryBlobStore):
    """Decodes what looks encoded in a key."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        return super().put(unquote(key), body, if_absent=if_absent)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return super().get(unquote(key), start, length)


@caught_by("keys.any", BlobMutants)
class BlobIgnoresCase(MemoryBlobStore):
    """Takes two keys that differ by case for one, as some disks do."""

    def put(self, key: str, body: Any, *, if_absent: bool = False) -> bool:
        same = next((each for each in self.objects if each.lower() == key.lower()), key)
        return super().put(same, body, if_absent=if_absent)


@caught_by("clock.millis", BlobMutants)
class CountsSeconds(MemoryBlobStore):
    """Gives an object's time in seconds."""

    def list(self, prefix: str, *, after: str = "") -> Any:
        return (evolve(e, millis=e.millis // 1000) for e in super().list(prefix, after=after))
