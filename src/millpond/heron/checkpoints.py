"""
The checkpoints of which something is stored: listed, and removed for good.

What was removed is remembered for a while, since a save that comes for it later would be a part of nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from attrs import field, frozen

from millpond.blob import BlobStore
from millpond.errors import ConfigError, StateNotFoundError, TransientError
from millpond.heron import whole
from millpond.heron.names import StateKey, name_of, topology_prefixes
from millpond.heron.rules import StateRules

_MOST_CLEANED, _MOST_TOPOLOGIES = 4096, 4096
_LOOKS = 4


class CleanedCheckpointError(StateNotFoundError):
    """A state came for a checkpoint that has been cleaned: it can never be whole again."""


@frozen
class Objects:
    """What is stored of one checkpoint: its keys, and when the newest was written."""

    keys: list[str] = field(factory=list)
    millis: list[int] = field(factory=list)


class Checkpoints:
    """Those in *blobs*. Verbs may block; any thread may call."""

    def __init__(self, blobs: BlobStore, rules: StateRules) -> None:
        """Begin with none removed."""
        self._blobs, self._rules = blobs, rules
        self._cleaned: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._lock = threading.Lock()

    def prefixes(self, topology: str) -> tuple[str, ...]:
        """Give what the keys of a topology's states begin with."""
        known = topology_prefixes(topology)
        return known if self._rules.unsealed_too else known[:1]

    def listed(self, topology: str) -> dict[str, Objects]:
        """Give all of a topology's, by id."""
        found: dict[str, Objects] = {}
        for prefix in self.prefixes(topology):
            for entry in self._blobs.list(prefix):
                part, slash, _ = entry.key.removeprefix(prefix).partition("/")
                if slash:
                    objects = found.setdefault(name_of(part), Objects())
                    objects.keys.append(entry.key)
                    objects.millis.append(entry.millis)
        return found

    def remove(self, topology: str, found: Mapping[str, Objects], chosen: Sequence[str]) -> None:
        """
        Remove the *chosen* of what was *found*: first what says that they are whole; then look whether all went.

        Raises:
            ConfigError: The store does not take the name of something in them.
            TransientError: The store failed, or something is still there.
        """
        self._mark_cleaned(topology, chosen)
        left, looks = {id: found[id] for id in chosen}, 0
        refused: ConfigError | None = None
        while left:
            if looks == _LOOKS:
                raise refused or TransientError(
                    f"checkpoints of {topology} are still there after a clean: {sorted(left)}"
                )
            for id, objects in left.items():
                self._blobs.delete([entry.key for entry in self._blobs.list(whole.prefix(topology, id))])
                refused = self._delete(objects.keys) or refused
            # A save that was at work before its checkpoint was marked may have come in between.
            left, looks = {id: one for id, one in self.listed(topology).items() if id in left}, looks + 1

    def _delete(self, keys: Sequence[str]) -> ConfigError | None:
        """Delete all but names that the store does not take, and give the reason if there was one."""
        try:
            self._blobs.delete(keys)
            return None
        except ConfigError as error:
            for key in keys:
                with suppress(ConfigError):
                    self._blobs.delete([key])
            return error

    def _mark_cleaned(self, topology: str, ids: Collection[str]) -> None:
        if not ids:
            return
        with self._lock:
            known = self._cleaned.setdefault(topology, OrderedDict())
            known.update(dict.fromkeys(ids))
            while len(known) > _MOST_CLEANED:
                known.popitem(last=False)
            while len(self._cleaned) > _MOST_TOPOLOGIES:
                self._cleaned.popitem(last=False)

    def is_cleaned(self, key: StateKey) -> bool:
        """Tell whether a save for *key* is to be refused."""
        cleaned = self._cleaned.get(key.topology)
        return cleaned is not None and key.checkpoint in cleaned and self._rules.refuse_cleaned

    def check(self, key: StateKey) -> None:
        """Raise CleanedCheckpointError where it is."""
        if self.is_cleaned(key):
            raise CleanedCheckpointError(f"checkpoint {key.checkpoint!r} of {key.topology} has been cleaned")
