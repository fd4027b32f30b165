"""From whatever a driver raises to one of our errors, with what to do and without secrets."""

from __future__ import annotations

import asyncio
import errno
from enum import Enum, auto

from millpond.blob import AccessDeniedError, BrokenBodyError
from millpond.errors import ConfigError, MillpondError, StateNotFoundError, TransientError
from millpond_fsspec.hiding import Hiding


class Kind(Enum):
    """What a caller would do about a fault."""

    MISSING = auto()
    DENIED = auto()
    WRONG = auto()
    BROKEN = auto()
    PASSING = auto()


_BY_STATUS = {401: Kind.DENIED, 403: Kind.DENIED, 404: Kind.MISSING, 410: Kind.MISSING}
_PASSING_STATUS = {408, 409, 423, 425, 429}
_BY_ERRNO = {
    errno.ENOENT: Kind.MISSING,
    errno.EACCES: Kind.DENIED,
    errno.EPERM: Kind.DENIED,
    errno.ENOTDIR: Kind.WRONG,
    errno.EISDIR: Kind.WRONG,
    errno.ENAMETOOLONG: Kind.WRONG,
    errno.ELOOP: Kind.WRONG,
}
# By the name of the class, so that no driver is imported to ask; the nearest class in the hierarchy counts.
_BY_NAME = {
    "AuthenticationException": Kind.DENIED,
    "ClientAuthenticationError": Kind.DENIED,
    "DefaultCredentialsError": Kind.DENIED,
    "BadHostKeyException": Kind.DENIED,
    "ClientPayloadError": Kind.BROKEN,
    "ChunkedEncodingError": Kind.BROKEN,
    "IncompleteRead": Kind.BROKEN,
    "IncompleteReadError": Kind.BROKEN,
    "FileNotFoundError": Kind.MISSING,
    "PermissionError": Kind.DENIED,
    "TransportError": Kind.PASSING,
    "gaierror": Kind.PASSING,
    "ImportError": Kind.WRONG,
    "NotImplementedError": Kind.WRONG,
    "ValueError": Kind.WRONG,
    "TypeError": Kind.WRONG,
}


def status_of(error: BaseException) -> int | None:
    """Give the HTTP status that *error* carries, wherever its library keeps it."""
    response = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (error, "code"), (error, "status"), (response, "status_code")):
        found = getattr(holder, name, None)
        if isinstance(found, int) or (isinstance(found, str) and found.isdigit()):
            return int(found)
    return None


def kind_of(error: BaseException) -> Kind:
    """Say what a caller would do about *error*; what nobody knows may pass."""
    status = status_of(error)
    if status is not None and status >= 400:
        if status in _PASSING_STATUS or status >= 500:
            return Kind.PASSING
        return _BY_STATUS.get(status, Kind.WRONG)
    if isinstance(error, OSError) and str(error).startswith("Forbidden"):  # gcsfs
        return Kind.DENIED
    if isinstance(error, OSError) and error.errno in _BY_ERRNO:
        return _BY_ERRNO[error.errno]
    named = (_BY_NAME[cls.__name__] for cls in type(error).__mro__ if cls.__name__ in _BY_NAME)
    return next(named, Kind.PASSING)


def failure(error: Exception, verb: str, where: str, hiding: Hiding, *, needs: str, root: str) -> MillpondError:
    """
    Give the error of ours that *error* stands for.

    *verb* is what was tried with *where*, *needs* the permission for it, *root* the folder that has to exist.
    """
    detail = hiding.clean(f"{type(error).__name__}: {error}".strip().rstrip(":"))[:500]
    kind = kind_of(error)
    text = f"cannot {verb} {where}: "
    if kind is Kind.MISSING and verb == "read":
        return StateNotFoundError(f"there is no object {where}")
    if kind is Kind.MISSING:
        return ConfigError(f"{text}{root} is not there: create it, or correct the URL ({detail})")
    if kind is Kind.DENIED:
        return AccessDeniedError(f"{text}access denied; it needs {needs} ({detail})")
    if kind is Kind.WRONG:
        return ConfigError(f"{text}{detail}")
    if kind is Kind.BROKEN and verb == "read":
        return BrokenBodyError(f"{text}the body broke off ({detail})")
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return TransientError(f"{text}no answer within the timeout ({detail})")
    return TransientError(f"{text}{detail}")
