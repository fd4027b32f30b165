"""Hostile bytes: whatever a decoder is given, it gives a value or one of our errors, soon and in little memory."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.errors import FormatError, MillpondError, StateCorruptError
from millpond.formats import (
    change_file,
    changelog_marker,
    changelog_offset,
    checkpoint_v1,
    checkpoint_v2,
    digest,
    java_text,
    local_files,
    log_key,
    manifest,
    record,
    store_dirs,
)
from millpond.formats.digest import digest_bytes
from millpond.formats.manifest import ImageManifest, ManifestFile
from millpond.local import unescape_name

SSP = SystemStreamPartition("kafka", "my.topic", 3)
CHECKPOINT = Checkpoint(
    CheckpointId(12, 34),
    {SSP: "42", SystemStreamPartition("kafka", "plain", 1): "7"},
    {"archive": {"delays": "data/7"}},
    claim=Claim("t", 7, "00ff"),
    parent=CheckpointId(1, 1),
    layout=Layout(("t",), "murmur2"),
    images={"delays": "12-34-00ff"},
)
IMAGE = ImageManifest("s", "e", CheckpointId(1, 2), "00ff", (ManifestFile("a/b", 3, digest_bytes(b"abc")),), "b", {})
MARKER = changelog_marker.KafkaStateCheckpointMarker(SSP, "811")
KEY = log_key.KafkaCheckpointLogKey("checkpoint-v2", "Partition 0", "g")
OFFSET = changelog_offset.KafkaChangelogSSPOffset(CheckpointId(1, 2), "811")

Decode = Callable[[bytes], object]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


DECODERS: dict[str, tuple[Decode, bytes]] = {
    "record": (record.decode, record.encode_checkpoint(CHECKPOINT)),
    "claim": (record.decode, record.encode_claim(Claim("t", 1, "00"), 5)),
    "manifest": (manifest.decode, manifest.encode(IMAGE)),
    "v1": (checkpoint_v1.decode, checkpoint_v1.encode(CHECKPOINT)),
    "v2": (checkpoint_v2.decode, checkpoint_v2.encode(CHECKPOINT)),
    "v2 of Samza": (checkpoint_v2.decode, checkpoint_v2.encode(Checkpoint(CheckpointId(1, 2), {}, {"f": {"s": "m"}}))),
    "log key": (log_key.decode, log_key.encode(KEY)),
    "marker": (lambda data: changelog_marker.decode(_text(data)), changelog_marker.encode(MARKER).encode()),
    "changelog offset": (lambda data: changelog_offset.decode(_text(data)), changelog_offset.encode(OFFSET).encode()),
    "offset file": (
        lambda data: local_files.decode_offsets({"OFFSET-v2": data}, [SSP], side_input=True),
        local_files.encode_offsets({SSP: "811"}, side_input=True)["OFFSET-v2"],
    ),
    "checkpoint file": (local_files.decode_checkpoint, local_files.encode_checkpoint(CHECKPOINT)),
}
OWN = ["record", "claim", "manifest", "v2", "checkpoint file", "offset file"]
every_decoder = pytest.mark.parametrize("name", DECODERS)


def outcome(decode: Decode, data: bytes) -> object:
    """Give what *decode* gives, or the class of its error; any other exception fails the test."""
    try:
        return decode(data)
    except MillpondError as error:
        return type(error)


@every_decoder
@given(data=st.binary(max_size=300))
@settings(deadline=timedelta(seconds=2), max_examples=60)
@example(data=b"")
@example(data=b"\xff\xfe")
@example(data=b"[" * 200_000)
@example(data=b'{"a":' * 100_000)
@example(data=b"1" * 100_000)
@example(data=b'"\\ud800')
@example(data=b"NaN")
def test_random_bytes_give_a_value_or_our_error(name: str, data: bytes) -> None:
    """Random and nasty bytes make no decoder raise anything but a MillpondError."""
    outcome(DECODERS[name][0], data)


@every_decoder
@given(draw=st.data())
@settings(deadline=timedelta(seconds=2), max_examples=60)
def test_mutated_bytes_give_a_value_or_our_error(name: str, draw: st.DataObject) -> None:
    """Valid bytes with a part replaced make no decoder raise anything but a MillpondError."""
    decode, valid = DECODERS[name]
    start = draw.draw(st.integers(0, len(valid)))
    end = draw.draw(st.integers(start, len(valid)))
    outcome(decode, valid[:start] + draw.draw(st.binary(max_size=12)) + valid[end:])


@pytest.mark.parametrize("name", OWN)
def test_no_flipped_bit_and_no_cut_gives_another_value(name: str) -> None:
    """In a format with a checksum each single flipped bit, and each cut, is an error."""
    decode, valid = DECODERS[name]
    flips = [
        valid[:at] + bytes([valid[at] ^ 1 << bit]) + valid[at + 1 :] for at in range(len(valid)) for bit in range(8)
    ]
    for data in [*flips, *(valid[:size] for size in range(len(valid)))]:
        assert outcome(decode, data) in (FormatError, StateCorruptError), data


def test_a_flip_behind_the_header_is_named_damage() -> None:
    """A flip in a record's digest or body is a StateCorruptError: another backend may still have the state."""
    valid = DECODERS["record"][1]
    for at in range(valid.index(b"blake3:") + 7, len(valid)):
        assert outcome(record.decode, valid[:at] + bytes([valid[at] ^ 1]) + valid[at + 1 :]) is StateCorruptError


