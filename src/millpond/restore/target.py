"""What a restore manager fills: an empty directory, or the store itself, record by record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from attrs import evolve

from millpond.errors import ConfigError, StateCorruptError
from millpond.formats.manifest import ImageManifest
from millpond.local import MANIFEST, clone_image, current_boot, fsync_tree, read_manifest, verify_files
from millpond.restore.live import EngineNamed
from millpond.spi import Change, FileEntry, RestoreTarget, StoreEngine, StoreSpec, Transfers
from millpond.stores.images import Image, Made, Sealing


class StoreTarget(RestoreTarget):
    """One attempt to restore one store from one backend into a staged image."""

    def __init__(
        self,
        spec: StoreSpec,
        engine: type[StoreEngine],
        marker: str,
        staged: Path,
        local: Callable[[], tuple[str, Path] | None],
        report: Callable[[int, int, int | None], None],
        check: Callable[[], None],
        transfers: Transfers,
        local_files: Callable[[], Sequence[FileEntry]] = tuple,
        engine_named: EngineNamed | None = None,
    ) -> None:
        """
        Restore the store *spec* into *staged*, which does not exist yet.

        *local* finds this backend's marker of an older local image, and that image; *local_files* the files of all
        verified local images. *engine_named* finds the engine of an image that another one than *engine* made.
        """
        self.store = spec.name
        self.marker = marker
        self.directory = staged
        self.adopted: ImageManifest | None = None
        self.size = 0
        self._spec = spec
        self._engine = engine
        self._find_local = local
        self._find_files = local_files
        self._engine_named = engine_named
        self._local: tuple[str, Path] | None = None
        self._looked = False
        self._report = report
        self._check = check
        self._transfers = transfers
        self._work = staged.with_name(staged.name + "-db")
        self._database: StoreEngine | None = None
        self._clear()
        staged.mkdir(parents=True)

    @property
    def local(self) -> str | None:  # type: ignore[override]
        """This backend's marker of a verified, older local image; None if there is none."""
        found = self._older_image()
        return None if found is None else found[0]

    def use_local(self) -> None:
        """Begin from the local image that ``local`` names."""
        found = self._older_image()
        if found is None or self._database is not None:
            raise ConfigError(f"store {self.store!r}: there is no local image to begin from, or writing has begun")
        clone_image(found[1], self._work, immutable=self._engine.immutable, transient=self._engine.transient)
        self._database = self._engine.open(self._work, self._spec)

    def local_files(self) -> Sequence[FileEntry]:
        """Give the files of verified local images."""
        return self._find_files()

    def adopt(self, *, verified: bool = False) -> None:
        """Take ``directory`` as a complete image, after checking what was not checked yet."""
        manifest = read_manifest(self.directory)
        if manifest.store != self.store:
            raise StateCorruptError(f"store {self.store!r}: its backup is an image of store {manifest.store!r}")
        verify_files(self.directory, manifest, digests=not verified, transfers=self._transfers)
        self.adopted = manifest

    def write(self, records: Iterable[Change]) -> None:
        """Put *records* into the store in bulk."""
        self._check()
        self._open().load(records)

    def progress(self, *, records: int = 0, size: int = 0, total_size: int | None = None) -> None:
        """Report what was done since the last call."""
        self.size += size
        self._report(records, size, total_size)

    def check(self) -> None:
        """Raise once the restore is interrupted."""
        self._check()

    def finish(self, sealing: Sealing, made: Made, properties: Mapping[str, str]) -> Image:
        """Make what was restored an image in its place, durable; from then on it is whole."""
        if self.adopted is not None and self._database is None:
            return self._seal_adopted(self.adopted, sealing, made)
        shutil.rmtree(self.directory)
        database = self._open()
        database.checkpoint(self.directory)
        database.close()
        self._database = None
        image = sealing.seal(Image(self.store, made.image, self.directory), self._made_by(), {}, properties, made)
        self._clear()
        return image

    def close(self) -> None:
        """Let go of what a failed attempt left; idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None
        self._clear()

    def _seal_adopted(self, manifest: ImageManifest, sealing: Sealing, made: Made) -> Image:
        # Its files were verified just now, in this boot; the manifest that says so is written last.
        fsync_tree(self.directory)
        (self.directory / MANIFEST).unlink()
        own = evolve(manifest, id=made.id, writer=made.writer, boot=current_boot())
        path = sealing.directory.seal(self.store, made.image, own)
        return Image(self.store, made.image, path, own.files)

    def _open(self) -> StoreEngine:
        if self._database is None:
            self._database = self._open_new() if self.adopted is None else self._open_adopted()
        return self._database

    def _open_new(self) -> StoreEngine:
        self._work.mkdir(parents=True, exist_ok=True)
        return self._engine.open(self._work, self._spec)

    def _open_adopted(self) -> StoreEngine:
        """Open the adopted image by the engine that made it, through a clone: an image itself is never opened."""
        spec, engine = self._made_by(), self._engine
        if spec is not self._spec:
            if self._engine_named is None:
                raise ConfigError(f"store {self.store!r}: nobody says which engine {spec.engine!r} is")
            engine = self._engine_named(spec.engine)
        clone_image(self.directory, self._work, immutable=engine.immutable, transient=engine.transient)
        return engine.open(self._work, spec)

    def _made_by(self) -> StoreSpec:
        """Give the store as the engine of its image sees it: another engine gets no options, they are not its own."""
        if self.adopted is None or self.adopted.engine == self._spec.engine:
            return self._spec
        return StoreSpec(self._spec.name, self.adopted.engine)

    def _older_image(self) -> tuple[str, Path] | None:
        if not self._looked:
            self._local, self._looked = self._find_local(), True
        return self._local

    def _clear(self) -> None:
        for path in (self.directory, self._work):
            shutil.rmtree(path, ignore_errors=True)
