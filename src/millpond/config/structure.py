"""
From tables to attrs classes, strictly: nothing is rounded, split or guessed, and all problems come at once.

cattrs alone takes ``"false"`` for True, 3.7 for 3, and a text for a list of letters. Each hook here accepts what it can
keep exactly. Text from a flat source (:class:`~millpond.config.values.FlatText`) may be read as a number, a boolean or
a list, by the same rules.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import Converter, IterableValidationError
from cattrs.errors import IterableValidationNote
from cattrs.gen import make_dict_structure_fn, override

from millpond.config.values import FlatText, WrongValueError, parse_duration, parse_size
from millpond.spi import Secret, Size

C = TypeVar("C")

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "a boolean"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (Mapping, "a table"),
    ((list, tuple), "a list"),
    (type(None), "nothing"),
)
_SIZE_WORDS = ("size", "bytes", "memory", "cache", "buffer")
_LISTS = (list, tuple, set, frozenset, Sequence, AbstractSet)


def structure(table: Mapping[str, object], cls: type[C]) -> C:
    """
    Make a *cls* from *table*.

    Raises:
        Exception: A tree of cattrs errors, which :func:`millpond.config.mistakes.mistakes_in` reads.
    """
    return _converter().structure(table, cls)


def kind_of(value: object) -> str:
    """Say in an operator's words what *value* is."""
    for types_, words in _KINDS:
        if isinstance(value, types_):
            return words
    return f"a {type(value).__name__}"


def guess(text: str) -> object:
    """Read text from a flat source where nothing says what is wanted: a boolean, a number, or the text itself."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return str(text)


def is_size(name: str, kind: object) -> bool:
    """Tell whether a field holds bytes: its type says it, or it is a whole number and its name does."""
    return kind is Size or (kind in (int, "int") and any(word in name for word in _SIZE_WORDS))


@cache
def _converter() -> Converter:
    """Make the converter; once, since it keeps the code that it generates for each class."""
    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook_factory(attrs.has, lambda cls: _attrs_hook(converter, cls))
    converter.register_structure_hook_factory(_is_list, lambda cls: _list_hook(converter, cls))
    converter.register_structure_hook_factory(_is_mapping, lambda cls: _mapping_hook(converter, cls))
    converter.register_structure_hook_factory(_is_union, lambda cls: _union_hook(converter, cls))
    converter.register_structure_hook_factory(_is_literal, _literal_hook)
    converter.register_structure_hook_factory(_is_enum, _enum_hook)
    converter.register_structure_hook_func(lambda cls: cls is Size, lambda value, _: _size(value))
    converter.register_structure_hook_func(lambda cls: cls in (object, Any), lambda value, _: _anything(value))
    for cls, hook in _HOOKS.items():
        converter.register_structure_hook(cls, _ignoring_type(hook))
    return converter


def _ignoring_type(hook: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: hook(value)


def _bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, FlatText) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise WrongValueError(f"expected true or false, found {kind_of(value)}")


def _int(value: object) -> int:
    if isinstance(value, FlatText):
        try:
            return int(value)
        except ValueError:
            raise WrongValueError("expected a whole number, found other text") from None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise WrongValueError(f"expected a whole number, found {kind_of(value)}")


def _float(value: object) -> float:
    if isinstance(value, FlatText):
        try:
            return float(value)
        except ValueError:
            raise WrongValueError("expected a number, found other text") from None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise WrongValueError(f"expected a number, found {kind_of(value)}")


def _str(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    hint = ": write it in quotes" if isinstance(value, int | float) else ""
    raise WrongValueError(f"expected text, found {kind_of(value)}{hint}")


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return _str(value).encode()


def _secret(value: object) -> Secret:
    return Secret(_str(value))


def _path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    text = _str(value)
    if not text or "\0" in text:
        raise WrongValueError("expected a path, found " + ("an empty text" if not text else "a text with a zero byte"))
    return Path(text).expanduser() if text.startswith("~") else Path(text)


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise WrongValueError(
            f'expected a duration, found a bare number: write its unit, such as "{value:g}s" or "{value:g}ms"'
        )
    raise WrongValueError(f"expected a duration, found {kind_of(value)}")


def _duration_or_never(value: object) -> timedelta | None:
    """Read a duration that may be ``never``."""
    return None if value is None or (isinstance(value, str) and value.strip() == "never") else _duration(value)


def _size(value: object) -> Size:
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, int) and not isinstance(value, bool):
        raise WrongValueError(f'expected a size, found a bare number: write its unit, such as "{value}B" or "64MiB"')
    raise WrongValueError(f"expected a size, found {kind_of(value)}")


def _size_or_int(value: object) -> int:
    """Read a number of bytes whose unit is in its key, or that has one of its own."""
    if isinstance(value, str) and not value.strip().lstrip("-").isdigit():
        return parse_size(value)
    return _int(value)


def _anything(value: object) -> object:
    """Keep what nobody has a type for; flat text is guessed."""
    if isinstance(value, FlatText):
        return guess(value)
    if isinstance(value, Mapping):
        return {key: _anything(inner) for key, inner in value.items()}
    return value


_HOOKS: Mapping[type, Callable[[Any], Any]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    Secret: _secret,
    Path: _path,
    timedelta: _duration,
}


def _attrs_hook(converter: Converter, cls: type) -> Callable[[Any, Any], Any]:
    """Make a hook for an attrs class, in which whole numbers of bytes may be written with a unit."""
    attrs.resolve_types(cls)
    sizes = {
        field.name: override(struct_hook=lambda value, _: _size_or_int(value))
        for field in attrs.fields(cls)
        if field.type is int and is_size(field.name, field.type)
    }
    made: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **sizes)  # type: ignore[arg-type]
    return _only_from(Mapping, "a table", made)


def _only_from(accepted: type, words: str, hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Let *hook* see values of one kind only."""

    def structure_one(value: Any, cls: Any) -> Any:
        if not isinstance(value, accepted):
            raise WrongValueError(f"expected {words}, found {kind_of(value)}")
        return hook(value, cls)

    return structure_one


