"""From gathered values to a checked job; every problem is in the one error that it raises instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from millpond.config.checks import check
from millpond.config.draft import Draft, StoreDraft
from millpond.config.mistakes import SYNONYMS
from millpond.config.model import JobConfig, KeyPath, StoreConfig
from millpond.config.problems import Problem, error_for, nearest, shows_secret
from millpond.config.read import Reader
from millpond.config.remarks import remarks
from millpond.config.sections import TOP, StoreSection, given, keys_of
from millpond.config.sources import Gathered


def build(found: Gathered) -> JobConfig:
    """
    Check what was gathered and make the model of it.

    Raises:
        ConfigError: Everything that is wrong.
    """
    reader = Reader(found)
    if found.fatal:
        _raise(found, found.problems, set())
    draft = reader.draft()
    problems = [*found.problems, *reader.problems]
    problems += _without_consequences(check(draft), problems, draft)
    if problems:
        _raise(found, problems, reader.secrets)
    return _job(draft, found)


def _raise(found: Gathered, problems: Iterable[Problem], secrets: set[str]) -> None:
    """Raise the one error for *problems*, each once and with its origin, in the order of their lines."""
    placed = {(each.path, each.text): _placed(found, each) for each in problems}
    ordered = sorted(placed.values(), key=_order)
    causes = [each.error for each in ordered if each.error is not None and not shows_secret(each.error, secrets)]
    raise error_for(ordered, secrets) from next(iter(causes), None)


def _placed(found: Gathered, problem: Problem) -> Problem:
    return problem if problem.origin is not None else attrs.evolve(problem, origin=found.tree.origin(problem.path))


def _order(problem: Problem) -> tuple[str, int]:
    origin = problem.origin
    return (origin.source, origin.line or 0) if origin is not None else ("", 0)


def _without_consequences(findings: Iterable[Problem], earlier: list[Problem], draft: Draft) -> Iterator[Problem]:
    """Leave out findings about keys that have a problem already: they only follow from it."""
    spoiled = {path for problem in earlier for path in _spoiled_by(problem.path, draft)}
    for finding in findings:
        if not any(_related(finding.path, path) for path in spoiled):
            yield finding


def _spoiled_by(path: KeyPath, draft: Draft) -> Iterator[KeyPath]:
    """Give the keys whose value cannot be told because of a problem at *path*."""
    if not path:
        return
    yield path
    meant = nearest(str(path[-1]), TOP if len(path) == 1 else keys_of(StoreSection), SYNONYMS)
    if meant is not None:
        yield (*path[:-1], meant)
    if path[:2] == ("defaults", "stores"):
        for name in draft.stores:
            yield ("stores", name, *path[2:3])


def _related(one: KeyPath, other: KeyPath) -> bool:
    """Tell whether one key is the other, or lies in it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _job(draft: Draft, found: Gathered) -> JobConfig:
    """Make the model of a draft without problems."""
    assert draft.checkpoint is not None
    said = {**given(draft.job), "state_dir": draft.state_dir}
    return JobConfig(
        **said,  # type: ignore[arg-type]  # the section's fields have the model's types
        checkpoint=draft.checkpoint,
        backends={name: backend for name, backend in draft.backends.items() if backend is not None},
        stores={store.name: _store(store, draft) for store in draft.stores.values()},
        engines=draft.settings,
        hosts=draft.hosts,
        commit=draft.commit,
        restore=draft.restore,
        notes=(*found.notes, *remarks(draft)),
        origins=found.tree.origins,
    )


def _store(store: StoreDraft, draft: Draft) -> StoreConfig:
    """Make the model of one store."""
    engine_class = draft.engines[store.engine] if store.engine else None
    assert store.engine is not None
    assert engine_class is not None
    return StoreConfig(
        name=store.name,
        engine=store.engine,
        engine_class=engine_class,
        key=store.key,
        value=store.value,
        backup=store.backup,
        restore=store.restore,
        ephemeral=store.ephemeral,
        ttl=store.ttl,
        options=store.options,
        settings=draft.settings[store.engine],
    )
