"""
Backs up the stores of one task: at each commit their changes go to the log in one append.

The manager becomes the writer of the task's changes as soon as it is made, before anything is read: from then on an
earlier owner's append is refused. A marker names the newest record of its store that was acknowledged. What a failed
commit left in the log is overwritten by the next one, whose changes are since the last published checkpoint; what
another owner left is undone by the first.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from millpond.checkpoint import Checkpoint, Markers, SystemStreamPartition
from millpond.errors import ConfigError, StateNotFoundError, TransientError
from millpond.local import escape_name
from millpond.log import Append, Extent, Topic
from millpond.points import reached
from millpond.spi import Change, Snapshot, StoreSpec, TaskBackupManager, TaskContext
from millpond_changelog import headers
from millpond_changelog.beside import Beside
from millpond_changelog.fences import put_up
from millpond_changelog.headers import Stamp
from millpond_changelog.lease import LogLease
from millpond_changelog.marker import Marker, Origin, decode, encode
from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.streams import AllButLast, unless_empty
from millpond_changelog.topics import Place, Topics
from millpond_changelog.undo import Beginning, Held, look, undone, whole

log = logging.getLogger("millpond.changelog")

_NEAR = 0.5
"""From this part of the compaction's lag on, the time between two commits is warned about."""

_LEFT_S = 5.0
"""How long a question whose answer nobody wants any more may hold up the end."""


@frozen
class _Part:
    """What one store sends at one commit, and its marker if that is nothing."""

    store: str
    place: Place
    since: int
    changes: Iterator[Change]
    unchanged: str


