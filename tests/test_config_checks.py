"""Tests of the checks between the parts of a configuration: a table of what is refused, and in which words."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import evolve, field, frozen

from millpond import plugins
from millpond.config import JobConfig, Secret, load
from millpond.config.checks import CHECKS, commits_fit_into_grace, marker_keys_differ, state_is_not_in_temp
from millpond.config.draft import Draft
from millpond.errors import ConfigError, PluginError
from millpond.memory import MemoryBackend
from millpond.plugins import BACKENDS, CHECKPOINTS, ENGINES
from millpond.spi import ManagerCapabilities, StoreSpec


@frozen
class Nothing:
    """No settings."""


@frozen
class Even:
    """Settings with a validator and a secret."""

    number: int = field(default=2)
    password: Secret = field(default=Secret(""))

    @number.validator
    def _check(self, _attribute: object, number: int) -> None:
        if number % 2:
            raise ValueError(f"number must be even, not {number}")

    @password.validator
    def _check_password(self, _attribute: object, password: Secret) -> None:
        if password.reveal() == "weak-password":
            raise ValueError(f"password {password.reveal()} is weak")


MEMORY = MemoryBackend.capabilities


class Durable(MemoryBackend):
    """A durable backend."""

    config_class = Even
    capabilities = evolve(MEMORY, durable=True, checkpoint_v1=False)


class Marked(Durable):
    """A backend with a marker key, and markers that fit into V1."""

    marker_key = "org.example.Marked"
    capabilities = evolve(MEMORY, durable=True, checkpoint_v1=True)


class Graceful(Durable):
    """A backend that lets removed data stay for ten minutes."""

    capabilities = evolve(MEMORY, durable=True, grace=timedelta(minutes=10))


class Unmakeable(Durable):
    """A backend that cannot be made."""

    def __init__(self, name: str, config: object) -> None:
        raise RuntimeError("no luck")


class Incapable(Durable):
    """A backend without capabilities."""

    capabilities = None  # type: ignore[assignment]


class Forgetful(plugins.checkpoints_class("memory")):  # type: ignore[misc]
    """A manager that keeps one record and fences nobody."""

    capabilities = ManagerCapabilities(versions=frozenset({1, 2}), history=False, fencing=False)


class Picky(plugins.engine_class("memory")):  # type: ignore[misc]
    """An engine that accepts no options, and fails over one of them."""

    spi_version: ClassVar[tuple[int, int]] = (1, 0)

    @classmethod
    def validate(cls, store: StoreSpec) -> Iterator[str]:
        """Refuse every option."""
        if "explode" in store.options:
            raise RuntimeError("boom")
        return (f"there is no option '{name}'" for name in store.options)


PLUGINS: tuple[tuple[str, str, type], ...] = (
    (BACKENDS, "durable", Durable),
    (BACKENDS, "marked", Marked),
    (BACKENDS, "graceful", Graceful),
    (BACKENDS, "unmakeable", Unmakeable),
    (BACKENDS, "incapable", Incapable),
    (CHECKPOINTS, "forgetful", Forgetful),
    (ENGINES, "picky", Picky),
)

GOOD: Mapping[str, Any] = {
    "job": {"name": "flights", "state_dir": "/var/flights"},
    "checkpoint": {"manager": "memory"},
    "backends": {"a": {"type": "durable"}, "b": {"type": "durable"}, "m": {"type": "memory"}},
    "stores": {"delays": {"engine": "memory", "backup": ["a"]}, "other": {"engine": "memory", "backup": ["b", "m"]}},
}


@pytest.fixture(autouse=True)
def known_plugins() -> Iterator[None]:
    """Register this file's plugins."""
    with ExitStack() as stack:
        for group, name, cls in PLUGINS:
            stack.enter_context(plugins.registered(group, name, cls))
        yield


def changed(**sections: object) -> dict[str, Any]:
    """Give a good configuration in which some keys, ``section__name__key``, are set, or removed by None."""
    values: dict[str, Any] = {
        section: {key: _copy(value) for key, value in table.items()} for section, table in GOOD.items()
    }
    for path, value in sections.items():
        *tables, last = path.split("__")
        table = values
        for name in tables:
            table = table.setdefault(name, {})
        if value is None:
            table.pop(last)
        else:
            table[last] = value
    return values


