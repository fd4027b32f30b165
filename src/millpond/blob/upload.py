"""One store's part of one commit: what it is made of, what has to be sent, and the manifest that says so."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from millpond.blob import policy
from millpond.blob.body import FilePiece
from millpond.blob.chain import PackedChanges, TooLargeError, pack
from millpond.blob.packing import Packer, Place
from millpond.blob.policy import Chain, Decision, Limits, Way
from millpond.formats.blob_manifest import BackupManifest, StoredChanges, StoredFile
from millpond.formats.manifest import FILE_NAME as MANIFEST
from millpond.formats.manifest import ImageManifest
from millpond.local import read_manifest
from millpond.spi import FileEntry, Snapshot


@frozen(kw_only=True)
class Base:
    """
    What this commit may build on.

    Attributes:
        manifest: The last published one; None: there is none that can be used.
        why_not: Why there is none, for the event.
        unfit: Objects that nothing may be taken from: they are gone, or worn.
        broken: Some object of the manifest is gone: changes cannot follow it.
        no_changes: Why the changes since are not at hand; empty if they are.
    """

    manifest: BackupManifest | None = None
    why_not: str = "there is no published backup to build on"
    unfit: Collection[str] = ()
    broken: bool = False
    no_changes: str = ""


@frozen(kw_only=True)
class StoreUpload:
    """
    What one store sends.

    Attributes:
        store: Its name.
        decision: Files or changes, and why.
        base: What it builds on.
        image: Its image's manifest.
        new: Files that are sent.
        held: The base's files that are not sent again, by digest and size.
        packed: Its changes; None if files are sent.
    """

    store: str
    decision: Decision
    base: Base
    image: ImageManifest
    new: Sequence[FileEntry]
    held: Mapping[tuple[str, int], StoredFile]
    packed: PackedChanges | None = None

    @property
    def size(self) -> int:
        """Bytes that are sent for it, if no other store sends the same."""
        return self.packed.size if self.packed is not None else sum(entry.size for entry in self.new)

    @property
    def links(self) -> int:
        """The length of its chain afterwards."""
        before = self.base.manifest
        return 0 if self.packed is None or before is None else len(before.changes) + 1


def plan_store(snapshot: Snapshot, store: str, base: Base, limits: Limits, scratch: Path) -> StoreUpload:
    """
    Decide what *store* sends; its changes, where they are sent, lie packed in *scratch* afterwards.

    Raises:
        StateCorruptError: Its image has no manifest.
        ConfigError, TransientError: The disk refuses.
    """
    entries = snapshot.directory(store)
    image = read_manifest(next(entry.path for entry in entries if entry.name == MANIFEST).parent)
    held = {} if base.manifest is None else reusable(base.manifest, base.unfit)
    new = [entry for entry in entries if entry.name != MANIFEST and entry.size and _content(entry) not in held]
    files = StoreUpload(
        store=store, decision=Decision(Way.FILES, base.why_not), base=base, image=image, new=new, held=held
    )
    if base.manifest is None:
        return files
    if (reason := _why_files(base, base.manifest, image, limits)) is not None:
        return evolve(files, decision=Decision(Way.FILES, reason))
    return _measured(snapshot, files, chain_of(base.manifest), scratch)


def _measured(snapshot: Snapshot, files: StoreUpload, chain: Chain, scratch: Path) -> StoreUpload:
    """Write the changes, and choose between them and the files."""
    path = scratch / f"{len(list(scratch.iterdir()))}.changes"
    try:
        packed = pack(snapshot.changes(files.store), path, policy.most_raw(chain))
    except TooLargeError:
        reason = "with these changes, replaying the chain would cost more than half of its base"
        return evolve(files, decision=Decision(Way.FILES, reason))
    decision = policy.choose(chain, files.size, packed.size, packed.raw_size)
    return evolve(files, decision=decision, packed=packed if decision.way is Way.CHANGES else None)


def _why_files(base: Base, manifest: BackupManifest, image: ImageManifest, limits: Limits) -> str | None:
    if base.no_changes:
        return base.no_changes
    if base.broken:
        return "objects of the last backup are gone"
    if manifest.engine != image.engine:
        return f"the store has moved from the engine {manifest.engine!r} to {image.engine!r}"
    if manifest.properties != image.properties:
        return "the rules by which the store is read have changed"
    return policy.why_files(chain_of(manifest), limits)


def chain_of(manifest: BackupManifest) -> Chain:
    """Give the sizes that the policy looks at."""
    return Chain(
        base=manifest.base_size,
        links=len(manifest.changes),
        size=manifest.chain_size,
        raw_size=manifest.chain_raw_size,
    )


def reusable(manifest: BackupManifest, unfit: Collection[str]) -> dict[tuple[str, int], StoredFile]:
    """Give the files of a base by their content: a file is the same only by its digest."""
    return {(file.digest, file.size): file for file in manifest.files if file.size and file.object not in unfit}


def _content(entry: FileEntry) -> tuple[str, int]:
    return entry.digest, entry.size


def place_store(upload: StoreUpload, packer: Packer) -> Mapping[tuple[str, int], Place]:
    """Put what *upload* sends into objects; give the places by digest and size."""
    if upload.packed is not None:
        piece = FilePiece(upload.packed.path, upload.packed.size)
        return {(upload.packed.digest, upload.packed.size): packer.add(piece, upload.packed.digest)}
    return {_content(entry): packer.add(FilePiece(entry.path, entry.size), entry.digest) for entry in upload.new}


def describe(upload: StoreUpload, places: Mapping[tuple[str, int], Place], sizes: Mapping[str, int]) -> BackupManifest:
    """Give the manifest of what *upload* sends and of what it builds on; *sizes* are those of the new objects."""
    if upload.packed is not None:
        return _with_changes(upload, upload.packed, places, sizes)
    image, before = upload.image, upload.base.manifest
    files = [_stored(file.name, file.size, file.digest, upload.held, places) for file in image.files]
    known = {**({} if before is None else before.objects), **sizes}
    objects = {file.object: known[file.object] for file in files if file.object}
    return BackupManifest(
        upload.store, image.engine, image.id, image.writer, objects, files, (), properties=image.properties
    )


def _stored(
    name: str,
    size: int,
    digest: str,
    held: Mapping[tuple[str, int], StoredFile],
    places: Mapping[tuple[str, int], Place],
) -> StoredFile:
    if size == 0:
        return StoredFile(name, 0, digest, "", 0)
    earlier = held.get((digest, size))
    if earlier is not None:
        return StoredFile(name, size, digest, earlier.object, earlier.start)
    place = places[digest, size]
    return StoredFile(name, size, digest, place.object, place.start)


def _with_changes(
    upload: StoreUpload,
    packed: PackedChanges,
    places: Mapping[tuple[str, int], Place],
    sizes: Mapping[str, int],
) -> BackupManifest:
    before = upload.base.manifest
    if before is None:
        raise AssertionError("changes follow a base")
    place = places[packed.digest, packed.size]
    link = StoredChanges(place.object, place.start, packed.size, packed.digest, packed.raw_size)
    objects = {**before.objects, place.object: sizes[place.object]}
    return evolve(before, objects=objects, changes=(*before.changes, link))
