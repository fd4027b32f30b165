"""The states of all topologies in one object store: saved, fetched, cleaned. Verbs may block; any thread may call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from attrs import field, frozen

from millpond.blob import BlobStore, Body, BytesBody, FileBody
from millpond.blob.memory import MemoryBlobStore
from millpond.errors import (
    ConfigError,
    FormatError,
    MillpondError,
    StateCorruptError,
    StateNotFoundError,
    TransientError,
)
from millpond.events import Event
from millpond.heron import messages, whole
from millpond.heron.events import RetentionFailed, ignore
from millpond.heron.fetched import Fetched, fetch
from millpond.heron.ids import Order, number_order
from millpond.heron.names import StateKey, checkpoint_prefix, name_of, own_prefix, segment, topology_prefixes
from millpond.heron.plan import Place, Plan
from millpond.heron.retention import cleaned_by, outnumbered
from millpond.heron.scratch import Scratch, Spool
from millpond.heron.sealed import SEAL_SIZE, Seal, peek, seal

_MOST_CLEANED = 4096
_LOOKS = 4
_NOTE_LIMIT = 64 << 20


class CleanedCheckpointError(StateNotFoundError):
    """A state came for a checkpoint that has been cleaned: it can never be whole again."""


@frozen(kw_only=True)
class StateRules:
    """
    What an operator decides about stored states.

    Attributes:
        unsealed_too: States without a seal are accepted, since Heron wrote some into this place.
        order: How ids are compared.
        by_age_too: A clean keeps what was written after the oldest checkpoint to keep.
        refuse_cleaned: A save for a checkpoint that was cleaned is refused.
        keep: How many whole checkpoints a node keeps by itself; None: all.
    """

    unsealed_too: bool = False
    order: Order = number_order
    by_age_too: bool = True
    refuse_cleaned: bool = True
    keep: int | None = None


@frozen
class _Objects:
    """What is stored of one checkpoint: its keys, and when the newest was written."""

    keys: list[str] = field(factory=list)
    millis: list[int] = field(factory=list)


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
        self._progress = whole.Progress()
        self._cleaned: dict[str, OrderedDict[str, None]] = {}
        self._components: dict[str, Mapping[str, int]] = {}
        self._lock = threading.Lock()

    # Saving

    def save(self, key: StateKey, state: bytes | None, plan: Plan | None = None) -> Seal:
        """Store a state that is in memory; see :meth:`save_spooled`."""
        self._check(key)
        data, found = seal(key, state)
        self._save(key, BytesBody(data), found, plan)
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
            self._check(key)
            found = spool.finish(key)
            self._save(key, FileBody(spool.path, spool.size), found, plan)
        finally:
            spool.discard()
        return found

    def _check(self, key: StateKey) -> None:
        """Refuse a key that has no path, or a checkpoint that has gone."""
        _ = key.path
        self._check_cleaned(key)

    def _save(self, key: StateKey, body: Body, found: Seal, plan: Plan | None) -> None:
        self.blobs.put(key.path, body)
        if self._is_cleaned(key):
            self.blobs.delete([key.path])
            self._check_cleaned(key)
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
        return any(True for prefix in self._prefixes(topology) for _ in self.blobs.list(prefix))

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
        found = self._checkpoints(topology) if oldest else {}
        millis = {id: max(one.millis) for id, one in found.items()}
        chosen = cleaned_by(millis, oldest, self.rules.order, by_age_too=self.rules.by_age_too)
        return self._remove(topology, found, chosen)

    def clean_all(self, topology: str) -> list[str]:
        """Remove all checkpoints, and say which."""
        found = self._checkpoints(topology)
        return self._remove(topology, found, sorted(found, key=self.rules.order))

    def checkpoints(self, topology: str) -> list[str]:
        """Give the ids of all checkpoints of which something is stored, oldest first."""
        return sorted(self._checkpoints(topology), key=self.rules.order)

    def _keep_newest(self, topology: str, keep: int) -> None:
        """Remove what is outnumbered. A failure is told, and harms no save: the next whole checkpoint tries again."""
        try:
            found = self._checkpoints(topology)
            complete = [id for id in found if self.is_whole(topology, id)]
            millis = {id: max(one.millis) for id, one in found.items()}
            self._remove(topology, found, outnumbered(millis, complete, keep, self.rules.order))
        except MillpondError as error:
            self._tell(RetentionFailed(job=topology, error=error))

    def _prefixes(self, topology: str) -> tuple[str, ...]:
        known = topology_prefixes(topology)
        return known if self.rules.unsealed_too else known[:1]

    def _checkpoints(self, topology: str) -> dict[str, _Objects]:
        found: dict[str, _Objects] = {}
        for prefix in self._prefixes(topology):
            for entry in self.blobs.list(prefix):
                part, slash, _ = entry.key.removeprefix(prefix).partition("/")
                if slash:
                    objects = found.setdefault(name_of(part), _Objects())
                    objects.keys.append(entry.key)
                    objects.millis.append(entry.millis)
        return found

    def _remove(self, topology: str, found: Mapping[str, _Objects], chosen: Sequence[str]) -> list[str]:
        """Remove checkpoints: first what says that they are whole; then look whether all went."""
        self._mark_cleaned(topology, chosen)
        left, looks = {id: found[id] for id in chosen}, 0
        refused: ConfigError | None = None
        while left:
            if looks == _LOOKS:
                raise refused or TransientError(
                    f"checkpoints of {topology} are still there after a clean: {sorted(left)}"
                )
            for id, objects in left.items():
                self.blobs.delete([entry.key for entry in self.blobs.list(whole.prefix(topology, id))])
                refused = self._delete(objects.keys) or refused
            # A save that was at work before its checkpoint was marked may have come in between.
            left, looks = {id: one for id, one in self._checkpoints(topology).items() if id in left}, looks + 1
        self._progress.forget(topology, chosen)
        return list(chosen)

    def _delete(self, keys: Sequence[str]) -> ConfigError | None:
        """Delete all but names that the store does not take, and give the reason if there was one."""
        try:
            self.blobs.delete(keys)
            return None
        except ConfigError as error:
            for key in keys:
                with suppress(ConfigError):
                    self.blobs.delete([key])
            return error

    def _mark_cleaned(self, topology: str, ids: Iterable[str]) -> None:
        with self._lock:
            known = self._cleaned.setdefault(topology, OrderedDict())
            for id in ids:
                known[id] = None
            while len(known) > _MOST_CLEANED:
                known.popitem(last=False)

    def _is_cleaned(self, key: StateKey) -> bool:
        return key.checkpoint in self._cleaned.get(key.topology, ()) and self.rules.refuse_cleaned

    def _check_cleaned(self, key: StateKey) -> None:
        if self._is_cleaned(key):
            raise CleanedCheckpointError(f"checkpoint {key.checkpoint!r} of {key.topology} has been cleaned")
