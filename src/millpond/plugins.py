"""
From a plugin's name to its class: ``module:attr``, in-process registration, entry points; four distinct errors.

A name is looked for in this order: ``module:attr`` names the class itself; then what :func:`register` was given; then
the entry points of the group, which are read once, on the first miss. Modelled on SQLAlchemy's registry and fsspec's
table of install hints.
"""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, TypeVar, cast

from attrs import field, frozen

from millpond.errors import PluginError
from millpond.spi import (
    SPI_VERSION,
    CheckpointManager,
    ManagerCapabilities,
    StateBackendFactory,
    StoreEngine,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BACKENDS = "millpond.backends"
CHECKPOINTS = "millpond.checkpoints"
ENGINES = "millpond.engines"

_WANTED: Mapping[str, type] = {BACKENDS: StateBackendFactory, CHECKPOINTS: CheckpointManager, ENGINES: StoreEngine}
_KINDS = {BACKENDS: "state backend", CHECKPOINTS: "checkpoint manager", ENGINES: "store engine"}

_EXTRAS: Mapping[tuple[str, str], str] = {
    (BACKENDS, "rocksdb-local"): "rocksdb",
    (BACKENDS, "s3"): "s3",
    (BACKENDS, "fsspec"): "fsspec",
    (BACKENDS, "changelog"): "changelog",
    (CHECKPOINTS, "s3"): "s3",
    (CHECKPOINTS, "fsspec"): "fsspec",
    (CHECKPOINTS, "kafka"): "changelog",
    (CHECKPOINTS, "zookeeper"): "zookeeper",
    (ENGINES, "rocksdb"): "rocksdb",
}
"""Our own plugins that the core does not bring, and the extra that does."""

T = TypeVar("T")


@frozen
class PluginInfo:
    """
    One row of the table of plugins.

    Attributes:
        group: The entry-point group.
        name: The plugin's name in a configuration.
        distribution: What it was installed with; ``in process`` for a registered one, empty for a missing one.
        version: Of that distribution; empty where there is none.
        spi: The SPI version that it was made for, such as ``1.0``; empty where it cannot be told.
        ok: It can be used.
        state: ``ok``, or why it cannot be used.
    """

    group: str
    name: str
    distribution: str
    version: str
    spi: str
    ok: bool
    state: str


@frozen
class _Source:
    """Who brings a class, for messages."""

    distribution: str
    version: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}".strip()


@frozen
class _Entry:
    """An entry point and who brings it."""

    point: EntryPoint = field(eq=False)
    source: _Source


Entries = Mapping[tuple[str, str], tuple[_Entry, ...]]

_registered: dict[tuple[str, str], type] = {}
_lock = threading.Lock()


def backend_class(name: str) -> type[StateBackendFactory]:
    """Give the state backend *name*; see :func:`resolve`."""
    return cast("type[StateBackendFactory]", resolve(BACKENDS, name))


def checkpoints_class(name: str) -> type[CheckpointManager]:
    """Give the checkpoint manager *name*; see :func:`resolve`."""
    return cast("type[CheckpointManager]", resolve(CHECKPOINTS, name))


def engine_class(name: str) -> type[StoreEngine]:
    """Give the store engine *name*; see :func:`resolve`."""
    return cast("type[StoreEngine]", resolve(ENGINES, name))


def resolve(group: str, name: str) -> type:
    """
    Give the class that *name* stands for in *group*; any thread.

    Raises:
        PluginError: It is unknown, not installed, broken, or made for another SPI version; the message has the mend.
    """
    if ":" in name:
        return _load_reference(group, name)
    if (cls := _registered.get((group, name))) is not None:
        return _checked(group, name, cls, _Source("in process"))
    entries = _entries().get((group, name), ())
    if not entries:
        raise PluginError(_missing_text(group, name))
    if len(entries) > 1:
        raise PluginError(_duplicate_text(group, name, entries))
    return _load_entry(group, name, entries[0])


def register(group: str, name: str, cls: type) -> None:
    """
    Make *cls* the plugin *name* of *group* in this process; it goes before an installed one.

    Raises:
        PluginError: *group* is none of ours, *cls* is no plugin of it, or the name is taken by another class.
    """
    _check_name(group, name)
    _checked(group, name, cls, _Source("in process"))
    with _lock:
        taken = _registered.setdefault((group, name), cls)
    if taken is not cls:
        raise PluginError(f"{_label(group, name)} is registered twice: by {_path(taken)} and by {_path(cls)}")


@contextmanager
def registered(group: str, name: str, cls: type) -> Iterator[None]:
    """Register *cls* for the block, in place of whatever has the name; for tests."""
    _check_name(group, name)
    with _lock:
        before = _registered.get((group, name))
        _registered[group, name] = cls
    try:
        yield
    finally:
        with _lock:
            if before is None:
                _registered.pop((group, name), None)
            else:
                _registered[group, name] = before


