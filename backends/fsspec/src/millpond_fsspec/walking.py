"""Listing a tree of folders in the order of keys, one folder at a time and only those that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from attrs import frozen

from millpond.blob import BlobEntry
from millpond.local import is_temporary

UNFINISHED = "~"
"""No key holds it: an upload lies under ``<name>~<random>`` until it is whole."""


@frozen
class Child:
    """
    Something in a folder.

    Attributes:
        name: Its name there.
        folder: It is a folder.
        size: In bytes.
        millis: When it was last changed, by the store's clock.
    """

    name: str
    folder: bool
    size: int = 0
    millis: int = 0


ListFolder = Callable[[str], Iterable[Child]]
"""From a folder's key (``""`` is the root, the others end in ``/``) to what is in it; empty if it is missing."""


def walk(list_folder: ListFolder, prefix: str, after: str = "") -> Iterator[BlobEntry]:
    """Give the finished objects whose key begins with *prefix* and is greater than *after*, sorted by key."""
    for entry in _walk(list_folder, prefix[: prefix.rfind("/") + 1], prefix, after):
        if not is_unfinished(entry.key):
            yield entry


def unfinished(list_folder: ListFolder, prefix: str) -> Iterator[tuple[BlobEntry, str]]:
    """Give the unfinished uploads whose key begins with *prefix*, and the key that each was meant for."""
    for entry in _walk(list_folder, prefix[: prefix.rfind("/") + 1], prefix, ""):
        if is_unfinished(entry.key):
            yield entry, entry.key.partition(UNFINISHED)[0]


def is_unfinished(key: str) -> bool:
    """Tell whether what lies at *key* is an upload that is not whole."""
    return UNFINISHED in key or is_temporary(key.rpartition("/")[2])


def _walk(list_folder: ListFolder, folder: str, prefix: str, after: str) -> Iterator[BlobEntry]:
    # A folder's keys begin with its name and a slash, and that is what orders it among its siblings.
    for child in sorted(list_folder(folder), key=_order):
        key = f"{folder}{_order(child)}"
        if child.folder:
            if _may_hold(key, prefix, after):
                yield from _walk(list_folder, key, prefix, after)
        elif key.startswith(prefix) and key > after:
            yield BlobEntry(key, child.size, child.millis)


def _order(child: Child) -> str:
    return f"{child.name}/" if child.folder else child.name


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Tell whether a key below *folder* can begin with *prefix* and be greater than *after*."""
    return (folder.startswith(prefix) or prefix.startswith(folder)) and (folder > after or after.startswith(folder))