class ChangelogBackup(TaskBackupManager):
    """Appends changes to a log. The engine's calls do not overlap."""

    def __init__(
        self, task: TaskContext, lease: LogLease, settings: ChangelogSettings, stores: Sequence[StoreSpec]
    ) -> None:
        """Find the topics, making what is missing, and become the writer of the task's changes."""
        if task.claim is None:
            raise ConfigError("a backup manager needs a claim")
        self._task, self._lease, self._settings = task, lease, settings
        self._epoch = task.claim.epoch
        self._topics = Topics(settings, task.job.job, task.job.job_id, task.job.layout)
        self._places: dict[str, Place] = {}
        for store in stores:
            self._places[store.name] = self._name(store.name)
        self._begun: dict[str, Beginning] = {}
        self._identities: dict[str, str] = {}
        self._folder = task.scratch / f"changes-{secrets.token_hex(8)}"
        self._warned = False
        topics = Beside(self._make_topics)  # to become the writer takes longer, and needs no topic
        try:
            self._writer = lease.log.writer(owner_of(task))
        except BaseException:
            topics.end(_LEFT_S)
            raise
        try:
            self._held_topics = topics.result()
            self._put_up_fences()
        except BaseException:
            self._writer.close()
            raise
        # The ends are final only now that nobody else appends, and needed only when all has been restored.
        self._extents = Beside(self._ask_for_extents)
        reached("changelog.claimed")

    def _name(self, store: str) -> Place:
        """Say where *store* goes."""
        place = self._topics.place(store, self._task.task)
        _refuse_one_for_two({**self._places, store: place})
        return place

    def _make_topics(self) -> Mapping[str, str]:
        """Make the topics that are missing; give the identity of each."""
        wanted = self._topics.wanted()
        return {place.topic: make_missing(self._lease, place, wanted).identity for place in self._places.values()}

    def _put_up_fences(self) -> None:
        if not self._lease.log.capabilities.fencing:
            put_up(self._writer, [(place.topic, place.partition) for place in self._places.values()], self._epoch)

    def _ask_for_extents(self) -> Mapping[str, Extent]:
        return {store: self._lease.log.extent(place.topic, place.partition) for store, place in self._places.items()}

    def _place(self, store: str) -> Place:
        """Give where *store* goes; its topic is there."""
        place = self._places.get(store)
        if place is None:
            place = self._name(store)
            make_missing(self._lease, place, self._topics.wanted())
            self._places[store] = place
        return place

    # ------------------------------------------------------------------------------------------------------ beginning

    def init(self, last: Checkpoint | None) -> Collection[str]:
        """Look for what came after the restored markers; name the stores for which there is anything to write."""
        markers = {} if last is None else last.markers.get(self._task.backend, {})
        for store, text in markers.items():
            if store in self._places:
                self._begun[store] = self._look(store, text)
        for store, begun in self._begun.items():
            if begun.rewrite:
                log.warning(
                    "task %r, store %r: all of it goes to the log again: %s", self._task.task, store, begun.rewrite
                )
        return [store for store, begun in self._begun.items() if begun.is_due]

    def _look(self, store: str, text: str) -> Beginning:
        place = self._places[store]
        held = Held(place.topic, place.partition, self._held_topics[place.topic], self._extents.result()[store])
        folder = self._folder / "undo" / escape_name(store)
        return look(self._lease.log, text, decode(text, marker_owner(self._task, store)), held, folder)

    # ------------------------------------------------------------------------------------------------------ uploading

    def upload(self, snapshot: Snapshot, markers: Markers) -> Markers:
        """Append what changed, and give a marker for each store."""
        scratch = self._folder / f"upload-{secrets.token_hex(4)}"
        try:
            snapshot.check()
            parts = [self._part(snapshot, store, scratch) for store in snapshot.stores]
            ends = self._send(snapshot, parts)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return {part.store: self._marker(snapshot, part, ends) for part in parts}

    def _part(self, snapshot: Snapshot, store: str, scratch: Path) -> _Part:
        """Say what *store* sends: its changes, with what has to be undone, or all of it."""
        place, base = self._place(store), snapshot.base(store)
        begun = self._begun.get(store)
        if begun is not None and base is not None and begun.marker != base[1]:
            del self._begun[store]  # a commit of this claim is published: nothing is left to undo
            begun = None
        if base is None or (begun is not None and begun.rewrite):
            return self._whole(snapshot, store, place, scratch, based=base is not None)
        self._warn_of_lag(snapshot, base[0].millis)
        changes = snapshot.changes(store)
        if begun is not None and begun.undo:
            changes = undone(snapshot, store, changes, begun.undo)
        return _Part(store, place, self._since(store, base[1], begun), changes, base[1])

    def _whole(self, snapshot: Snapshot, store: str, place: Place, scratch: Path, *, based: bool) -> _Part:
        where = (place.topic, place.partition)
        extent = self._lease.log.extent(*where)
        live: Iterable[Change] = snapshot.items(store) if based else snapshot.changes(store)
        changes = whole(self._lease.log, where, live, scratch / escape_name(store), snapshot.check)
        offset = extent.end - 1 if extent.end > extent.start else None
        unchanged = self._encoded(snapshot, store, place, extent.end, offset)
        return _Part(store, place, extent.end, changes, unchanged)

    def _since(self, store: str, text: str, begun: Beginning | None) -> int:
        origin = decode(text, marker_owner(self._task, store)).origin
        if origin is not None:
            return origin.since
        return 0 if begun is None else begun.since

    def _send(self, snapshot: Snapshot, parts: Sequence[_Part]) -> Mapping[tuple[str, int], int]:
        """Append what there is to send, all or nothing; give the highest offset in each partition."""
        filled = [(part, changes) for part in parts if (changes := unless_empty(part.changes)) is not None]
        if not filled:
            return {}
        stamp = headers.encode(Stamp(self._epoch, snapshot.id))
        with self._writer.append() as append:
            for part, changes in filled:
                self._add(append, part.place, changes, stamp, snapshot.check)
            ends = append.flush(snapshot.check)
            reached("changelog.sent")
            snapshot.check()
            _commit(append)
        reached("changelog.committed")
        return ends

    def _add(
        self,
        append: Append,
        place: Place,
        changes: Iterable[Change],
        stamp: Mapping[str, bytes],
        check: Callable[[], None],
    ) -> None:
        """Append one store's changes; the last one says whose they are, and each does where others may write, too."""
        where = place.topic, place.partition
        if not self._lease.log.capabilities.fencing:
            append.add(*where, changes, headers=stamp, check=check)
            return
        body = AllButLast(changes)
        append.add(*where, body, check=check)
        append.add(*where, body.last, headers=stamp, check=check)

    def _marker(self, snapshot: Snapshot, part: _Part, ends: Mapping[tuple[str, int], int]) -> str:
        place = part.place
        offset = ends.get((place.topic, place.partition))
        if offset is None:
            return part.unchanged
        if offset < part.since or offset < decode(part.unchanged, marker_owner(self._task, part.store)).stop:
            self._identities.pop(place.topic, None)
            self._begun[part.store] = Beginning(part.unchanged, 0, f"topic {place.topic} was made anew")
            raise TransientError(
                f"the offsets of {place.topic}, partition {place.partition} went back to {offset}: the topic was "
                "deleted and made anew; the next commit writes all of its store"
            )
        sealed = self._lease.log.capabilities.seals
        return self._encoded(snapshot, part.store, place, part.since, offset, sealed=sealed)

    def _encoded(
        self, snapshot: Snapshot, store: str, place: Place, since: int, offset: int | None, *, sealed: bool = False
    ) -> str:
        identity = self._identities.get(place.topic)
        if identity is None:
            identity = self._identities[place.topic] = self._lease.log.describe(place.topic).identity
        ssp = SystemStreamPartition(self._settings.system, place.topic, place.partition)
        marker = Marker(ssp, offset, Origin(identity, since, snapshot.id, self._epoch, sealed))
        return encode(marker, marker_owner(self._task, store))

    def _warn_of_lag(self, snapshot: Snapshot, base_millis: int) -> None:
        """Say when the next crash may find the values of the last checkpoint compacted away."""
        apart_s = (snapshot.id.millis - base_millis) / 1000
        lag_s = self._settings.min_compaction_lag.total_seconds()
        if self._lease.log.capabilities.tidies or self._warned or apart_s <= _NEAR * lag_s:
            return
        self._warned = True
        log.warning(
            "task %r: %.0f s lie between two commits, and compaction spares a record for %.0f s only: commit more "
            "often, or raise min_compaction_lag and the topics' min.compaction.lag.ms",
            self._task.task,
            apart_s,
            lag_s,
        )

    # ------------------------------------------------------------------------------------------------------- removing

    def cleanup(self, retained: Sequence[Checkpoint]) -> None:
        """Let the log compact what is older than the newest checkpoint; a broker does so by itself."""
        if not retained or not self._lease.log.capabilities.tidies:
            return
        for store, text in retained[0].markers.get(self._task.backend, {}).items():
            place, marker = self._places.get(store), decode(text, marker_owner(self._task, store))
            if place is not None and (marker.ssp.stream, marker.ssp.partition) == (place.topic, place.partition):
                self._lease.log.tidy(place.topic, place.partition, marker.stop)

    def close(self) -> None:
        """Let go of the log; idempotent."""
        self._extents.end(_LEFT_S)
        self._writer.close()
        self._lease.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def owner_of(task: TaskContext) -> str:
    """Give the name under which a task's changes are written: of job, task and backend."""
    return "/".join(map(escape_name, (task.job.job, task.job.job_id, task.task, "changelog")))


