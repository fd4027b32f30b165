"""
Whole checkpoints: a note for each stream manager's part, written when the last of its instances has been saved.

Heron has no sign that a checkpoint is complete. Here, a checkpoint is whole when each stream manager of the plan has
its note, and a note is written before the save that completes it is answered: what a coordinator records is whole. A
note names each state with its size and digest, and each component's number of instances.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping

from attrs import field, frozen

from millpond.errors import FormatError, StateCorruptError
from millpond.formats.envelope import seal, unseal
from millpond.heron.names import own_prefix, segment
from millpond.heron.plan import Place, Plan
from millpond.heron.sealed import Seal

MAGIC, VERSION, KIND = "millpond-heron", 1, "part"
_MOST_CHECKPOINTS = 16
"""How many unfinished checkpoints of a topology are remembered; what is forgotten is looked up again."""

_MOST_TOPOLOGIES = 1024


@frozen
class Part:
    """
    What one stream manager has saved of a checkpoint.

    Attributes:
        stmgrs: All stream managers whose parts make the checkpoint whole.
        parallelism: Component to the number of its instances, in the whole topology.
        states: What was saved.
    """

    checkpoint: str
    stmgr: str
    stmgrs: tuple[str, ...]
    parallelism: Mapping[str, int]
    states: Mapping[Place, Seal]


def prefix(topology: str, checkpoint: str | None = None) -> str:
    """Give what the keys of a topology's notes begin with, or those of one checkpoint."""
    own = own_prefix(topology, "parts")
    return own if checkpoint is None else f"{own}{segment(checkpoint)}/"


def encode(part: Part) -> bytes:
    """Write a note."""
    states = [[*place, one.size, one.digest] for place, one in sorted(part.states.items())]
    content = {
        "checkpoint": part.checkpoint,
        "stmgr": part.stmgr,
        "stmgrs": part.stmgrs,
        "parallelism": dict(part.parallelism),
        "states": states,
    }
    return seal(MAGIC, VERSION, KIND, json.dumps(content, sort_keys=True).encode())


def decode(data: bytes) -> Part:
    """
    Read a note.

    Raises:
        StateCorruptError: It is damaged.
        FormatError: It is none that this release can read.
    """
    opened = unseal(MAGIC, VERSION, data)
    if opened.kind != KIND:
        raise FormatError(f"a {MAGIC} of kind {opened.kind!r} is no note about a part of a checkpoint")
    try:
        found = json.loads(opened.body)
        states = {(str(c), int(i)): Seal(None if s is None else int(s), str(d)) for c, i, s, d in found["states"]}
        parallelism = {str(name): int(count) for name, count in found["parallelism"].items()}
        return Part(found["checkpoint"], found["stmgr"], tuple(map(str, found["stmgrs"])), parallelism, states)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateCorruptError(f"a note about a part of a checkpoint does not say what it should: {error!r}") from None


def are_whole(parts: Iterable[Part]) -> bool:
    """Tell whether *parts*, of one checkpoint, are all that it has."""
    found = list(parts)
    wanted = {stmgr for part in found for stmgr in part.stmgrs}
    return bool(wanted) and wanted <= {part.stmgr for part in found}


@frozen
class Progress:
    """What has been saved of the newest checkpoints of each topology. Any thread."""

    _saved: OrderedDict[str, OrderedDict[str, dict[Place, Seal]]] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def knows(self, topology: str, checkpoint: str) -> bool:
        """Tell whether something was noted of that checkpoint, or was looked up."""
        with self._lock:
            return checkpoint in self._saved.get(topology, ())

    def note(self, topology: str, checkpoint: str, states: Mapping[Place, Seal]) -> None:
        """Add *states* that are stored."""
        with self._lock:
            checkpoints = self._saved.setdefault(topology, OrderedDict())
            checkpoints.setdefault(checkpoint, {}).update(states)
            while len(checkpoints) > _MOST_CHECKPOINTS:
                checkpoints.popitem(last=False)
            while len(self._saved) > _MOST_TOPOLOGIES:
                self._saved.popitem(last=False)

    def forget(self, topology: str, checkpoints: Collection[str]) -> None:
        """Forget *checkpoints*, which are gone."""
        with self._lock:
            for id in checkpoints:
                self._saved.get(topology, OrderedDict()).pop(id, None)

    def part(self, topology: str, checkpoint: str, place: Place, plan: Plan) -> Part | None:
        """Give the part that *place* belongs to, if all of it is stored."""
        stmgr = plan.home(place)
        if stmgr is None:
            return None
        with self._lock:
            saved = self._saved.get(topology, OrderedDict()).get(checkpoint, {})
            if not plan.instances[stmgr] <= saved.keys():
                return None
            states = {each: saved[each] for each in plan.instances[stmgr]}
        return Part(checkpoint, stmgr, tuple(sorted(plan.instances)), plan.parallelism, states)
