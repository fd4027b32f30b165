"""Tests of how a configuration is refused: all problems in one text, no secret in it, and never anything but it."""

from __future__ import annotations

import contextlib
import re
import traceback
from pathlib import Path

import pytest
from attrs import field, frozen
from hypothesis import example, given
from hypothesis import strategies as st

from millpond import plugins
from millpond.config import Secret, load
from millpond.config.explain import explain
from millpond.config.problems import hide
from millpond.errors import ConfigError
from millpond.memory import MemoryBackend
from millpond.plugins import BACKENDS

TWENTY = """\
[job]
name = 3
taks = ["a"]
buffer_memory = 1000
put_timeout = "soon"
transfer_threads = 0
digest = "md5"

[checkpoint]
manager = "directoy"
retain = 2.5
write_versions = "2"

[backends.archive]
type = "nothing-like-it"

[backends.disk]
type = "rocksdb-local"
pth = "x"
required = "no"

[stores.orders]
engine = "rocksbd"
bakends = ["archive"]
ttl = "0s"

[stores.delays]
engine = "memory"
key = "string"
backup = "disk"
retain = 3

[stores.flights]
engine = "memory"
backup = ["disc", "disk", "disk"]

[commit]
interval = 10
timeot = "5m"

[restor]
on_damage = "older"
"""

TWENTY_PROBLEMS = """\
23 problems:
  job.toml:2: job.name: expected text, found a whole number: write it in quotes
  job.toml:3: job.taks: unknown key, did you mean "tasks"?
  job.toml:4: job.buffer_memory: expected a size, found a bare number: write its unit, such as "1000B" or "64MiB"
  job.toml:5: job.put_timeout: expected a duration with a unit (us, ms, s, m, h, d), such as "10s" or "5m"
  job.toml:6: job.transfer_threads: at least 1 is needed
  job.toml:7: job.digest: expected "blake3" or "sha256", found another word
  job.toml:10: checkpoint.manager: checkpoint manager "directoy" is unknown, did you mean "directory"?; known: …
  job.toml:11: checkpoint.retain: expected a whole number, found a number
  job.toml:12: checkpoint.write_versions: expected a list, found text: write it in brackets
  job.toml:15: backends.archive.type: state backend "nothing-like-it" is unknown; known: …
  job.toml:19: backends.disk.pth: unknown key, did you mean "path"?
  job.toml:20: backends.disk.required: expected true or false, found text
  job.toml:23: stores.orders.engine: store engine "rocksbd" is unknown, did you mean "rocksdb"?; known: …
  job.toml:24: stores.orders.bakends: unknown key, did you mean "backup"?
  job.toml:25: stores.orders.ttl: expected more than nothing, "never" for none
  job.toml:29: stores.delays.key: …
  job.toml:30: stores.delays.backup: expected a list, found text: write it in brackets
  job.toml:31: stores.delays.retain: unknown key here, it belongs to [checkpoint]
  job.toml:35: stores.flights.backup[0]: no section "disc" in [backends], did you mean "disk"?
  job.toml:35: stores.flights.backup[2]: "disk" is named twice
  job.toml:38: commit.interval: expected a duration, found a bare number: write its unit, such as "10s" or "10ms"
  job.toml:39: commit.timeot: unknown key, did you mean "timeout"?
  job.toml:41: restor: unknown key, did you mean "restore"?"""


@frozen
class Vault:
    """Settings with a secret whose name does not say so, and one in a table."""

    door: Secret
    url: str = ""
    headers: dict[str, str] = field(factory=dict)


class VaultBackend(MemoryBackend):
    """A backend that takes a secret, and speaks about it when it is refused."""

    config_class = Vault

    def __init__(self, name: str, config: object) -> None:
        super().__init__(name, config)
        assert isinstance(config, Vault)
        if "refuse" in config.url:
            raise ValueError(f"cannot open {config.door.reveal()} at {config.url}")


def with_vault(**settings: object) -> dict[str, object]:
    """Give a configuration with a vault."""
    return {
        "job": {"name": "x", "state_dir": "/x"},
        "checkpoint": {"manager": "memory"},
        "backends": {"v": {"type": "vault", **settings}},
        "stores": {"s": {"engine": "memory", "ephemeral": True}},
    }


