"""
Dotted keys as a source: our own (``backends.archive.type``, with or without ``millpond.`` in front) and Samza's.

A key is Samza's if Samza has it; else it is ours if it begins with one of our sections. What remains is either one of
Samza's many other keys, which mean nothing here and are noted, or a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from attrs import define, field, frozen

from millpond.config import samza_keys
from millpond.config.mapping import DEEPEST
from millpond.config.mistakes import unknown_key_text
from millpond.config.model import KeyPath, Origin
from millpond.config.problems import Problem, did_you_mean, nearest
from millpond.config.sections import TABLES_BY_NAME, TOP, JobSection, StoreSection, keys_of
from millpond.config.tree import Tree
from millpond.config.values import FlatText

OWN_PREFIX = "millpond."

_OWN_ONLY = tuple(section for section in TOP if section not in ("job", "stores"))
_STRICT = re.compile(r"(task\.checkpoint|task\.commit|blob\.store)\.", re.DOTALL)
_NAMED: Mapping[str, tuple[str, ...]] = {
    "backends": ("type",),
    "stores": ("engine", "factory", "side.inputs.processor.factory"),
    "engines": (),
    "hosts": (),
}


@frozen
class Entry:
    """One dotted key, its value, and where it stands."""

    key: str
    value: object
    origin: Origin

    @property
    def text(self) -> str:
        """The value as text, without blanks around it; empty for one that is no text, number or boolean."""
        return str(self.value).strip() if isinstance(self.value, str | int | float) else ""


_SHOWN = 200
"""Letters of a key that a message has."""


@define
class Sorted:
    """
    Dotted keys, sorted by whose they are.

    Attributes:
        own: Our keys, as a tree.
        samza: Samza's keys that are translated, by key.
        stores: For each store, Samza's keys for it that are translated, without ``stores.<name>.``.
        problems: Keys that nobody has.
        notes: Keys that mean nothing here.
    """

    own: Tree
    samza: dict[str, Entry] = field(factory=dict)
    stores: dict[str, dict[str, Entry]] = field(factory=dict)
    problems: list[Problem] = field(factory=list)
    notes: list[str] = field(factory=list)


def sort_keys(entries: Iterable[Entry], base: Origin) -> Sorted:
    """Tell whose each key is; a key that comes twice is a problem."""
    found = Sorted(Tree(base))
    unique = _without_doubles(entries, found.problems)
    names = {section: _names_in(section, unique) for section in TABLES_BY_NAME}
    found.stores = {name: {} for name in names["stores"] if f"stores.{name}.factory" in unique}
    others = [entry for entry in unique.values() if not _sort_one(found, names, entry)]
    if others:
        shown = ", ".join(entry.key for entry in others[:5]) + (", …" if len(others) > 5 else "")
        found.notes.append(f"{base.source}: {len(others)} of Samza's or the job's own keys mean nothing here: {shown}")
    return found


def _without_doubles(entries: Iterable[Entry], problems: list[Problem]) -> dict[str, Entry]:
    """Give the entries by key."""
    unique: dict[str, Entry] = {}
    doubles = [(entry, first) for entry in entries if (first := unique.setdefault(entry.key, entry)) is not entry]
    problems += [
        Problem((), f"{entry.key}: is set twice, at {first.origin} too", entry.origin) for entry, first in doubles
    ]
    return unique


def _names_in(section: str, entries: Mapping[str, Entry]) -> Collection[str]:
    """Find the names in a section: a name may have dots, so it is what stands before a key that every table has."""
    names: dict[str, None] = {}  # in the order of the file
    for key in entries:
        own = key.removeprefix(OWN_PREFIX)
        for ending in _NAMED[section]:
            if own.startswith(f"{section}.") and own.endswith(f".{ending}") and len(own) > len(f"{section}..{ending}"):
                names[own[len(section) + 1 : -len(ending) - 1]] = None
    return names


def _sort_one(found: Sorted, names: Mapping[str, Collection[str]], entry: Entry) -> bool:
    """Put one key where it belongs; False if it is none of our business."""
    key, section = entry.key, entry.key.partition(".")[0]
    if key.startswith(OWN_PREFIX):
        _take_own(found, names, entry, key.removeprefix(OWN_PREFIX))
    elif key in samza_keys.SIMPLE or key in samza_keys.OTHERS_READ:
        found.samza[key] = entry
    elif key in samza_keys.TASK_IDLE:
        _note_idle(found, entry, samza_keys.TASK_IDLE[key])
    elif section == "stores":
        _take_store_key(found, names, entry)
    elif section in _OWN_ONLY or (section == "job" and key.removeprefix("job.") in keys_of(JobSection)):
        _take_own(found, names, entry, key)
    elif key.startswith(("systems.", "serializers.registry.")):
        found.samza[key] = entry
    elif _STRICT.match(key):
        _refuse(found, entry, did_you_mean(key, _samza_known()))
    elif samza_keys.ELSEWHERE.fullmatch(key) or (near := nearest(section, TOP)) is None:
        return False
    else:
        _refuse(found, entry, f', did you mean "{near}.{key.partition(".")[2]}"?')
    return True


def _samza_known() -> list[str]:
    return [*samza_keys.SIMPLE, *samza_keys.OTHERS_READ, *samza_keys.TASK_IDLE]


def _refuse(found: Sorted, entry: Entry, hint: str) -> None:
    found.problems.append(Problem((), f"{entry.key}: unknown key{hint}", entry.origin))


def _note_idle(found: Sorted, entry: Entry, reason: str) -> None:
    found.notes.append(f"{entry.origin}: {entry.key} means nothing here" + (f": {reason}" if reason else ""))


def _take_own(found: Sorted, names: Mapping[str, Collection[str]], entry: Entry, key: str) -> None:
    """Put one of our own keys into the tree."""
    path = _own_path(names, key)
    if not all(path):
        found.problems.append(Problem((), f"{entry.key[:_SHOWN]}: part of the key is empty", entry.origin))
        return
    if len(path) > DEEPEST:
        found.problems.append(Problem((), f"{entry.key[:_SHOWN]}: is nested too deeply", entry.origin))
        return
    value = FlatText(entry.value) if isinstance(entry.value, str) and type(entry.value) is str else entry.value
    if isinstance(value, Mapping):
        found.problems.append(Problem(path, "expected a value for a dotted key, found a table", entry.origin))
    elif value is not None:
        found.own.put(path, value, entry.origin)


def _own_path(names: Mapping[str, Collection[str]], key: str) -> KeyPath:
    """Split one of our keys, in which the name of a section may have dots."""
    section, _, rest = key.partition(".")
    if section not in names or not rest:
        return tuple(key.split("."))
    name, inner = _name_and_key(names[section], rest)
    return (section, name, *inner.split("."))


def _take_store_key(found: Sorted, names: Mapping[str, Collection[str]], entry: Entry) -> None:
    """Put ``stores.<name>.<key>`` where it belongs."""
    name, key = _name_and_key(names["stores"], entry.key.removeprefix("stores."))
    known = (*samza_keys.OWN_STORE_KEYS, *samza_keys.ROCKSDB_OPTIONS)
    if key in known and name in found.stores:
        found.stores[name][key] = entry
    elif key.partition(".")[0] in keys_of(StoreSection) and key not in known:
        _take_own(found, names, entry, entry.key)
    elif key in samza_keys.STORE_IDLE or key.startswith("changelog.kafka."):
        _note_idle(found, entry, samza_keys.STORE_IDLE.get(key, "topics are made with the backend's settings"))
    elif key in known:
        _refuse_lonely(found, entry, name)
    else:
        hint = unknown_key_text(key, [*known, *keys_of(StoreSection)], {}).partition(";")[0]
        found.problems.append(Problem(("stores", name, key), hint, entry.origin))


def _refuse_lonely(found: Sorted, entry: Entry, name: str) -> None:
    """Refuse a key of a store that has no factory, which Samza would pass over in silence."""
    text = f"there is no store {name}: stores.{name}.factory is missing"
    found.problems.append(Problem(("stores", name), text, entry.origin))


def _name_and_key(names: Collection[str], text: str) -> tuple[str, str]:
    """Split ``<name>.<key>``: the longest name that is known, else up to the first dot."""
    place = text.rfind(".")
    while place > 0:
        if text[:place] in names:
            return text[:place], text[place + 1 :]
        place = text.rfind(".", 0, place)
    name, _, inner = text.partition(".")
    return name, inner
