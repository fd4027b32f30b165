"""A state backend that keeps each store of each commit in a SQLite file of its own."""

import sqlite3
from contextlib import closing
from pathlib import Path

from attrs import frozen

from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.local import escape_name, fsync_directory, make_folders
from millpond.spi import SPI_VERSION, Capabilities, Facet, StateBackendFactory, TaskBackupManager, TaskRestoreManager


@frozen
class SqliteConfig:
    path: Path


class SqliteBackup(TaskBackupManager):
    def __init__(self, folder, claim):
        self.folder, self.claim = folder, claim

    def upload(self, snapshot, markers):
        make_folders(self.folder)
        made = {}
        for store in snapshot.stores:
            snapshot.check()
            made[store] = f"{snapshot.id}-{self.claim.writer}-{escape_name(store)}.db"
            with closing(sqlite3.connect(self.folder / made[store])) as database, database:
                database.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
                database.executemany("INSERT INTO entries VALUES (?, ?)", snapshot.items(store))
        fsync_directory(self.folder)
        return made

    def cleanup(self, retained):
        needed = {marker for checkpoint in retained for marker in checkpoint.markers.get(self.folder.name, {}).values()}
        for file in self.folder.glob(f"*-{self.claim.writer}-*.db"):  # what another owner made is not ours to remove
            if file.name not in needed:
                file.unlink()


class SqliteRestore(TaskRestoreManager):
    def __init__(self, folder):
        self.folder = folder

    def restore(self, target):
        file = self.folder / target.marker
        if not file.is_file():
            raise StateNotFoundError(f"there is no {file}")
        try:
            with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
                target.write(database.execute("SELECT key, value FROM entries ORDER BY key"))
        except sqlite3.DatabaseError as error:
            raise StateCorruptError(f"{file} is damaged: {error}") from error


class SqliteBackend(StateBackendFactory):
    spi_version, config_class, capabilities = SPI_VERSION, SqliteConfig, Capabilities(facets=Facet.ITEMS)

    def backup_manager(self, task, stores):
        return SqliteBackup(self.folder(task), task.claim)

    def restore_manager(self, task, stores):
        return SqliteRestore(self.folder(task))

    def folder(self, task):
        return self.config.path / escape_name(task.job.job) / escape_name(task.task) / escape_name(task.backend)