def test_all_problems_come_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error has every problem of a file, each with its line, its key and its mend, in the order of the lines."""
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(TWENTY)

    with pytest.raises(ConfigError) as caught:
        load("job.toml", {"MILLPOND_JOB__STATE_DIR": "/var/flights"})

    # which plugins are known and how serdes are called is others' to say
    found = re.sub(r"(known: |stores\.delays\.key: ).*", r"\1…", str(caught.value))
    assert TWENTY_PROBLEMS == found


SECRETS = ("hunter2-of-the-secret", "open sesame")


@pytest.mark.parametrize(
    "settings",
    [
        {"door": SECRETS[0], "url": "refuse"},
        {"door": [SECRETS[0]]},
        {"door": SECRETS[0], "urll": "x"},
        {"door": "x", "password": SECRETS[0]},
        {"door": "x", "pasword": SECRETS[0]},
        {"door": "x", "url": f"refuse://user:{SECRETS[0]}@host/"},
        {"door": SECRETS[0], "headers": {"token": 3}},
        {"door": SECRETS[0], "headers": SECRETS[1]},
        {"door": {"a": SECRETS[1]}},
    ],
)
def test_no_error_shows_a_secret(settings: dict[str, object]) -> None:
    """Wherever a secret stands and whatever is wrong around it, neither the text nor what is chained to it shows it."""
    with plugins.registered(BACKENDS, "vault", VaultBackend), pytest.raises(ConfigError) as caught:
        load(with_vault(**settings), {})

    shown = "".join(traceback.format_exception(caught.value, limit=0)) + f"{caught.value!r} {caught.value.args}"
    assert not any(secret in shown for secret in SECRETS)


def test_a_secret_of_a_variable_stays_hidden() -> None:
    """A secret from the environment is no more shown than one from a file."""
    environ = {"MILLPOND_BACKENDS__V__DOOR": SECRETS[0]}
    with plugins.registered(BACKENDS, "vault", VaultBackend), pytest.raises(ConfigError) as caught:
        load(with_vault(url="refuse"), environ)

    assert SECRETS[0] not in str(caught.value)


def test_a_good_configuration_hides_its_secrets_too() -> None:
    """Neither the model's text nor its explanation shows a secret; only ``reveal`` does."""
    settings = {"door": SECRETS[0], "headers": {"token": SECRETS[1]}, "url": f"https://me:{SECRETS[1]}@host/x"}
    with plugins.registered(BACKENDS, "vault", VaultBackend):
        config = load(with_vault(**settings), {})

    vault = config.backends["v"].settings
    assert isinstance(vault, Vault)
    assert SECRETS[0] == vault.door.reveal()
    assert SECRETS[0] not in f"{config!r} {vault} {vault.door} {vault.door!r} {vault.door:>9}"
    assert not any(secret in str(explain(config)) for secret in SECRETS)
    assert "https://***@host/x" in str(explain(config))


def test_short_secrets_leave_words_readable() -> None:
    """A secret of a letter or two is taken out where it is quoted, and not out of every word."""
    assert "expected a number, found ***" == hide("expected a number, found 'a'", {"a"})


WORDS = [
    *("job", "checkpoint", "backends", "stores", "defaults", "engines", "commit", "restore", "name", "id", "tasks"),
    *("state_dir", "buffer_memory", "digest", "manager", "memory", "directory", "rocksdb", "rocksdb-local", "type"),
    *("engine", "key", "value", "backup", "ttl", "options", "ephemeral", "retain", "read_versions", "path"),
    *("interval", "timeout", "10s", "never", "64MiB", "str", "json", "a", "stores.a.factory", "stores.a.changelog"),
    *("task.commit.ms", "stores.a.rocksdb.ttl.ms", "task.checkpoint.factory", "millpond.job.name", "write_versions"),
    *("millpond.", "stores.", "stores..factory", "systems.a", "a.b", ".", "1e999", "-1", "9" * 30, "\ud800", "a/../b"),
    "stores.a.backup.factories",
]
PIECES = [*"[]{}=\"'#\n.,\\ ", "[[", '"""', "\n[", "job", "stores", "a", "1", "\u00e9"]
VARIABLES = ["MILLPOND_" + "__".join(word.split(".")) for word in WORDS]
SCALARS = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.binary(max_size=4)),
    *(st.just(object()), st.sampled_from(WORDS)),
)
KEYS = st.one_of(st.sampled_from(WORDS), st.text(max_size=5), st.integers())
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(WORDS), ANYTHING, max_size=6))
@example({"job": {"name": "x", "id": "9" * 5000}})
@example({"commit": {"interval": "9" * 18 + "d"}})
@example({"stores.a.factory": "x", "stores.a.rocksdb.ttl.ms": "9" * 30})
@example({"task.commit.ms": "9" * 5000})
def test_no_mapping_ends_in_anything_but_a_config_error(source: dict[str, object]) -> None:
    """Whatever a mapping holds, it is accepted or refused with a ConfigError."""
    with contextlib.suppress(ConfigError):
        load(source, {})


@given(st.lists(st.sampled_from(PIECES), max_size=25))
def test_no_file_ends_in_anything_but_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    """Whatever a file holds, it is accepted or refused with a ConfigError."""
    folder = tmp_path_factory.getbasetemp()
    for name in ("hostile.toml", "hostile.properties"):
        (folder / name).write_text("".join(parts))
        with contextlib.suppress(ConfigError):
            load(folder / name, {})


@given(st.binary(max_size=60))
def test_no_bytes_end_in_anything_but_a_config_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Bytes that are no text are refused with a ConfigError too."""
    path = tmp_path_factory.getbasetemp() / "bytes.toml"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        load(path, {})


@given(st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=9), max_size=4))
@example({"MILLPOND_JOB__TRANSFER_THREADS": "9" * 5000})
@example({"MILLPOND_JOB__ID": "\udcff"})
def test_no_variable_ends_in_anything_but_a_config_error(environ: dict[str, str]) -> None:
    """Whatever the environment holds, it is accepted or refused with a ConfigError."""
    with contextlib.suppress(ConfigError):
        load({"job": {"name": "x"}}, environ)
