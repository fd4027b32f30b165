"""Each file system keeps what the role of an object store promises, on a real one of its kind."""

from __future__ import annotations

import io
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import BinaryIO

import pytest
from fsspec_places import every_place, exclusive_places
from services.file_system_server import FileSystemServer

from millpond.blob import BlobStore, Body, BytesBody, FileBody
from millpond.errors import ConfigError, MillpondError, StateNotFoundError
from millpond_fsspec.opening import open_store

KEYS = [
    "a-b/records/000000000000001-1",
    "a/data/1-2-3-deadbeef",
    "a/records/%2F%C3%A4+b@c(1)!",
    "a/records/1",
    "a.b/records/1",
    "ab",
]


def keys(store: BlobStore, prefix: str = "", after: str = "") -> list[str]:
    return [entry.key for entry in store.list(prefix, after=after)]


@every_place
def test_what_was_put_is_read_whole_and_in_parts(store: BlobStore):
    """An object is read as it was put, from any offset and at any length, and nothing comes from beyond its end."""
    content = bytes(range(256)) * 40
    store.put("a/object", BytesBody(content))

    assert content == store.get("a/object")
    assert content[100:300] == store.get("a/object", 100, 200)
    assert content[10_000:] == store.get("a/object", 10_000, 5_000)
    assert content[1:] == store.get("a/object", 1)
    assert b"" == store.get("a/object", len(content), 10)
    assert b"" == store.get("a/object", 20_000, 10)
    assert b"" == store.get("a/object", 5, 0)


@every_place
def test_an_empty_object_is_an_object(store: BlobStore):
    """An object without bytes is listed and read."""
    store.put("a/empty", BytesBody(b""))

    assert b"" == store.get("a/empty")
    assert b"" == store.get("a/empty", 0, 100)
    assert ["a/empty"] == keys(store)


@every_place
def test_a_large_file_arrives_as_it_is(store: BlobStore, tmp_path: Path):
    """A body of several parts is stored byte for byte, out of a file."""
    content = secrets.token_bytes((20 << 20) + 17)
    (tmp_path / "large").write_bytes(content)

    store.put("a/large", FileBody(tmp_path / "large", len(content)))

    assert content == store.get("a/large")
    assert content[12_345_678:13_000_000] == store.get("a/large", 12_345_678, 13_000_000 - 12_345_678)
    assert [len(content)] == [entry.size for entry in store.list("a/")]


@every_place
def test_a_missing_object_is_not_found(store: BlobStore):
    """Reading what is not there says so, beside other objects and in a folder that does not exist."""
    store.put("a/object", BytesBody(b"x"))

    for key in ("a/other", "b/c/d", "a/objec"):
        with pytest.raises(StateNotFoundError, match=key):
            store.get(key)


@every_place
def test_a_listing_is_in_the_order_of_keys(store: BlobStore):
    """Keys come back as they went in, in the order of their characters, though folders would order them otherwise."""
    for key in KEYS:
        store.put(key, BytesBody(key.encode()))

    assert sorted(KEYS) == keys(store)
    assert [len(key) for key in sorted(KEYS)] == [entry.size for entry in store.list("")]
    assert all(key.encode() == store.get(key) for key in KEYS)


@every_place
def test_a_listing_keeps_to_its_prefix_and_its_start(store: BlobStore):
    """A prefix may end within a name, and a listing can begin after any key, there or not."""
    for key in KEYS:
        store.put(key, BytesBody(b"x"))

    for prefix in ("a/", "a", "a/rec", "a/records/", "ab", "b", "a/records/1", "a."):
        assert [key for key in sorted(KEYS) if key.startswith(prefix)] == keys(store, prefix)
        for after in (*KEYS, "a/", "a/records/~", "a/data", "z"):
            assert [key for key in sorted(KEYS) if key.startswith(prefix) and key > after] == keys(store, prefix, after)


