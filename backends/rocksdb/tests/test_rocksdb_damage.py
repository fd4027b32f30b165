"""What the engine says of directories that are damaged, foreign, or hold files of another history."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from millpond.errors import MillpondError, StateCorruptError, StoreClosedError, TransientError
from millpond_rocksdb.driver_errors import translate

COUNT = 20_000


@pytest.fixture
def image(tmp_path, open_engine):
    """
    Give an image with several SST files, made anew for each test.

    The cache of the process knows a block by its file's origin: another test's reads would hide a damage.
    """
    engine = open_engine(tmp_path / "origin")
    for part in range(2):
        for at in range(0, COUNT, 1000):
            engine.apply([(b"%06d" % i, os.urandom(50)) for i in range(at + part, at + 1000, 2)])
        engine.flush()
    engine.checkpoint(tmp_path / "live")
    return tmp_path / "live"


def pick(image: Path, pattern: str) -> Path:
    return min(image.glob(pattern))


def flip(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_flipped_bit_raises_at_the_scan_that_meets_it(open_engine, image, reverse):
    """A scan over a damaged block raises, and gives the good entries before it; it never ends early."""
    flip(pick(image, "*.sst"), 0.5)
    got = []
    with pytest.raises(StateCorruptError, match="scanning"):
        got.extend(entry for entry in open_engine(image).scan(None, None, reverse))
    assert len(got) < COUNT


def test_a_flipped_bit_raises_though_newer_keys_follow_in_memory(open_engine, image):
    """Entries that were written after the damage do not hide it from a scan."""
    flip(pick(image, "*.sst"), 0.5)
    engine = open_engine(image)
    engine.apply([(b"%06d" % i + b"+", b"new") for i in range(0, COUNT, 50)])
    with pytest.raises(StateCorruptError):
        list(engine.scan(None, None, False))


def test_a_damaged_first_block_of_a_scan_is_no_empty_range(open_engine, image):
    """A scan whose very first block is damaged raises instead of giving nothing."""
    for sst in image.glob("*.sst"):
        flip(sst, 50 / sst.stat().st_size)
    engine = open_engine(image)
    for reverse in (False, True):
        with pytest.raises(StateCorruptError):
            list(engine.scan(None, b"000005", reverse))


def test_a_flipped_bit_raises_at_the_get_that_meets_it(open_engine, image):
    """Single and many gets of a key in a damaged block raise."""
    flip(pick(image, "*.sst"), 0.5)
    engine = open_engine(image)
    keys = [b"%06d" % i for i in range(COUNT)]
    with pytest.raises(StateCorruptError, match="reading"):
        for key in keys:
            engine.get(key)
    with pytest.raises(StateCorruptError, match="reading"):
        engine.get_many(keys)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.sst", "cut"),
        ("*.sst", "empty"),
        ("*.sst", "gone"),
        ("CURRENT", "flip"),
        ("CURRENT", "cut"),
        ("CURRENT", "empty"),
        ("CURRENT", "gone"),
        ("MANIFEST-*", "flip"),
        ("MANIFEST-*", "empty"),
        ("MANIFEST-*", "gone"),
        ("rocksdict-config.json", "flip"),
        ("rocksdict-config.json", "cut"),
        ("rocksdict-config.json", "empty"),
    ],
)
def test_a_damaged_file_is_told_at_the_opening(open_engine, image, read_folder, pattern, damage, read_only):
    """Each damage is StateCorruptError, and no file is written over by the attempt."""
    path = pick(image, pattern)
    if damage == "flip":
        flip(path, 0.3)
    elif damage == "gone":
        path.unlink()
    else:
        os.truncate(path, path.stat().st_size // 2 if damage == "cut" else 0)
    before = read_folder(image)
    with pytest.raises(StateCorruptError, match="live"):
        open_engine(image, read_only=read_only)
    after = {name: data for name, data in read_folder(image).items() if not name.startswith(("LOG", "LOCK"))}
    assert after == before


@pytest.mark.parametrize("damage", ["flip", "gone"])
def test_an_options_file_is_not_needed(open_engine, image, damage):
    """A database whose OPTIONS file is damaged or gone opens with the options that are given, and all its keys."""
    path = pick(image, "OPTIONS-*")
    path.unlink() if damage == "gone" else flip(path, 0.3)
    assert len(list(open_engine(image).scan(None, None, False))) == COUNT


def test_a_directory_of_other_files_is_not_made_a_database(open_engine, tmp_path):
    """Files that are no database are neither passed over nor written over."""
    live = tmp_path / "live"
    live.mkdir()
    (live / "000008.sst").write_bytes(b"of somebody else")
    with pytest.raises(StateCorruptError, match="no CURRENT"):
        open_engine()
    assert [path.name for path in live.iterdir()] == ["000008.sst"]


def test_an_encoded_database_is_told_from_a_raw_one(open_engine, tmp_path):
    """A database with rocksdict's own encoding would give wrong bytes for each value: it is refused, and says so."""
    database = Rdict(str(tmp_path / "live"), Options())
    database["k"] = 1
    database.close()
    with pytest.raises(StateCorruptError, match="encoded"):
        open_engine()


