"""
The table of all readers of bytes in the core.

A module of ``formats/`` without a row is noticed by a test. Backends have tables of their own, for ``--table``.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from millpond.blob import chain
from millpond.checkpoint import CheckpointId, Claim
from millpond.config import load
from millpond.formats import (
    blob_manifest,
    blob_marker,
    change_file,
    changelog_marker,
    changelog_offset,
    checkpoint_v1,
    checkpoint_v2,
    digest,
    envelope,
    java_text,
    local_files,
    log_key,
    manifest,
    pack,
    record,
    samza_text,
    ssp_key,
    store_dirs,
)
from millpond.local import unescape_name
from millpond.spi import StoreSpec
from millpond.stores.memory import DATA, MemoryEngine
from millpond.testing.fuzz import samples
from millpond.testing.fuzz.coordinator_readers import READERS as COORDINATORS
from millpond.testing.fuzz.insides import (
    body_of,
    change_file_of,
    enveloped,
    footed,
    framed,
    json_mutated,
    with_digest,
    without_digest,
)
from millpond.testing.fuzz.reader import Reader, of_bytes, of_file, of_text

_F = "millpond.formats."
_UNPACKED = 4096


def _written(write: Callable[[Path], object]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="millpond-fuzz-") as folder:
        path = Path(folder) / "file"
        write(path)
        return path.read_bytes()


def _all_changes(path: Path) -> object:
    change_file.count(path)
    return list(change_file.read(path))


def _opened(path: Path) -> object:
    engine = MemoryEngine.open(path.parent, StoreSpec("store", "memory"), read_only=True)
    try:
        return list(engine.scan(None, None, reverse=False))
    finally:
        engine.close()


def _unpacked(path: Path) -> object:
    target = path.with_name("unpacked")
    target.unlink(missing_ok=True)
    chain.unpack(path, target, _UNPACKED, "changes")
    return target.read_bytes()


def _of_json(use: Callable[[Any], object]) -> Callable[[bytes, Path], object]:
    """Give what JSON says to a reader of values; what is no mapping is none of its inputs."""

    def read(data: bytes, _: Path) -> object:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return use(value) if isinstance(value, dict) else None

    return read


def _from_environment(value: dict[str, object]) -> object:
    environ = {f"MILLPOND_{name}": str(text) for name, text in value.items()}
    return load({"job": {"name": "flights"}, "stores": {"delays": {"engine": "memory", "ephemeral": True}}}, environ)


def _image_paths(value: object) -> Iterable[str]:
    return [file.name for file in value.files] if isinstance(value, manifest.ImageManifest) else ()


def _backup_paths(value: object) -> Iterable[str]:
    if not isinstance(value, blob_manifest.BackupManifest):
        return ()
    return [*(file.name for file in value.files), *value.objects, *(link.object for link in value.changes)]


def _marker_paths(value: object) -> Iterable[str]:
    return [value.object] if isinstance(value, blob_marker.BlobMarker) else ()


_V2 = [checkpoint_v2.encode(samples.BARE), checkpoint_v2.encode(samples.FULL)]
_V2_INSIDE = [without_digest(_V2[1])]
_RECORD = record.encode_checkpoint(samples.FULL)
_CLAIM = record.encode_claim(Claim("Partition 0", 7, "00ff"), 1_700_000_000_000)
_IMAGE = manifest.encode(samples.IMAGE)
_BACKUP = blob_manifest.encode(samples.BACKUP)
_CHANGE_FILE = _written(lambda path: change_file.write(path, samples.CHANGES))
_ENTRY_FILE = _written(lambda path: change_file.write(path, samples.ENTRIES))
_OFFSETS = local_files.encode_offsets({samples.SSP: "811", samples.PLAIN: None}, side_input=True)["OFFSET-v2"]
_BLOB_MARKER = str(blob_marker.BlobMarker(samples.OBJECT, 900, 400, samples.DIGEST)).encode()
_MAPPING = {
    "job": {"name": "flights", "state_dir": "/tmp/state"},  # noqa: S108 - never opened
    "commit": {"interval": "1m", "timeout": "60s"},
    "checkpoint": {"manager": "memory", "retain": 3},
    "backends": {"archive": {"type": "memory"}},
    "stores": {"delays": {"engine": "memory", "backup": ["archive"], "restore": ["archive"], "ephemeral": True}},
}
_FLAT = {"job.name": "flights", "stores.delays.factory": "x.RocksDbKeyValueStorageEngineFactory", "task.commit.ms": "5"}
_ENVIRONMENT = {"CHECKPOINT__MANAGER": "memory", "COMMIT__INTERVAL": "5s", "JOB__STATE_DIR": "state"}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


READERS: Sequence[Reader] = (
    Reader(
        name="checkpoint v1",
        modules=(_F + "checkpoint_v1", _F + "samza_text", _F + "ssp_key"),
        read=of_bytes(checkpoint_v1.decode),
        valid=(checkpoint_v1.encode(samples.BARE), b'{"SystemStreamPartition [a, b, 1]":{"system":"a"}}'),
        mutate=json_mutated,
    ),
    Reader(
        name="checkpoint v2",
        modules=(_F + "checkpoint_v2", _F + "samza_text"),
        read=of_bytes(checkpoint_v2.decode),
        valid=_V2,
        insides=_V2_INSIDE,
        seal=with_digest,
        mutate=json_mutated,
    ),
    Reader(
        name="record of a checkpoint",
        modules=(_F + "record", _F + "envelope"),
        read=of_bytes(record.decode),
        valid=(_RECORD, _CLAIM),
        insides=_V2_INSIDE,
        seal=enveloped("millpond-record", "checkpoint", with_digest),
        mutate=json_mutated,
    ),
    Reader(
        name="record of a claim",
        modules=(_F + "record", _F + "envelope"),
        read=of_bytes(record.decode),
        valid=(_CLAIM, _RECORD),
        insides=(body_of("millpond-record", _CLAIM),),
        seal=enveloped("millpond-record", "claim"),
        mutate=json_mutated,
    ),
    Reader(
        name="envelope",
        modules=(_F + "envelope", _F + "digest"),
        read=of_bytes(lambda data: envelope.unseal("millpond-record", 1, data)),
        valid=(_CLAIM, envelope.seal("millpond-record", 1, "other", b"")),
    ),
    Reader(
        name="digest",
        modules=(_F + "digest",),
        read=of_text(lambda text: digest.algorithm_of(digest.check_digest(text))),
        valid=(samples.DIGEST.encode(), b"sha256:" + b"0" * 64),
    ),
    Reader(
        name="image manifest",
        modules=(_F + "manifest", _F + "envelope"),
        read=of_bytes(manifest.decode),
        valid=(_IMAGE,),
        insides=(body_of("millpond-manifest", _IMAGE),),
        seal=enveloped("millpond-manifest", "image"),
        mutate=json_mutated,
        paths=_image_paths,
    ),
    Reader(
        name="backup manifest",
        modules=(_F + "blob_manifest", _F + "envelope"),
        read=of_bytes(blob_manifest.decode),
        valid=(_BACKUP,),
        insides=(body_of("millpond-backup", _BACKUP),),
        seal=enveloped("millpond-backup", "store"),
        mutate=json_mutated,
        paths=_backup_paths,
    ),
    Reader(
        name="blob marker",
        modules=(_F + "blob_marker",),
        read=of_text(blob_marker.BlobMarker.parse),
        valid=(_BLOB_MARKER,),
        paths=_marker_paths,
    ),
    Reader(
        name="object name",
        modules=(_F + "blob_marker",),
        read=of_text(blob_marker.ObjectName.parse),
        valid=(samples.OBJECT.encode(),),
    ),
    Reader(
        name="footer of a pack",
        modules=(_F + "pack",),
        read=of_bytes(lambda data: pack.decode_footer(data, 4096)),
        valid=(pack.encode_footer(pack.Tail(3000, 4096 - 3000 - pack.FOOTER_SIZE)),),
        insides=(pack.encode_footer(pack.Tail(3000, 4096 - 3000 - pack.FOOTER_SIZE))[:-4],),
        seal=footed,
    ),
    Reader(
        name="change file",
        modules=(_F + "change_file",),
        read=of_file("changes", _all_changes),
        valid=(_CHANGE_FILE, _ENTRY_FILE),
        insides=(_CHANGE_FILE[36:-36], b"\x90", b"\x91\x92\xc4\x01a\xc0"),
        seal=change_file_of,
    ),
    Reader(
        name="image of the memory engine",
        modules=("millpond.stores.memory", _F + "change_file"),
        read=of_file(DATA, _opened),
        valid=(_ENTRY_FILE, _CHANGE_FILE),
        insides=(_ENTRY_FILE[36:-36], b"\x90"),
        seal=change_file_of,
    ),
    Reader(
        name="packed changes",
        modules=("millpond.blob.chain",),
        read=of_file("packed", _unpacked),
        valid=(zlib.compress(b"x" * _UNPACKED), zlib.compress(_CHANGE_FILE), zlib.compress(b"\0" * (1 << 24))),
        insides=(b"y" * _UNPACKED, _CHANGE_FILE),
        seal=zlib.compress,
    ),
    Reader(
        name="changelog marker",
        modules=(_F + "changelog_marker", _F + "samza_text"),
        read=of_text(changelog_marker.decode),
        valid=(changelog_marker.encode(samples.MARKER).encode(),),
        mutate=json_mutated,
    ),
    Reader(
        name="changelog offset",
        modules=(_F + "changelog_offset",),
        read=of_text(changelog_offset.decode),
        valid=(changelog_offset.encode(samples.OFFSET).encode(), b"811"),
    ),
    Reader(
        name="key of the checkpoint topic",
        modules=(_F + "log_key", _F + "samza_text"),
        read=of_bytes(log_key.decode),
        valid=(log_key.encode(samples.KEY),),
        mutate=json_mutated,
    ),
    Reader(
        name="key of an input",
        modules=(_F + "ssp_key",),
        read=of_text(ssp_key.parse_key),
        valid=(b"kafka.my.topic.3", ssp_key.format_key(samples.PLAIN).encode()),
    ),
    Reader(
        name="json as samza reads it",
        modules=(_F + "samza_text",),
        read=of_bytes(lambda data: samza_text.parse(data, "this")),
        valid=(_V2[0], b"[1,1.5,-0,1e5,null,true,\"\\u00e9\"]"),
        mutate=json_mutated,
    ),
    Reader(
        name="java's text frame",
        modules=(_F + "java_text",),
        read=of_bytes(lambda data: java_text.decode(data, "this")),
        valid=(_OFFSETS, java_text.encode("\0\U0001f600" * 300)),
        insides=(b"text", b"\xed\xa0\x80"),
        seal=framed,
    ),
    Reader(
        name="offset files of a store",
        modules=(_F + "local_files", _F + "java_text"),
        read=of_bytes(
            lambda data: local_files.decode_offsets(
                {"OFFSET-v2": data, "SIDE-INPUT-OFFSETS": data}, [samples.SSP, samples.PLAIN], side_input=True
            )
        ),
        valid=(_OFFSETS,),
        insides=(java_text.decode(_OFFSETS, "it").encode(),),
        seal=framed,
        mutate=json_mutated,
    ),
    Reader(
        name="checkpoint file of a store",
        modules=(_F + "local_files", _F + "java_text"),
        read=of_bytes(local_files.decode_checkpoint),
        valid=(local_files.encode_checkpoint(samples.FULL),),
        insides=_V2_INSIDE,
        seal=lambda data: framed(with_digest(data)),
        mutate=json_mutated,
    ),
    Reader(
        name="folders of a store",
        modules=(_F + "store_dirs",),
        read=of_text(lambda text: (store_dirs.active_task(text), store_dirs.checkpoints_of("T", text.split("/")))),
        valid=(b"T-1-2/T-3-4/T", b"Standby-Partition 0-0"),
    ),
    Reader(
        name="checkpoint id",
        modules=("millpond.checkpoint",),
        read=of_text(CheckpointId.parse, ValueError),
        valid=(str(samples.ID).encode(), b"1-2-3"),
    ),
    Reader(
        name="name of a folder",
        modules=("millpond.local.names",),
        read=of_text(unescape_name, ValueError),
        valid=(b"+partition%200", b"%c3%a4.%2e"),
    ),
    Reader(
        name="configuration in TOML",
        modules=("millpond.config",),
        read=of_file("job.toml", lambda path: load(path, {})),
        valid=(samples.TOML,),
    ),
    Reader(
        name="configuration in properties",
        modules=("millpond.config",),
        read=of_file("job.properties", lambda path: load(path, {})),
        valid=(samples.PROPERTIES,),
    ),
    Reader(
        name="configuration as a mapping",
        modules=("millpond.config",),
        read=_of_json(lambda value: load(value, {})),
        valid=(_json(_MAPPING), _json(_FLAT), _json({**_MAPPING, **_FLAT})),
        mutate=json_mutated,
    ),
    Reader(
        name="configuration in the environment",
        modules=("millpond.config",),
        read=_of_json(_from_environment),
        valid=(_json(_ENVIRONMENT),),
        mutate=json_mutated,
    ),
    *COORDINATORS,
)  # fmt: skip
