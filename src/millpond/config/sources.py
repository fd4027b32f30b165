"""All sources of a configuration, gathered into one tree: the higher source wins, leaf by leaf."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

from millpond.config.environment import environment_tree
from millpond.config.flat import Entry, sort_keys
from millpond.config.mapping import mapping_tree
from millpond.config.model import Origin
from millpond.config.problems import Problem
from millpond.config.properties import parse_properties
from millpond.config.samza import translate
from millpond.config.toml_file import parse_toml, read_text
from millpond.config.tree import Tree
from millpond.errors import ConfigError


@define
class Gathered:
    """
    What the sources say.

    Attributes:
        tree: All values, each with its origin.
        problems: What is wrong already.
        notes: What was accepted but may surprise.
        folder: Where the file is; None without one.
        fatal: A source could not be read at all: what is missing says nothing.
    """

    tree: Tree
    problems: list[Problem] = field(factory=list)
    notes: list[str] = field(factory=list)
    folder: Path | None = None
    fatal: bool = False


def gather(source: Mapping[str, object] | str | os.PathLike[str], environ: Mapping[str, str]) -> Gathered:
    """Read *source* and *environ*; never raises for what stands in them."""
    if isinstance(source, Mapping):
        found, trees = _from_mapping(source, environ)
    else:
        found, trees = _from_file(_file_name(source), environ)
    env, problems, notes = environment_tree(environ, trees.values())
    found.problems += problems
    found.notes += notes
    for tree in (trees.get("file"), env, trees.get("flat"), trees.get("mapping")):
        if tree is not None:
            found.tree.overlay(tree)
    return found


def _file_name(source: str | os.PathLike[str]) -> str:
    """
    Give the name of a file.

    Raises:
        ConfigError: *source* is no file name.
    """
    try:
        return os.fsdecode(source)
    except TypeError:
        kind = type(source).__name__
        raise ConfigError(f"expected a configuration, a mapping or the name of a file, found a {kind}") from None


def _from_file(name: str, environ: Mapping[str, str]) -> tuple[Gathered, dict[str, Tree]]:
    """Read a TOML file, or one of properties."""
    found = Gathered(Tree(Origin(name)), folder=Path(name).absolute().parent)
    text = read_text(name)
    if isinstance(text, Problem):
        found.problems.append(text)
        found.fatal = True
        return found, {}
    if name.endswith(".properties"):
        entries = [Entry(each.key, each.value, Origin(name, each.line)) for each in parse_properties(text)]
        return found, {"flat": _flat_tree(found, entries, environ)}
    tree, problems = parse_toml(name, text)
    found.problems += problems
    found.fatal = bool(problems)
    return found, {"file": tree}


def _from_mapping(source: Mapping[str, object], environ: Mapping[str, str]) -> tuple[Gathered, dict[str, Tree]]:
    """Take a mapping: its dotted keys are flat ones, the others are sections."""
    found = Gathered(Tree(Origin("mapping")))
    flat = {key: value for key, value in source.items() if "." in str(key)}
    tree, problems = mapping_tree({key: value for key, value in source.items() if key not in flat})
    found.problems += problems
    trees = {"mapping": tree}
    if flat:
        entries = [Entry(key, value, Origin("mapping")) for key, value in flat.items() if value is not None]
        trees["flat"] = _flat_tree(found, entries, environ)
    return found, trees


def _flat_tree(found: Gathered, entries: list[Entry], environ: Mapping[str, str]) -> Tree:
    """Translate dotted keys."""
    whose = sort_keys(entries, found.tree.base)
    tree = translate(whose, environ)
    found.problems += whose.problems
    found.notes += whose.notes
    return tree
