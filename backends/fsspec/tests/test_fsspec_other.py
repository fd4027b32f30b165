"""File systems that nobody has tried with Millpond are used with care, and never for records."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from millpond.blob import BytesBody
from millpond.errors import StateNotFoundError, TransientError
from millpond_fsspec.opening import open_store


class Strange(MemoryFileSystem):
    """A file system of one's own, with a move of its own."""

    protocol = "strange"
    moves = True

    def mv(self, path1: str, path2: str, **kwargs: object) -> None:
        if self.moves:
            self.store[self._strip_protocol(path2)] = self.store.pop(self._strip_protocol(path1))


class Lazy(Strange):
    """Its moves do nothing and say nothing, as fsspec's over WebHDFS do."""

    protocol = "lazy"
    moves = False


class Plain(MemoryFileSystem):
    """It has no move of its own."""

    protocol = "plain"


@pytest.fixture(autouse=True)
def _implementations():
    for cls in (Strange, Lazy, Plain):
        fsspec.register_implementation(cls.protocol, cls, clobber=True)
    yield
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("protocol", ["strange", "plain"])
def test_an_unknown_implementation_holds_state(protocol: str):
    """An implementation that nobody has tried keeps objects, by a move or in place, and promises nothing more."""
    store = open_store(f"{protocol}://x")
    keys = ["a/b", "a/c", "d"]
    for key in keys:
        store.put(key, BytesBody(key.encode()))

    assert not store.capabilities.conditional_put
    assert keys == [entry.key for entry in store.list("")]
    assert (b"a/b", b"/b", b"") == (store.get("a/b"), store.get("a/b", 1, 9), store.get("a/b", 9, 1))
    assert all(abs(entry.millis - store.now()) < 10_000 for entry in store.list(""))
    store.delete(["a/b", "a/b", "x"])
    assert ["a/c", "d"] == [entry.key for entry in store.list("")]
    with pytest.raises(StateNotFoundError):
        store.get("a/b")


def test_a_move_that_does_nothing_is_noticed():
    """Where a move returns and nothing has moved the put raises, and no object is there."""
    store = open_store("lazy://x")

    with pytest.raises(TransientError, match="did nothing and said nothing"):
        store.put("a/b", BytesBody(b"x"))

    assert [] == list(store.list(""))
    assert {} == MemoryFileSystem.store


def test_another_class_under_a_known_protocol_promises_nothing():
    """What a store promises follows from the implementation's class, not from the URL's protocol."""

    class Pretender(MemoryFileSystem):
        protocol = "webhdfs"

    before = fsspec.get_filesystem_class("memory")
    fsspec.register_implementation("memory", Pretender, clobber=True)
    try:
        assert not open_store("memory://x").capabilities.conditional_put
    finally:
        fsspec.register_implementation("memory", before, clobber=True)
    assert open_store("memory://x").capabilities.conditional_put
