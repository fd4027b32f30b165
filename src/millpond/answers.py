"""What plugins answer: of the kind that their contract says, or an error that names the plugin and the verb."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from millpond.checkpoint import Checkpoint, CheckpointId
from millpond.errors import ConfigError

T = TypeVar("T")

_MANAGER = "the checkpoint manager"


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
    checkpoint = answer(given, Checkpoint, _MANAGER, "read")
    if checkpoint.id != id:
        raise broken(_MANAGER, f"read() gave checkpoint {checkpoint.id} for {id}")
    return checkpoint


def ids_answer(given: object) -> Sequence[CheckpointId]:
    """
    Give the ids that ``ids`` of the manager gave.

    Raises:
        ConfigError: They are no sequence of ids, or one is there twice.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise broken(_MANAGER, f"ids() gave {type(given).__name__}, not a sequence of ids")
    strange = [each for each in given if not isinstance(each, CheckpointId)]
    if strange:
        raise broken(_MANAGER, f"ids() gave {type(strange[0]).__name__} among the ids")
    if len(set(given)) != len(given):
        raise broken(_MANAGER, "ids() gave an id twice")
    return given


def pins_answer(given: object) -> Mapping[str, CheckpointId]:
    """
    Give the pins that ``pins`` of the manager gave.

    Raises:
        ConfigError: They are no mapping from name to id.
    """
    if not isinstance(given, Mapping):
        raise broken(_MANAGER, f"pins() gave {type(given).__name__}, not a mapping from name to id")
    for name, id in given.items():
        if not isinstance(name, str) or not isinstance(id, CheckpointId):
            raise broken(_MANAGER, f"pins() gave {type(name).__name__} for {type(id).__name__}, not text for an id")
    return given


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
