"""What kazoo raises, in the words of Millpond: who can do something about it, and what."""

from __future__ import annotations

from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
    RolledBackError,
    RuntimeInconsistency,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError

from millpond.errors import ConfigError, MillpondError, TransientError

ANSWERS = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)
"""What a server says about the tree: the caller's to understand; nothing was changed."""

LOST = (KazooException, KazooTimeoutError, OSError, RuntimeError)
"""What else may come out of the driver."""

_REFUSED = (AuthFailedError, NoAuthError, InvalidACLError, BadArgumentsError, QuotaExceededError)
_MENDS: dict[type[Exception], str] = {
    AuthFailedError: "the credentials are refused: correct user and password",
    NoAuthError: "the node's ACL does not allow it: correct user and password, or the ACL of what is there",
    InvalidACLError: "the ACL is refused: correct acl; a scheme that the servers do not know, or auth without a user",
    BadArgumentsError: "the servers refuse the request as wrong",
    QuotaExceededError: "the quota of a node above is used up: raise it (setquota)",
}


class LostAnswerError(TransientError):
    """A request may have been carried out, and nobody said so: look, or repeat what may be repeated."""


def translated(error: BaseException, doing: str, hosts: str) -> MillpondError:
    """Give the error that says what failed, where, and what to do; LostAnswerError unless nothing was changed."""
    if isinstance(error, _REFUSED):
        return ConfigError(f"ZooKeeper ({hosts}): {doing}: {_MENDS[type(error)]}")
    said = type(error).__name__ + (f": {error}" if str(error) else "")
    return LostAnswerError(f"ZooKeeper ({hosts}): {doing}: {said}; it may have happened or not")


def reason_of(results: list[object]) -> Exception | None:
    """Give why a multi-operation changed nothing; None if all of it was done."""
    errors = [result for result in results if isinstance(result, Exception)]
    telling = [error for error in errors if not isinstance(error, RolledBackError | RuntimeInconsistency)]
    return next(iter([*telling, *errors]), None)


def is_answer(error: BaseException) -> bool:
    """Whether *error* is a server's answer about the tree."""
    return isinstance(error, ZookeeperError) and isinstance(error, ANSWERS)
