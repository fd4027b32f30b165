"""From a URL to the store that knows its implementation."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from millpond.errors import ConfigError
from millpond_fsspec.hiding import Hiding, shown_url
from millpond_fsspec.place import Place
from millpond_fsspec.promises import EXTRAS, promise_of
from millpond_fsspec.store import FsspecStore

_NO_ROOT = {"file", "local", "memory"}


def open_store(
    url: str, options: Mapping[str, object] | None = None, *, prefix: str = "", timeout_s: float = 60.0
) -> FsspecStore:
    """
    Give the store at *url*; nothing is connected yet.

    Raises:
        ConfigError: The protocol is unknown, what it needs is not installed, or the URL names no root.
    """
    options = {name: _revealed(value) for name, value in (options or {}).items()}
    hiding = Hiding.of(url, options)
    protocol, cls = _implementation(url, hiding)
    cls = _plain(cls)
    promise = promise_of(f"{cls.__module__}.{cls.__qualname__}")
    root = "/".join(part for part in (_root(url, protocol, cls, hiding), prefix) if part)
    shown = "/".join(part for part in (shown_url(url).rstrip("/"), prefix) if part)
    place = Place(shown, root, cls, {**_from_url(url, cls), **options}, hiding, timeout_s)
    module, _, name = promise.driver.partition(".")
    driver: type[FsspecStore] = getattr(importlib.import_module(f"millpond_fsspec.{module}"), name)
    return driver(place, promise.capabilities)


def _implementation(url: str, hiding: Hiding) -> tuple[str, type[Any]]:
    """Give the protocol of *url* and the class that fsspec has for it."""
    from fsspec.core import split_protocol  # type: ignore[import-untyped]
    from fsspec.registry import get_filesystem_class  # type: ignore[import-untyped]

    if "::" in url:
        raise ConfigError(f"{shown_url(url)} is a chain (::): name the lowest file system alone")
    protocol = split_protocol(url)[0] or "file"
    try:
        return protocol, get_filesystem_class(protocol)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        mend = f'pip install "millpond-fsspec[{extra}]"' if extra else hiding.clean(str(error))
        raise ConfigError(f"the file system {protocol}: needs what is not installed: {mend}") from error
    except ValueError as error:
        raise ConfigError(f"fsspec knows no file system {protocol}: {hiding.clean(str(error))}") from None


def _plain(cls: type[Any]) -> type[Any]:
    """Give gcsfs's plain class for its extended one, which asks for the kind of bucket over another interface first."""
    for each in cls.__mro__:
        if each.__module__ == "gcsfs.core" and cls.__module__ == "gcsfs.extended_gcsfs":
            return each
    return cls


def _root(url: str, protocol: str, cls: type[Any], hiding: Hiding) -> str:
    """Give the path that *url* names, in the implementation's words."""
    root = str(cls._strip_protocol(url)).rstrip("/")
    if protocol in ("file", "local") and not url.removeprefix(f"{protocol}://").startswith("/"):
        raise ConfigError(f"{shown_url(url)} is relative: write an absolute path, such as file:///srv/state")
    if not root and protocol not in _NO_ROOT:
        raise ConfigError(f"{shown_url(url)} names no bucket or folder: write one, such as {protocol}://…/state")
    return root


def _from_url(url: str, cls: type[Any]) -> dict[str, object]:
    """Give the options that *url* itself holds, such as a host and a user."""
    return dict(cls._get_kwargs_from_urls(url))


def _revealed(value: object) -> object:
    """Give *value* with each secret as plain text, as a driver wants it."""
    if isinstance(value, Mapping):
        return {key: _revealed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_revealed(inner) for inner in value]
    return str.__str__(value) if isinstance(value, str) else value
