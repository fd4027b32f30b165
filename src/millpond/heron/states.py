"""The states of all topologies in one object store: saved, fetched, cleaned. Verbs may block; any thread may call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from millpond.blob import BlobStore, Body, BytesBody, FileBody
from millpond.blob.memory import MemoryBlobStore
from millpond.errors import (
    ConfigError,
    FormatError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
)
from millpond.events import Event
from millpond.heron import messages, whole
from millpond.heron.checkpoints import Checkpoints, Objects
from millpond.heron.events import RetentionFailed, ignore
from millpond.heron.fetched import Fetched, fetch
from millpond.heron.names import StateKey, checkpoint_prefix, name_of, own_prefix, segment
from millpond.heron.plan import Place, Plan
from millpond.heron.retention import cleaned_by, outnumbered
from millpond.heron.rules import StateRules
from millpond.heron.scratch import Scratch, Spool
from millpond.heron.sealed import SEAL_SIZE, Seal, peek, seal

_NOTE_LIMIT = 64 << 20


class StateStore:
    """
    States in *blobs*, and further places in *also* that are only read.

    Attributes:
        instant: No verb waits for a disk or a network.
        scratch: Where states are spooled.
    """

    def __init__(
        self,
        blobs: BlobStore,
        scratch: Scratch,
        rules: StateRules | None = None,
        also: Sequence[BlobStore] = (),
        tell: Callable[[Event], None] = ignore,
    ) -> None:
        """Keep what is given; the caller closes it. *tell* must be quick and raise nothing; any thread calls it."""
        self.blobs, self.scratch, self.rules, self._tell = blobs, scratch, rules or StateRules(), tell
        self.instant = isinstance(blobs, MemoryBlobStore)
        self._also = tuple(also)
        self._checkpoints = Checkpoints(blobs, self.rules)
        self._progress = whole.Progress()
        self._components: dict[str, Mapping[str, int]] = {}

    # Saving

    def save(self, key: StateKey, state: bytes | None, plan: Plan | None = None) -> Seal:
        """Store a state that is in memory; see :meth:`save_spooled`."""
        path = self._checked_path(key)
        data, found = seal(key, state)
        self._save(key, path, BytesBody(data), found, plan)
        return found

    def save_spooled(self, key: StateKey, spool: Spool, plan: Plan | None = None) -> Seal:
        """
        Store a state, durable when this returns; where it completes a part of *plan*, the part's note too.

        Raises:
            CleanedCheckpointError: Its checkpoint was cleaned meanwhile.
            NameRefusedError: A name in *key* cannot be stored.
            TransientError: The store failed.
        """
        try:
            path = self._checked_path(key)
            found = spool.finish(key)
            self._save(key, path, FileBody(spool.path, spool.size), found, plan)
        finally:
            spool.discard()
        return found

    def _checked_path(self, key: StateKey) -> str:
        """Refuse a key that has no path, or a checkpoint that has gone."""
        path = key.path
        self._checkpoints.check(key)
        return path

    def _save(self, key: StateKey, path: str, body: Body, found: Seal, plan: Plan | None) -> None:
        self.blobs.put(path, body)
        if self._checkpoints.is_cleaned(key):
            self.blobs.delete([path])
            self._checkpoints.check(key)
        if plan is not None:
            self._note(key, found, plan)

    def _note(self, key: StateKey, found: Seal, plan: Plan) -> None:
        topology, checkpoint, place = key.topology, key.checkpoint, (key.component, key.index)
        if not self._progress.knows(topology, checkpoint):
            self._progress.note(topology, checkpoint, dict(self._stored(topology, checkpoint)))
        self._progress.note(topology, checkpoint, {place: found})
        part = self._progress.part(topology, checkpoint, place, plan)
        if part is None:
            return
        self._write_components(topology, part.parallelism)
        self.blobs.put(f"{whole.prefix(topology, checkpoint)}{segment(part.stmgr)}", BytesBody(whole.encode(part)))
        if self.rules.keep is not None:
            self._keep_newest(topology, self.rules.keep)

    def _stored(self, topology: str, checkpoint: str) -> Iterator[tuple[Place, Seal]]:
        """Give what an earlier process has stored of a checkpoint."""
        prefix = checkpoint_prefix(topology, checkpoint)
        for entry in self.blobs.list(prefix):
            component, _, index = entry.key.removeprefix(prefix).rpartition("/")
            with suppress(ValueError, StateNotFoundError):
                first = self.blobs.get(entry.key, 0, SEAL_SIZE)
                found = peek(first, self.blobs.get(entry.key, max(0, entry.size - SEAL_SIZE), SEAL_SIZE))
                if found is not None:
                    yield (name_of(component), int(index)), found

    # Fetching

    def fetch(self, key: StateKey) -> Fetched:
        """
        Give a verified state; the caller closes it.

        Raises:
            StateNotFoundError: Nobody has it.
            StateCorruptError: It is damaged.
        """
        checkpoint_prefix(key.topology, key.checkpoint)
        why = ""
        for blobs, path, unsealed_too in self._places(key):
            try:
                return fetch(blobs, path, key, self.scratch, unsealed_too=unsealed_too)
            except StateNotFoundError:
                continue
            except ConfigError:
                if path == key.path:
                    raise
                why = f"; Heron would have it at {path!r}, of which {blobs.where()} cannot be asked"
        raise StateNotFoundError(f"there is no state {key} in {self.blobs.where()}{self._why(key) or why}")

    def _places(self, key: StateKey) -> Iterator[tuple[BlobStore, str, bool]]:
        yield self.blobs, key.path, self.rules.unsealed_too
        if self.rules.unsealed_too and key.heron_path is not None:
            yield self.blobs, key.heron_path, True
        for blobs in self._also:
            yield blobs, key.path, True
            if key.heron_path is not None:
                yield blobs, key.heron_path, True

    def _why(self, key: StateKey) -> str:
        """Say why a state is missing, where a note tells it: the topology was scaled."""
        try:
            for part in self.parts(key.topology, key.checkpoint):
                count = part.parallelism.get(key.component, 0)
                if key.index >= count:
                    return f": {key.component} had {count} instances when it was made, and states are not repartitioned"
        except MillpondError:
            return ""
        return ""

    # Whole checkpoints and components

    def parts(self, topology: str, checkpoint: str) -> list[whole.Part]:
        """Give the notes about the parts of a checkpoint."""
        entries = list(self.blobs.list(whole.prefix(topology, checkpoint)))
        return [whole.decode(self.blobs.get(entry.key, 0, _NOTE_LIMIT)) for entry in entries]

    def is_whole(self, topology: str, checkpoint: str) -> bool:
        """Tell whether all parts of a checkpoint are there. One of which a note is damaged is not whole."""
        try:
            return whole.are_whole(self.parts(topology, checkpoint))
        except (FormatError, StateCorruptError, StateNotFoundError):  # the latter: it is being cleaned right now
            return False

    def holds_any(self, topology: str) -> bool:
        """Tell whether there is any state of *topology*."""
        return any(True for prefix in self._checkpoints.prefixes(topology) for _ in self.blobs.list(prefix))

    def components(self, topology: str) -> dict[str, int]:
        """Give what is stored about a topology's components: the number of instances of each."""
        prefix = own_prefix(topology, "components")
        found = {}
        for entry in self.blobs.list(prefix):
            one = messages.parse("CheckpointComponentMetadata", self.blobs.get(entry.key, 0, _NOTE_LIMIT))
            found[messages.text(one.component_name)] = int(one.parallelism)
        return found

    def _write_components(self, topology: str, parallelism: Mapping[str, int]) -> None:
        if self._components.get(topology) == parallelism:
            return
        prefix = own_prefix(topology, "components")
        for name, count in parallelism.items():
            one = messages.message("CheckpointComponentMetadata")(component_name=name, parallelism=count)
            self.blobs.put(f"{prefix}{segment(name)}", BytesBody(one.SerializeToString()))
        self._components[topology] = dict(parallelism)

    # Removing

    def clean(self, topology: str, oldest: str) -> list[str]:
        """
        Remove the checkpoints before *oldest*, and say which; ``""`` removes nothing.

        Raises:
            TransientError: The store failed, or something is still there.
        """
        found = self._checkpoints.listed(topology) if oldest else {}
        millis = {id: max(one.millis) for id, one in found.items()}
        chosen = cleaned_by(millis, oldest, self.rules.order, by_age_too=self.rules.by_age_too)
        return self._remove(topology, found, chosen)

    def clean_all(self, topology: str) -> list[str]:
        """Remove all checkpoints, and say which."""
        found = self._checkpoints.listed(topology)
        return self._remove(topology, found, sorted(found, key=self.rules.order))

    def checkpoints(self, topology: str) -> list[str]:
        """Give the ids of all checkpoints of which something is stored, oldest first."""
        return sorted(self._checkpoints.listed(topology), key=self.rules.order)

    def _keep_newest(self, topology: str, keep: int) -> None:
        """Remove what is outnumbered. A failure is told, and harms no save: the next whole checkpoint tries again."""
        try:
            found = self._checkpoints.listed(topology)
            complete = [id for id in found if self.is_whole(topology, id)]
            millis = {id: max(one.millis) for id, one in found.items()}
            self._remove(topology, found, outnumbered(millis, complete, keep, self.rules.order))
        except MillpondError as error:
            self._tell(RetentionFailed(job=topology, error=error))

    def _remove(self, topology: str, found: Mapping[str, Objects], chosen: Sequence[str]) -> list[str]:
        self._checkpoints.remove(topology, found, chosen)
        self._progress.forget(topology, chosen)
        return list(chosen)
