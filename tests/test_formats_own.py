"""Our own formats: what goes in comes out, in the same bytes for ever, and nothing damaged is believed."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.errors import FormatError, StateCorruptError, StateNotFoundError
from millpond.formats import change_file, checkpoint_v2, envelope, manifest, record
from millpond.formats.digest import Digester, algorithm_of, digest_bytes, digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile
from millpond.formats.record import CheckpointRecord, ClaimRecord

GOLDEN = Path(__file__).parent / "golden" / "formats"

CLAIM = Claim("Partition 0", 7, "00112233445566778899aabbccddeeff")
CHECKPOINT = Checkpoint(
    CheckpointId(1_700_000_000_123, 456_789),
    {
        SystemStreamPartition("kafka", "page-views", 3): "42",
        SystemStreamPartition("kafka", "my.topic", 3): "43",
        SystemStreamPartition("kafka", "elastic", 1, 2): "5",
    },
    {"archive": {"delays": "data/7-x"}},
    claim=CLAIM,
    parent=CheckpointId(1_700_000_000_000, 1),
    layout=Layout(("Partition 0", "Partition 1"), "murmur2"),
    images={"delays": "1700000000123-456789-00112233445566778899aabbccddeeff"},
    properties={name: {"key": "str", "value": "json", "expiring": "no"} for name in ("delays", "routes")},
)
MANIFEST = ImageManifest(
    "delays",
    "rocksdb",
    CHECKPOINT.id,
    CLAIM.writer,
    (ManifestFile("000012.sst", 3, digest_bytes(b"sst")), ManifestFile("a/b", 0, digest_bytes(b"", "sha256"))),
    "boot-1",
    {"ttl": "60", "value": "json"},
)
CHANGES = [(b"a", b"1"), (b"b", None), (b"c", b""), (b"\x00\xff", b"x" * 40)]


# --- the same bytes for ever


def test_todays_bytes_are_those_of_the_first_release(tmp_path: Path) -> None:
    """Every format of our own has the bytes that its golden file holds."""
    change_file.write(tmp_path / "changes", CHANGES)
    assert record.encode_checkpoint(CHECKPOINT) == (GOLDEN / "record-checkpoint").read_bytes()
    assert record.encode_claim(CLAIM, 1_700_000_000_000) == (GOLDEN / "record-claim").read_bytes()
    assert manifest.encode(MANIFEST) == (GOLDEN / "manifest").read_bytes()
    assert checkpoint_v2.encode(CHECKPOINT) == (GOLDEN / "checkpoint-v2.json").read_bytes()
    assert (tmp_path / "changes").read_bytes() == (GOLDEN / "changes").read_bytes()


def test_the_first_releases_bytes_are_still_read() -> None:
    """Every golden file of our own formats gives the value that was put in."""
    assert record.decode((GOLDEN / "record-checkpoint").read_bytes()) == CheckpointRecord(CHECKPOINT)
    assert record.decode((GOLDEN / "record-claim").read_bytes()) == ClaimRecord(CLAIM, 1_700_000_000_000)
    assert manifest.decode((GOLDEN / "manifest").read_bytes()) == MANIFEST
    assert checkpoint_v2.decode((GOLDEN / "checkpoint-v2.json").read_bytes()) == CHECKPOINT
    assert list(change_file.read(GOLDEN / "changes")) == CHANGES


# --- digests


def test_a_digest_is_the_algorithms_own(tmp_path: Path) -> None:
    """A file's, a stream's and a text's digest are what the algorithm itself gives, over a chunk's border too."""
    data = bytes(range(256)) * 4096 + b"tail"
    (tmp_path / "f").write_bytes(data)
    stream = Digester("sha256")
    stream.update(data[:7])
    stream.update(memoryview(data)[7:])
    assert digest_file(tmp_path / "f") == digest_bytes(data) == "blake3:" + blake3(data).hexdigest()
    assert digest_file(tmp_path / "f", "sha256") == stream.text() == "sha256:" + hashlib.sha256(data).hexdigest()
    assert algorithm_of(stream.text()) == "sha256"


@pytest.mark.parametrize("text", ["", "blake3", "md5:" + "0" * 64, "blake3:" + "0" * 63, "blake3:" + "A" * 64])
def test_what_is_no_digest_is_a_format_error(text: str) -> None:
    """A text of another kind, length or case is no digest."""
    with pytest.raises(FormatError):
        algorithm_of(text)


def test_an_unknown_algorithm_is_a_format_error(tmp_path: Path) -> None:
    """A digest by an algorithm that we do not know is refused before anything is read."""
    with pytest.raises(FormatError, match="md5"):
        digest_file(tmp_path / "missing", "md5")


# --- manifests

NAMES = ["", "/a", "a/", "a//b", "..", "../a", "a/../b", ".", "a/./b", "a\\b", "a\0b", "MANIFEST", "\ud800", "a" * 5000]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leaves_its_image_is_refused(name: str) -> None:
    """A file's name is relative, plain and not the manifest's own, in code and in bytes."""
    with pytest.raises(FormatError):
        ManifestFile(name, 0, digest_bytes(b""))
    if "\ud800" in name:
        return
    body = manifest.encode(MANIFEST).partition(b"\n")[2].replace(b'"a/b"', _json(name))
    with pytest.raises(FormatError):
        manifest.decode(envelope.seal("millpond-manifest", 1, "image", body))


def _json(name: str) -> bytes:
    return ('"' + name.replace("\\", "\\\\").replace("\0", "\\u0000") + '"').encode()


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("x/y/z", "x/y")])
def test_a_file_is_named_once_and_is_no_folder(names: tuple[str, ...]) -> None:
    """A manifest that names a file twice, or a file inside a file, is refused."""
    with pytest.raises(FormatError):
        ImageManifest("s", "e", CheckpointId(1, 2), "w", [ManifestFile(n, 0, digest_bytes(b"")) for n in names])


def test_a_size_below_zero_is_refused() -> None:
    """A file's size is never negative."""
    with pytest.raises(FormatError):
        ManifestFile("a", -1, digest_bytes(b""))


names = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\\\0."), min_size=1, max_size=8), max_size=8)


@given(names.map(set), st.text(), st.dictionaries(st.text(), st.text(), max_size=3), st.integers(0, (1 << 63) - 1))
def test_a_manifest_comes_back(files: set[str], store: str, properties: dict[str, str], size: int) -> None:
    """Whatever a manifest holds, its bytes give it back."""
    entries = [ManifestFile(f"dir/{name}", size, digest_bytes(name.encode())) for name in files]
    value = ImageManifest(store, "e", CheckpointId(size, 0), "w", entries, "boot", properties)
    assert manifest.decode(manifest.encode(value)) == value


# --- records and V2 with our property

ids = st.builds(CheckpointId, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
ssps = st.builds(
    SystemStreamPartition,
    st.text(max_size=9) | st.sampled_from(["kafka", "a.b", ""]),
    st.text(max_size=9) | st.sampled_from(["t", "t.1", "b.c"]),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.sampled_from([-1, -1, 0, 7]),
)
markers = st.dictionaries(st.text(), st.dictionaries(st.text(), st.text(), max_size=3), max_size=3)
claims = st.builds(Claim, st.text(), st.integers(0, (1 << 63) - 1), st.text())
checkpoints = st.builds(
    Checkpoint,
    ids,
    st.dictionaries(ssps, st.text(), max_size=6),
    markers,
    claim=st.none() | claims,
    parent=st.none() | ids,
    layout=st.none() | st.builds(Layout, st.lists(st.text(), max_size=3), st.text()),
    images=st.dictionaries(st.text(), st.text(), max_size=3),
    properties=st.dictionaries(st.text(), st.dictionaries(st.text(), st.text(), max_size=2), max_size=3),
    identities=st.dictionaries(ssps, st.text(), max_size=3),
)


@given(checkpoints)
def test_a_checkpoint_comes_back(checkpoint: Checkpoint) -> None:
    """Whatever a checkpoint holds, its V2 and its record give it back."""
    assert checkpoint_v2.decode(checkpoint_v2.encode(checkpoint)) == checkpoint
    assert record.decode(record.encode_checkpoint(checkpoint)) == CheckpointRecord(checkpoint)


def test_stores_with_the_same_rules_cost_their_names() -> None:
    """A record says once by which rules stores are written, however many have them and whoever made the mappings."""
    rules = [{"key": "str", "value": "json"} for _ in range(1000)]
    many = evolve(CHECKPOINT, properties={f"store-{number}": said for number, said in enumerate(rules)})

    assert checkpoint_v2.encode(many).count(b'"json"') == 1
    assert checkpoint_v2.decode(checkpoint_v2.encode(many)) == many


@given(claims, st.integers(0, 1 << 60))
def test_a_claim_comes_back(claim: Claim, millis: int) -> None:
    """Whatever a claim holds, its record gives it back."""
    assert record.decode(record.encode_claim(claim, millis)) == ClaimRecord(claim, millis)


@pytest.mark.parametrize("id", [CheckpointId(-1, 0), CheckpointId(0, -1), CheckpointId(1 << 63, 0)])
def test_an_id_that_cannot_be_read_is_not_written(id: CheckpointId) -> None:
    """An id with a minus sign, or beyond 64 bits, is refused when it is written."""
    with pytest.raises(FormatError):
        checkpoint_v2.encode(Checkpoint(id))
    with pytest.raises(FormatError):
        checkpoint_v2.encode(Checkpoint(CheckpointId(1, 1), parent=id))


def test_a_newer_property_says_that_it_is_newer() -> None:
    """A `millpond` property of a later version is a FormatError that says what to do."""
    data = (
        b'{"checkpoint-id":"1-2","input-offsets":{},"state-checkpoint-markers":{},"version":2,"millpond":{"version":2}}'
    )
    with pytest.raises(FormatError, match="newer Millpond"):
        checkpoint_v2.decode(data)


def test_a_rewritten_checkpoint_is_not_believed() -> None:
    """A V2 of ours whose property survived a rewrite without its digest at the end is an error."""
    with pytest.raises(StateCorruptError):
        checkpoint_v2.decode(checkpoint_v2.encode(CHECKPOINT) + b" ")


def test_a_newer_record_says_that_it_is_newer() -> None:
    """A record or a manifest of a later version is a FormatError that says what to do, whatever follows."""
    for magic, decode in (("millpond-record", record.decode), ("millpond-manifest", manifest.decode)):
        with pytest.raises(FormatError, match="newer Millpond"):
            decode(f"{magic} 2 something else".encode())


def test_an_empty_record_is_damage() -> None:
    """A record or a manifest without a byte is damaged, never absent."""
    for decode in (record.decode, manifest.decode):
        with pytest.raises(StateCorruptError):
            decode(b"")


# --- change files

changes = st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=80)))


