r"""
Checkpoint V2: Samza's bytes, with our additions in one property that Samza ignores.

``{"checkpoint-id":…,"input-offsets":{"system.stream.partition":…},"state-checkpoint-markers":{…},"version":2}``, and
behind ``version``, only if there is something to add, ``"millpond"``: an object with its own version, claim, parent,
layout, images, properties, the offsets that a dotted key cannot hold, the inputs' identities, and at last the digest of
all bytes before it.
``docs/formats.md`` has it byte by byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.errors import FormatError, StateCorruptError
from millpond.formats import samza_text
from millpond.formats.digest import digest_bytes
from millpond.formats.samza_text import Number, kind_of, object_of
from millpond.formats.ssp_key import parse_key, plain_key

_VERSION = 1
_TAIL = re.compile(rb',"digest":"(blake3:[0-9a-f]{64})"\}\}\Z')
_TAIL_SIZE = len(b',"digest":"blake3:') + 64 + len(b'"}}')
_WHAT = "this checkpoint (V2)"


class _Claim(msgspec.Struct, forbid_unknown_fields=True):
    task: str
    epoch: int
    writer: str


class _Layout(msgspec.Struct, forbid_unknown_fields=True):
    tasks: list[str]
    partitioner: str


class _Offset(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    system: str
    stream: str
    partition: int
    key_bucket: int
    offset: str


class _Rules(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What several stores have in common, once for all of them."""

    properties: dict[str, str]
    stores: list[str]


