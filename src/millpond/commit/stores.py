"""What the commit engine knows of each store: what is published, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from attrs import define, field

from millpond.checkpoint import Checkpoint, CheckpointId, Markers
from millpond.spi import Change, StoreEngine, StoreSpec
from millpond.stores.images import Image

MISSES_TOLERATED = 8
"""After so many checkpoints without an optional backend, the changes since its last marker are no longer kept."""


class Committable(Protocol):
    """
    What a commit asks of a store: a ``BufferedStore``, or a host's own database.

    ``touched`` is called on the processing thread before the first write behind ``close_run``.
    """

    name: str
    failure: BaseException | None
    touched: Callable[[], object] | None

    def close_run(self) -> int:
        """Close what was written so far, on the processing thread; give the number up to which it goes."""
        ...

    def checkpoint(self, directory: Path) -> None:
        """Make *directory* an image."""
        ...

    def changes(self, since: int, until: int) -> Iterator[Change]:
        """Give the changes after *since* up to *until*."""
        ...

    def forget(self, until: int) -> None:
        """Keep no changes up to *until*."""
        ...


@define
class Backed:
    """
    What a backend holds of a store.

    Attributes:
        id: The newest checkpoint that has the marker.
        marker: The marker.
        mark: The store's run that the marker covers.
        misses: How many checkpoints in a row are without this backend.
    """

    id: CheckpointId
    marker: str
    mark: int
    misses: int = 0


@define(eq=False)
class CommittedStore:
    """
    A store that takes part in commits. Changed by the commit lane only, while no commit is being admitted.

    Attributes:
        spec: As configured.
        engine: The class of its engine.
        buffered: Its buffer and its live engine, or the host's own database.
        backends: The marker keys of the backends that back it up.
        image: Its last published image; None: it has none yet.
        mark: The newest run that is published.
        backed: By marker key, what that backend holds.
        unsent: Marker keys of backends that need an upload although nothing changed.
        hosted: It is a database of the host's own: dirty at every commit, and imaged on the processing thread.
        stale_images: The local disk may hold images other than ``image``.
    """

    spec: StoreSpec
    engine: type[StoreEngine]
    buffered: Committable
    backends: tuple[str, ...]
    image: Image | None = None
    mark: int = 0
    backed: dict[str, Backed] = field(factory=dict)
    unsent: set[str] = field(factory=set)
    hosted: bool = False
    stale_images: bool = True

    @property
    def name(self) -> str:
        """The store's name."""
        return self.spec.name

    def dirty(self, mark: int) -> bool:
        """Say whether a checkpoint at *mark* differs from the published one."""
        return mark != self.mark or bool(self.unsent) or self.image is None

    def callers(self, mark: int) -> Collection[str]:
        """
        Give the marker keys of the backends that a checkpoint at *mark* has to call for this store.

        All of them where there is a new image, also if it holds the same: a checkpoint's markers are of its images.
        """
        return self.backends if mark != self.mark or self.image is None else self.unsent

    def advance(self, mark: int, checkpoint: Checkpoint, uploaded: Mapping[str, Markers]) -> None:
        """
        Take note that *checkpoint* is published, which holds this store up to *mark*.

        Args:
            mark: The newest run that belongs to it.
            checkpoint: What was published.
            uploaded: For each backend that was called, its new markers.
        """
        self.mark = mark
        for key in self.backends:
            marker = checkpoint.markers.get(key, {}).get(self.name)
            if marker is None:
                self.unsent.add(key)
                self._miss(key)
            elif self.name in uploaded.get(key, {}):
                self.unsent.discard(key)
                self.backed[key] = Backed(checkpoint.id, marker, mark)
            else:
                self.backed[key].id = checkpoint.id
        self.buffered.forget(min((held.mark for held in self.backed.values()), default=mark))

    def _miss(self, key: str) -> None:
        held = self.backed.get(key)
        if held is not None:
            held.misses += 1
            if held.misses > MISSES_TOLERATED:
                del self.backed[key]
