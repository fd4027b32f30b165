"""Tests of the sources of a configuration: what each gives, which wins, and where a value says that it came from."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen
from hypothesis import given
from hypothesis import strategies as st

from millpond import plugins
from millpond.checkpoint import Layout
from millpond.config import JobConfig, Secret, Size, load
from millpond.config.locate import locate
from millpond.config.properties import parse_properties
from millpond.config.values import parse_duration, parse_size, show_duration, show_size
from millpond.errors import ConfigError
from millpond.memory import MemoryBackend
from millpond.plugins import BACKENDS

SMALL: dict[str, Any] = {
    "job": {"name": "flights", "state_dir": "/var/flights"},
    "checkpoint": {"manager": "memory"},
    "stores": {"delays": {"engine": "memory", "ephemeral": True}},
}

SMALL_TOML = """
[job]
name = "flights"
state_dir = "state"

[checkpoint]
manager = "directory"
path = "records"

[stores.Delays]
engine = "memory"
ephemeral = true
"""


@frozen
class AcmeSettings:
    """Settings of a plugin with a field of every kind."""

    url: str
    password: Secret = field(default=Secret(""))
    part: Size = field(default=Size(8 << 20))
    buffer_size: int = 1 << 20
    threads: int = 1
    ratio: float = 0.5
    folder: Path | None = None
    wait: timedelta = timedelta(seconds=1)
    hosts: tuple[str, ...] = ()
    ports: list[int] = field(factory=list)
    topics: Mapping[str, str] = field(factory=dict)
    verify: bool = True


class Acme(MemoryBackend):
    """A backend with many settings."""

    config_class = AcmeSettings


def with_acme(environ: Mapping[str, str] | None = None, **settings: object) -> JobConfig:
    """Load a small configuration with an Acme backend."""
    backends = {"acme": {"type": "acme", "url": "acme://x", **settings}}
    with plugins.registered(BACKENDS, "acme", Acme):
        return load({**SMALL, "backends": backends}, environ or {})


def settings_of(config: JobConfig) -> Any:
    """Give the settings of the Acme backend."""
    return config.backends["acme"].settings


def test_a_mapping_of_sections_gives_the_model() -> None:
    """The smallest mapping gives a job with our defaults."""
    config = load(SMALL, {})

    assert ("flights", "1", None) == (config.name, config.id, config.layout)
    assert timedelta(seconds=10) == config.commit.interval
    assert (2,) == config.checkpoint.versions.write
    assert ("bytes", "bytes") == (config.stores["delays"].key, config.stores["delays"].value)


def test_a_loaded_configuration_is_given_back() -> None:
    """What load gave can be given to it again."""
    config = load(SMALL, {})

    assert config is load(config)


def test_the_layout_is_what_the_job_states() -> None:
    """Stated tasks and partitioner are the job's layout."""
    job = {**SMALL["job"], "tasks": ["a", "b"], "partitioner": "murmur2"}

    assert Layout(("a", "b"), "murmur2") == load({**SMALL, "job": job}, {}).layout