class _Additions(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    version: int
    claim: _Claim | None = None
    parent: str | None = None
    layout: _Layout | None = None
    images: dict[str, str] = {}
    properties: list[_Rules] = []
    offsets: list[_Offset] = []
    identities: list[_Offset] = []
    digest: str = ""


class _Version(msgspec.Struct):
    version: int


class _Wire(msgspec.Struct):
    """What a V2 that was written as Samza writes it looks like; anything else is read the slow way."""

    id: str = msgspec.field(name="checkpoint-id")
    offsets: dict[str, str] = msgspec.field(name="input-offsets")
    markers: dict[str, dict[str, str]] = msgspec.field(name="state-checkpoint-markers")
    millpond: msgspec.Raw = msgspec.Raw(b"")


_WIRE = msgspec.json.Decoder(_Wire)
_ADDITIONS = msgspec.json.Decoder(_Additions)


def encode(checkpoint: Checkpoint) -> bytes:
    """
    Give the checkpoint's bytes: Samza's, if it holds nothing that Samza does not know.

    Raises:
        FormatError: An offset or a marker is not text, a number does not fit, or it is over 64 MiB.
    """
    _check_values(checkpoint)
    inputs, others = _split(checkpoint.offsets)
    document = {
        "checkpoint-id": str(checkpoint.id),
        "input-offsets": inputs,
        "state-checkpoint-markers": {backend: dict(markers) for backend, markers in checkpoint.markers.items()},
        "version": 2,
    }
    additions = _additions(checkpoint, others)
    if additions is None:
        return _limited(samza_text.encode_bytes(document))
    data = samza_text.encode_bytes({**document, "millpond": additions})[:-2]
    return _limited(data + f',"digest":"{digest_bytes(data)}"}}}}'.encode("ascii"))


def _split(offsets: Mapping[SystemStreamPartition, str]) -> tuple[dict[str, str], list[_Offset]]:
    """Part the offsets into those that Samza's keys can hold, by key, and the others."""
    inputs: dict[str, str] = {}
    others = []
    for ssp, offset in offsets.items():
        if (key := plain_key(ssp)) is None:
            others.append(_Offset(ssp.system, ssp.stream, ssp.partition, ssp.key_bucket, offset))
        else:
            inputs[key] = offset
    return inputs, others


def _limited(data: bytes) -> bytes:
    if len(data) > samza_text.MAX_SIZE:
        raise FormatError(f"a checkpoint of {len(data)} bytes is over the limit of {samza_text.MAX_SIZE}")
    return data


def _check_values(checkpoint: Checkpoint) -> None:
    """Refuse what Samza's model has no place for."""
    if not _all_text(checkpoint.offsets.values()):
        raise FormatError("an offset must be a string; leave an input without one out")
    if not _all_text(checkpoint.identities.values()):
        raise FormatError("the identity of an input must be a string; leave an input without one out")
    for backend, markers in checkpoint.markers.items():
        if not _all_text(markers.values()):
            raise FormatError(f"a marker of backend {backend!r} is not a string")
    for name in (checkpoint.id, checkpoint.parent or checkpoint.id):
        if not (0 <= name.millis < 1 << 63 and 0 <= name.nanos < 1 << 63):
            raise FormatError(f"a checkpoint id must be two numbers from 0 to 2^63-1, not {name}")


def _all_text(values: Iterable[object]) -> bool:
    return set(map(type, values)) <= {str}


def _additions(checkpoint: Checkpoint, others: list[_Offset]) -> dict[str, object] | None:
    """Give what Samza has no place for, in the order in which it is written; None if there is nothing."""
    found: dict[str, object] = {}
    if (claim := checkpoint.claim) is not None:
        found["claim"] = {"task": claim.task, "epoch": claim.epoch, "writer": claim.writer}
    if checkpoint.parent is not None:
        found["parent"] = str(checkpoint.parent)
    if (layout := checkpoint.layout) is not None:
        found["layout"] = {"tasks": list(layout.tasks), "partitioner": layout.partitioner}
    if checkpoint.images:
        found["images"] = dict(checkpoint.images)
    if checkpoint.properties:
        found["properties"] = _grouped(checkpoint.properties)
    if others:
        found["offsets"] = [list(msgspec.structs.astuple(other)) for other in others]
    if checkpoint.identities:
        found["identities"] = [
            [ssp.system, ssp.stream, ssp.partition, ssp.key_bucket, identity]
            for ssp, identity in checkpoint.identities.items()
        ]
    return {"version": _VERSION, **found} if found else None


def _grouped(properties: Mapping[str, Mapping[str, str]]) -> list[object]:
    """Give each set of properties that occurs, with the stores that have it."""
    if len(set(map(id, properties.values()))) == 1:
        return [[dict(next(iter(properties.values()))), list(properties)]]
    stores_of: dict[tuple[tuple[str, str], ...], list[str]] = {}
    seen: dict[int, list[str]] = {}  # most stores share the very object
    for store, said in properties.items():
        stores = seen.get(id(said))
        if stores is None:
            stores = seen[id(said)] = stores_of.setdefault(tuple(sorted(said.items())), [])
        stores.append(store)
    return [[dict(said), stores] for said, stores in stores_of.items()]


def decode(data: bytes) -> Checkpoint:
    """
    Read a V2 that Samza or we have written.

    Better than Samza: a dotted stream is read as what it is. A null marker is left out.

    Raises:
        StateCorruptError: It is ours, and has been changed.
        FormatError: It is no V2, its id is missing, or its ``millpond`` is of a newer version.
    """
    _check_digest(data)
    try:
        wire = _WIRE.decode(data)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(data)
    additions = _read_additions(bytes(wire.millpond), data) if wire.millpond else None
    return _checkpoint(wire.id, wire.offsets, wire.markers, additions)


def _check_digest(data: bytes) -> None:
    """Compare the digest at the end, if there is one, with all bytes before it."""
    tail = _TAIL.search(data, max(0, len(data) - _TAIL_SIZE)) if data else None
    if tail is not None and digest_bytes(data[: tail.start()]) != tail[1].decode("ascii"):
        raise StateCorruptError(f"{_WHAT} is damaged: its content has not the digest that it ends with")


def _read_additions(raw: bytes, data: bytes) -> _Additions | None:
    """Read our property; *data* is the whole checkpoint, whose end must be the digest."""
    if raw == b"null":
        return None
    try:
        version = msgspec.json.decode(raw, type=_Version).version
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"the property 'millpond' of {_WHAT} has no version: {error}") from error
    if version != _VERSION:
        raise FormatError(
            f"the property 'millpond' of {_WHAT} has version {version}, and this release reads {_VERSION}: "
            "use a newer Millpond"
        )
    if _TAIL.search(data, max(0, len(data) - _TAIL_SIZE)) is None:
        raise StateCorruptError(f"{_WHAT} is damaged or was rewritten: it does not end with its digest")
    try:
        return _ADDITIONS.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise FormatError(f"the property 'millpond' of {_WHAT} is not of version {_VERSION}: {error}") from error