def test_a_file_name_that_comes_back_has_other_content(open_engine, image, tmp_path, read_folder):
    """Two databases that go on from one image use the same SST name for different content: no image mixes them."""
    made = {}
    for branch in (b"x", b"y"):
        live = Path(shutil.copytree(image, tmp_path / branch.decode()))
        engine = open_engine(live)
        engine.apply([(b"branch", branch * 100)])
        engine.checkpoint(tmp_path / f"image-{branch.decode()}")
        engine.close()
        made[branch] = read_folder(tmp_path / f"image-{branch.decode()}")
    reused = [n for n in made[b"x"] if n.endswith(".sst") and made[b"y"].get(n, made[b"x"][n]) != made[b"x"][n]]
    assert reused, "RocksDB no longer reuses names: the reason for digests is gone"
    for branch in (b"x", b"y"):
        assert open_engine(tmp_path / f"image-{branch.decode()}").get(b"branch") == branch * 100


def test_files_shared_with_an_image_never_change_under_it(open_engine, image, tmp_path, read_folder):
    """A live database whose immutable files are linked from an image leaves the image as it was, whatever it does."""
    from millpond.local import clone_image
    from millpond_rocksdb.engine import RocksDBEngine

    before = read_folder(image)
    live = tmp_path / "clone"
    clone_image(image, live, immutable=RocksDBEngine.immutable, transient=RocksDBEngine.transient)
    assert pick(live, "*.sst").stat().st_ino == pick(image, "*.sst").stat().st_ino
    engine = open_engine(live)
    for at in range(0, COUNT, 1000):
        engine.apply([(b"%06d" % i, b"rewritten") for i in range(at, at + 1000)])
    engine.load([(b"%06d" % i, None) for i in range(0, COUNT, 2)])
    engine.checkpoint(tmp_path / "next")
    engine._database.compact_range(None, None)
    engine.close()
    assert read_folder(image) == before


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Corruption: block checksum mismatch", StateCorruptError),
        ("IO error: No such file or directory: While open a file for random read: /x/000012.sst", StateCorruptError),
        ("IO error: No space left on device: While appending to file: /x/000012.sst", TransientError),
        ("IO error: lock hold by current process: /x/LOCK: No locks available", TransientError),
        ("IO error: While lock file: /x/LOCK: Resource temporarily unavailable", TransientError),
        ("Resource busy: ", TransientError),
        ("Shutdown in progress: ", StoreClosedError),
    ],
)
def test_the_drivers_errors_become_ours(text, kind):
    """Each status of RocksDB becomes the class by which a caller would act, with the text kept."""
    error = translate(Exception(text), "reading /x")
    assert type(error) is kind
    assert text in str(error)
    assert str(error).startswith("reading /x")


def test_an_error_that_is_not_the_drivers_passes(open_engine):
    """A mistake in the caller's code is not taken for damage."""
    assert translate(KeyError("raw mode only support bytes"), "reading") is None
    assert translate(Exception("Invalid argument: no such option"), "reading") is None
    with pytest.raises(Exception) as caught:
        open_engine().get("text")  # type: ignore[arg-type]
    assert not isinstance(caught.value, MillpondError)
