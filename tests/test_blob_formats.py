"""The byte formats of object stores: markers, backup manifests, packs; and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import CheckpointId
from millpond.errors import FormatError, StateCorruptError
from millpond.formats import blob_manifest
from millpond.formats.blob_manifest import BackupManifest, StoredChanges, StoredFile
from millpond.formats.blob_marker import BlobMarker, ObjectName
from millpond.formats.digest import digest_bytes
from millpond.formats.envelope import seal
from millpond.formats.pack import FOOTER_SIZE, Tail, decode_footer, encode_footer

OBJECT = "7-1700000000000-5-0123456789abcdef"
OTHER = "6-1690000000000-4-00000000000000ff"
DIGEST = digest_bytes(b"x")


def manifest(**changes: Any) -> BackupManifest:
    wanted: dict[str, Any] = {
        "store": "delays",
        "engine": "rocksdb",
        "id": CheckpointId(1, 2),
        "writer": "ab" * 16,
        "objects": {OBJECT: 100, OTHER: 50},
        "files": [StoredFile("000001.sst", 100, DIGEST, OBJECT, 0), StoredFile("empty.log", 0, DIGEST, "", 0)],
        "changes": [StoredChanges(OTHER, 10, 40, DIGEST, 80)],
        "properties": {"key": "str"},
    }
    return BackupManifest(**{**wanted, **changes})


# Names and markers


def test_an_object_name_comes_back():
    """What an object's name says can be read from it, and two made alike differ."""
    name = ObjectName.new(7, CheckpointId(1700000000000, 5))

    assert name == ObjectName.parse(str(name))
    assert name != ObjectName.new(7, CheckpointId(1700000000000, 5))


@pytest.mark.parametrize(
    "text",
    ["", "../x", "7-1-2", f"{OBJECT}/x", f"/{OBJECT}", f"0{OBJECT}", OBJECT.upper(), f"{OBJECT}\n", "7-1-2-zz"],
)
def test_what_is_no_object_name_is_none(text: str):
    """A text that could lead elsewhere, or be another spelling, is no object's name."""
    assert ObjectName.parse(text) is None


def test_a_marker_comes_back():
    """A marker is short text from which the same place is read."""
    marker = BlobMarker(OBJECT, 4096, 512, DIGEST)

    assert marker == BlobMarker.parse(str(marker))
    assert len(str(marker)) < 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2:whatever", "newer Millpond"),
        ("", "no marker"),
        (f"1:../../x:0:1:{DIGEST}", "no marker"),
        (f"1:{OBJECT}:0:0:{DIGEST}", "0 bytes"),
        (f"1:{OBJECT}:0:999999999:{DIGEST}", "999999999 bytes"),
        (f"1:{OBJECT}:0:1:md5:00", "no marker"),
    ],
)
def test_a_marker_that_cannot_be_is_refused(text: str, said: str):
    """A marker of a newer version, of a strange place or of an impossible size is refused, with the reason."""
    with pytest.raises(FormatError, match=said):
        BlobMarker.parse(text)


# Manifests


def test_a_manifest_comes_back():
    """What a manifest says can be read from its bytes, and the same manifest has the same bytes."""
    data = blob_manifest.encode(manifest())

    assert manifest() == blob_manifest.decode(data)
    assert data == blob_manifest.encode(manifest())


@given(st.data())
def test_any_changed_byte_of_a_manifest_shows(data: st.DataObject):
    """No byte of a manifest can change without an error."""
    encoded = bytearray(blob_manifest.encode(manifest()))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))

    with pytest.raises((StateCorruptError, FormatError)):
        blob_manifest.decode(bytes(encoded))


@pytest.mark.parametrize("cut", [0, 1, 40, 200, -1])
def test_a_manifest_that_is_cut_is_damaged(cut: int):
    """A manifest without its end is damage, not another version."""
    with pytest.raises(StateCorruptError):
        blob_manifest.decode(blob_manifest.encode(manifest())[:cut])


