"""Restore targets that check what they are given as the core does, and say what the store then holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millpond.errors import ConfigError, StateCorruptError, TransientError
from millpond.local import MANIFEST, read_manifest, verify_files
from millpond.spi import Change, RestoreTarget
from millpond.testing.kit.contract import BrokenContractError, expect
from millpond.testing.kit.snapshots import Content, read_image


class KitTarget(RestoreTarget):
    """
    Where a case restores one store to.

    Attributes:
        interrupt_at: From so many records on, ``check`` raises; None: never.
        records, size, total: What ``progress`` said.
    """

    def __init__(
        self,
        store: str,
        marker: str,
        directory: Path,
        *,
        local: tuple[str, Content] | None = None,
        interrupt_at: int | None = None,
    ) -> None:
        """Restore *store* as *marker* says; *local* is an older local image."""
        self.store = store
        self.marker = marker
        self.directory = directory
        self.local = None if local is None else local[0]
        self.interrupt_at = interrupt_at
        self.written: dict[bytes, bytes] = {}
        self.wrote = 0
        self.after_end = 0
        self.adopted = False
        self.records = self.size = 0
        self.total: int | None = None
        self._local = local
        directory.mkdir(parents=True)

    def use_local(self) -> None:
        """Begin from the local image."""
        if self._local is None or self.wrote:
            raise ConfigError(f"store {self.store!r}: there is no local image to begin from, or writing has begun")
        self.written = dict(self._local[1])

    def adopt(self, *, verified: bool = False) -> None:
        """Take ``directory`` as a complete image."""
        manifest = read_manifest(self.directory)
        if manifest.store != self.store:
            raise StateCorruptError(f"store {self.store!r}: its backup is an image of store {manifest.store!r}")
        verify_files(self.directory, manifest, digests=not verified)
        self.adopted = True

    def write(self, records: Iterable[Change]) -> None:
        """Take *records*, in order."""
        self.check()
        if self.adopted:  # changes on top of the image
            self.written, self.adopted = read_image(self.directory), False
        for key, value in records:
            if type(key) is not bytes or (value is not None and type(value) is not bytes):
                raise BrokenContractError(f"write() is given {key!r:.80} and {value!r:.80}; both have to be bytes")
            self.wrote += 1
            self.after_end += self._interrupted()
            if value is None:
                self.written.pop(key, None)
            else:
                self.written[key] = value

    def progress(self, *, records: int = 0, size: int = 0, total_size: int | None = None) -> None:
        """Take the report."""
        expect(records >= 0 and size >= 0, f"progress() reports {records} records and {size} bytes: it goes back")
        self.records += records
        self.size += size
        self.total = total_size if total_size is not None else self.total

    def check(self) -> None:
        """Raise once the restore is interrupted."""
        if self._interrupted():
            raise TransientError("the kit interrupts this restore")

    def _interrupted(self) -> bool:
        return self.interrupt_at is not None and self.wrote >= self.interrupt_at

    def content(self) -> dict[bytes, bytes]:
        """Give what the store now holds; BrokenContractError if the backend vouched for a damaged image."""
        if not self.adopted:
            return dict(sorted(self.written.items()))
        try:
            verify_files(self.directory, read_manifest(self.directory), digests=True)
            expect((self.directory / MANIFEST).is_file(), "an adopted image has its MANIFEST")
            return read_image(self.directory)
        except StateCorruptError as error:
            raise BrokenContractError(f"adopt(verified=True) vouches for a damaged image: {error}") from error
