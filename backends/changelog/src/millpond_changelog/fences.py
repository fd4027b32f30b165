"""
Fences, for a log that keeps no earlier owner from writing.

A claim's first record in each partition is a fence: a tombstone under a key of its own, which deletes nothing for
whoever does not know it. A reader skips what a smaller epoch wrote behind it. That is the most that readers can do:
compaction knows no fences, so a late record may still take an earlier one's place. Hence transactions are the rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define

from millpond.log import Batch, LogWriter
from millpond.spi import Change
from millpond_changelog import headers
from millpond_changelog.headers import FENCE_KEY, Stamp


def put_up(writer: LogWriter, places: Sequence[tuple[str, int]], epoch: int) -> None:
    """Append a fence to each of *places*."""
    stamp = headers.encode(Stamp(epoch, None))
    with writer.append() as append:
        for topic, partition in places:
            append.add(topic, partition, [(FENCE_KEY, None)], headers=stamp)
        append.flush()
        append.commit()


@define
class Fenced:
    """
    Lets through what no later claim shuts out, batch after batch.

    Attributes:
        epoch: The newest claim that was met.
    """

    epoch: int = 0

    def changes(self, batch: Batch) -> Sequence[Change]:
        """Give those of the batch's changes that count; a fence does not."""
        return [change for index, change in enumerate(batch.changes()) if self._counts(batch.headers(index))]

    def _counts(self, found: Mapping[str, bytes]) -> bool:
        stamp = headers.decode(found)
        if stamp is None:
            return True
        is_late = stamp.epoch < self.epoch
        self.epoch = max(self.epoch, stamp.epoch)
        return stamp.id is not None and not is_late
