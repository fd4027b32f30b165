"""From an image to a live database: clones and opens, or fills a database of another engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millpond.local import clone_image, escape_name, read_manifest
from millpond.spi import StoreEngine, StoreSpec
from millpond.stores.images import Image, opened

EngineNamed = Callable[[str], type[StoreEngine]]
"""Finds the class of an engine by its name."""


def open_live(
    image: Image | None,
    spec: StoreSpec,
    engine: type[StoreEngine],
    live: Path,
    scratch: Path,
    engine_named: EngineNamed,
) -> StoreEngine:
    """
    Open the store's live database in a new folder below *live*: as *image* has it, or empty.

    An image of the same engine is cloned, mostly by links; one of another engine is copied entry by entry.

    Raises:
        StateCorruptError: The image is not what its manifest says.
    """
    directory = live / escape_name(spec.name)
    if image is None:
        directory.mkdir()
        return engine.open(directory, spec)
    made_by = read_manifest(image.path).engine
    if made_by == spec.engine:
        clone_image(image.path, directory, immutable=engine.immutable, transient=engine.transient)
        return engine.open(directory, spec)
    return _filled(image, engine_named(made_by), made_by, spec, engine, directory, scratch)


def _filled(
    image: Image,
    other: type[StoreEngine],
    made_by: str,
    spec: StoreSpec,
    engine: type[StoreEngine],
    directory: Path,
    scratch: Path,
) -> StoreEngine:
    directory.mkdir()
    database = engine.open(directory, spec)
    try:
        # The old engine gets no options: those that are configured are in the new one's words.
        with opened(image.path, other, StoreSpec(spec.name, made_by), scratch) as old:
            entries = old.scan(None, None, False)
            database.load(entries)
    except BaseException:
        database.close()
        raise
    return database