@pytest.mark.parametrize(
    ("written", "field", "expected"),
    [
        ({"part": "5MiB"}, "part", 5 << 20),
        ({"buffer_size": "2MiB"}, "buffer_size", 2 << 20),
        ({"buffer_size": 4096}, "buffer_size", 4096),
        ({"ratio": 1}, "ratio", 1.0),
        ({"wait": "1m30s"}, "wait", timedelta(seconds=90)),
        ({"hosts": ["a", "b"]}, "hosts", ("a", "b")),
        ({"ports": [1, 2]}, "ports", [1, 2]),
        ({"topics": {"a": "b"}}, "topics", {"a": "b"}),
        ({"folder": "/x"}, "folder", Path("/x")),
        ({"verify": False}, "verify", False),
    ],
)
def test_a_plugins_settings_have_their_types(written: dict[str, object], field: str, expected: object) -> None:
    """Each kind of field of a plugin's config_class is read from what an operator writes."""
    assert expected == getattr(settings_of(with_acme(**written)), field)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ({"verify": "false"}, "expected true or false, found text"),
        ({"threads": 3.7}, "expected a whole number, found a number"),
        ({"threads": True}, "expected a whole number, found a boolean"),
        ({"threads": "3"}, "expected a whole number, found text"),
        ({"hosts": "a,b"}, "expected a list, found text: write it in brackets"),
        ({"ports": [1, "2"]}, "backends.acme.ports[1]: expected a whole number, found text"),
        ({"topics": {"a": 1}}, "backends.acme.topics.a: expected text, found a whole number: write it in quotes"),
        ({"topics": ["a"]}, "expected a table, found a list"),
        ({"part": 5}, 'expected a size, found a bare number: write its unit, such as "5B"'),
        ({"part": "5 MegaBytes"}, "expected a size with a unit"),
        ({"wait": 5}, 'expected a duration, found a bare number: write its unit, such as "5s"'),
        ({"wait": "soon"}, "expected a duration with a unit"),
        ({"url": 3}, "expected text, found a whole number"),
        ({"ratio": "half"}, "expected a number, found text"),
        ({"folder": ""}, "expected a path, found an empty text"),
        ({"hots": []}, 'backends.acme.hots: unknown key, did you mean "hosts"?'),
        ({"interval": "1s"}, "unknown key here, it belongs to [commit]"),
    ],
)
def test_nothing_is_rounded_split_or_guessed(written: dict[str, object], text: str) -> None:
    """A value of another kind than its key wants is refused, not converted."""
    with pytest.raises(ConfigError) as caught:
        with_acme(**written)

    assert text in str(caught.value)


def test_a_required_setting_that_is_missing_is_named() -> None:
    """A plugin's required setting is reported as missing, with its key."""
    with plugins.registered(BACKENDS, "acme", Acme), pytest.raises(ConfigError, match=r"backends\.acme\.url: missing"):
        load({**SMALL, "backends": {"acme": {"type": "acme"}}}, {})


@pytest.mark.parametrize(
    ("variable", "text", "field", "expected"),
    [
        ("MILLPOND_BACKENDS__ACME__VERIFY", "False", "verify", False),
        ("MILLPOND_BACKENDS__ACME__THREADS", "7", "threads", 7),
        ("MILLPOND_BACKENDS__ACME__HOSTS", "a:1, b:2", "hosts", ("a:1", "b:2")),
        ("MILLPOND_BACKENDS__ACME__PORTS", "1,2", "ports", [1, 2]),
        ("MILLPOND_BACKENDS__ACME__PORTS", "", "ports", []),
        ("MILLPOND_BACKENDS__ACME__PART", "6MiB", "part", 6 << 20),
        ("MILLPOND_BACKENDS__ACME__BUFFER_SIZE", "6MiB", "buffer_size", 6 << 20),
        ("MILLPOND_BACKENDS__ACME__TOPICS__A", "3", "topics", {"a": "3"}),
        ("millpond_backends__acme__ratio", "0.25", "ratio", 0.25),
    ],
)
def test_a_variable_is_text_and_gets_its_type(variable: str, text: str, field: str, expected: object) -> None:
    """The environment knows text only: booleans, numbers and lists are read from it."""
    assert expected == getattr(settings_of(with_acme({variable: text})), field)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("MILLPOND_BACKENDS__ACME__VERIFY", "yes", "expected true or false"),
        ("MILLPOND_BACKENDS__ACME__THREADS", "3.7", "expected a whole number"),
        ("MILLPOND_BACKEND__ACME__THREADS", "3", 'no section "backend", did you mean "backends"?'),
        ("MILLPOND_COMMIT____INTERVAL", "3s", "part of the variable's name is empty"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, words: str) -> None:
    """A problem with a variable names the variable."""
    with pytest.raises(ConfigError) as caught:
        with_acme({variable: text})

    assert variable in str(caught.value)
    assert words in str(caught.value)