def _copy(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def loaded(**sections: object) -> JobConfig:
    """Load a good configuration with changes."""
    return load(changed(**sections), {})


def problems_of(**sections: object) -> list[str]:
    """Give the problems of a good configuration with changes, without where they are."""
    with pytest.raises(ConfigError) as caught:
        loaded(**sections)
    lines = str(caught.value).splitlines()
    return [line.strip().removeprefix("mapping: ") for line in (lines[1:] or lines)]


def test_the_good_configuration_is_good() -> None:
    """What the tables of this file change is accepted unchanged."""
    assert ("delays", "other") == tuple(loaded().stores)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"job__name": None}, "job.name: missing"),
    ({"job__name": ""}, "job.name: is empty"),
    ({"job__name": "x" * 201}, "job.name: the name "),
    ({"job__name": "x" * 150, "job__id": "y" * 150}, "job.name: the job's name and id"),
    ({"job__tasks": []}, "job.tasks: is empty: leave it out, or name every task"),
    ({"job__tasks": ["a", "b", "a"]}, 'job.tasks[2]: "a" is named twice'),
    ({"job__tasks": ["a", ""]}, "job.tasks[1]: a name is empty"),
    ({"job__buffer_memory": "1KiB"}, "job.buffer_memory: at least 1 MiB is needed"),
    ({"job__transfer_threads": 0}, "job.transfer_threads: at least 1 is needed"),
    ({"job__put_timeout": "0s"}, "job.put_timeout: expected more than nothing"),
    ({"job__digest": "md5"}, 'job.digest: expected "blake3" or "sha256", found another word'),
    ({"job__nmae": "x"}, 'job.nmae: unknown key, did you mean "name"?'),
    ({"checkpoint__manager": None}, 'checkpoint.manager: missing: name one, such as "directory"'),
    (
        {"checkpoint__manager": "memry"},
        'checkpoint.manager: checkpoint manager "memry" is unknown, did you mean "memory"?',
    ),
    ({"checkpoint__retain": 0}, "checkpoint.retain: at least 1 is needed"),
    (
        {"checkpoint__manager": "forgetful", "checkpoint__allow_unfenced": True, "checkpoint__retain": 2},
        "checkpoint.retain: manager forgetful keeps the newest checkpoint only: set retain = 1",
    ),
    (
        {"checkpoint__manager": "forgetful"},
        "checkpoint.manager: manager forgetful cannot refuse a replaced writer: set allow_unfenced = true",
    ),
    ({"checkpoint__write_versions": []}, "checkpoint.write_versions: is empty: expected 1, 2 or both"),
    ({"checkpoint__write_versions": [2, 2]}, 'checkpoint.write_versions[1]: "2" is named twice'),
    ({"checkpoint__read_versions": [3]}, "checkpoint.read_versions[0]: 3 is no checkpoint version: expected 1 or 2"),
    (
        {"checkpoint__read_versions": [1]},
        "checkpoint.read_versions: names no version that is written: no restart would find one",
    ),
    (
        {
            "checkpoint__manager": "forgetful",
            "checkpoint__allow_unfenced": True,
            "checkpoint__write_versions": [1, 2],
            "checkpoint__read_versions": [1],
            "backends__b": {"type": "marked"},
        },
        "checkpoint.read_versions: a restart would read version 1, which holds no marker of a for store delays",
    ),
    ({"backends__a": {"type": "memroy"}}, 'backends.a.type: state backend "memroy" is unknown, did you mean "memory"?'),
    ({"backends__a": {}}, "backends.a.type: missing"),
    ({"backends__a": {"type": "s3x"}}, 'backends.a.type: state backend "s3x" is unknown'),
    ({"backends__a": {"type": "unmakeable"}}, "it cannot be made: RuntimeError: no luck"),
    ({"backends__a": {"type": "incapable"}}, "is broken: it has no capabilities"),
    ({"backends__a": {"type": "durable", "number": 3}}, "backends.a.number: number must be even, not 3"),
    ({"backends__a": {"type": "durable", "nubmer": 4}}, 'backends.a.nubmer: unknown key, did you mean "number"?'),
    ({"backends__" + "é" * 100: {"type": "durable"}}, "bytes long as a file name"),
    (
        {"backends__b": {"type": "marked"}, "backends__a": {"type": "marked"}},
        'backends.b: writes its markers under the same key as [backends.a], "org.example.Marked": keep one',
    ),
    (
        {"backends__a": {"type": "graceful"}},
        "commit.timeout: must be less than half the grace period of backend a, 10m: it is 5m",
    ),
    ({"stores": {}}, "stores: there is no store: add a section [stores.<name>]"),
    ({"stores__delays__engine": None}, "stores.delays.engine: missing, here and in [defaults.stores]"),
    ({"stores__delays__engine": "memori"}, 'stores.delays.engine: store engine "memori" is unknown'),
    ({"stores__delays__bakup": ["a"]}, 'stores.delays.bakup: unknown key, did you mean "backup"?'),
    ({"stores__delays__backends": ["a"]}, 'stores.delays.backends: unknown key, did you mean "backup"?'),
    ({"stores__delays__key": "string"}, "stores.delays.key: there is no serde 'string'"),
    ({"stores__delays__value": "no_such_module:x"}, "stores.delays.value: "),
    ({"stores__delays__ttl": "0s"}, 'stores.delays.ttl: expected more than nothing, "never" for none'),
    (
        {"stores__delays__backup": ["c"]},
        'stores.delays.backup[0]: no section "c" in [backends]: add a section [backends.c]',
    ),
    ({"stores__delays__backup": ["a", "a"]}, 'stores.delays.backup[1]: "a" is named twice'),
    ({"stores__delays__restore": ["c"]}, 'stores.delays.restore[0]: no section "c" in [backends]'),
    (
        {"stores__delays__backup": None},
        "stores.delays.backup: the store has no backend: name one (there are a, b, m), or set ephemeral = true",
    ),
    (
        {"stores__delays__backup": ["m"]},
        "stores.delays.backup: none of m is durable and required: name one that is, or set ephemeral = true",
    ),
    (
        {"backends__a": {"type": "durable", "required": False}},
        "stores.delays.backup: none of a is durable and required",
    ),
    ({"stores__delays__ephemeral": True}, "stores.delays.ephemeral: contradicts backup = ['a']"),
    (
        {"stores__delays__restore": ["b"]},
        "stores.delays.restore: names none of the store's backup (a): what is written would never be found",
    ),
    ({"stores__" + "x" * 201: {"engine": "memory", "backup": ["a"]}}, "bytes long as a file name"),
    (
        {"stores__delays__engine": "picky", "stores__delays__options": {"size": 1}},
        "stores.delays.options.size: there is no option 'size'",
    ),
    (
        {"stores__delays__engine": "picky", "stores__delays__options": {"explode": 1}},
        'stores.delays.options: engine "picky" failed to check them: RuntimeError: boom',
    ),
    ({"engines__memori": {}}, 'engines.memori: store engine "memori" is unknown, did you mean "memory"?'),
    ({"defaults__store": {}}, 'defaults.store: unknown key, did you mean "stores"?'),
    (
        {"defaults__stores__options": {"memory": 3}},
        "defaults.stores.options.memory: expected a table, found a whole number",
    ),
    ({"commit__interval": "0s"}, 'commit.interval: expected more than nothing, "never" for none'),
    ({"commit__tolerated_failures": -1}, "commit.tolerated_failures: at least 0 is needed"),
    ({"restore__on_damage": "ignore"}, 'restore.on_damage: expected "stop" or "older", found another word'),
    ({"restore__attempts": 0}, "restore.attempts: at least 1 is needed"),
    ({"restores": {}}, 'restores: unknown key, did you mean "restore"?'),
    ({"tasks": ["a"]}, "tasks: unknown key here, it belongs to [job]"),
]


