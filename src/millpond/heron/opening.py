"""From an operator's choice to an open store of states: the folder, the memory, or any backend over an object store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

from millpond.blob import BlobBackend, BlobStore
from millpond.blob.memory import MemoryBlobStore
from millpond.clock import SystemClock
from millpond.config.mistakes import Vocabulary, mistakes_in
from millpond.config.structure import structure
from millpond.config.values import FlatText
from millpond.errors import ConfigError
from millpond.events import Event, Listener
from millpond.heron.folder import FolderStore
from millpond.heron.heron_files import StoreChoice
from millpond.heron.ids import number_order, text_order
from millpond.heron.rules import StateRules
from millpond.heron.scratch import Scratch
from millpond.heron.states import StateStore
from millpond.lanes import TransferPool
from millpond.plugins import backend_class
from millpond.spi import JobContext, Transfers

_TRANSFER_MEMORY = 64 << 20


@contextmanager
def open_states(
    choice: StoreChoice,
    tell: Callable[[Event], None],
    *,
    strict: bool = False,
    threads: int = 16,
    scratch: Path | None = None,
) -> Iterator[StateStore]:
    """
    Open the store that *choice* names; it is closed in the end. Large states are spooled below *scratch*.

    Raises:
        ConfigError: The choice has to be corrected.
        PluginError: The backend is unknown or not installed.
    """
    with ExitStack() as stack:
        pool = TransferPool(threads, _TRANSFER_MEMORY)
        stack.callback(pool.close, 10.0)
        blobs = stack.enter_context(_closing(_open(choice, tell, pool)))
        also = [stack.enter_context(_closing(_open_also(place, tell, pool))) for place in choice.also]
        rules = StateRules(
            unsealed_too=choice.from_heron,
            order=text_order if strict else number_order,
            by_age_too=not strict,
            refuse_cleaned=not strict,
            keep=choice.keep,
        )
        yield StateStore(blobs, _scratch(blobs, scratch, stack), rules, also, tell)


def _scratch(blobs: BlobStore, scratch: Path | None, stack: ExitStack) -> Scratch:
    if isinstance(blobs, FolderStore):
        return blobs.scratch
    made = Scratch(scratch or Path(tempfile.gettempdir()) / "millpond-heron")
    stack.callback(made.close)
    return made


@contextmanager
def _closing(blobs: BlobStore) -> Iterator[BlobStore]:
    try:
        yield blobs
    finally:
        blobs.close()


def _open(choice: StoreChoice, tell: Callable[[Event], None], pool: Transfers) -> BlobStore:
    if choice.type == "memory":
        return MemoryBlobStore()
    if choice.type == "folder":
        if choice.folder is None:
            raise ConfigError("a store in a folder needs the folder: millpond.store.path")
        return FolderStore(choice.folder.absolute())
    return _open_backend(choice.type, choice.options, tell, pool)


def _open_backend(
    name: str, options: Mapping[str, object], tell: Callable[[Event], None], pool: Transfers
) -> BlobStore:
    cls = backend_class(name)
    if not issubclass(cls, BlobBackend):
        raise ConfigError(f"backend {name!r} keeps no objects: take s3, fsspec, or another over an object store")
    flat = {key: FlatText(value) if isinstance(value, str) else value for key, value in options.items()}
    try:
        settings: object = structure(flat, cls.config_class)
    except ConfigError:
        raise
    except Exception as error:  # cattrs raises a tree of what is wrong
        problems = "; ".join(
            f"{'.'.join(map(str, one.path))}: {one.text}" for one in mistakes_in(error, (), Vocabulary())
        )
        raise ConfigError(f"the settings of the store {name!r} are wrong: {problems}") from error
    context = JobContext("heron-ckptmgr", "1", None, cast(Listener, tell), SystemClock(), pool)
    return cls(name, settings).open_store(context)


def _open_also(place: str, tell: Callable[[Event], None], pool: Transfers) -> BlobStore:
    if "://" in place:
        return _open_backend("fsspec", {"url": place}, tell, pool)
    return FolderStore(Path(place).expanduser().absolute())
