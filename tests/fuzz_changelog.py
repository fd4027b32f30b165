"""
The readers of bytes of the changelog, for the fuzzer: ``python -m millpond.testing.fuzz --table fuzz_changelog``.

Also from the command line, with this folder in ``PYTHONPATH``.
"""

from __future__ import annotations

import shutil
import struct
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from millpond.checkpoint import CheckpointId, SystemStreamPartition
from millpond.formats.log_key import KafkaCheckpointLogKey
from millpond.formats.log_key import encode as encode_key
from millpond.testing.fuzz.insides import json_mutated
from millpond.testing.fuzz.reader import Reader, of_bytes, of_text
from millpond_changelog import headers, marker
from millpond_changelog.checkpoints import keys
from millpond_changelog.embedded import frames, topic_file
from millpond_changelog.embedded.log import EmbeddedLog
from millpond_changelog.embedded.owners import OwnerFile

_P = "millpond_changelog."
_APPEND = frames.AppendId(1, 1, 1)


def _template() -> Path:
    """Make a log with one topic, two appends and one that was aborted."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-fuzz-log-"))
    log = EmbeddedLog(folder / "log")
    log.create("t", 1, {})
    writer = log.writer("o")
    for number in range(3):
        with writer.append() as append:
            append.add("t", 0, [(b"%d" % at, b"v" * at if at % 3 else None) for at in range(6)], headers={"h": b"1"})
            append.flush()
            if number != 1:
                append.commit()
    log.close()
    return folder


_TEMPLATE = _template()
(_SEGMENT,) = (_TEMPLATE / "log" / "topics").glob("*/0/*.log")
_OWNER = OwnerFile.named(_TEMPLATE / "log" / "owners", "o")
_SEGMENT_BYTES, _OWNER_BYTES = _SEGMENT.read_bytes(), _OWNER.path.read_bytes()
_TOPIC = topic_file.encode(topic_file.TopicFile("t", b"0123456789abcdef", 2, {"cleanup.policy": "compact"}))
_IDENTITY = topic_file.decode(_SEGMENT.parents[1].joinpath("TOPIC").read_bytes(), "it").identity
_PAYLOAD = frames.encode_records([(b"a", b"1"), (b"b", None), (b"c", b"")], None, [(3, 5, {"h": b"1"})])
_MARKER = marker.encode(
    marker.Marker(SystemStreamPartition("k", "t", 0), 7, marker.Origin("00ff", 3, CheckpointId(1, 2), 4)), "owner"
)
_STAMP = headers.encode(headers.Stamp(7, CheckpointId(5, 6)))[headers.NAME]


def _log_in(folder: Path) -> EmbeddedLog:
    if not (folder / "log").exists():
        shutil.copytree(_TEMPLATE / "log", folder / "log")
    return EmbeddedLog(folder / "log", timeout_s=5)


def _read_segment(data: bytes, folder: Path) -> object:
    log = _log_in(folder)
    try:
        (folder / _SEGMENT.relative_to(_TEMPLATE)).write_bytes(data)
        extent = log.extent("t", 0)
        return [(list(b.changes()), list(b.offsets())) for b in log.read("t", 0, extent.start, extent.end)]
    finally:
        log.close()


def _read_owner(data: bytes, folder: Path) -> object:
    _log_in(folder).close()
    owner = OwnerFile.named(folder / "log" / "owners", "o")
    owner.path.write_bytes(data)
    return owner.read()


def _segment_of(payload: bytes) -> bytes:
    """Make a segment of one committed append with *payload*; all its checksums are right."""
    try:
        count = len(msgspec.msgpack.decode(payload)[0])
    except (msgspec.MsgspecError, TypeError, LookupError, RecursionError, ValueError):
        count = 3
    return (
        frames.encode_header(_IDENTITY, 0, 0)
        + frames.encode_frame(frames.DATA, _APPEND, 0, count, payload)
        + frames.encode_frame(frames.COMMIT, _APPEND, count)
    )


def _owner_of(body: bytes) -> bytes:
    length = struct.pack(">I", len(body))
    return struct.pack(">I", zlib.crc32(length + body)) + length + body


def _topic_of(body: bytes) -> bytes:
    return b"millpond-topic 1 %08x\n%s\n" % (zlib.crc32(body), body)


READERS: Sequence[Reader] = (
    Reader(
        name="log topic",
        modules=(_P + "embedded.topic_file",),
        read=of_bytes(lambda data: topic_file.decode(data, "it")),
        valid=(_TOPIC,),
        insides=(_TOPIC.partition(b"\n")[2].rstrip(b"\n"),),
        seal=_topic_of,
        mutate=json_mutated,
    ),
    Reader(
        name="log segment",
        modules=(_P + "embedded.frames", _P + "embedded.reading", _P + "embedded.tail"),
        read=_read_segment,
        valid=(_SEGMENT_BYTES,),
        insides=(_PAYLOAD,),
        seal=_segment_of,
    ),
    Reader(
        name="log owner",
        modules=(_P + "embedded.owners",),
        read=_read_owner,
        valid=(_OWNER_BYTES,),
        insides=(_OWNER_BYTES[8 : 8 + struct.unpack(">I", _OWNER_BYTES[4:8])[0]],),
        seal=_owner_of,
    ),
    Reader(
        name="log marker",
        modules=(_P + "marker",),
        read=of_text(lambda text: marker.decode(text, "owner")),
        valid=(_MARKER.encode(),),
        mutate=json_mutated,
    ),
    Reader(
        name="log stamp",
        modules=(_P + "headers",),
        read=of_bytes(lambda data: headers.decode({headers.NAME: data})),
        valid=(_STAMP,),
    ),
    Reader(
        name="log key of a checkpoint",
        modules=(_P + "checkpoints.keys",),
        read=of_bytes(keys.decode),
        valid=(keys.Keys("T", "g").newest(2), encode_key(KafkaCheckpointLogKey("checkpoint-v1", "T", "g"))),
        mutate=json_mutated,
    ),
)