@pytest.mark.parametrize(("sections", "text"), REFUSED, ids=[f"{i}-{text[:40]}" for i, (_, text) in enumerate(REFUSED)])
def test_what_is_refused_is_one_problem(sections: dict[str, object], text: str) -> None:
    """Each mistake gives exactly one problem, which names its key, and none that only follows from it."""
    found = problems_of(**sections)

    assert 1 == len(found), found
    assert text in found[0]


ACCEPTED: list[tuple[dict[str, object], str]] = [
    ({"backends__spare": {"type": "durable"}}, "backends.spare: no store uses it"),
    ({"engines__picky": {}}, "engines.picky: no store uses it"),
    ({"stores__delays__restore": ["a", "b"]}, "stores.delays.restore: the store is not backed up to b"),
    ({"restore__on_damage": "older"}, "restore.on_damage: there is no older checkpoint to go to"),
    ({"job__partitioner": "murmur2"}, "job.partitioner: has no effect"),
    ({}, "checkpoint.manager: the records of memory die with the process"),
]


@pytest.mark.parametrize(("sections", "text"), ACCEPTED)
def test_what_may_surprise_is_noted(sections: dict[str, object], text: str) -> None:
    """What is accepted but may surprise is a note."""
    assert any(text in note for note in loaded(**sections).notes)