# --- change files

CHANGES: list[change_file.Change] = [(b"%03d" % i, None if i % 3 else b"value" * i) for i in range(40)]


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("valid") / "f"
    change_file.write(path, CHANGES)
    return path.read_bytes()


def read_bytes(path: Path, data: bytes) -> list[change_file.Change]:
    path.write_bytes(data)
    return list(change_file.read(path))


def test_a_damaged_change_file_is_noticed(tmp_path: Path, valid: bytes) -> None:
    """In a change file a flipped bit, a cut, a frame twice or left out, and bytes behind the end are errors."""
    assert read_bytes(tmp_path / "f", valid) == CHANGES
    last = len(valid) - 36
    frame = valid[16:last]
    broken = [valid[:at] + bytes([valid[at] ^ 1 << at % 8]) + valid[at + 1 :] for at in range(8, len(valid))]
    cuts = [valid[:size] for size in range(len(valid))]
    for data in [*broken, *cuts, valid[:16] + valid[last:], valid[:last] + frame + valid[last:], valid + b"\0"]:
        with pytest.raises(StateCorruptError):
            read_bytes(tmp_path / "f", data)


def test_a_foreign_or_newer_change_file_is_a_format_error(tmp_path: Path, valid: bytes) -> None:
    """A file of another kind, or of a later version, is a FormatError."""
    head = valid[:8] + struct.pack(">I", 2)
    with pytest.raises(FormatError, match="newer Millpond"):
        read_bytes(tmp_path / "f", head + struct.pack(">I", zlib.crc32(head)) + valid[16:])
    with pytest.raises(FormatError, match="no change file"):
        read_bytes(tmp_path / "f", b"SQLite format 3\0" + valid[16:])


def forged(payload: bytes, records: int, *, length: int | None = None) -> bytes:
    """Make a change file of one frame whose checksum is right and whose numbers may lie."""
    head = b"\x89MPCF\r\n\x1a" + struct.pack(">I", 1)
    frame = struct.pack(">4sIII", b"DATA", 0, records, len(payload) if length is None else length)
    return (
        head
        + struct.pack(">I", zlib.crc32(head))
        + frame
        + struct.pack(">I", zlib.crc32(payload, zlib.crc32(frame)))
        + payload
    )


def lying_files() -> list[bytes]:
    huge = 0xFFFF_FFFF
    return [
        forged(b"", huge, length=huge),
        forged(b"", 1, length=1 << 29),
        forged(b"\xdd\xff\xff\xff\xff" + b"\x92\xc4\0\xc0" * 100, huge),
        forged(b"\xdd\xff\xff\xff\xff" + b"\x92\xc4\0\xc0" * 100, 100),
        forged(b"\x91\x92\xc6\xff\xff\xff\xff\xc0", 1),
        forged(b"\x91\xdd\xff\xff\xff\xff\xc4\0\xc0", 1),
        forged(msgspec.msgpack.encode([(b"a", b"b")] * 2), 1),
    ]


@pytest.mark.parametrize("data", lying_files(), ids=range(len(lying_files())))
def test_lying_sizes_cost_no_memory(tmp_path: Path, data: bytes) -> None:
    """A change file whose numbers claim gigabytes is damage, found before they are allocated."""
    tracemalloc.start()
    try:
        with pytest.raises(StateCorruptError):
            read_bytes(tmp_path / "f", data)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@given(data=st.binary(max_size=200), payload=st.binary(max_size=60), records=st.integers(0, 30))
@settings(deadline=timedelta(seconds=2), max_examples=100)
def test_random_frames_give_our_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, payload: bytes, records: int
) -> None:
    """Random bytes, and random payloads with a right checksum, give nothing but a MillpondError."""
    path = tmp_path_factory.mktemp("random") / "f"
    for content in (data, forged(payload, records)):
        with pytest.raises((StateCorruptError, FormatError)):
            read_bytes(path, content)
    assert outcome(lambda _: change_file.count(path), b"") in (FormatError, StateCorruptError)


# --- Samza's file frame


@given(st.text() | st.text(st.characters(min_codepoint=0x1F600, max_codepoint=0x1F64F)), st.integers(0, 400))
def test_any_text_comes_back_from_javas_frame(text: str, times: int) -> None:
    """Any text comes back from Samza's file frame, over the borders of its blocks too."""
    assert java_text.decode(java_text.encode(text * times), "f") == text * times


