"""What an operator says: a URL, fsspec's options for it, and how long a request may take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from urllib.parse import urlsplit

from attrs import field, frozen

from millpond.blob import BlobSettings, RecordsSettings
from millpond.errors import ConfigError
from millpond.spi import Secret
from millpond_fsspec.hiding import PLAIN, shown_url

_PREFIX = re.compile(r"[A-Za-z0-9!\-_.+%@()]+(?:/[A-Za-z0-9!\-_.+%@()]+)*")


def _hidden_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """Freeze *options*, with each text that does not merely say where and who as a secret."""
    return MappingProxyType({name: value if name in PLAIN else _hidden(value) for name, value in options.items()})


def _hidden(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(inner) for inner in value]
    return Secret(str.__str__(value)) if isinstance(value, str) else value


def _check_url(_instance: object, _attribute: object, url: str) -> None:
    """Refuse what cannot be right, without showing what may be a password."""
    if "://" not in url and not url.startswith("/"):
        raise ConfigError("url is no URL: write it with its protocol, such as gs://bucket/folder or file:///srv/state")
    if "::" in url:
        raise ConfigError("url is a chain (::): a file system over another caches or changes it; name the lowest alone")
    try:
        urlsplit(url)
    except ValueError:
        raise ConfigError("url cannot be read as a URL") from None


def _check_prefix(_instance: object, _attribute: object, prefix: str) -> None:
    if prefix and (_PREFIX.fullmatch(prefix) is None or {".", ".."} & set(prefix.split("/"))):
        raise ConfigError(f"prefix is {prefix!r}: write names of letters, digits and -_.+%@!() with / between them")


def _check_timeout(_instance: object, _attribute: object, timeout: timedelta) -> None:
    if timeout < timedelta(seconds=1):
        raise ConfigError(f"timeout is {timeout}: it must be at least a second")


def _url() -> str:
    return field(validator=_check_url, repr=shown_url)


def _options() -> Mapping[str, object]:
    return field(factory=dict, converter=_hidden_options)


def _prefix() -> str:
    return field(default="", validator=_check_prefix)


def _timeout() -> timedelta:
    return field(default=timedelta(seconds=60), validator=_check_timeout)


@frozen(kw_only=True)
class FsspecBackendConfig(BlobSettings):
    """
    The section of an ``fsspec`` backend.

    Attributes:
        url: Where the objects of all jobs lie, such as ``gs://bucket/folder``; an absolute path means ``file:``.
        options: What fsspec calls storage options: host, user, key, connection string. Shown in no message.
        prefix: A folder below the URL.
        timeout: How long one request may take, and a second more for each 256 KiB that it moves.
    """

    url: str = _url()
    options: Mapping[str, object] = _options()
    prefix: str = _prefix()
    timeout: timedelta = _timeout()


@frozen(kw_only=True)
class FsspecCheckpointsConfig(RecordsSettings):
    """
    The settings of the ``fsspec`` checkpoint manager; as for the backend.

    Attributes:
        url: Where the records of all jobs lie.
        options: What fsspec calls storage options. Shown in no message.
        prefix: A folder below the URL.
        timeout: How long one request may take.
    """

    url: str = _url()
    options: Mapping[str, object] = _options()
    prefix: str = _prefix()
    timeout: timedelta = _timeout()