@every_place
def test_a_listing_shows_what_was_just_done(store: BlobStore):
    """Each put and each removal shows in the very next listing."""
    for number in range(5):
        store.put(f"a/{number}", BytesBody(b"x"))
        assert number + 1 == len(keys(store, "a/"))
    for number in range(5):
        store.delete([f"a/{number}"])
        assert 4 - number == len(keys(store, "a/"))


@every_place
def test_what_another_wrote_is_seen_at_once(place: FileSystemServer, store: BlobStore):
    """A store that has looked sees at its next look what another instance wrote, replaced and removed meanwhile."""
    other = open_store(place.url, place.options)
    with pytest.raises(StateNotFoundError):
        store.get("a/1")
    assert [] == keys(store)

    other.put("a/1", BytesBody(b"one"))
    assert (["a/1"], b"one") == (keys(store), store.get("a/1"))
    other.put("a/1", BytesBody(b"another"))
    assert ([7], b"another") == ([entry.size for entry in store.list("")], store.get("a/1"))
    other.delete(["a/1"])
    assert [] == keys(store)
    with pytest.raises(StateNotFoundError):
        store.get("a/1")
    other.close()


@every_place
def test_an_object_is_replaced_whole(store: BlobStore):
    """A put to a key that is taken replaces the object, and leaves nothing of the longer one."""
    store.put("a/object", BytesBody(b"first, and longer"))
    store.put("a/object", BytesBody(b"second"))

    assert b"second" == store.get("a/object")
    assert ["a/object"] == keys(store)


@every_place
def test_many_are_removed_and_missing_ones_are_fine(store: BlobStore):
    """One call removes hundreds of objects, skips those that are not there, and touches no other."""
    many = [f"a/{number:04d}" for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, BytesBody(b"x")), [*many, "a/kept"]))

    store.delete([*many, "a/missing", "b/missing"])
    store.delete(many)

    assert ["a/kept"] == keys(store)


@every_place
def test_the_clock_is_the_stores(store: BlobStore):
    """The store's clock gives the time that it stamps on objects, to about a second."""
    before = store.now()
    store.put("a/object", BytesBody(b"x"))
    (entry,) = store.list("a/")

    assert before - 1_100 <= entry.millis <= store.now() + 1_100


@exclusive_places
def test_a_name_is_created_once(store: BlobStore):
    """A conditional put succeeds where nothing is, and leaves what is there as it is."""
    assert store.put("records/1", BytesBody(b"first"), if_absent=True)
    assert not store.put("records/1", BytesBody(b"second"), if_absent=True)

    assert b"first" == store.get("records/1")
    assert ["records/1"] == keys(store)
    assert [] == list(store.unfinished(""))


@exclusive_places
def test_of_many_threads_one_creates_a_name(store: BlobStore):
    """Of sixteen threads that create one name at once exactly one wins, and its content is what is there."""
    for number in range(10):
        start = Barrier(16)

        def create(who: int, key: str = f"records/{number}", start: Barrier = start) -> bool:
            start.wait(30)
            return store.put(key, BytesBody(f"{who}".encode() * 50), if_absent=True)

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(create, range(16)))

        assert 1 == sum(won)
        assert f"{won.index(True)}".encode() * 50 == store.get(f"records/{number}")
    assert [] == list(store.unfinished(""))


@pytest.mark.parametrize("place", ["sftp"], indirect=True)
def test_sftp_refuses_to_create_exclusively(store: BlobStore):
    """SFTP says that it cannot, and what to use instead, before it writes anything."""
    assert not store.capabilities.conditional_put
    with pytest.raises(ConfigError, match=r"keep the records elsewhere .*directory"):
        store.put("records/1", BytesBody(b"x"), if_absent=True)
    assert [] == keys(store)