def marker_owner(task: TaskContext, store: str) -> str:
    """Say whose state a store's marker is."""
    names = (task.job.job, task.job.job_id, task.task, task.backend, store)
    return "\0".join(names)


def make_missing(lease: LogLease, place: Place, settings: Mapping[str, str]) -> Topic:
    """
    Give a topic, which is made if it is not there.

    Raises:
        ConfigError: Nobody says how many partitions it has to have.
    """
    try:
        return lease.log.describe(place.topic)
    except StateNotFoundError:
        if place.partitions is None:
            raise ConfigError(
                f"there is no topic {place.topic}, and nobody says how many partitions it has to have: state all tasks "
                "by job.tasks, or set partitions"
            ) from None
        lease.log.create(place.topic, place.partitions, settings)
        return lease.log.describe(place.topic)


def _refuse_one_for_two(places: Mapping[str, Place]) -> None:
    stores: dict[tuple[str, int], str] = {}
    for store, place in places.items():
        if (other := stores.setdefault((place.topic, place.partition), store)) != store:
            raise ConfigError(f"stores {other!r} and {store!r} have one topic, {place.topic}: each needs its own")


def _commit(append: Append) -> None:
    """Commit; where the answer was lost, ask once more."""
    try:
        append.commit()
    except TransientError:
        if not append.doubtful:
            raise
        append.commit()
