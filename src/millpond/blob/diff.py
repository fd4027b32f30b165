"""What differs between two checkpoints, by store, as their backup manifests tell: files, bytes, changes."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from millpond.formats.blob_manifest import BackupManifest


@frozen(kw_only=True)
class StoreDiff:
    """
    What became of one store between two checkpoints.

    Attributes:
        store: Its name.
        added: Files of the base that only the later one has, by content; sorted.
        removed: Files of the base that only the earlier one has, by content; sorted.
        added_size: Bytes of the added files.
        removed_size: Bytes of the removed files.
        shared: How many files of the base both have.
        shared_size: Their bytes.
        new_changes: Change files that only the later one has.
        new_changes_size: Their bytes, as uploaded.
        size: Bytes that a restore of the later one reads; 0 if it has no such store.
        size_before: The same of the earlier one.
    """

    store: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added_size: int = 0
    removed_size: int = 0
    shared: int = 0
    shared_size: int = 0
    new_changes: int = 0
    new_changes_size: int = 0
    size: int = 0
    size_before: int = 0

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.added or self.removed or self.new_changes) and self.size == self.size_before


def diff_stores(earlier: Mapping[str, BackupManifest], later: Mapping[str, BackupManifest]) -> tuple[StoreDiff, ...]:
    """Compare two checkpoints, store by store, sorted by name; a store that one of them lacks counts as empty there."""
    return tuple(_diff(store, earlier.get(store), later.get(store)) for store in sorted({*earlier, *later}))


def _diff(store: str, before: BackupManifest | None, after: BackupManifest | None) -> StoreDiff:
    old, new = _files(before), _files(after)
    added = {content: name for content, name in new.items() if content not in old}
    removed = {content: name for content, name in old.items() if content not in new}
    known = set(() if before is None else before.changes)
    changes = [link for link in (() if after is None else after.changes) if link not in known]
    return StoreDiff(
        store=store,
        added=tuple(sorted(added.values())),
        removed=tuple(sorted(removed.values())),
        added_size=sum(size for _, size in added),
        removed_size=sum(size for _, size in removed),
        shared=len(old.keys() & new.keys()),
        shared_size=sum(size for _, size in old.keys() & new.keys()),
        new_changes=len(changes),
        new_changes_size=sum(link.size for link in changes),
        size=_size(after),
        size_before=_size(before),
    )


def _files(manifest: BackupManifest | None) -> dict[tuple[str, int], str]:
    return {} if manifest is None else {(file.digest, file.size): file.name for file in manifest.files}


def _size(manifest: BackupManifest | None) -> int:
    return 0 if manifest is None else manifest.base_size + manifest.chain_size
