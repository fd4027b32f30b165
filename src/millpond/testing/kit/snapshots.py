"""Snapshots as the core gives them, over a dict for each store; what a backend may not do is noted."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import define, field

from millpond.checkpoint import CheckpointId
from millpond.errors import CommitFailedError, ConfigError, TransientError
from millpond.formats import change_file
from millpond.formats.digest import digest_bytes, digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile, encode
from millpond.local import MANIFEST, list_files, read_manifest
from millpond.spi import Change, Facet, FileEntry, Snapshot

Content = Mapping[bytes, bytes]

_PARTS = 5
_CURRENT = "CURRENT"


@define
class StoreState:
    """
    One dirty store at a commit.

    Attributes:
        content: All of it.
        changes: Since ``base``; without a base not used.
        base: What the core says is published.
        before: The image of the commit before, whose files may be linked.
    """

    content: Content
    changes: Mapping[bytes, bytes | None]
    base: tuple[CheckpointId, str] | None = None
    before: Path | None = None


@define(eq=False, slots=False)
class KitSnapshot(Snapshot):
    """
    A snapshot; counts what is read.

    Attributes:
        give_up_at: From so many records on, ``check`` raises; a folder counts as a thousand. None: never.
        fail_at: Reading beyond so many records raises TransientError. None: never.
        read: Records read so far.
        after_end: Records read since ``check`` would have raised.
        images: Those that were asked for.
        violations: Where to note what must not be done.
    """

    id: CheckpointId
    states: Mapping[str, StoreState]
    facets: Facet
    writer: str
    folder: Path
    violations: list[str]
    give_up_at: int | None = None
    fail_at: int | None = None
    read: int = 0
    after_end: int = 0
    ended: bool = False
    images: dict[str, Path] = field(factory=dict)

    @property
    def stores(self) -> Sequence[str]:  # type: ignore[override]
        """The dirty stores."""
        return tuple(self.states)

    def base(self, store: str) -> tuple[CheckpointId, str] | None:
        """Give what is published."""
        return self._state(store).base

    def changes(self, store: str) -> Iterator[Change]:
        """Give the changes since the base."""
        self._declared(Facet.CHANGES)
        state = self._state(store)
        found: Mapping[bytes, bytes | None] = state.content if state.base is None else state.changes
        return self._counted(iter(sorted(found.items())))

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Give the values of *keys*."""
        self._declared(Facet.ITEMS)
        state = self._state(store)
        self._count(len(keys))
        return [state.content.get(key) for key in keys]

    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        """Give every entry, sorted."""
        self._declared(Facet.ITEMS)
        return self._counted(iter(sorted(self._state(store).content.items())))  # type: ignore[return-value]

    def directory(self, store: str) -> Sequence[FileEntry]:
        """Give the files of the image, which is made now."""
        self._declared(Facet.DIRECTORY)
        self._count(1000)
        image = self.image(store)
        listed = [FileEntry(f.name, image / f.name, f.size, f.digest) for f in read_manifest(image).files]
        data = (image / MANIFEST).read_bytes()
        return [*listed, FileEntry(MANIFEST, image / MANIFEST, len(data), digest_bytes(data))]

    def image(self, store: str) -> Path:
        """Make the image of *store*, once."""
        if store not in self.images:
            place = self.folder / f"{self.id}-{secrets.token_hex(8)}"
            self.images[store] = make_image(place, store, self.id, self.writer, self._state(store))
        return self.images[store]

    def check(self) -> None:
        """Raise once the commit is given up."""
        if self._given_up():
            raise CommitFailedError(f"commit {self.id} was given up by the kit")

    def _given_up(self) -> bool:
        return self.give_up_at is not None and self.read >= self.give_up_at

    def _state(self, store: str) -> StoreState:
        if store not in self.states:
            self._refuse(f"a snapshot is asked for store {store!r}, which is not dirty or not the backend's own")
        return self.states[store]

    def _declared(self, facet: Facet) -> None:
        if self.ended:
            self._refuse("a snapshot is read after upload() has returned")
        if facet not in self.facets:
            self._refuse(f"{facet.name} of a snapshot is read, which the capabilities do not declare")

    def _refuse(self, why: str) -> None:
        self.violations.append(why)
        raise ConfigError(why)

    def _counted(self, records: Iterator[Change]) -> Iterator[Change]:
        for record in records:
            self._count(1)
            yield record

    def _count(self, number: int) -> None:
        if self.ended:
            self._refuse("a snapshot is read after upload() has returned")
        if self.fail_at is not None and self.read >= self.fail_at:
            raise TransientError("the kit lets this reading of a snapshot fail")
        self.after_end += number if self._given_up() else 0
        self.read += number


def make_image(place: Path, store: str, id: CheckpointId, writer: str, state: StoreState) -> Path:
    """
    Make an image of several files in *place*, as an engine would: what did not change is linked, names come back.

    One file changes at each commit, one lies in a folder, and a file's name says nothing of its content.
    """
    (place / "sub").mkdir(parents=True)
    for number in range(_PARTS):
        _make_part(place, number, state)
    (place / _CURRENT).write_text(f"{id}\n")
    files = tuple(ManifestFile(f.name, f.size, digest_file(f.path)) for f in list_files(place))
    (place / MANIFEST).write_bytes(encode(ImageManifest(store, "kit", id, writer, files)))
    return place


def _make_part(place: Path, number: int, state: StoreState) -> None:
    name = _part(number)
    part: list[Change] = sorted((k, v) for k, v in state.content.items() if _home(k) == number)
    change_file.write(place / name, part)
    older = None if state.before is None else state.before / name
    if older is not None and older.is_file() and digest_file(older) == digest_file(place / name):
        (place / name).unlink()
        os.link(older, place / name)


def _part(number: int) -> str:
    return f"sub/{number}.part" if number == _PARTS - 1 else f"{number}.part"


def _home(key: bytes) -> int:
    return sum(key) % _PARTS


def read_image(place: Path) -> dict[bytes, bytes]:
    """Give what an image made by :func:`make_image` holds."""
    found: dict[bytes, bytes] = {}
    for number in range(_PARTS):
        found.update((key, value) for key, value in change_file.read(place / _part(number)) if value is not None)
    return dict(sorted(found.items()))
