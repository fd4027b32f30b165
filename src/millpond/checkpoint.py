"""The values that a checkpoint is made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from attrs import field, frozen

Markers = Mapping[str, str]
"""From store name to the opaque marker that a backend gave for it."""

_ID = re.compile(r"(\+?\d+)-(\+?\d+)(?:-.*)?", re.DOTALL)
_INT64 = 1 << 63


def _frozen_strings(mapping: Mapping[str, str]) -> Mapping[str, str]:
    """Copy *mapping* into a read-only view in the same order."""
    return MappingProxyType(dict(mapping))


def _frozen_markers(markers: Mapping[str, Markers]) -> Mapping[str, Markers]:
    return MappingProxyType({backend: _frozen_strings(stores) for backend, stores in markers.items()})


def _frozen_properties(properties: Mapping[str, Mapping[str, str]]) -> Mapping[str, Mapping[str, str]]:
    """Freeze *properties*; what is read-only already is shared, since a thousand stores mostly say the same."""
    if set(map(type, properties.values())) == {MappingProxyType}:
        return MappingProxyType(dict(properties))
    return MappingProxyType(
        {
            store: said if isinstance(said, MappingProxyType) else _frozen_strings(said)
            for store, said in properties.items()
        }
    )


def _frozen_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(names)


@frozen(order=True)
class CheckpointId:
    """
    Names one checkpoint of a task; ordered as two numbers.

    ``str()`` gives Samza's text ``<millis>-<nanos>``, without padding.

    Attributes:
        millis: The wall clock of the commit, in milliseconds since 1970, or one more than the last id's.
        nanos: Tells ids of one millisecond apart; below 1,000,000 when Millpond made it.
    """

    millis: int
    nanos: int

    @classmethod
    def parse(cls, text: str) -> CheckpointId:
        """
        Read Samza's text; like Samza, ignore a third part.

        Raises:
            ValueError: *text* is not two 64-bit numbers with a dash between them.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise ValueError(f"not a checkpoint id: {text[:80]!r} (expected <millis>-<nanos>)")
        millis, nanos = int(match[1]), int(match[2])
        if not (-_INT64 <= millis < _INT64 and -_INT64 <= nanos < _INT64):
            raise ValueError(f"not a checkpoint id: {text[:80]!r} (a number beyond 64 bits)")
        return cls(millis, nanos)

    @classmethod
    def after(cls, last: CheckpointId | None, now_millis: int, nanos: int = 0) -> CheckpointId:
        """Give an id for *now_millis* that is greater than *last*, even if the clock went back."""
        nanos %= 1_000_000
        if last is None or (now_millis, nanos) > (last.millis, last.nanos):
            return cls(now_millis, nanos)
        if last.nanos + 1 < 1_000_000:
            return cls(last.millis, last.nanos + 1)
        return cls(last.millis + 1, 0)

    def __str__(self) -> str:
        return f"{self.millis}-{self.nanos}"


@frozen(order=True)
class SystemStreamPartition:
    """
    One partition of one input stream, in Samza's terms.

    Attributes:
        system: The name of the system, e.g. ``"kafka"``.
        stream: The name of the stream, e.g. a topic. Dots are fine.
        partition: Its number, from 0.
        key_bucket: Samza's bucket of keys within the partition; -1 for the whole of it, as in Samza.
    """

    system: str
    stream: str
    partition: int
    key_bucket: int = -1

    def __str__(self) -> str:
        tail = "" if self.key_bucket == -1 else f", {self.key_bucket}"
        return f"SystemStreamPartition [{self.system}, {self.stream}, {self.partition}{tail}]"


@frozen
class Claim:
    """
    The right to write a task's checkpoints.

    Attributes:
        task: The name of the task.
        epoch: A number that only grows: a later claim has a greater one.
        writer: 128 random bits in lower-case hex, which no other claim has.
    """

    task: str
    epoch: int
    writer: str


@frozen
class Layout:
    """
    How a job's input is spread over its tasks.

    Attributes:
        tasks: The names of all tasks; a task's place here is its partition number.
        partitioner: The name of the rule that sends a key to a place.
    """

    tasks: tuple[str, ...] = field(converter=_frozen_names)
    partitioner: str


def _frozen_offsets(offsets: Mapping[SystemStreamPartition, str]) -> Mapping[SystemStreamPartition, str]:
    return MappingProxyType(dict(offsets))


@frozen
class Checkpoint:
    """
    What one commit of a task made durable; immutable.

    Attributes:
        id: Its name.
        offsets: For each input, the last offset processed (not the next).
        markers: For each backend, by the name in the config or its ``marker_key``: store to marker.
        claim: Who wrote it; None when Samza did.
        parent: The checkpoint whose state this one builds on; None for the first.
        layout: The job's layout as its writer knew it; None where it was not stated.
        images: Store to ``"<id>-<writer>"`` of the commit that last changed it.
        properties: Store to the rules by which its bytes are written, e.g. its serdes: a restore by others is refused.
        identities: For inputs that have one, what tells them from others of their name: of a Kafka topic its id.
    """

    id: CheckpointId
    offsets: Mapping[SystemStreamPartition, str] = field(converter=_frozen_offsets, factory=dict)
    markers: Mapping[str, Markers] = field(converter=_frozen_markers, factory=dict)
    claim: Claim | None = None
    parent: CheckpointId | None = None
    layout: Layout | None = None
    images: Markers = field(converter=_frozen_strings, factory=dict)
    properties: Mapping[str, Mapping[str, str]] = field(converter=_frozen_properties, factory=dict)
    identities: Mapping[SystemStreamPartition, str] = field(converter=_frozen_offsets, factory=dict)
