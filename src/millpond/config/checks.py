"""What must hold between the parts of a configuration: each check is a function from a draft to problems."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from millpond.config.draft import Draft, StoreDraft
from millpond.config.model import BackendConfig, KeyPath
from millpond.config.problems import Problem, did_you_mean
from millpond.config.values import show_duration
from millpond.errors import ConfigError, PluginError
from millpond.spi import StoreSpec, VersionPolicy

Check = Callable[[Draft], Iterable[Problem]]


def check(draft: Draft) -> list[Problem]:
    """Give everything that is wrong with *draft*."""
    return [problem for each in CHECKS for problem in each(draft)]


def name_is_stated(draft: Draft) -> Iterator[Problem]:
    """A job has a name."""
    if not draft.job.name:
        yield Problem(("job", "name"), "missing" if draft.job.name is None else "is empty")


def stores_exist(draft: Draft) -> Iterator[Problem]:
    """A job has a store, and a store has an engine."""
    if not draft.stores:
        yield Problem(("stores",), "there is no store: add a section [stores.<name>]")
    for store in draft.stores.values():
        if not store.engine:
            yield Problem(("stores", store.name, "engine"), "missing, here and in [defaults.stores]")


def names_fit_into_files(draft: Draft) -> Iterator[Problem]:
    """Each name makes a file name."""
    from millpond.local import escape_name, job_folder

    named: list[tuple[KeyPath, str]] = [(("stores", name), name) for name in draft.stores]
    named += [(("backends", name), name) for name in draft.backends]
    named += [(("job", "tasks", i), name) for i, name in enumerate(draft.job.tasks or ())]
    for path, name in named:
        yield from _refusal(path, lambda name=name: escape_name(name))  # type: ignore[misc]
    if draft.job.name:
        name, job_id = draft.job.name, draft.job.id
        yield from _refusal(("job", "name"), lambda: job_folder(name, "1" if job_id is None else job_id))


def _refusal(path: KeyPath, attempt: Callable[[], object]) -> Iterator[Problem]:
    """Make a problem of what *attempt* raises."""
    try:
        attempt()
    except PluginError as error:
        yield Problem(path, str(error), error=error)
    except ConfigError as error:
        yield Problem(path, str(error))


def tasks_differ(draft: Draft) -> Iterator[Problem]:
    """A stated list of tasks is not empty, and no task is in it twice."""
    if draft.job.tasks is not None and not draft.job.tasks:
        yield Problem(("job", "tasks"), "is empty: leave it out, or name every task")
    yield from _doubles(("job", "tasks"), draft.job.tasks or ())


def _doubles(path: KeyPath, names: Sequence[object]) -> Iterator[Problem]:
    """Report what a list names twice."""
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem((*path, index), f'"{name}" is named twice')


def numbers_are_sensible(draft: Draft) -> Iterator[Problem]:
    """Counts and sizes are at least what anything can work with."""
    job, commit, restore = draft.job, draft.commit, draft.restore
    least: list[tuple[KeyPath, int | None, int]] = [
        (("job", "buffer_memory"), job.buffer_memory, 1 << 20),
        (("job", "transfer_memory"), job.transfer_memory, 1 << 20),
        (("job", "transfer_threads"), job.transfer_threads, 1),
        (("commit", "tolerated_failures"), commit.tolerated_failures, 0),
        (("commit", "tolerated_timeouts"), commit.tolerated_timeouts, 0),
        (("restore", "parallel"), restore.parallel, 1),
        (("restore", "attempts"), restore.attempts, 1),
    ]
    if draft.checkpoint is not None:
        least.append((("checkpoint", "retain"), draft.checkpoint.retain, 1))
    for path, number, lowest in least:
        if number is not None and number < lowest:
            yield Problem(path, "at least 1 MiB is needed" if lowest == 1 << 20 else f"at least {lowest} is needed")


def durations_are_sensible(draft: Draft) -> Iterator[Problem]:
    """Durations are longer than nothing."""
    durations: list[tuple[KeyPath, timedelta | None]] = [
        (("job", "put_timeout"), draft.job.put_timeout),
        (("commit", "interval"), draft.commit.interval),
        (("commit", "timeout"), draft.commit.timeout),
        (("commit", "startup_cleanup_timeout"), draft.commit.startup_cleanup_timeout),
        (("restore", "max_wait"), draft.restore.max_wait),
        *((("stores", store.name, "ttl"), store.ttl) for store in draft.stores.values()),
    ]
    for path, duration in durations:
        if duration is not None and duration <= timedelta(0):
            never = ', "never" for none' if path[-1] in ("interval", "ttl") else ""
            yield Problem(path, f"expected more than nothing{never}")


def serdes_exist(draft: Draft) -> Iterator[Problem]:
    """Each serde is one that we have, or one that can be imported."""
    from millpond.stores.serdes import serde_named

    for store in draft.stores.values():
        yield from _refusal(("stores", store.name, "key"), lambda store=store: serde_named(store.key, key=True))  # type: ignore[misc]
        yield from _refusal(("stores", store.name, "value"), lambda store=store: serde_named(store.value))  # type: ignore[misc]


def lists_name_sections(draft: Draft) -> Iterator[Problem]:
    """What a store is backed up to and restored from are sections, each named once."""
    for path, names in _lists(draft).items():
        for index, name in enumerate(names):
            if name not in draft.backends:
                hint = did_you_mean(name, draft.backends) or f": add a section [backends.{name}]"
                yield Problem((*path, index), f'no section "{name}" in [backends]{hint}')
        yield from _doubles(path, names)


def _lists(draft: Draft) -> dict[KeyPath, tuple[str, ...]]:
    """Give every backup and restore list by the key that says it; a default list once."""
    lists: dict[KeyPath, tuple[str, ...]] = {}
    for store in draft.stores.values():
        lists[store.backup_path] = store.backup
        if store.restore_given:
            lists[store.restore_path] = store.restore
    return {path: names for path, names in lists.items() if path}


def stores_survive(draft: Draft) -> Iterator[Problem]:
    """A store has a durable, required backend, or says that it is ephemeral, and not both."""
    for store in draft.stores.values():
        backends = _backends(draft, store.backup)
        if backends is None:
            continue
        durable = [each.name for each in backends if each.required and each.factory.capabilities.durable]
        if not durable and not store.ephemeral:
            yield Problem(("stores", store.name, "backup"), _not_durable_text(draft, store))
        elif durable and store.ephemeral:
            text = f"contradicts backup = {list(durable)}: an ephemeral store may begin empty, drop one of the two"
            yield Problem(("stores", store.name, "ephemeral"), text)


def _backends(draft: Draft, names: Iterable[str]) -> list[BackendConfig] | None:
    """Give the backends *names*; None if one of them has a problem already."""
    found = [draft.backends.get(name) for name in names]
    return None if None in found else [each for each in found if each is not None]


def _not_durable_text(draft: Draft, store: StoreDraft) -> str:
    """Say what the store has instead of a durable backend."""
    if not store.backup:
        several = f" (there are {', '.join(draft.backends)})" if draft.backends else ""
        return f"the store has no backend: name one{several}, or set ephemeral = true"
    return f"none of {', '.join(store.backup)} is durable and required: name one that is, or set ephemeral = true"


def stores_come_back(draft: Draft) -> Iterator[Problem]:
    """A store that is backed up is restored from at least one of its backends."""
    for store in draft.stores.values():
        known = set(store.restore) <= draft.backends.keys()
        if store.restore_given and store.backup and known and not set(store.backup) & set(store.restore):
            text = f"names none of the store's backup ({', '.join(store.backup)}): what is written would never be found"
            yield Problem(store.restore_path, text)


def marker_keys_differ(draft: Draft) -> Iterator[Problem]:
    """No two sections write their markers under the same key."""
    owners: dict[str, str] = {}
    for backend in draft.backends.values():
        if backend is not None and (owner := owners.setdefault(backend.marker_key, backend.name)) != backend.name:
            text = f'writes its markers under the same key as [backends.{owner}], "{backend.marker_key}": keep one'
            yield Problem(("backends", backend.name), text)


def manager_keeps_enough(draft: Draft) -> Iterator[Problem]:
    """More than one checkpoint needs a manager with history."""
    found = draft.checkpoint
    if found is not None and found.retain > 1 and not found.factory.capabilities.history:
        text = f"manager {found.manager} keeps the newest checkpoint only: set retain = 1"
        yield Problem(("checkpoint", "retain"), text)


def manager_fences(draft: Draft) -> Iterator[Problem]:
    """A manager that cannot refuse a replaced writer is accepted in words."""
    found = draft.checkpoint
    if found is None or found.allow_unfenced:
        return
    if not found.factory.capabilities_of(found.settings).fencing:
        text = f"manager {found.manager} cannot refuse a replaced writer: set allow_unfenced = true to accept that"
        yield Problem(("checkpoint", "manager"), text)


def versions_are_known(draft: Draft) -> Iterator[Problem]:
    """Versions are 1 or 2, each once; the manager writes them; and what is written is read."""
    if draft.checkpoint is None:
        return
    versions, found = draft.checkpoint.versions, list(_wrong_versions(draft.checkpoint.versions))
    yield from found
    if found:
        return
    able = draft.checkpoint.factory.capabilities.versions
    for index, version in enumerate(versions.write):
        if version not in able:
            can = ", ".join(map(str, sorted(able)))
            text = f"manager {draft.checkpoint.manager} does not write version {version}, only {can}"
            yield Problem(("checkpoint", "write_versions", index), text)
    if not set(versions.read) & set(versions.write):
        yield Problem(("checkpoint", "read_versions"), "names no version that is written: no restart would find one")


def _wrong_versions(versions: VersionPolicy) -> Iterator[Problem]:
    """Report lists that are empty, or name what is no version, or name one twice."""
    for key, listed in (("write_versions", versions.write), ("read_versions", versions.read)):
        path = ("checkpoint", key)
        if not listed:
            yield Problem(path, "is empty: expected 1, 2 or both")
        for index, version in enumerate(listed):
            if version not in (1, 2):
                yield Problem((*path, index), f"{version} is no checkpoint version: expected 1 or 2")
        yield from _doubles(path, listed)


def versions_keep_the_state(draft: Draft) -> Iterator[Problem]:
    """If a restart reads a V1, that holds a marker of every store that must survive."""
    if draft.checkpoint is None or _version_read(draft.checkpoint.versions) != 1:
        return
    for store in draft.stores.values():
        backends = _backends(draft, store.backup)
        if backends and not any(each.factory.capabilities.checkpoint_v1 for each in backends):
            text = (
                f"a restart would read version 1, which holds no marker of {', '.join(store.backup)} for store "
                f"{store.name}: put 2 first, and into write_versions"
            )
            yield Problem(("checkpoint", "read_versions"), text)


def _version_read(versions: VersionPolicy) -> int | None:
    """Give the version that a restart prefers among those that are written."""
    return next((version for version in versions.read if version in versions.write), None)


def commits_fit_into_grace(draft: Draft) -> Iterator[Problem]:
    """A commit is over before half of what a backend allows for removed data has passed."""
    for backend in draft.backends.values():
        grace = None if backend is None else backend.factory.capabilities.grace
        if backend is not None and grace is not None and draft.commit.timeout >= grace / 2:
            text = (
                f"must be less than half the grace period of backend {backend.name}, {show_duration(grace)}: "
                f"it is {show_duration(draft.commit.timeout)}"
            )
            yield Problem(("commit", "timeout"), text)


def state_is_not_in_temp(draft: Draft) -> Iterator[Problem]:
    """The default folder for local state is not one that the system empties."""
    if draft.state_dir_given:
        return
    for folder in {tempfile.gettempdir(), "/tmp", "/var/tmp"}:  # noqa: S108  # to stay away from them
        if draft.state_dir.is_relative_to(Path(folder).resolve()):
            text = f"the default, {draft.state_dir}, lies in a folder for temporary files: say where state may stay"
            yield Problem(("job", "state_dir"), text)
            return


def engines_accept_options(draft: Draft) -> Iterator[Problem]:
    """Each engine accepts its stores' options."""
    for store in draft.stores.values():
        engine = draft.engines.get(store.engine) if store.engine else None
        if engine is None or store.engine is None or draft.settings.get(store.engine) is None:
            continue
        spec = StoreSpec(store.name, store.engine, store.options, draft.settings[store.engine])
        path = ("stores", store.name, "options")
        try:
            yield from [Problem(_option_path(path, store, str(text)), str(text)) for text in engine.validate(spec)]
        except Exception as cause:  # noqa: BLE001  # a plugin may raise anything; it is reported with the rest
            error = PluginError(f'engine "{store.engine}" failed to check them: {type(cause).__name__}: {cause}')
            error.__cause__ = cause
            yield Problem(path, str(error), error=error)


def _option_path(path: KeyPath, store: StoreDraft, text: str) -> KeyPath:
    """Give the key of the option that an engine's text quotes first."""
    quoted = [(text.find(f"'{name}'"), name) for name in store.options if f"'{name}'" in text]
    return (*path, min(quoted)[1]) if quoted else path


CHECKS: tuple[Check, ...] = (
    name_is_stated,
    tasks_differ,
    numbers_are_sensible,
    durations_are_sensible,
    state_is_not_in_temp,
    manager_keeps_enough,
    manager_fences,
    versions_are_known,
    versions_keep_the_state,
    marker_keys_differ,
    commits_fit_into_grace,
    stores_exist,
    names_fit_into_files,
    serdes_exist,
    lists_name_sections,
    stores_survive,
    stores_come_back,
    engines_accept_options,
)
