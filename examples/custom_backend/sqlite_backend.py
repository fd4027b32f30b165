"""A state backend that keeps each store of each commit in a SQLite file of its own."""

import sqlite3
from contextlib import closing
from pathlib import Path

from attrs import frozen

from millpond.errors import StateCorruptError, StateNotFoundError
from millpond.formats.digest import digest_file
from millpond.local import escape_name, fsync_directory, job_folder, make_folders
from millpond.spi import SPI_VERSION, Capabilities, Facet, StateBackendFactory, TaskBackupManager, TaskRestoreManager


@frozen
class SqliteConfig:
    path: Path


class SqliteBackup(TaskBackupManager):
    def __init__(self, task, folder):
        self.backend, self.writer, self.folder = task.backend, task.claim.writer, folder

    def upload(self, snapshot, markers):
        made = {}
        for store in snapshot.stores:
            snapshot.check()
            file = self.folder / escape_name(store) / f"{snapshot.id}-{self.writer}.db"
            make_folders(file.parent)
            with closing(sqlite3.connect(file)) as database, database:
                database.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL)")
                database.executemany("INSERT INTO entries VALUES (?, ?)", snapshot.items(store))
            fsync_directory(file.parent)
            made[store] = f"{digest_file(file)}/{file.name}"
        return made

    def cleanup(self, retained):
        needed = {marker.partition("/")[2] for one in retained for marker in one.markers.get(self.backend, {}).values()}
        for file in self.folder.glob(f"*/*-{self.writer}.db"):  # what another owner made is not ours to remove
            if file.name not in needed:
                file.unlink()


class SqliteRestore(TaskRestoreManager):
    def __init__(self, folder):
        self.folder = folder

    def restore(self, target):
        digest, _, name = target.marker.partition("/")
        file = self.folder / escape_name(target.store) / name
        if not file.is_file():
            raise StateNotFoundError(f"there is no {file}")
        if digest_file(file) != digest:
            raise StateCorruptError(f"{file} is not what was committed")
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
            target.write(database.execute("SELECT key, value FROM entries ORDER BY key"))


class SqliteBackend(StateBackendFactory):
    spi_version, config_class, capabilities = SPI_VERSION, SqliteConfig, Capabilities(facets=Facet.ITEMS)

    def backup_manager(self, task, stores):
        return SqliteBackup(task, self.folder(task))

    def restore_manager(self, task, stores):
        return SqliteRestore(self.folder(task))

    def folder(self, task):
        job = self.config.path / job_folder(task.job.job, task.job.job_id)
        return job / escape_name(task.task) / escape_name(task.backend)