def _checkpoint(
    name: str, offsets: Mapping[str, str], markers: Mapping[str, Mapping[str, str]], additions: _Additions | None
) -> Checkpoint:
    inputs = {parse_key(key): offset for key, offset in offsets.items()}
    if additions is None:
        return Checkpoint(_parse_id(name), inputs, markers)
    inputs.update(_by_input(additions.offsets))
    claim, layout = additions.claim, additions.layout
    return Checkpoint(
        _parse_id(name),
        inputs,
        markers,
        claim=None if claim is None else Claim(claim.task, claim.epoch, claim.writer),
        parent=None if additions.parent is None else _parse_id(additions.parent),
        layout=None if layout is None else Layout(tuple(layout.tasks), layout.partitioner),
        images=additions.images,
        properties=_ungrouped(additions.properties),
        identities=dict(_by_input(additions.identities)),
    )


def _by_input(rows: Iterable[_Offset]) -> Iterator[tuple[SystemStreamPartition, str]]:
    for row in rows:
        yield SystemStreamPartition(row.system, row.stream, row.partition, row.key_bucket), row.offset


def _ungrouped(groups: Iterable[_Rules]) -> dict[str, Mapping[str, str]]:
    shared = ((MappingProxyType(group.properties), group.stores) for group in groups)
    return {store: said for said, stores in shared for store in stores}


def _parse_id(text: str) -> CheckpointId:
    try:
        return CheckpointId.parse(text)
    except ValueError as error:
        raise FormatError(f"the id of {_WHAT}: {error}") from error


def _decode_leniently(data: bytes) -> Checkpoint:
    """Read what Samza's parser takes although nobody writes it so, or say what is wrong."""
    document = object_of(samza_text.parse(data, _WHAT), _WHAT)
    name = document.get("checkpoint-id")
    if name is None:
        raise FormatError(f"{_WHAT} has no id: 'checkpoint-id' is null or missing, so it cannot be told from others")
    if isinstance(name, Number) or not isinstance(name, str):
        raise FormatError(f"the id of {_WHAT} must be a string, not {kind_of(name)}")
    raw = document.get("millpond")
    additions = None if raw is None else _read_additions(_again(raw), data)
    offsets = _texts(document.get("input-offsets"), "input-offsets")
    if None in offsets.values():
        raise FormatError(f"an offset in {_WHAT} is null")
    markers = object_of(document.get("state-checkpoint-markers"), f"'state-checkpoint-markers' of {_WHAT}")
    read = {backend: _texts(stores, f"the markers of {backend[:80]!r}") for backend, stores in markers.items()}
    present = {backend: {s: m for s, m in stores.items() if m is not None} for backend, stores in read.items()}
    return _checkpoint(name, {k: v for k, v in offsets.items() if v is not None}, present, additions)


def _again(value: object) -> bytes:
    """Write a leniently parsed value again, its numbers as numbers."""
    try:
        return samza_text.encode_bytes(_numbers(value))
    except RecursionError as error:
        raise FormatError(f"the property 'millpond' of {_WHAT} is nested too deeply") from error


def _numbers(value: object) -> object:
    if isinstance(value, Number):
        return int(value) if value.lstrip("-").isdigit() and len(value) < 20 else float(value)
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value


def _texts(value: object, name: str) -> dict[str, str | None]:
    """Read an object of strings; scalars become strings, as in Samza, and null stays."""
    return {key: _text(item, name) for key, item in object_of(value, f"{name} of {_WHAT}").items()}


def _text(value: object, name: str) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise FormatError(f"{name} of {_WHAT} must hold strings, not {kind_of(value)}")