def test_two_variables_for_one_key_are_refused() -> None:
    """Two variables that differ only in their case are a problem, whichever comes first."""
    with pytest.raises(ConfigError, match="is set twice"):
        load(SMALL, {"MILLPOND_COMMIT__INTERVAL": "1s", "MILLPOND_Commit__Interval": "2s"})


def test_an_orchestrators_own_variables_are_left_alone() -> None:
    """What Kubernetes sets for a service called millpond is no configuration; one that looks like ours is noted."""
    config = load(SMALL, {"MILLPOND_SERVICE_HOST": "10.0.0.1", "MILLPOND_JOB_NAME": "x"})

    assert "flights" == config.name
    assert any("MILLPOND_JOB_NAME" in note for note in config.notes)
    assert not any("SERVICE_HOST" in note for note in config.notes)


def test_a_variable_finds_a_name_whatever_its_case(tmp_path: Path) -> None:
    """A part of a variable's name stands for the known name that differs in case or in dashes only."""
    path = tmp_path / "job.toml"
    path.write_text(SMALL_TOML)

    config = load(path, {"MILLPOND_STORES__DELAYS__VALUE": "json"})

    assert ["Delays"] == list(config.stores)
    assert "json" == config.stores["Delays"].value


def test_a_variable_finds_a_name_with_a_dash() -> None:
    """No variable can have a dash in its name: an underscore stands for it."""
    source = {**SMALL, "backends": {"my-log": {"type": "memory"}}}

    assert not load(source, {"MILLPOND_BACKENDS__MY_LOG__REQUIRED": "false"}).backends["my-log"].required


def test_a_path_in_a_variable_starts_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what stands in a file starts at the file."""
    (tmp_path / "job.toml").write_text(SMALL_TOML)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    config = load(tmp_path / "job.toml", {"MILLPOND_JOB__STATE_DIR": "/var/x", "MILLPOND_CHECKPOINT__PATH": "records"})

    assert Path("here/records") == config.checkpoint.settings.path.absolute().relative_to(tmp_path)  # type: ignore[attr-defined]


def test_higher_sources_win_leaf_by_leaf(tmp_path: Path) -> None:
    """The environment wins over the file, and leaves alone what it does not say."""
    path = tmp_path / "job.toml"
    path.write_text(SMALL_TOML + '[commit]\ninterval = "5s"\ntimeout = "1m"\n')

    config = load(path, {"MILLPOND_COMMIT__INTERVAL": "never"})

    assert None is config.commit.interval
    assert timedelta(minutes=1) == config.commit.timeout
    assert "environment (MILLPOND_COMMIT__INTERVAL)" == str(config.origins["commit", "interval"])
    assert f"{path}:15" == str(config.origins["commit", "timeout"])


def test_a_mapping_wins_over_the_environment_and_over_dotted_keys() -> None:
    """A mapping's sections win over its dotted keys, and these over the environment."""
    source = {**SMALL, "commit": {"interval": "1s"}, "commit.interval": "2s", "commit.timeout": "20s"}

    config = load(source, {"MILLPOND_COMMIT__INTERVAL": "3s", "MILLPOND_COMMIT__TIMEOUT": "30s"})

    assert (timedelta(seconds=1), timedelta(seconds=20)) == (config.commit.interval, config.commit.timeout)


def test_none_is_as_good_as_missing() -> None:
    """A key of a mapping whose value is None has its default."""
    assert load(SMALL, {}) == load({**SMALL, "commit": {"interval": None}}, {})