@given(changes)
def test_changes_come_back(tmp_path_factory: pytest.TempPathFactory, records: list[change_file.Change]) -> None:
    """A change file gives back what was written, in order, deletes and empty values too, and knows its count."""
    path = tmp_path_factory.mktemp("changes") / "f"
    assert change_file.write(path, iter(records), sync=True) == path.stat().st_size
    assert list(change_file.read(path)) == records
    assert change_file.count(path) == len(records)


def test_frames_are_bounded(tmp_path: Path) -> None:
    """A frame holds at most 1,000 changes, and large values end it early."""
    many = [(b"%06d" % i, b"v") for i in range(2_500)]
    large = [(b"%d" % i, bytes(200 << 10)) for i in range(4)]
    change_file.write(tmp_path / "many", many)
    change_file.write(tmp_path / "large", large)
    assert [len(frame) for frame in change_file.read_frames(tmp_path / "many")] == [1000, 1000, 500]
    assert [len(frame) for frame in change_file.read_frames(tmp_path / "large")] == [2, 2]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    """When the changes raise, or are not bytes, no half-written file stays."""

    def broken() -> Iterator[change_file.Change]:
        yield b"a", b"b"
        raise KeyError("gone")

    with pytest.raises(KeyError):
        change_file.write(tmp_path / "f", broken())
    with pytest.raises(FormatError):
        change_file.write(tmp_path / "f", [("text", b"b")])
    assert not (tmp_path / "f").exists()


def test_a_change_file_is_never_overwritten(tmp_path: Path) -> None:
    """Writing over an existing file raises and leaves it as it was: an image may share it."""
    (tmp_path / "f").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        change_file.write(tmp_path / "f", CHANGES)
    assert (tmp_path / "f").read_bytes() == b"kept"


def test_a_missing_change_file_is_not_found(tmp_path: Path) -> None:
    """A change file that is not there is a StateNotFoundError, not an empty one."""
    with pytest.raises(StateNotFoundError):
        list(change_file.read(tmp_path / "missing"))
