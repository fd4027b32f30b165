"""What plugins answer: of the kind that their contract says, or an error that names the plugin and the verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import ConfigError

T = TypeVar("T")


def answer(given: object, kind: type[T], who: str, verb: str) -> T:
    """
    Give what *verb* of *who* gave.

    Raises:
        ConfigError: It is no *kind*.
    """
    if not isinstance(given, kind):
        raise broken(who, f"{verb}() gave {type(given).__name__}, not a {kind.__name__}")
    return given


def role_answer(given: T, role: type[Any], who: str, verb: str) -> T:
    """
    Give what *verb* of *who* gave.

    Raises:
        ConfigError: It lacks a verb of *role*; it need not be a subclass.
    """
    for name in vars(role):
        if not name.startswith("_") and not callable(getattr(given, name, None)):
            raise broken(who, f"{verb}() gave {type(given).__name__}, which has no {name}()")
    return given


def checkpoint_answer(given: object, id: CheckpointId) -> Checkpoint:
    """
    Give the checkpoint that ``read`` of the manager gave for *id*.

    Raises:
        ConfigError: It is none, or another one; absence is an error of its own, never None.
    """
    checkpoint = answer(given, Checkpoint, "the checkpoint manager", "read")
    if checkpoint.id != id:
        raise broken("the checkpoint manager", f"read() gave checkpoint {checkpoint.id} for {id}")
    return checkpoint


def note_problem(given: object, verb: str = "snapshot") -> str | None:
    """Say in a sentence what is wrong with what a backend's *verb* gave, which is text by store; None: nothing."""
    if not isinstance(given, Mapping):
        return f"{verb}() gave {type(given).__name__}, not a mapping from store to marker"
    if not all(isinstance(text, str) for pair in given.items() for text in pair):
        return f"{verb}() gave a store or a marker that is no text"
    return None


def broken(who: str, how: str) -> ConfigError:
    """Give the error about a plugin that does not keep its contract."""
    return ConfigError(f"{who} broke its contract: {how}; report it to whoever maintains that plugin")
