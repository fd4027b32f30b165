"""
What a new owner finds in a log: whether it still holds what the marker names, and what came after it.

Records after the marker belong to a commit that never was. The new claim's first commit writes their keys' restored
values as changes, as Samza's trimming does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from attrs import frozen

from millpond.errors import StateNotFoundError
from millpond.log import Batch, Extent, Log, unchecked
from millpond.spi import Change, Snapshot
from millpond_changelog.headers import FENCE_KEY
from millpond_changelog.marker import Marker
from millpond_changelog.runs import SortedRuns, laid_over, with_keys

_PIECE = 500
_HELD = b""


@frozen
class Beginning:
    """
    What the first commit of a claim has to know of one store.

    Attributes:
        marker: The restored marker's text.
        since: From this offset on the log holds the whole store.
        rewrite: Why the log does not hold what the marker names, so that all has to be written; empty: it does.
        undo: The keys of records after the marker; their values mean nothing.
    """

    marker: str
    since: int
    rewrite: str = ""
    undo: SortedRuns | None = None

    @property
    def is_due(self) -> bool:
        """Whether something has to be written although nothing changed."""
        return bool(self.rewrite or self.undo)


@frozen
class Held:
    """
    What a partition holds as its new owner finds it.

    Attributes:
        topic: The topic.
        partition: Which of it.
        identity: The topic's.
        extent: Of the partition.
    """

    topic: str
    partition: int
    identity: str
    extent: Extent


def look(log: Log, text: str, marker: Marker, held: Held, folder: Path) -> Beginning:
    """
    Look at the log behind a restored *marker*, for a store that goes where *held* is; *folder* takes what is large.

    Raises:
        TransientError: It cannot be looked at now.
    """
    topic, partition = place = held.topic, held.partition
    if (marker.ssp.stream, marker.ssp.partition) != place:
        return Beginning(text, 0, f"its changes were in {marker.ssp.stream}, partition {marker.ssp.partition}")
    if marker.origin is not None and held.identity != marker.origin.identity:
        return Beginning(text, 0, f"topic {topic} was made anew")
    extent = held.extent
    since = extent.start if marker.origin is None else marker.origin.since
    if marker.stop > extent.end or since < extent.start:
        offsets = f"offsets from {extent.start} up to {extent.end}"
        return Beginning(text, since, f"{topic}, partition {partition} holds {offsets}, not {since} to {marker.stop}")
    undo = SortedRuns(folder)
    start = max(marker.end, extent.start)
    if extent.end > start:
        for batch in read_all(log, topic, partition, start, extent.end):
            undo.add((key, None) for key, _ in batch.changes() if key != FENCE_KEY)
    return Beginning(text, since, undo=undo)


def read_all(
    log: Log, topic: str, partition: int, start: int, stop: int, check: Callable[[], None] = unchecked
) -> Iterator[Batch]:
    """Read, and free what that holds whatever the caller does."""
    with closing(log.read(topic, partition, start, stop, check)) as batches:  # type: ignore[type-var]  # generators
        yield from batches


def undone(snapshot: Snapshot, store: str, changes: Iterable[Change], undo: SortedRuns) -> Iterator[Change]:
    """Give *changes*, and for each key of *undo* that has none its value in the snapshot; sorted, one a key."""
    stream = with_keys(changes, (key for key, _ in undo.sorted()))
    while piece := list(islice(stream, _PIECE)):
        snapshot.check()
        asked = [key for key, _, is_change in piece if not is_change]
        values = dict(zip(asked, snapshot.get_many(store, asked), strict=True)) if asked else {}
        yield from ((key, value if is_change else values[key]) for key, value, is_change in piece)


def whole(
    log: Log, place: tuple[str, int], live: Iterable[Change], folder: Path, check: Callable[[], None]
) -> Iterator[Change]:
    """Give every *live* key, and a deletion for each key that the log holds and the store does not; sorted."""
    topic, partition = place
    held = SortedRuns(folder)
    extent = log.extent(topic, partition)
    if extent.end > extent.start:
        try:
            for batch in read_all(log, topic, partition, extent.start, extent.end):
                check()
                held.add((key, None if value is None else _HELD) for key, value in batch.changes())
        except StateNotFoundError:  # retention took its beginning meanwhile; what is gone needs no deletion
            pass
    return laid_over(((key, None) for key, value in held.sorted() if value is not None), live)