HOSTILE = {
    "climbs": {"files": [StoredFile("../../etc/passwd", 1, DIGEST, OBJECT, 0)]},
    "absolute": {"files": [StoredFile("/etc/passwd", 1, DIGEST, OBJECT, 0)]},
    "its own manifest": {"files": [StoredFile("MANIFEST", 1, DIGEST, OBJECT, 0)]},
    "twice": {"files": [StoredFile("f", 1, DIGEST, OBJECT, 0), StoredFile("f", 1, DIGEST, OBJECT, 1)]},
    "file and folder": {"files": [StoredFile("f", 1, DIGEST, OBJECT, 0), StoredFile("f/g", 1, DIGEST, OBJECT, 1)]},
    "beyond its object": {"files": [StoredFile("f", 101, DIGEST, OBJECT, 0)]},
    "begins beyond": {"files": [StoredFile("f", 1, DIGEST, OBJECT, 100)]},
    "object not named": {"objects": {OBJECT: 100}},
    "object elsewhere": {"objects": {"../other/data/x": 100}, "files": [], "changes": []},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_manifest_that_no_backup_can_have_is_refused(changes: dict[str, Any]):
    """Names that climb out, come twice or are folders, and places beyond their object are refused."""
    with pytest.raises(FormatError):
        manifest(**changes)


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_a_size_that_cannot_be_is_refused(size: int):
    """A negative or absurd size is refused before anybody makes room for it."""
    with pytest.raises(FormatError, match="size"):
        StoredFile("f", size, DIGEST, OBJECT, 0)


def test_an_unknown_kind_of_digest_is_refused():
    """A digest that we could not check is refused, not skipped."""
    with pytest.raises(FormatError, match="md5"):
        StoredFile("f", 1, "md5:00", OBJECT, 0)


BODIES = {
    "no object": b"[]",
    "unknown field": blob_manifest.encode(manifest()).partition(b"\n")[2].replace(b'"store"', b'"shop"'),
    "object number": blob_manifest.encode(manifest()).partition(b"\n")[2].replace(b",0,0]", b",9,0]"),
    "negative number": blob_manifest.encode(manifest()).partition(b"\n")[2].replace(b",0,0]", b",-1,0]"),
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_manifest_with_a_right_digest_and_a_wrong_body_is_refused(body: bytes):
    """A body of another shape is refused though its digest is right."""
    with pytest.raises(FormatError):
        blob_manifest.decode(seal("millpond-backup", 1, "store", body))


def test_a_newer_manifest_says_so():
    """A manifest of a version that this release does not know names both versions."""
    with pytest.raises(FormatError, match="version 2"):
        blob_manifest.decode(seal("millpond-backup", 2, "store", b"{}"))


# Packs


def test_a_footer_comes_back():
    """The place of the manifests can be read from a pack's last bytes."""
    assert decode_footer(encode_footer(Tail(100, 20)), 152) == Tail(100, 20)


@pytest.mark.parametrize("at", range(32))
def test_any_changed_byte_of_a_footer_shows(at: int):
    """No byte of a footer can change without an error."""
    footer = bytearray(encode_footer(Tail(100, 20)))
    footer[at] ^= 4

    with pytest.raises((StateCorruptError, FormatError)):
        decode_footer(bytes(footer), 152)


def test_a_footer_of_another_pack_is_refused():
    """A footer that does not fit the size of its object is damage."""
    with pytest.raises(StateCorruptError, match=r"152|151"):
        decode_footer(encode_footer(Tail(100, 20)), 151)


# Golden files

GOLDEN = Path(__file__).parent / "golden" / "formats"


def golden_pack() -> bytes:
    tail = blob_manifest.encode(manifest())
    return b"pieces" + tail + encode_footer(Tail(6, len(tail)))


def test_the_formats_are_those_of_the_first_release():
    """What this release writes is byte for byte what the first one wrote, and what that wrote is read."""
    assert golden_pack() == (GOLDEN / "pack").read_bytes()
    assert str(BlobMarker(OBJECT, 6, 512, DIGEST)) == (GOLDEN / "blob-marker").read_text().rstrip("\n")
    data = (GOLDEN / "pack").read_bytes()
    tail = decode_footer(data[-FOOTER_SIZE:], len(data))
    assert manifest() == blob_manifest.decode(data[tail.start : tail.start + tail.length])
