"""Values from several sources in one tree of tables, each leaf with its origin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field

from millpond.config.model import KeyPath, Origin
from millpond.config.problems import is_secret_key


@define
class Tree:
    """
    Tables of values, and where each came from.

    Attributes:
        base: The origin of what is missing, e.g. the file as a whole.
        values: The tables.
        origins: From the path of a table, a leaf, or a list's element to its origin.
    """

    base: Origin
    values: dict[str, object] = field(factory=dict)
    origins: dict[KeyPath, Origin] = field(factory=dict)

    def put(self, path: KeyPath, value: object, origin: Origin) -> None:
        """Set a leaf; tables on the way are made, and a value that stands in the way is replaced."""
        table = self.values
        for depth, part in enumerate(path[:-1]):
            inner = table.get(str(part))
            if not isinstance(inner, dict):
                if inner is not None:
                    self._forget(path[: depth + 1])
                inner = table[str(part)] = {}
                self.origins.setdefault(path[: depth + 1], origin)
            table = inner
        if str(path[-1]) in table:
            self._forget(path)
        table[str(path[-1])] = value
        self.origins[path] = origin

    def table(self, *path: str) -> Mapping[str, object]:
        """Give the table at *path*; an empty one where there is none."""
        found: object = self.values
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def has(self, *path: str) -> bool:
        """Tell whether something is set at *path*."""
        return path[-1] in self.table(*path[:-1])

    def origin(self, path: KeyPath) -> Origin:
        """Give where *path* was set, or else the nearest table around it."""
        for depth in range(len(path), 0, -1):
            if (found := self.origins.get(path[:depth])) is not None:
                return found
        return self.base

    def overlay(self, higher: Tree) -> None:
        """Let every leaf of *higher* win; a list is one leaf."""
        for path, origin in higher.origins.items():
            self.origins.setdefault(path, origin)
        for path, value in leaves(higher.values):
            self.put(path, value, higher.origin(path))
        self.origins |= {path: origin for path, origin in higher.origins.items() if _in_a_list(path)}

    def secrets(self) -> set[str]:
        """Give the text of every value whose key says that it is a secret."""
        return {text for path, value in leaves(self.values) if any(map(is_secret_key, path)) for text in texts(value)}

    def _forget(self, path: KeyPath) -> None:
        """Drop the origins of *path* and of what lies in it."""
        for inner in [inner for inner in self.origins if _lies_in(inner, path)]:
            del self.origins[inner]


def leaves(values: Mapping[str, object], path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Give the path and the value of all that is not a table, and of every empty table."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def texts(value: object) -> Iterator[str]:
    """Give every text and number in *value*, as text."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield str.__str__(value)  # of a Secret too
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _in_a_list(path: KeyPath) -> bool:
    return any(isinstance(part, int) for part in path)


def _lies_in(path: KeyPath, outer: KeyPath) -> bool:
    return path[: len(outer)] == outer
