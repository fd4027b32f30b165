"""The embedded log: topics in a folder, for any number of processes of one machine."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Lock

from millpond.clock import Clock, SystemClock
from millpond.errors import ConfigError, StateNotFoundError, StoreClosedError
from millpond.local import escape_name, explained, fsync_directory, fsync_tree, make_folders
from millpond.local.durable import write_new
from millpond.log import Batch, Extent, Log, LogCapabilities, Topic, unchecked
from millpond_changelog.embedded import compaction, topic_file
from millpond_changelog.embedded.frames import AppendId
from millpond_changelog.embedded.locking import held
from millpond_changelog.embedded.owners import Fate, OwnerFile, last_committed
from millpond_changelog.embedded.partition import LOCK, Partition
from millpond_changelog.embedded.reading import read_batches
from millpond_changelog.embedded.topic_file import TopicFile
from millpond_changelog.embedded.writer import FolderWriter

_SEGMENT = 64 << 20
_LARGEST = 1_000_012
_DAY_MS = 86_400_000
_MOST_PARTITIONS = 10_000
_TEXT = re.compile(r"[^\x00-\x1f\x7f]+")


class EmbeddedLog(Log):
    """
    A log in a folder. Any thread; other processes of this machine may use the folder at the same time.

    Attributes:
        directory: The folder.
        owners: Where the owners' files are.
        clock: Gives records their time.
        timeout_s: How long a lock is waited for.
    """

    capabilities = LogCapabilities(fencing=True, clears=True, tidies=True)

    def __init__(self, directory: Path, *, timeout_s: float = 60.0, clock: Clock | None = None) -> None:
        """Use the log in *directory*, which the first topic makes; no I/O."""
        self.directory = directory
        self.owners = directory / "owners"
        self.timeout_s = timeout_s
        self.clock: Clock = clock or SystemClock()
        self._topics = directory / "topics"
        self._partitions: dict[tuple[bytes, int], Partition] = {}
        self._writers: list[FolderWriter] = []
        self._committed: dict[tuple[bytes, int], int] | None = None
        self._guard = Lock()
        self._closed = False

    # ------------------------------------------------------------------------------------------------------ topics

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Make a topic; one that exists stays as it is."""
        self._refuse_closed()
        if not 1 <= partitions <= _MOST_PARTITIONS:
            raise ConfigError(
                f"topic {name!r} is to have {partitions} partitions; from 1 to {_MOST_PARTITIONS} are possible"
            )
        folder = self._folder(name)
        if folder.is_dir():
            return
        make_folders(self._topics)
        staged = self._topics / f".new-{secrets.token_hex(12)}"
        topic = TopicFile(name, secrets.token_bytes(16), partitions, dict(settings))
        with explained("make the topic", folder):
            try:
                for number in range(partitions):
                    (staged / str(number)).mkdir(parents=True)
                write_new(staged / topic_file.FILE_NAME, topic_file.encode(topic))
                fsync_tree(staged)
                if not _rename(staged, folder):
                    return
            finally:
                shutil.rmtree(staged, ignore_errors=True)
        fsync_directory(self._topics)

    def describe(self, name: str) -> Topic:
        """Look at a topic anew."""
        topic = self._topic(name)
        return Topic(topic.name, topic.identity.hex(), topic.partitions, dict(topic.settings))

    def delete(self, name: str) -> None:
        """Remove a topic and all its records; a missing one is fine."""
        self._refuse_closed()
        folder, gone = self._folder(name), self._topics / f".gone-{secrets.token_hex(12)}"
        with ExitStack() as locks, explained("remove", folder):
            for place in sorted(folder.glob("*")):
                if place.is_dir():  # nobody who is adding frames finds another topic in its place
                    locks.enter_context(held(place / LOCK, self.timeout_s))
            try:
                folder.rename(gone)
            except FileNotFoundError:
                return
            fsync_directory(self._topics)
        shutil.rmtree(gone, ignore_errors=True)

    def names(self) -> list[str]:
        """Give the names of all topics, sorted."""
        self._refuse_closed()
        with explained("list", self._topics):
            try:
                folders = [path for path in self._topics.iterdir() if not path.name.startswith(".")]
            except FileNotFoundError:
                return []
        paths = [folder / topic_file.FILE_NAME for folder in folders]
        return sorted(topic_file.decode(path.read_bytes(), str(path)).name for path in paths if path.is_file())

    def _folder(self, name: str) -> Path:
        if not name:
            raise ConfigError("a topic needs a name")
        return self._topics / escape_name(name)

    def _topic(self, name: str) -> TopicFile:
        self._refuse_closed()
        path = self._folder(name) / topic_file.FILE_NAME
        with explained("read", path):
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                raise StateNotFoundError(f"there is no topic {name!r} in {self.directory}") from None
        return topic_file.decode(data, str(path))

    # -------------------------------------------------------------------------------------------------- partitions

    def extent(self, name: str, partition: int) -> Extent:
        """Look at a partition anew."""
        return self.partition(name, partition).extent()

    def read(
        self, name: str, partition: int, start: int, stop: int, check: Callable[[], None] = unchecked
    ) -> Iterator[Batch]:
        """Read committed records with ``start <= offset < stop``."""
        place = self.partition(name, partition)
        extent, aborted = place.readable()
        where = f"{name}, partition {partition}, which holds offsets from {extent.start} up to {extent.end}"
        if start < extent.start:
            raise StateNotFoundError(f"offset {start} is no longer in {where}")
        if max(start, stop) > extent.end:
            raise StateNotFoundError(f"offset {max(start, stop)} is beyond the end of {where}")
        return read_batches(place, start, stop, aborted, check)

    def partition(self, name: str, number: int) -> Partition:
        """Give a partition; StateNotFoundError if it is not there."""
        topic = self._topic(name)
        if not 0 <= number < topic.partitions:
            raise StateNotFoundError(f"topic {name!r} has {topic.partitions} partitions, so there is no {number}")
        return self._known(topic, number)

    def find(self, name: str, identity: bytes, number: int) -> Partition | None:
        """Give a partition of the topic that has *identity*; None if that is gone."""
        try:
            topic = self._topic(name)
        except StateNotFoundError:
            return None
        return self._known(topic, number) if topic.identity == identity else None

    def _known(self, topic: TopicFile, number: int) -> Partition:
        with self._guard:
            known = self._partitions.get((topic.identity, number))
            if known is None:
                folder = self._folder(topic.name) / str(number)
                size = _number(topic.settings, "segment.bytes", _SEGMENT)
                least = partial(self._committed_in, topic.identity, number)
                known = Partition(folder, topic.identity, number, size, self.timeout_s, self._fate, least)
                self._partitions[topic.identity, number] = known
            return known

    def tidy(self, name: str, partition: int, below: int, check: Callable[[], None] = unchecked) -> None:
        """Compact where it is worth it, and remove what retention says, by the topic's settings."""
        place, settings = self.partition(name, partition), self._topic(name).settings
        policies = settings.get("cleanup.policy", "delete").split(",")
        if "compact" in policies:
            rules = compaction.Rules(
                lag_ms=_number(settings, "min.compaction.lag.ms", 0),
                keep_deletions_ms=_number(settings, "delete.retention.ms", _DAY_MS),
                segment_bytes=_number(settings, "segment.bytes", _SEGMENT),
                below=below,
                worth=compaction.WORTH,
            )
            compaction.compact(place, rules, self.clock.millis(), check)
        retention = _number(settings, "retention.ms", -1)
        if "delete" in policies and retention >= 0:
            place.trim(min(below, place.aged(self.clock.millis() - retention)))

    def trim(self, name: str, partition: int, before: int) -> None:
        """Remove the records before the offset *before*, as retention would."""
        self.partition(name, partition).trim(before)

    def _fate(self, append: AppendId) -> Fate:
        return OwnerFile(self.owners, append.owner).fate(append)

    def _committed_in(self, identity: bytes, number: int) -> int:
        """Give the highest offset in a partition that an owner had committed when this was first asked; -1: none."""
        if self._committed is None:
            self._committed = last_committed(self.owners)
        return self._committed.get((identity, number), -1)

    def largest_record(self, name: str) -> int:
        """Give the most bytes that a key and a value may have together in a topic."""
        return _number(self._topic(name).settings, "max.message.bytes", _LARGEST)

    # ----------------------------------------------------------------------------------------------------- writers

    def writer(self, owner: str) -> FolderWriter:
        """Become the owner's writer."""
        self._refuse_closed()
        if _TEXT.fullmatch(owner) is None:
            raise ConfigError(f"{owner!r} cannot own anything in a log: it is empty or has control characters")
        writer = FolderWriter(self, owner)
        with self._guard:
            self._writers.append(writer)
        return writer

    def let_go(self, writer: FolderWriter) -> None:
        """Forget a writer that is closed."""
        with self._guard:
            if writer in self._writers:
                self._writers.remove(writer)

    def close(self) -> None:
        """Abort what is open. Idempotent."""
        with self._guard:
            writers, self._writers = self._writers, []
        for writer in writers:
            writer.close()
        self._closed = True

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosedError(f"the log in {self.directory} is closed")


def _rename(staged: Path, folder: Path) -> bool:
    """Put *staged* in place; False: something is there."""
    try:
        staged.rename(folder)
    except OSError:
        if folder.is_dir():
            return False
        raise
    return True


def _number(settings: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(settings.get(name, default))
    except ValueError:
        return default