def _is_list(cls: Any) -> bool:
    return get_origin(cls) in _LISTS or cls in _LISTS


def _list_hook(converter: Converter, cls: Any) -> Callable[[Any, Any], Any]:
    """Make a hook for a list, tuple or set: a text is no list, unless a flat source has no other way to write one."""
    kind: Any = get_origin(cls) or cls
    make = kind if kind in (list, tuple, set, frozenset) else tuple
    arguments = get_args(cls)
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        return converter.gen_structure_hetero_tuple(cls)
    element = converter.get_structure_hook(arguments[0] if arguments else object)

    def structure_list(value: Any, _: Any) -> Any:
        if isinstance(value, FlatText):
            value = [FlatText(part.strip()) for part in value.split(",")] if value.strip() else []
        if not isinstance(value, list | tuple | set | frozenset):
            hint = ": write it in brackets" if isinstance(value, str) else ""
            raise WrongValueError(f"expected a list, found {kind_of(value)}{hint}")
        return make(_each(cls, element, enumerate(value)).values())

    return structure_list


def _is_mapping(cls: Any) -> bool:
    return get_origin(cls) in (dict, Mapping) or cls in (dict, Mapping)


def _mapping_hook(converter: Converter, cls: Any) -> Callable[[Any, Any], Any]:
    """Make a hook for a table whose keys are the operator's own."""
    element = converter.get_structure_hook((get_args(cls) or (str, object))[1])

    def structure_mapping(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise WrongValueError(f"expected a table, found {kind_of(value)}")
        return _each(cls, element, ((str(key), inner) for key, inner in value.items()))

    return structure_mapping


def _each(cls: Any, hook: Callable[[Any, Any], Any], items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Structure every value of *items*, and raise all errors together, each with its place."""
    made: dict[Any, Any] = {}
    errors: list[Exception] = []
    for place, value in items:
        try:
            made[place] = hook(value, None)
        except Exception as error:  # noqa: BLE001  # a plugin's converter may raise anything; it is reported with the rest
            error.add_note(IterableValidationNote("", place, cls))
            errors.append(error)
    if errors:
        raise IterableValidationError("", errors, cls)
    return made


def _is_union(cls: Any) -> bool:
    return get_origin(cls) in (Union, types.UnionType)


def _union_hook(converter: Converter, cls: Any) -> Callable[[Any, Any], Any]:
    """Make a hook for ``X | None`` or for a choice of types, of which the first that fits is taken."""
    arms = [arm for arm in get_args(cls) if arm is not type(None)]
    optional = len(arms) < len(get_args(cls))
    if optional and arms == [timedelta]:
        return lambda value, _: _duration_or_never(value)
    hooks = [(arm, converter.get_structure_hook(arm)) for arm in arms]

    def structure_union(value: Any, _: Any) -> Any:
        if value is None and optional:
            return None
        for arm, hook in hooks[:-1]:
            try:
                return hook(value, arm)
            except (ValueError, ExceptionGroup):
                continue
        return hooks[-1][1](value, hooks[-1][0])

    return structure_union


def _is_literal(cls: Any) -> bool:
    origin: Any = get_origin(cls)
    return origin is Literal


def _literal_hook(cls: Any) -> Callable[[Any, Any], Any]:
    """Make a hook for one of a few words."""
    choices = get_args(cls)

    def structure_literal(value: Any, _: Any) -> Any:
        found = guess(value) if isinstance(value, FlatText) else value
        for choice in choices:
            if type(choice) is type(found) and choice == found:
                return choice
        raise WrongValueError(_none_of(choices, found))

    return structure_literal


def _is_enum(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, enum.Enum)


def _enum_hook(cls: Any) -> Callable[[Any, Any], Any]:
    """Make a hook for an enumeration, by the values of its members."""

    def structure_enum(value: Any, _: Any) -> Any:
        for member in cls:
            if member.value == (guess(value) if isinstance(value, FlatText) else value):
                return member
        raise WrongValueError(_none_of([member.value for member in cls], value))

    return structure_enum


def _none_of(choices: Iterable[object], value: object) -> str:
    """Say what stands in place of one of a few words."""
    found = "another word" if isinstance(value, str) else kind_of(value)
    return "expected " + " or ".join(f'"{choice}"' for choice in choices) + f", found {found}"
