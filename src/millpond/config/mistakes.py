"""What cattrs' tree of errors says, as problems with the place of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import attrs
from attrs import field, frozen
from cattrs.errors import (
    AttributeValidationNote,
    ForbiddenExtraKeysError,
    IterableValidationNote,
    StructureHandlerNotFoundError,
)

from millpond.config.model import KeyPath
from millpond.config.problems import Problem, nearest
from millpond.config.values import WrongValueError

_FIRST_FIELD = re.compile(r"^\W*([A-Za-z_][A-Za-z0-9_]*)\b")

SYNONYMS: Mapping[str, str] = {
    "backend": "backup",
    "backends": "backup",
    "backups": "backup",
    "restores": "restore",
    "key_serde": "key",
    "msg_serde": "value",
    "value_serde": "value",
    "manager_type": "manager",
    "kind": "type",
    "directory": "state_dir",
    "state_directory": "state_dir",
    "time_to_live": "ttl",
    "optional": "required",
}
"""Words that operators know from elsewhere, and the key that they mean."""


@frozen
class Vocabulary:
    """
    Keys to propose for an unknown one.

    Attributes:
        here: Keys of the same table that belong to no plugin.
        elsewhere: A key to the section in which it would be right.
    """

    here: tuple[str, ...] = ()
    elsewhere: Mapping[str, str] = field(factory=dict)


def mistakes_in(error: BaseException, path: KeyPath, words: Vocabulary) -> Iterator[Problem]:
    """Give a problem for each mistake in the table at *path*."""
    if isinstance(error, ForbiddenExtraKeysError):
        yield from _unknown_keys(error, path, words)
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            place, found = _place_of(inner)
            if found or isinstance(inner, BaseExceptionGroup | ForbiddenExtraKeysError):
                yield from mistakes_in(inner, (*path, *place), words)
            else:
                yield _of_the_whole(inner, path, getattr(error, "cl", None))
    else:
        yield Problem(path, _words(error, path))


def _place_of(error: BaseException) -> tuple[KeyPath, bool]:
    """Give where in its table or list *error* belongs, as cattrs noted it."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return (note.name,), True
        if isinstance(note, IterableValidationNote):
            return (note.index,), True
    return (), False


def _of_the_whole(error: BaseException, path: KeyPath, cls: object) -> Problem:
    """Report what a class said when it was made: a validator names its field first, or in quotes as attrs does."""
    text = _words(error, ())
    names = _names_of(cls)
    first = _FIRST_FIELD.search(text)
    return Problem((*path, first[1]) if first and first[1] in names else path, text)


def _names_of(cls: object) -> list[str]:
    """Give the keys that an attrs class takes."""
    return [each.alias or each.name for each in attrs.fields(cls) if each.init] if attrs.has(cls) else []  # type: ignore[arg-type]


def _unknown_keys(error: ForbiddenExtraKeysError, path: KeyPath, words: Vocabulary) -> Iterator[Problem]:
    """Report keys that nobody knows, each with the one that was probably meant."""
    known = [*words.here, *_names_of(error.cl)]
    for key in sorted(map(str, error.extra_fields)):
        yield Problem((*path, key), unknown_key_text(key, known, words.elsewhere))


def unknown_key_text(key: str, known: Sequence[str], elsewhere: Mapping[str, str]) -> str:
    """Say that *key* is unknown here, and which one was probably meant."""
    if (near := nearest(key, known, SYNONYMS)) is not None:
        return f'unknown key, did you mean "{near}"?'
    if key in elsewhere:
        return f"unknown key here, it belongs to [{elsewhere[key]}]"
    return f"unknown key; known here: {', '.join(known) or 'none'}"


def _words(error: BaseException, path: KeyPath) -> str:
    """Give an error's text for an operator."""
    if isinstance(error, WrongValueError):
        return str(error)
    if isinstance(error, KeyError) and path and error.args == (path[-1],):
        return "missing"
    if isinstance(error, StructureHandlerNotFoundError):
        return f"the plugin's config_class has a field of a type that no configuration can hold: {error.type_!r}"
    text = str(error.args[0]) if error.args else ""
    return text if isinstance(error, ValueError | TypeError) and text else f"{type(error).__name__}: {text}"