def test_relative_paths_in_a_file_start_at_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is started from another folder finds the same records and the same state."""
    (tmp_path / "job.toml").write_text(SMALL_TOML)
    monkeypatch.chdir("/")

    config = load(tmp_path / "job.toml", {})

    assert tmp_path / "state" == config.state_dir
    assert tmp_path / "records" == config.checkpoint.settings.path  # type: ignore[attr-defined]


def test_a_store_takes_what_it_leaves_out_from_the_jobs_defaults() -> None:
    """Job defaults hold for every store that says nothing else, its engine's options among them."""
    source = {
        **SMALL,
        "backends": {"a": {"type": "memory"}, "b": {"type": "memory"}},
        "defaults": {
            "stores": {
                "engine": "memory",
                "key": "str",
                "backup": ["a", "b"],
                "restore": ["b", "a"],
                "ephemeral": True,
                "ttl": "1h",
                "options": {"rocksdb": {"compression": "zstd", "block_size": "8KiB"}},
            }
        },
        "stores": {
            "one": {},
            "two": {"engine": "rocksdb", "backup": ["a"], "ttl": "never", "options": {"compression": "lz4"}},
        },
    }

    stores = load(source, {}).stores

    assert ("memory", "str", timedelta(hours=1)) == (stores["one"].engine, stores["one"].key, stores["one"].ttl)
    assert (("a", "b"), ("b", "a"), {}) == (stores["one"].backup, stores["one"].restore, stores["one"].options)
    assert (("a",), ("a",), None) == (stores["two"].backup, stores["two"].restore, stores["two"].ttl)
    assert {"compression": "lz4", "block_size": "8KiB"} == stores["two"].options


def test_the_only_backend_is_every_stores() -> None:
    """With exactly one backend a store that names none uses it, for both directions."""
    source = {**SMALL, "backends": {"a": {"type": "rocksdb-local"}}, "stores": {"x": {"engine": "memory"}}}

    store = load(source, {}).stores["x"]

    assert (("a",), ("a",)) == (store.backup, store.restore)


def test_a_spec_is_the_store_as_a_plugin_sees_it() -> None:
    """A store's spec has its options and its engine's settings."""
    config = load(SMALL, {})

    assert config.engines["memory"] is config.stores["delays"].spec.settings
    assert ("delays", "memory") == (config.stores["delays"].spec.name, config.stores["delays"].spec.engine)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "job.name: missing"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (b"[job\n", "is not TOML"),
        (b"a = 1\na = 2\n", "job.toml:2: is not TOML: a is set for the second time"),
        (b"[job]\n[job]\n", "job.toml:2: is not TOML: [job] is set for the second time"),
        (b"a = 1\na = [\n2]\n", "job.toml:3: is not TOML: cannot overwrite a value"),
        (b"x = " + b"[" * 100_000, "is nested too deeply"),
        (b"#" * ((1 << 20) + 1), "is longer than"),
        (b"job = 3", "job.toml:1: job: expected a table, found a whole number"),
        (b"[[job]]\nname = 'x'", "job: expected a table, found a list"),
        (b"[stores]\nx = 1", "job.toml:2: stores.x: expected a table, found a whole number"),
    ],
)
def test_a_file_that_is_no_configuration_says_why(tmp_path: Path, content: bytes, words: str) -> None:
    """Whatever is in the file, the error is a ConfigError that says what is wrong and where."""
    (tmp_path / "job.toml").write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "job.toml", {})

    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"), [("none.toml", "there is no such file"), (".", "is a folder"), ("a\0b", "job")]
)
def test_a_file_that_is_not_there_says_so(tmp_path: Path, name: str, words: str) -> None:
    """A missing file and a folder are told apart; a name that no file can have is no crash."""
    with pytest.raises(ConfigError) as caught:
        load(f"{tmp_path}/{name}" if "\0" not in name else "job\0.toml", {})

    assert words in str(caught.value)


