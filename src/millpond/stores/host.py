"""A host's own database that takes part in commits as a store: it makes images, and Millpond reads nothing in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

from attrs import frozen

from millpond.errors import ConfigError
from millpond.spi import SPI_VERSION, Change, Checkpointable, StoreEngine, StoreSpec


@frozen
class HostSettings:
    """There is nothing to set: the database is the host's."""


class HostEngine(StoreEngine):
    """
    The engine ``host``: says that a store's data is in a database of the host's own.

    Its image is whatever the database's ``checkpoint`` makes. Millpond keeps it, verifies it and gives it back as a
    folder, and cannot read keys in it: backends that read changes or items of it are refused.
    """

    spi_version: ClassVar[tuple[int, int]] = SPI_VERSION
    config_class: ClassVar[type] = HostSettings

    @classmethod
    def open(cls, directory: Path, store: StoreSpec, *, read_only: bool = False) -> NoReturn:
        """Refuse: only the host can open it."""
        raise ConfigError(
            f'store {store.name!r} is a database of the host\'s own (engine = "host"): Millpond cannot open it; its '
            f"image can be restored and copied as a folder"
        )

    def get(self, key: bytes) -> NoReturn:
        """Never called: there is no instance."""
        raise NotImplementedError

    def scan(self, start: bytes | None, stop: bytes | None, reverse: bool) -> NoReturn:
        """Never called: there is no instance."""
        raise NotImplementedError

    def apply(self, changes: Sequence[Change]) -> None:
        """Never called: there is no instance."""
        raise NotImplementedError

    def checkpoint(self, directory: Path) -> None:
        """Never called: there is no instance."""
        raise NotImplementedError

    def close(self) -> None:
        """Never called: there is no instance."""


class HostDatabase:
    """
    A host's database as the commit engine sees it: a store that is dirty at every commit, since nobody knows better.

    Attributes:
        name: The store's name.
        mark: Grows with every commit.
        failure: Always None: a checkpoint that fails, fails its commit alone.
        touched: Never called: nobody knows when the host writes.
    """

    failure: BaseException | None = None
    touched: Callable[[], object] | None = None

    def __init__(self, name: str, database: Checkpointable) -> None:
        """Let *database* take part as the store *name*."""
        self.name = name
        self.mark = 0
        self._database = database

    def close_run(self) -> int:
        """Give a new mark."""
        self.mark += 1
        return self.mark

    def checkpoint(self, directory: Path) -> None:
        """Let the database make its image; on the processing thread, inside ``commit()``."""
        self._database.checkpoint(directory)
        if not directory.is_dir():
            raise ConfigError(
                f"store {self.name!r}: checkpoint() of the host's database returned and made no folder {directory}"
            )

    def changes(self, since: int, until: int) -> Iterator[Change]:
        """Refuse: nobody knows what changed."""
        raise ConfigError(f"store {self.name!r} is a database of the host's own: it has no changes")

    def forget(self, until: int) -> None:
        """Do nothing: no changes are kept."""
