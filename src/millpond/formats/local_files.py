"""
The files that Samza keeps in a store's directory, as bytes: ``OFFSET-v2``, ``OFFSET``, ``SIDE-INPUT-OFFSETS``,
``CHECKPOINT-V2``. No file is touched here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from millpond.checkpoint import Checkpoint, SystemStreamPartition
from millpond.errors import FormatError, MillpondError, StateCorruptError
from millpond.formats import checkpoint_v2, java_text, samza_text
from millpond.formats.samza_text import kind_of, object_of
from millpond.formats.ssp_key import format_key, parse_key

OFFSETS = "OFFSET-v2"
LEGACY_OFFSET = "OFFSET"
SIDE_INPUT_OFFSETS = "SIDE-INPUT-OFFSETS"
CHECKPOINT = "CHECKPOINT-V2"

Offsets = dict[SystemStreamPartition, str | None]


def encode_offsets(offsets: Mapping[SystemStreamPartition, str | None], *, side_input: bool) -> dict[str, bytes]:
    """
    Give the files that Samza writes for a store, name to bytes, in its order: all of them, or an error.

    Args:
        offsets: A changelog store's one changelog, or a side-input store's inputs. The first is the legacy file's.
        side_input: The store is filled from side inputs.

    Raises:
        FormatError: A store with a changelog has no offset, two inputs have the same key, or a text is too long.
    """
    texts = {format_key(ssp): offset for ssp, offset in offsets.items()}
    if len(texts) != len(offsets):
        raise FormatError("two of these inputs have the same key, so Samza's offset file cannot hold both")
    framed = java_text.encode(samza_text.encode_text(texts))
    if side_input:
        return {OFFSETS: framed, SIDE_INPUT_OFFSETS: framed}
    first = next(iter(offsets.values()), None)
    if first is None:
        raise FormatError("a store with a changelog must have an offset in its OFFSET file")
    return {OFFSETS: framed, LEGACY_OFFSET: java_text.encode(first)}


def decode_offsets(
    files: Mapping[str, bytes], expected: Collection[SystemStreamPartition], *, side_input: bool
) -> Offsets:
    """
    Read a store's offset files; empty only if there is none.

    ``OFFSET-v2`` comes first. If it is damaged, the legacy file stands in for it, which is never newer.

    Args:
        files: What is there: name to bytes; others are ignored.
        expected: The inputs that the store should have; they settle what a dotted key means.
        side_input: The store is filled from side inputs: its legacy file is ``SIDE-INPUT-OFFSETS``, not ``OFFSET``.

    Raises:
        StateCorruptError: All files that are there are damaged.
        FormatError: What they hold is no offsets.
    """
    legacy = SIDE_INPUT_OFFSETS if side_input else LEGACY_OFFSET
    damage: MillpondError | None = None
    for name in (OFFSETS, legacy):
        if name not in files:
            continue
        try:
            return _decode_file(name, files[name], expected)
        except (StateCorruptError, FormatError) as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return {}


def _decode_file(name: str, data: bytes, expected: Collection[SystemStreamPartition]) -> Offsets:
    text = java_text.decode(data, name)
    return _bare(text, expected) if name == LEGACY_OFFSET else _by_key(name, text, expected)


def _bare(text: str, expected: Collection[SystemStreamPartition]) -> Offsets:
    if len(expected) != 1:
        raise FormatError(f"{LEGACY_OFFSET} holds one offset without a name, and {len(expected)} inputs are expected")
    return dict.fromkeys(expected, text)


def _by_key(name: str, text: str, expected: Collection[SystemStreamPartition]) -> Offsets:
    """Read the JSON in *name*: keys as *expected* writes them first, others by the general rule."""
    known = {format_key(ssp): ssp for ssp in expected}
    if len(known) != len(expected):
        raise FormatError(f"two of the expected inputs have the same key in {name}")
    fields = object_of(samza_text.parse_text(text, name), name)
    return {known.get(key) or parse_key(key): _offset(name, value) for key, value in fields.items()}


def _offset(name: str, value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise FormatError(f"an offset in {name} must be a string, not {kind_of(value)}")


def offsets_valid(
    offsets: Mapping[SystemStreamPartition, str | None], expected: Collection[SystemStreamPartition]
) -> bool:
    """Tell if the files are those of the expected inputs, no more and no fewer: another changelog shows here."""
    return bool(offsets) and set(offsets) == set(expected)


def is_stale(
    modified_millis: Mapping[str, int] | None, retention_millis: int, now_millis: int, *, side_input: bool
) -> bool:
    """
    Tell if a store's directory is older than deletes are kept in its changelog, so that they could come back.

    Args:
        modified_millis: File name to its time of modification; None if there is no directory, which is not stale.
        retention_millis: How long a changelog keeps a delete.
        now_millis: The time, by the same clock.
        side_input: The store is filled from side inputs.
    """
    if modified_millis is None:
        return False
    legacy = SIDE_INPUT_OFFSETS if side_input else LEGACY_OFFSET
    times = (modified_millis[name] for name in (CHECKPOINT, OFFSETS, legacy) if name in modified_millis)
    return now_millis - next(times, 0) >= retention_millis


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Give the bytes of ``CHECKPOINT-V2``; raises FormatError where it cannot be written."""
    return java_text.encode(checkpoint_v2.encode(checkpoint).decode("utf-8"))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """
    Read the bytes of ``CHECKPOINT-V2``.

    Raises:
        StateCorruptError: They are damaged, or from a JVM with another default charset.
        FormatError: What they hold is no V2.
    """
    text = java_text.decode(data, CHECKPOINT)
    return checkpoint_v2.decode(text.encode("utf-8", "surrogatepass"))
