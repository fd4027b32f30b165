"""The memory engine: reads, scans of one moment, images, and what it refuses to open."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import StateCorruptError, StoreClosedError
from millpond.formats import change_file
from millpond.spi import SPI_VERSION, StoreSpec
from millpond.stores.memory import DATA, MemoryConfig, MemoryEngine

SPEC = StoreSpec("s", "memory")
keys = st.binary(max_size=2)
batches = st.lists(st.dictionaries(keys, st.none() | st.binary(max_size=2), max_size=20), max_size=8)


def filled(count: int) -> MemoryEngine:
    engine = MemoryEngine("s")
    for start in range(0, count, 1_000):
        engine.apply([(b"%08d" % n, b"v") for n in range(start, min(start + 1_000, count))])
    return engine


@given(batches, st.none() | keys, st.none() | keys)
def test_engine_equals_a_dict(
    batches: list[dict[bytes, bytes | None]], start: bytes | None, stop: bytes | None
) -> None:
    """After any batches, gets and scans between any bounds in both directions equal a dict's."""
    engine = MemoryEngine("s")
    model: dict[bytes, bytes] = {}
    for batch in batches:
        engine.apply(sorted(batch.items()))
        for key, value in batch.items():
            model.pop(key, None) if value is None else model.update({key: value})
    chosen = sorted(
        item for item in model.items() if (start is None or item[0] >= start) and (stop is None or item[0] < stop)
    )
    assert list(engine.scan(start, stop, False)) == chosen
    assert list(engine.scan(start, stop, True)) == chosen[::-1]
    assert engine.get_many([b"", b"a", b"\xff"]) == [model.get(b""), model.get(b"a"), model.get(b"\xff")]


def test_scan_shows_the_moment_of_its_call() -> None:
    """A scan that has not begun does not show what was applied after the call, over many chunks."""
    engine = filled(20_000)
    up, down = engine.scan(None, None, False), engine.scan(b"%08d" % 5_000, None, True)
    for start in range(0, 20_000, 1_000):
        engine.apply([(b"%08d" % n, None if n % 3 else b"new") for n in range(start, start + 1_000)])
    assert [value for _, value in up] == [b"v"] * 20_000
    assert [key for key, _ in down] == [b"%08d" % n for n in range(19_999, 4_999, -1)]


def test_apply_touches_only_the_chunks_of_its_keys() -> None:
    """Applying one change to a large store copies one chunk, and shares all others with the scan before it."""
    engine = filled(20_000)
    before = engine._chunks
    engine.apply([(b"%08d" % 7_777, b"new")])
    shared = sum(old is new for old, new in zip(before, engine._chunks, strict=True))
    assert shared == len(before) - 1


def test_applied_twice_is_applied_once() -> None:
    """The same changes may be applied again, as after a failure half-way."""
    engine = filled(10)
    changes = [(b"%08d" % 3, None), (b"%08d" % 4, b"new"), (b"x", b"y")]
    engine.apply(changes)
    once = list(engine.scan(None, None, False))
    engine.apply(changes)
    assert list(engine.scan(None, None, False)) == once


def test_chunks_stay_small() -> None:
    """No chunk outgrows its bound, wherever the keys come in, and none is empty."""
    engine = MemoryEngine("s")
    for round in range(10):
        engine.apply([(b"%04d%04d" % (n, round), b"v") for n in range(1_000)])
    engine.apply([(b"%04d%04d" % (n, 3), None) for n in range(1_000)])
    assert all(0 < len(chunk) <= 1_024 for chunk in engine._chunks)


def test_image_is_opened_again(tmp_path: Path) -> None:
    """An image holds what was applied before it, and nothing of later."""
    engine = filled(3_000)
    expected = list(engine.scan(None, None, False))
    engine.checkpoint(tmp_path / "image")
    engine.apply([(b"later", b"x")])
    assert [path.name for path in (tmp_path / "image").iterdir()] == [DATA]
    assert list(MemoryEngine.open(tmp_path / "image", SPEC).scan(None, None, False)) == expected