def refresh() -> None:
    """Forget which entry points were found: distributions were installed or removed meanwhile."""
    _entries.cache_clear()
    importlib.invalidate_caches()


def known_names(group: str) -> list[str]:
    """Give the names that can be resolved in *group*, sorted; broken ones too."""
    names = {name for found, name in (*_registered, *_entries()) if found == group}
    return sorted(names)


def describe() -> list[PluginInfo]:
    """
    Give every plugin that is registered, installed, or ours and missing; sorted by group and name.

    Imports each of them. A broken one is a row that says why, never an error.
    """
    keys = sorted({*_registered, *_entries(), *_EXTRAS})
    return [row for group, name in keys for row in _describe_name(group, name)]


def _describe_name(group: str, name: str) -> list[PluginInfo]:
    """Give a row for each thing that has *name*: two when two distributions do."""
    if (group, name) in _registered:
        return [_describe_one(group, name, _Source("in process"))]
    entries = _entries().get((group, name), ())
    return [_describe_one(group, name, source) for source in ([e.source for e in entries] or [_Source("")])]


def _describe_one(group: str, name: str, source: _Source) -> PluginInfo:
    """Resolve *name* and put the outcome into a row."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cls = resolve(group, name)
    except PluginError as error:
        return PluginInfo(group, name, source.distribution, source.version, "", False, str(error))
    spi = ".".join(map(str, cls.spi_version))  # type: ignore[attr-defined]  # _checked saw it
    return PluginInfo(group, name, source.distribution, source.version, spi, True, "ok")


@cache
def _entries() -> Entries:
    """Read all distributions' entry points once: some 40 ms with a hundred distributions, hence the cache."""
    from importlib.metadata import entry_points

    found: dict[tuple[str, str], tuple[_Entry, ...]] = {}
    points = entry_points()
    for group in _WANTED:
        for point in points.select(group=group):
            entry = _Entry(point, _source_of(point))
            same = found.get((group, point.name), ())
            if entry not in same:
                found[group, point.name] = (*same, entry)
    return found


def _source_of(point: EntryPoint) -> _Source:
    """Name the distribution that brings *point*."""
    if point.dist is None:
        return _Source("an unknown distribution")
    return _Source(point.dist.name, point.dist.version)


def _load_reference(group: str, reference: str) -> type:
    """Load ``module:attr``."""
    module, _, path = reference.partition(":")
    if not module or not path or module.startswith("."):
        raise PluginError(f'{_label(group, reference)} is not a reference: write "package.module:Class"')
    try:
        loaded: object = importlib.import_module(module)
        for attr in path.split("."):
            loaded = getattr(loaded, attr)
    except Exception as error:
        raise PluginError(f"{_label(group, reference)} cannot be imported: {_reason(error)}") from error
    return _checked(group, reference, loaded, _Source(f"module {module}"))


def _load_entry(group: str, name: str, entry: _Entry) -> type:
    """Load what an installed distribution names."""
    try:
        loaded = entry.point.load()
    except Exception as error:  # a third party's module may raise anything while it is imported
        raise PluginError(
            f"{_label(group, name)} is installed (by {entry.source}) but its import failed: {_reason(error)}; "
            f"mend or update {entry.source.distribution}"
        ) from error
    return _checked(group, name, loaded, entry.source)


def _checked(group: str, name: str, loaded: object, source: _Source) -> type:
    """Give *loaded* if it is a plugin of *group* that this release can use."""
    reason = _broken_reason(group, loaded)
    if reason is not None:
        raise PluginError(f"{_label(group, name)} (from {source}) is broken: {reason}")
    cls = cast(type, loaded)
    _check_version(group, name, cls.spi_version, source)  # type: ignore[attr-defined]  # looked for above
    return cls


def _broken_reason(group: str, loaded: object) -> str | None:
    """Say what *loaded* lacks to be a plugin of *group*; None if nothing."""
    wanted = _WANTED[group]
    if not isinstance(loaded, type) or not issubclass(loaded, wanted):
        return f"{_path(loaded)} is not a subclass of millpond.spi.{wanted.__name__}"
    version, config_class = getattr(loaded, "spi_version", None), getattr(loaded, "config_class", None)
    for attribute, value in (("spi_version", version), ("config_class", config_class)):
        if value is None:
            return f"{_path(loaded)} has no {attribute}"
    if not _is_version(version):
        return f"{_path(loaded)}.spi_version is {version!r}, not a pair of numbers such as (1, 0)"
    if not hasattr(config_class, "__attrs_attrs__"):
        return f"{_path(loaded)}.config_class is not an attrs class"
    if missing := sorted(getattr(loaded, "__abstractmethods__", ())):
        return f"{_path(loaded)} does not define {', '.join(missing)}"
    return _capabilities_reason(group, loaded)


