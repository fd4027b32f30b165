"""
Trying, step by step, what a job relies on: its plugins, its disk, its records' place, its backends.

Nothing of the job is changed: probes have names of their own, and are removed.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

from millpond import plugins
from millpond.blob import BlobBackend, BlobCheckpoints, BlobStore
from millpond.blob.checkpoints import refuse_unfit
from millpond.blob.layout import job_prefix
from millpond.blob.probe import MOST_SKEW_MS, Step, compare_clocks, data_steps, probing, record_steps
from millpond.clock import Clock
from millpond.progress.words import count_text
from millpond.reading.attempts import Attempts, Tried
from millpond.reading.disk import try_disk
from millpond.reading.job import JobReader


def examine(reader: JobReader, *, create: bool = False) -> Iterator[Tried]:
    """
    Try everything, and give the steps of each part when it is done.

    With *create*, first make what is missing, as a job does when it opens its first task.
    """
    yield from _versions(reader)
    yield from try_disk(reader.config.state_dir, reader.context.clock)
    yield from _checkpoints(reader, create=create)
    for name in reader.config.backends:
        yield from _backend(reader, name, create=create)


def _versions(reader: JobReader) -> Iterator[Tried]:
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    yield Tried("millpond", "version", "ok", f"{version('millpond')}, {python}")
    known = {(each.group, each.name): each for each in plugins.describe()}
    for group, name in _used(reader):
        found = known.get((group, name))
        detail = "named by its module" if found is None else f"{found.distribution} {found.version}".strip()
        yield Tried(f"plugin {name}", "version", "ok", detail + (f", SPI {found.spi}" if found and found.spi else ""))


def _used(reader: JobReader) -> list[tuple[str, str]]:
    """Give group and name of each plugin that the configuration uses; one of several groups once."""
    config = reader.config
    used = {config.checkpoint.manager: plugins.CHECKPOINTS}
    for backend in config.backends.values():
        used.setdefault(backend.type, plugins.BACKENDS)
    for store in config.stores.values():
        used.setdefault(store.engine, plugins.ENGINES)
    return [(group, name) for name, group in used.items()]


def _checkpoints(reader: JobReader, *, create: bool) -> list[Tried]:
    manager, attempts = reader.manager, Attempts("checkpoints", reader.context.clock)
    if create:
        attempts.attempt("make what is missing", manager.create_resources)
    if isinstance(manager, BlobCheckpoints):
        with attempts.holding("open the store", _opened(lambda: manager.open_store(reader.context))) as store:
            if store is not None and attempts.attempt("can hold records", lambda: refuse_unfit(store)):
                _try_store(attempts, reader, store, record_steps)
    else:
        attempts.attempt("the plugin's own check", manager.validate_resources)
    if not manager.capabilities.durable:
        attempts.note("durable", "its records die with the job's process: for tests only")
    if all(each.good for each in attempts.tried):
        attempts.attempt("read the newest records", lambda: _read_records(reader))
    return attempts.tried


def _read_records(reader: JobReader) -> str:
    """Read the newest record of each task: one that cannot be read stops its task."""
    tasks = reader.manager.tasks()
    for task in tasks:
        reader.manager.read_last(task)
    return f"of {count_text(len(tasks), 'task')}"


def _backend(reader: JobReader, name: str, *, create: bool) -> list[Tried]:
    factory, admin = reader.config.backends[name].factory, reader.admin(name)
    attempts = Attempts(f"backend {name}", reader.context.clock)
    if create:
        attempts.attempt("make what is missing", admin.create_resources)
    if isinstance(factory, BlobBackend):
        with attempts.holding("open the store", _opened(lambda: factory.open_store(reader.context))) as store:
            if store is not None:
                _try_store(attempts, reader, store, data_steps)
    else:
        attempts.attempt("the plugin's own check", admin.validate_resources)
    if not factory.capabilities.durable:
        attempts.note("durable", "what it holds dies with the process: for tests only")
    return attempts.tried


@contextmanager
def _opened(open_store: Callable[[], BlobStore]) -> Iterator[BlobStore]:
    store = open_store()
    try:
        yield store
    finally:
        store.close()


def _try_store(
    attempts: Attempts, reader: JobReader, store: BlobStore, steps_of: Callable[[BlobStore, str], list[Step]]
) -> None:
    prefix, clock = job_prefix(reader.config.name, reader.config.id), reader.context.clock

    with attempts.holding("", probing(store, prefix), end="remove it") as place:
        first, *rest = steps_of(store, place or prefix)
        written = attempts.attempt(first.name, first.attempt)
        for step in rest:
            if written:
                attempts.attempt(step.name, step.attempt)
            else:
                attempts.skip(step.name)
    attempts.attempt("list unfinished uploads", lambda: _unfinished(store, prefix))
    attempts.attempt("compare clocks", lambda: _clocks(store, clock))


def _unfinished(store: BlobStore, prefix: str) -> str:
    found = len(store.unfinished(prefix))
    return f"{found:,} there" if found else "none"


def _clocks(store: BlobStore, clock: Clock) -> str:
    compare_clocks(store, clock)
    return f"{abs(clock.millis() - store.now()) / 1000:.1f} s apart; up to {MOST_SKEW_MS // 1000} s is fine"
