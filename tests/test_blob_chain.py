"""Change files that are packed and merged, and restore targets on which changes follow an adopted image."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.blob.chain import TooLargeError, merged, pack, unpack
from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError, StateCorruptError
from millpond.formats import change_file
from millpond.formats.digest import digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile, encode
from millpond.lanes import TransferPool
from millpond.local import MANIFEST, TaskDirectory, list_files, read_manifest
from millpond.plugins import engine_class
from millpond.restore.target import StoreTarget
from millpond.spi import FileEntry, StoreSpec
from millpond.stores.images import Made, Sealing, opened
from millpond.stores.memory import MemoryEngine

changes = st.dictionaries(st.binary(min_size=1, max_size=3), st.none() | st.binary(max_size=9), max_size=20)


@given(st.lists(changes, max_size=6))
def test_a_merged_chain_is_what_its_commits_did(tmp_path_factory: Any, commits: list[dict[bytes, bytes | None]]):
    """Change files that were packed, unpacked and merged give each key once, sorted, as the last commit left it."""
    folder = tmp_path_factory.mktemp("chain")
    files = []
    for number, commit in enumerate(commits):
        packed = pack(sorted(commit.items()), folder / f"{number}.z", 1 << 20)
        assert packed.size == packed.path.stat().st_size
        assert packed.digest == digest_file(packed.path)
        unpack(packed.path, folder / f"{number}", packed.raw_size, "it")
        files.append(folder / f"{number}")
    wanted: dict[bytes, bytes | None] = {}
    for commit in commits:
        wanted.update(commit)

    assert sorted(wanted.items()) == list(merged(files))


def test_too_many_changes_leave_nothing(tmp_path: Path):
    """Writing stops when the changes exceed what is worth it, and no file is left."""
    with pytest.raises(TooLargeError):
        pack(((f"{n:06d}".encode(), b"x" * 100) for n in range(100_000)), tmp_path / "z", 10_000)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("packed", "raw_size"),
    [
        (zlib.compress(b"x" * 10_000_000), 1_000),
        (zlib.compress(b"x" * 1_000), 1_001),
        (zlib.compress(b"x" * 1_000)[:-5], 1_000),
        (zlib.compress(b"x" * 1_000) + b"more", 1_000),
        (b"no zlib stream at all", 1_000),
        (b"", 0),
    ],
    ids=["bomb", "short", "cut", "more", "other", "empty"],
)
def test_what_does_not_unpack_to_its_size_is_damage(tmp_path: Path, packed: bytes, raw_size: int):
    """A stream that is cut, goes on, or unpacks to another size is damage, found before much is written."""
    (tmp_path / "z").write_bytes(packed)
    with pytest.raises(StateCorruptError, match="the thing"):
        unpack(tmp_path / "z", tmp_path / "raw", raw_size, "the thing")
    assert (tmp_path / "raw").stat().st_size <= raw_size + (1 << 20)


def test_changes_that_are_not_sorted_are_damage(tmp_path: Path):
    """A link whose keys are out of order is refused: merging it would give wrong answers."""
    change_file.write(tmp_path / "c", [(b"b", b"1"), (b"a", b"2")])
    with pytest.raises(StateCorruptError, match="sorted"):
        list(merged([tmp_path / "c"]))


# Restore targets


class Bench:
    def __init__(self, root: Path) -> None:
        self.directory = TaskDirectory.open(root / "state", "job", "1", "task")
        self.transfers = TransferPool(1, 1 << 20)
        self.sealing = Sealing(directory=self.directory, transfers=self.transfers)
        self.made = Made(CheckpointId(5, 0), "ab" * 16)

    def target(self, engine: str, **others: Any) -> StoreTarget:
        return StoreTarget(
            StoreSpec("s", engine),
            engine_class(engine),
            "marker",
            self.directory.stage("s", self.made.image),
            lambda: None,
            lambda records, size, total: None,
            lambda: None,
            self.transfers,
            **others,
        )

    def fill(self, target: StoreTarget, engine: str = "memory") -> None:
        """Put an image of a store with the keys a, b and c into the target's folder."""
        source = engine_class(engine).open(_made(target.directory.parent / "source"), StoreSpec("s", engine))
        source.apply([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
        target.directory.rmdir()
        source.checkpoint(target.directory)
        source.close()
        files = [ManifestFile(f.name, f.size, digest_file(f.path)) for f in list_files(target.directory)]
        (target.directory / MANIFEST).write_bytes(encode(ImageManifest("s", engine, CheckpointId(1, 0), "w", files)))

    def close(self) -> None:
        self.transfers.close(5)
        self.directory.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_changes_go_on_top_of_an_adopted_image(bench: Bench, tmp_path: Path, engine: str):
    """What is written after adopt() changes the adopted image, puts and deletes alike, and is sealed whole."""
    target = bench.target(engine)
    bench.fill(target, engine)
    target.adopt()
    target.write([(b"a", None), (b"b", b"new"), (b"d", b"4")])
    target.write([(b"e", b"5")])
    image = target.finish(bench.sealing, bench.made, {"key": "str"})
    target.close()
    with opened(image.path, engine_class(engine), StoreSpec("s", engine), tmp_path / "scratch") as database:
        found = dict(database.scan(None, None, False))

    assert {b"b": b"new", b"c": b"3", b"d": b"4", b"e": b"5"} == found
    assert {"key": "str"} == dict(read_manifest(image.path).properties)
    bench.directory.verify("s", bench.made.image)


def test_changes_on_another_engines_image_go_through_that_engine(bench: Bench, tmp_path: Path):
    """An adopted image of another engine takes changes by that engine, and stays an image of it."""
    target = bench.target("rocksdb", engine_named=engine_class)
    bench.fill(target, "memory")
    target.adopt()
    target.write([(b"a", None)])
    image = target.finish(bench.sealing, bench.made, {})
    with opened(image.path, MemoryEngine, StoreSpec("s", "memory"), tmp_path / "scratch") as database:
        assert {b"b", b"c"} == {key for key, _ in database.scan(None, None, False)}
    assert "memory" == read_manifest(image.path).engine


def test_changes_on_an_unknown_engines_image_are_refused(bench: Bench):
    """Where nobody can say what the image's engine is, nothing is written by guess."""
    target = bench.target("rocksdb")
    bench.fill(target, "memory")
    target.adopt()
    with pytest.raises(ConfigError, match="memory"):
        target.write([(b"a", None)])
    target.close()


def test_a_target_shows_the_files_of_local_images(bench: Bench):
    """The files that a restore may link are those that the core found whole; none without them."""
    entry = FileEntry("f", Path("/f"), 1, "blake3:" + "0" * 64)

    assert [entry] == list(bench.target("memory", local_files=lambda: [entry]).local_files())
    assert [] == list(bench.target("memory").local_files())