@every_place
@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../../b", "a/./b", "a~b", "a\\b", "a\0b", "a?b", "a#b", "a:b"]
)
def test_a_key_leads_nowhere_else(store: BlobStore, key: str):
    """What could lead out of the root, or be read as something else, is no key: no verb does anything with it."""
    if "\0" not in key and not set(key) <= set("ab./") and store.not_in_keys.isdisjoint(key):
        store.put(key, BytesBody(b"x"))
        assert store.get(key) == b"x"
        assert [entry.key for entry in store.list(key)] == [key]
        store.delete([key])
        return
    for work in (lambda: store.put(key, BytesBody(b"x")), lambda: store.get(key), lambda: store.delete([key])):
        with pytest.raises(ConfigError, match="no key"):
            work()


class Breaking(Body):
    """A body that breaks when half of it was read."""

    def __init__(self, size: int) -> None:
        self.size = size

    def open(self) -> BinaryIO:
        return _BreakingStream(self.size // 2)  # type: ignore[return-value]


class _BreakingStream(io.RawIOBase):
    def __init__(self, left: int) -> None:
        self.left = left

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self.left <= 0:
            raise RuntimeError("the disk under the body broke")
        piece = min(self.left, 1 << 20 if size < 0 else size)
        self.left -= piece
        return bytes(piece)


@every_place
@pytest.mark.parametrize("size", [1_000, 24 << 20])
def test_a_body_that_breaks_publishes_nothing(store: BlobStore, size: int):
    """When a body breaks half-way its key stays absent, or what it was, and nothing unfinished is left."""
    store.put("a/old", BytesBody(b"old"))

    for key in ("a/new", "a/old"):
        with pytest.raises(MillpondError):
            store.put(key, Breaking(size))

    assert ["a/old"] == keys(store)
    assert b"old" == store.get("a/old")
    assert [] == list(store.unfinished(""))


class Short(BytesBody):
    """A body that has less than it says."""

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.data) + 10


@every_place
@pytest.mark.parametrize("length", [1_000, 9 << 20])
def test_a_body_that_is_short_is_no_success(store: BlobStore, length: int):
    """A put whose object is not as long as its body says raises, and no object is there."""
    with pytest.raises(MillpondError):
        store.put("a/short", Short(bytes(length)))

    assert [] == keys(store)


@every_place
def test_threads_share_a_store(store: BlobStore):
    """Eight threads put, list and read at once, and each finds its own."""

    def work(who: int) -> None:
        for number in range(10):
            content = f"{who}-{number}".encode() * 1_000
            store.put(f"a/{who}/{number}", BytesBody(content))
            assert content == store.get(f"a/{who}/{number}")
            assert number + 1 == len(keys(store, f"a/{who}/"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert 80 == len(keys(store, "a/"))


@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.parametrize("if_absent", [False, True])
def test_a_file_is_synced_before_its_folder(
    place: FileSystemServer, store: BlobStore, monkeypatch: pytest.MonkeyPatch, if_absent: bool
):
    """When a put to files returns its content was synced first, and after that the name in each folder above it."""
    synced: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store.put("a/b/c", BytesBody(b"x"), if_absent=if_absent)

    root = place.url.removeprefix("file://")
    content = [name for name in synced if not Path(name).is_dir()]
    assert 1 == len(content)
    assert synced.index(content[0]) < len(synced) - 1
    assert f"{root}/a/b" == synced[-1]
    assert {str(Path(root).parent), root, f"{root}/a"} <= set(synced)


def test_a_file_store_keeps_nothing_that_killed_processes_left(tmp_path: Path):
    """Asking for the time removes unfinished files of a day ago, and a probe's folder goes with its last file."""
    for name, age_s in ((".new-old", 86_500), (".new-young", 60)):
        (tmp_path / name).touch()
        then = time.time() - age_s
        os.utime(tmp_path / name, (then, then))
    store = open_store(f"file://{tmp_path}", {})

    store.put(".probe-1/object", BytesBody(b"x"))
    store.now()
    store.delete([".probe-1/object"])

    assert [".new-young"] == [path.name for path in tmp_path.iterdir()]