def test_long_texts_come_back_from_javas_frame() -> None:
    """A text longer than one piece comes back; one with a piece that Java's format cannot hold is a FormatError."""
    for text in ("7" * 65_536, "7" * 200_000, "7" * 65_535 + "\U0001f600", "\0" * 32_767):
        assert java_text.decode(java_text.encode(text), "f") == text
    with pytest.raises(FormatError):
        java_text.encode("7" * 65_534 + "\U0001f600" + "7" * 70_000)


@pytest.mark.parametrize("block", [b"\x7a\xff\xff\xff\xff", b"\x7a\x7f\xff\xff\xff", b"\x77\xff", b"\x7a\0", b"\x99"])
def test_a_lying_block_costs_no_memory(block: bytes) -> None:
    """A block of Java's frame that claims more than there is is damage."""
    with pytest.raises(StateCorruptError):
        java_text.decode(b"\xac\xed\0\x05" + block, "f")


@pytest.mark.parametrize("deep", [200, 400, 600, 900])
def test_what_is_nested_deeply_in_our_property_is_a_format_error(deep: int) -> None:
    """A V2 that only the lenient reader takes, with our property nested to any depth, is a FormatError."""
    nested = b'{"a":' * deep + b"1" + b"}" * deep
    data = b'{"checkpoint-id":"1-2","input-offsets":{"a.b.1":3},"version":2,"millpond":{"version":1,"claim":' + nested
    with pytest.raises((FormatError, StateCorruptError)):
        checkpoint_v2.decode(data + b"}}")


@pytest.mark.parametrize("parse", [digest.check_digest, CheckpointId.parse, unescape_name])
def test_an_error_does_not_repeat_all_that_it_was_given(parse: Callable[[str], object]) -> None:
    """What is no digest, id or name of a folder is told by its beginning, however long it is."""
    with pytest.raises(ValueError, match="not a") as told:
        parse("Z" * 1_000_000)
    assert len(str(told.value)) < 500


def test_a_folder_with_a_number_that_no_id_has_is_none_of_ours() -> None:
    """A folder beside a task's checkpoints, whose name has numbers beyond 64 bits, is passed over."""
    names = ["T-1-2", "T-1-99999999999999999999", "T-99999999999999999999-1"]
    assert store_dirs.checkpoints_of("T", names) == {"T-1-2": CheckpointId(1, 2)}


# --- Samza's formats, there and back

plain = st.text(st.characters(codec="utf-8"), max_size=8)
ssps = st.builds(
    SystemStreamPartition, plain, plain, st.integers(-(1 << 31), (1 << 31) - 1), st.sampled_from([-1, 0, 5])
)


@given(st.dictionaries(ssps, st.none() | st.text(), max_size=5))
def test_a_v1_comes_back(offsets: dict[SystemStreamPartition, str | None]) -> None:
    """Whatever a V1 holds comes back, unless two inputs have one display name, which is refused."""
    if len(set(map(str, offsets))) < len(offsets):
        with pytest.raises(FormatError):
            checkpoint_v1.encode_offsets(offsets)
    else:
        assert checkpoint_v1.decode_offsets(checkpoint_v1.encode_offsets(offsets)) == offsets


@given(ssps, st.none() | st.text(), st.integers(-(1 << 15), (1 << 15) - 1))
def test_a_marker_comes_back(ssp: SystemStreamPartition, offset: str | None, version: int) -> None:
    """Whatever a changelog marker holds comes back."""
    marker = changelog_marker.KafkaStateCheckpointMarker(ssp, offset, version)
    read = changelog_marker.decode(changelog_marker.encode(marker))
    assert (read, read.version) == (marker, version)


@given(st.text(), st.text(), st.text(min_size=1))
def test_a_log_key_comes_back(kind: str, task: str, grouper: str) -> None:
    """Whatever a key of the checkpoint topic holds comes back."""
    key = log_key.KafkaCheckpointLogKey(kind, task, grouper)
    assert log_key.decode(log_key.encode(key)) == key


def test_a_v1_has_the_id_of_its_first_changelog() -> None:
    """A V1 with changelog markers carries their offsets, and its id is theirs; one without has 0-0."""
    ssp = SystemStreamPartition("kafka", "delays-changelog", 3)
    marker = changelog_marker.encode(changelog_marker.KafkaStateCheckpointMarker(ssp, "811"))
    checkpoint = Checkpoint(CheckpointId(12, 34), {SSP: "1:2"}, {changelog_marker.FACTORY: {"delays": marker}})
    read = checkpoint_v1.decode(checkpoint_v1.encode(checkpoint))
    assert (read.id, dict(read.offsets)) == (CheckpointId(12, 34), {SSP: "1:2", ssp: "12-34:811"})
    assert checkpoint_v1.decode(b"{}").id == CheckpointId(0, 0)