@pytest.mark.parametrize("source", [3, None, ["job"], object()])
def test_what_is_no_source_is_refused(source: Any) -> None:
    """Something that is neither a mapping nor a file's name is a ConfigError that says what it is."""
    with pytest.raises(ConfigError, match=f"found a {type(source).__name__}"):
        load(source, {})


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in place of a file is refused: reading it could wait for ever."""
    os.mkfifo(tmp_path / "job.toml")

    with pytest.raises(ConfigError, match="is not a regular file"):
        load(tmp_path / "job.toml", {})


def test_a_mapping_that_holds_itself_is_refused() -> None:
    """A mapping without an end is a problem, not a crash."""
    endless: dict[str, object] = {}
    endless["x"] = endless

    with pytest.raises(ConfigError, match="nested too deeply"):
        load({**SMALL, "stores": endless}, {})


def test_a_line_is_found_whatever_the_shape() -> None:
    """Dotted keys, inline tables, lists over several lines, quoted keys and arrays of tables have their lines."""
    text = '''\
a.b = 1
[job]
tasks = ["a", # ] "
  """b
]""", 'c']
"q.é" = { k = [1, {z = 2}], "l" = 'm' }
[[s.t]]
x = 1979-05-27 07:32:00
[s.t.u]
y = 2
[[s.t]]
'''

    lines = locate(text)

    assert {"a": {"b": 1}}.items() <= tomllib.loads(text).items()
    assert 1 == lines["a", "b"]
    assert (3, 4, 5) == (lines["job", "tasks", 0], lines["job", "tasks", 1], lines["job", "tasks", 2])
    assert 6 == lines["job", "q.é", "k", 1, "z"]
    assert (8, 10, 11) == (lines["s", "t", 0, "x"], lines["s", "t", 0, "u", "y"], lines["s", "t", 1])


KEYS = st.sampled_from(["a", "b-c", "D_1", '"x.y"', "'z # ='", '"\\u00e9\\""', '""'])
SCALARS = st.sampled_from(
    [
        '"""a"""""',
        "'''a'''''",
        "1",
        "true",
        "2.5e3",
        '"t # ]"',
        "'lit'",
        '"""a\n"b"""',
        "'''c\n#'''",
        "1979-05-27 07:32:00",
        "[]",
        "{}",
        '"\\\\"',
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[ # c\n" + ",\n ".join(parts) + "\n]"),
        st.dictionaries(KEYS, inner.filter(lambda v: "\n" not in v), max_size=2).map(
            lambda table: "{" + ", ".join(f"{k} = {v}" for k, v in table.items()) + "}"
        ),
    ),
    max_leaves=5,
)
LINES = st.one_of(
    st.tuples(st.lists(KEYS, min_size=1, max_size=3), VALUES).map(lambda p: ".".join(p[0]) + " = " + p[1] + " # c"),
    st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: f"[{' . '.join(keys)}]"),
    st.lists(KEYS, min_size=1, max_size=2).map(lambda keys: f"[[{'.'.join(keys)}]]"),
    st.just("# comment = [1"),
)


def _paths(value: object, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Give the path of everything in a parsed file."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} - {()} | {found for key, inner in items for found in _paths(inner, (*path, key))}


@given(st.lists(LINES, max_size=6))
def test_every_key_that_tomllib_reads_has_a_line(lines: list[str]) -> None:
    """For any valid TOML, the located keys are those that tomllib reads, each within the text."""
    text = "\n".join(lines)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return

    found = locate(text)

    assert _paths(values) <= set(found)
    assert all(1 <= line <= text.count("\n") + 1 for line in found.values())


def test_properties_are_read_as_java_does() -> None:
    """Comments, continued lines, escapes and all three separators are Java's."""
    text = "# c\n! d\na=1\nb : two\nc three\\\n   four\nd\\=e=\\u0041\\t\n\n  f=g \\\\\nh=\n"

    found = {each.key: (each.value, each.line) for each in parse_properties(text)}

    assert {
        "a": ("1", 3),
        "b": ("two", 4),
        "c": ("threefour", 5),
        "d=e": ("A\t", 7),
        "f": ("g \\", 9),
        "h": ("", 10),
    } == found


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
def test_a_duration_is_read_as_it_is_shown(duration: timedelta) -> None:
    """What show_duration writes is what parse_duration reads."""
    assert abs(parse_duration(show_duration(duration)) - duration) <= timedelta(microseconds=1)


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_size_is_read_as_it_is_shown(size: int) -> None:
    """What show_size writes is what parse_size reads."""
    assert size == parse_size(show_size(size))
