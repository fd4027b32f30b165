"""
Heron's configuration files, as its executor names them on the command line, and what their keys mean here.

The settings file has a map for the storage; the overrides are flat, and all of their keys count in both places. Keys
under ``millpond.`` are ours, and stand beside Heron's. Keys that nothing here needs are left alone, as in Heron.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from millpond.errors import ConfigError

STORAGE_CLASS = "heron.statefulstorage.classname"
STORAGE = "heron.statefulstorage.config"
LOCAL_ROOT = "heron.statefulstorage.localfs.root.path"
LOCAL_KEEP = "heron.statefulstorage.localfs.max.checkpoints"
HDFS_ROOT = "heron.statefulstorage.hdfs.root.path"
STORE = "millpond.store"

_NETWORK = "heron.ckptmgr.network."
_LOCAL_KEEP_DEFAULT = 10
_LARGEST_FILE = 4 << 20


@frozen
class StoreChoice:
    """
    Where states are to lie.

    Attributes:
        type: ``"folder"``, ``"memory"``, or the name of a backend over an object store.
        options: That backend's settings.
        folder: Of type ``"folder"``.
        from_heron: Heron has written there: states without a seal are accepted.
        keep: How many whole checkpoints a node keeps by itself.
        also: Folders or URLs in which Heron's older states are looked for too.
    """

    type: str
    options: Mapping[str, object]
    folder: Path | None = None
    from_heron: bool = False
    keep: int | None = None
    also: tuple[str, ...] = ()


@frozen
class HeronConfig:
    """
    What the files say.

    Attributes:
        values: All keys that are not the storage's.
        storage: The storage's.
    """

    values: Mapping[str, object]
    storage: Mapping[str, object]


def read(config: Path | None, override: Path | None = None, internals: Path | None = None) -> HeronConfig:
    """
    Read the files; the overrides go before the settings, those before the internals.

    Raises:
        ConfigError: A file is missing, is no YAML, or is no map.
    """
    values: dict[str, object] = {}
    for path in (internals, config):
        values |= _load(path)
    flat = _load(override)
    storage = values.pop(STORAGE, None) or {}
    if not isinstance(storage, Mapping):
        raise ConfigError(f"{config}: {STORAGE} is no map")
    return HeronConfig({**values, **flat}, {**{str(key): value for key, value in storage.items()}, **flat})


def _load(path: Path | None) -> dict[str, object]:
    if path is None:
        return {}
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST_FILE + 1)
        if len(text) > _LARGEST_FILE:
            raise ConfigError(f"{path} has more than {_LARGEST_FILE:,} bytes: it is no configuration of Heron's")
        found = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path} is no map of keys and values")
    return {str(key): value for key, value in found.items()}


def server_values(config: HeronConfig) -> dict[str, Any]:
    """
    Give the fields of ``ServerSettings`` that Heron's network keys say.

    Raises:
        ConfigError: A value is no whole number.
    """
    keys: Mapping[str, tuple[str, Callable[[int], object]]] = {
        f"{_NETWORK}options.maximum.packetsize.bytes": ("max_packet", lambda size: size or (1 << 31) - 1),
        f"{_NETWORK}options.socket.send.buffer.size.bytes": ("send_buffer", int),
        f"{_NETWORK}options.socket.receive.buffer.size.bytes": ("receive_buffer", int),
        f"{_NETWORK}read.batch.size.bytes": ("read_size", int),
        "topology.stateful.checkpointmanager.ram": ("memory", int),
    }
    return {name: take(_whole(config.values, key)) for key, (name, take) in keys.items() if key in config.values}


def store_choice(config: HeronConfig) -> StoreChoice:
    """
    Say where states are to lie: ``millpond.store`` where it is given, else what Heron's storage class means here.

    Raises:
        ConfigError: Neither is given, or it is one that we do not have.
    """
    storage = config.storage
    also = tuple(_texts(storage.get("millpond.also-read")))
    keep = _whole(storage, "millpond.keep") if "millpond.keep" in storage else None
    if (chosen := storage.get(STORE)) is not None:
        options = {
            key.removeprefix(f"{STORE}."): value for key, value in storage.items() if key.startswith(f"{STORE}.")
        }
        folder = Path(str(options.pop("path"))).expanduser() if chosen == "folder" and "path" in options else None
        return StoreChoice(str(chosen), options, folder, keep=keep, also=also)
    return _heron_class(str(config.values.get(STORAGE_CLASS, "")), storage, keep, also)


def _heron_class(name: str, storage: Mapping[str, object], keep: int | None, also: tuple[str, ...]) -> StoreChoice:
    simple = name.rpartition(".")[2]
    if simple == "LocalFileSystemStorage":
        root = storage.get(LOCAL_ROOT)
        if not root:
            raise ConfigError(f"{LOCAL_ROOT} is missing: it names the folder of the states")
        own = _whole(storage, LOCAL_KEEP) if LOCAL_KEEP in storage else _LOCAL_KEEP_DEFAULT
        return StoreChoice("folder", {}, Path(str(root)).expanduser(), from_heron=True, keep=keep or own, also=also)
    if simple == "HDFSStorage":
        root = str(storage.get(HDFS_ROOT) or "")
        if "://" not in root:
            raise ConfigError(
                f"{HDFS_ROOT} is {root!r}: write it with the server, such as webhdfs://namenode:9870/heron, since "
                "Hadoop's own files are not read here"
            )
        return StoreChoice("fsspec", {"url": root}, from_heron=True, keep=keep, also=also)
    known = f"LocalFileSystemStorage and HDFSStorage are known, and {STORE} names any other place"
    raise ConfigError(f"{STORAGE_CLASS} is {name or 'missing'}: {known}")


def _whole(values: Mapping[str, object], key: str) -> int:
    found = values[key]
    try:
        if isinstance(found, bool):
            raise TypeError
        return int(str(found))
    except (TypeError, ValueError):
        raise ConfigError(f"{key} is {found!r}: it has to be a whole number") from None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(",") if part.strip())
    elif isinstance(value, list):
        yield from map(str, value)