@pytest.mark.parametrize(
    "sections",
    [
        {"stores__delays": {"engine": "memory", "ephemeral": True}},
        {"stores__delays": {"engine": "memory", "ephemeral": True, "backup": ["m"]}},
        {"checkpoint__manager": "forgetful", "checkpoint__allow_unfenced": True},
        {"backends__a": {"type": "graceful"}, "commit__timeout": "4m59s"},
        {"backends__m": {"type": "durable", "required": False}},
        {"job__state_dir": f"{tempfile.gettempdir()}/on-purpose"},
        {
            "checkpoint__manager": "forgetful",
            "checkpoint__allow_unfenced": True,
            "checkpoint__write_versions": [1, 2],
        },
    ],
)
def test_what_an_operator_says_on_purpose_is_accepted(sections: dict[str, object]) -> None:
    """What is refused by default is accepted when it is said in words, or when it is harmless."""
    assert "flights" == loaded(**sections).name


def test_an_ephemeral_store_takes_the_defaults_that_do_not_last() -> None:
    """Of the job's default backends, an ephemeral store takes those that are not durable."""
    config = loaded(defaults={"stores": {"backup": ["a", "m"]}}, stores__eph={"engine": "memory", "ephemeral": True})

    assert ("m",) == config.stores["eph"].backup


def test_the_default_state_folder_is_never_in_temp() -> None:
    """A default below a folder for temporary files is refused; the same folder is fine when it is named."""
    folder = Path(tempfile.gettempdir()).resolve() / "somewhere" / "state"

    assert [] == list(state_is_not_in_temp(Draft(state_dir=folder, state_dir_given=True)))
    assert ["state_dir"] == [
        each.path[-1] for each in state_is_not_in_temp(Draft(state_dir=folder, state_dir_given=False))
    ]
    assert [] == list(state_is_not_in_temp(Draft(state_dir=Path("/srv/state"), state_dir_given=False)))


def test_a_check_passes_over_what_has_a_problem_already() -> None:
    """A backend or a manager that could not be made is None, and no check trips over it."""
    draft = Draft(backends={"a": None}, checkpoint=None)

    for each in CHECKS:
        list(each(draft))
    assert [] == list(marker_keys_differ(draft)) + list(commits_fit_into_grace(draft))


def test_only_plugins_at_fault_is_a_plugin_error() -> None:
    """If all problems are plugins', the error is a PluginError, and the first one's cause is chained."""
    with pytest.raises(PluginError) as caught:
        loaded(backends__a={"type": "unmakeable"})
    assert isinstance(caught.value.__cause__, PluginError)
    assert isinstance(caught.value.__cause__.__cause__, RuntimeError)

    with pytest.raises(ConfigError) as mixed:
        loaded(backends__a={"type": "unmakeable"}, job__name=None)
    assert not isinstance(mixed.value, PluginError)


def test_a_plugins_text_never_shows_a_secret() -> None:
    """What a plugin's validator says about a secret is reported without the secret."""
    found = problems_of(backends__a={"type": "durable", "password": "weak-password"})

    assert ["backends.a.password: password *** is weak"] == found
