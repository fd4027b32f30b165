"""A folder of records in an object store: what numbered records need, over the role of an object store."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from attrs import frozen

from millpond.blob.store import BlobStore, BytesBody
from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.formats.envelope import MAX_SIZE
from millpond.records import RecordFolder

_LONGEST_RECORD = MAX_SIZE + 4096
_UNFINISHED_LIFE_MS = 24 * 3600 * 1000


@frozen
class BlobFolder(RecordFolder):
    """
    The objects below one prefix.

    Attributes:
        store: Where they are.
        prefix: What their keys begin with, up to the last ``/``.
    """

    listing_costs: ClassVar[bool] = True

    store: BlobStore
    prefix: str

    def names(self) -> list[str]:
        """Give the names of all objects, by a listing made now."""
        return [entry.key.removeprefix(self.prefix) for entry in self.store.list(self.prefix)]

    def create(self, name: str, data: bytes) -> bool:
        """Put *data* under *name* unless something is there."""
        return self.store.put(self.prefix + name, BytesBody(data), if_absent=True)

    def read(self, name: str) -> bytes | None:
        """Give what is under *name*; StateCorruptError if it is larger than any record."""
        try:
            data = self.store.get(self.prefix + name, 0, _LONGEST_RECORD + 1)
        except StateNotFoundError:
            return None
        if len(data) > _LONGEST_RECORD:
            raise StateCorruptError(
                f"the record {self.where(name)} cannot be read: it is larger than any ({_LONGEST_RECORD:,} bytes)"
            )
        return data

    def delete(self, names: Collection[str]) -> None:
        """Remove *names*."""
        if names:
            self.store.delete([self.prefix + name for name in names])

    def now_millis(self) -> int:
        """Give the store's clock."""
        return self.store.now()

    def tidy(self) -> None:
        """Drop unfinished uploads that are a day old."""
        if uploads := list(self.store.unfinished(self.prefix)):
            oldest_kept = self.store.now() - _UNFINISHED_LIFE_MS
            for upload in uploads:
                if upload.millis < oldest_kept:
                    self.store.abort(upload)

    def where(self, name: str) -> str:
        """Say where *name* is, as the store's operator knows it."""
        return self.store.where(self.prefix + name)