def _capabilities_reason(group: str, cls: type) -> str | None:
    """
    Say what is wrong with the class's capabilities.

    A manager's are read before it is made. A backend may set its own in ``__init__``, from its settings.
    """
    if group != CHECKPOINTS:
        return None
    capabilities = getattr(cls, "capabilities", None)
    if capabilities is None:
        return f"{_path(cls)} has no capabilities"
    if not isinstance(capabilities, ManagerCapabilities):
        return f"{_path(cls)}.capabilities is not a ManagerCapabilities"
    return None


def _is_version(version: object) -> bool:
    """Tell whether *version* is a pair of numbers."""
    return isinstance(version, tuple) and len(version) == 2 and all(type(part) is int for part in version)


def _check_version(group: str, name: str, version: tuple[int, int], source: _Source) -> None:
    """Refuse another major, warn about a newer minor."""
    label = _label(group, name)
    theirs, ours = ".".join(map(str, version)), ".".join(map(str, SPI_VERSION))
    if version[0] != SPI_VERSION[0]:
        older, newer = ("millpond", source.distribution) if version[0] > SPI_VERSION[0] else (source.distribution, "")
        raise PluginError(
            f"{label} (from {source}) is made for SPI {theirs}, but millpond {_own_version()} has SPI {ours}: "
            f"update {older}" + (f", or install an older {newer}" if newer else "")
        )
    if version[1] > SPI_VERSION[1]:
        warnings.warn(
            f"{label} (from {source}) is made for SPI {theirs}, newer than the {ours} of millpond {_own_version()}: "
            "what it calls may be missing",
            RuntimeWarning,
            stacklevel=4,
        )


def _missing_text(group: str, name: str) -> str:
    """Say that *name* is ours and not installed, or that nobody knows it."""
    label = _label(group, name)
    if (extra := _EXTRAS.get((group, name))) is not None:
        return f"{label} is not installed: {_install_line(extra)}"
    entries = _entries()
    known = {found: _known_source(entries.get((group, found), ())) for found in known_names(group)}
    names = ", ".join(f"{found} ({source})" for found, source in known.items()) or "none"
    return f"{label} is unknown{_nearest_text(group, name, list(known))}; known: {names}"


def _known_source(entries: tuple[_Entry, ...]) -> str:
    """Say who brings a known name."""
    return " and ".join(str(entry.source) for entry in entries) or "in process"


def _nearest_text(group: str, name: str, known: list[str]) -> str:
    """Propose the nearest name, and how to install it when it is one of ours that is missing."""
    ours = [found for of, found in _EXTRAS if of == group]
    near = get_close_matches(name.lower(), [*known, *ours], n=1)
    if not near:
        return ""
    install = "" if near[0] in known else f" ({_install_line(_EXTRAS[group, near[0]])})"
    return f', did you mean "{near[0]}"?{install}'


def _install_line(extra: str) -> str:
    """Give the command that installs one of ours: by the core's extra where this build has it."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        extras = metadata("millpond").get_all("Provides-Extra") or []
    except PackageNotFoundError:
        extras = []
    return f'pip install "millpond[{extra}]"' if extra in extras else f"pip install millpond-{extra}"


def _duplicate_text(group: str, name: str, entries: tuple[_Entry, ...]) -> str:
    """Say who claims the same name."""
    owners = " and ".join(f"{entry.source} ({entry.point.value})" for entry in entries)
    return f'{_label(group, name)} is claimed by {owners}: uninstall one, or name the class as "module:Class"'


def _check_name(group: str, name: str) -> None:
    """Refuse a group that is none of ours, and a name that could not be looked up."""
    if group not in _WANTED:
        raise PluginError(f"{group!r} is no group of plugins: {', '.join(_WANTED)}")
    if not name or ":" in name:
        raise PluginError(f"{name!r} cannot be a plugin's name")


def _own_version() -> str:
    """Give this distribution's version, for messages."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("millpond")
    except PackageNotFoundError:
        return "(not installed)"


def _label(group: str, name: str) -> str:
    """Name a plugin in a message."""
    return f'{_KINDS.get(group, group)} "{name}"'


def _path(loaded: object) -> str:
    """Give where *loaded* is defined, or what it is."""
    if isinstance(loaded, type):
        return f"{loaded.__module__}.{loaded.__qualname__}"
    return f"{loaded!r:.80}"


def _reason(error: BaseException) -> str:
    """Give an error's class and text."""
    return f"{type(error).__name__}: {error}"
