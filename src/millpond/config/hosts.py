"""A host's own section, ``[hosts.<name>]``: read when that host is used, with every mistake and its place."""

from __future__ import annotations

from typing import TypeVar

import attrs

from millpond.config.mistakes import Vocabulary, mistakes_in
from millpond.config.model import JobConfig, KeyPath, Origin
from millpond.config.plugin_settings import secrets_of
from millpond.config.problems import Problem, error_for, is_secret_key
from millpond.config.sections import ELSEWHERE
from millpond.config.structure import structure
from millpond.config.tree import leaves, texts

T = TypeVar("T")


def read_host(config: JobConfig, name: str, cls: type[T]) -> T:
    """
    Make a *cls* of the section of the host *name*; a missing section is an empty one.

    Raises:
        ConfigError: Everything that is wrong.
    """
    path, table = ("hosts", name), config.hosts.get(name, {})
    try:
        return structure(table, cls)
    except Exception as error:  # noqa: BLE001  # cattrs gathers whatever was raised
        problems = [_placed(config, each) for each in mistakes_in(error, path, Vocabulary(elsewhere=ELSEWHERE))]
    named = {text for key, value in leaves(table) if any(map(is_secret_key, key)) for text in texts(value)}
    raise error_for(problems, named | secrets_of(table, cls))


def _placed(config: JobConfig, problem: Problem) -> Problem:
    return attrs.evolve(problem, origin=_origin(config, problem.path))


def _origin(config: JobConfig, path: KeyPath) -> Origin | None:
    """Give where *path* was set, or else the nearest table around it."""
    nearest = (config.origins.get(path[:depth]) for depth in range(len(path), 0, -1))
    return next((origin for origin in nearest if origin is not None), None)
