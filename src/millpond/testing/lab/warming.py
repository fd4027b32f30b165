"""What the lab's parent loads before it forks, so that no child has to; it starts no thread."""

from __future__ import annotations

import gc
import importlib
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from millpond.blob import probe
from millpond.testing.lab.forks import refuse_threads
from millpond.testing.lab.places import Place
from millpond.testing.lab.story import story_of

_LAZILY_LOADED = (
    "rocksdict",
    "millpond_rocksdb.database",
    "millpond_fsspec.opening",
    "millpond_fsspec.files",
    "blake3",
)


def warm(place: Place) -> None:
    """
    Load what the children will need, so that each of them does not; no thread is started.

    Each opening of a child checks its store with one race instead of many: the lab is not about the store.
    """
    place.config(story_of(0, place.points(), place.engines), Path(tempfile.gettempdir()), 0)
    for name in _LAZILY_LOADED:
        with suppress(ImportError):  # what is not installed is not needed
            importlib.import_module(name)
    if any(plugin == "s3" for plugin in place.plugins()):
        _read_the_sdks_models()
    probe.RACES = 1
    gc.collect()
    gc.freeze()  # a child that collects garbage would copy all of this
    refuse_threads()


def _read_the_sdks_models() -> None:
    """Let every client of the SDK share what one has read here: it is a third of a second for each otherwise."""
    sdk: Any = importlib.import_module("boto3")
    loader: Any = importlib.import_module("botocore.loaders").Loader
    shared: dict[Any, Any] = {}
    begin = loader.__init__

    def begin_shared(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        self._cache = shared

    loader.__init__ = begin_shared
    nobody = {"aws_access_key_id": "nobody", "aws_secret_access_key": "none"}
    sdk.session.Session().client("s3", region_name="us-east-1", **nobody).close()