def test_empty_store_has_an_image(tmp_path: Path) -> None:
    """An empty store's image opens as an empty store."""
    MemoryEngine("s").checkpoint(tmp_path / "image")
    assert list(MemoryEngine.open(tmp_path / "image", SPEC).scan(None, None, False)) == []


def test_image_is_never_written_over(tmp_path: Path) -> None:
    """checkpoint() into a directory that exists is an error."""
    with pytest.raises(FileExistsError):
        MemoryEngine("s").checkpoint(tmp_path)


def test_missing_and_empty_directories_are_new_stores(tmp_path: Path) -> None:
    """Opening an empty or a missing directory gives an empty store."""
    for directory in (tmp_path, tmp_path / "missing"):
        assert MemoryEngine.open(directory, SPEC).get(b"a") is None


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """An image with any one byte changed, or cut anywhere, raises StateCorruptError when it is opened."""
    filled(20).checkpoint(tmp_path / "image")
    path = tmp_path / "image" / DATA
    data = path.read_bytes()
    damaged = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    damaged += [data[:at] for at in range(len(data))]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(StateCorruptError):
            MemoryEngine.open(tmp_path / "image", SPEC)


@pytest.mark.parametrize("changes", [[(b"b", b"1"), (b"a", b"2")], [(b"a", b"1"), (b"a", b"2")], [(b"a", None)]])
def test_file_that_is_no_image_is_noticed(tmp_path: Path, changes: list[tuple[bytes, bytes | None]]) -> None:
    """A whole change file that is unsorted or has deletes is no image."""
    change_file.write(tmp_path / DATA, changes)
    with pytest.raises(StateCorruptError, match="not sorted values"):
        MemoryEngine.open(tmp_path, SPEC)


def test_foreign_directory_is_noticed(tmp_path: Path) -> None:
    """A directory with files of something else is not taken for a new store."""
    (tmp_path / "CURRENT").write_text("MANIFEST-1\n")
    with pytest.raises(StateCorruptError, match=DATA):
        MemoryEngine.open(tmp_path, SPEC)


def test_closed_engine_ends_its_scans() -> None:
    """Everything raises StoreClosedError after close(), which may come twice."""
    engine = filled(10)
    scan = engine.scan(None, None, False)
    next(scan)
    engine.close()
    engine.close()
    for call in (
        lambda: next(scan),
        lambda: engine.get(b"a"),
        lambda: engine.get_many([b"a"]),
        lambda: engine.apply([]),
    ):
        with pytest.raises(StoreClosedError):
            call()


def test_reading_engine_does_not_write(tmp_path: Path) -> None:
    """An engine opened with read_only refuses changes."""
    filled(10).checkpoint(tmp_path / "image")
    engine = MemoryEngine.open(tmp_path / "image", SPEC, read_only=True)
    with pytest.raises(StoreClosedError, match="reading only"):
        engine.apply([(b"a", b"b")])
    assert engine.get(b"%08d" % 1) == b"v"


def test_load_fills_in_order() -> None:
    """load() takes unsorted records, the later wins, None deletes."""
    engine = MemoryEngine("s")
    engine.load([(b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b""), (b"a", b"3")])
    assert list(engine.scan(None, None, False)) == [(b"a", b"3"), (b"c", b"")]


def test_options_are_refused_by_name() -> None:
    """Every option is a problem, and none is none."""
    problems = list(MemoryEngine.validate(StoreSpec("s", "memory", {"write_buffer_size": 1})))
    assert problems == ["the memory engine has no option 'write_buffer_size'"]
    assert list(MemoryEngine.validate(SPEC)) == []


def test_engine_declares_its_spi() -> None:
    """The engine names the SPI that it was written for, and settings that can be made from nothing."""
    assert MemoryEngine.spi_version == SPI_VERSION
    assert MemoryEngine.config_class is MemoryConfig
    assert MemoryConfig() == MemoryConfig()
