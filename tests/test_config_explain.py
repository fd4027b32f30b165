"""Tests of what a configuration says about itself, and of the page that documents its keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from millpond.config import load
from millpond.config.explain import Row, explain
from millpond.config.model import CommitConfig, RestoreConfig
from millpond.config.samza_keys import OTHERS_READ, ROCKSDB_OPTIONS, SIMPLE, STORE_IDLE, TASK_IDLE
from millpond.config.sections import BackendSection, CheckpointSection, JobSection, StoreSection, keys_of

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

JOB = """\
[job]
name = "flights"
tasks = ["a", "b"]
state_dir = "/var/flights"

[checkpoint]
manager = "directory"
path = "/srv/records"
retain = 3

[backends.disk]
type = "rocksdb-local"

[defaults.stores]
engine = "rocksdb"
value = "json"

[defaults.stores.options.rocksdb]
block_size = "8KiB"

[stores.delays]
key = "str"
options = { compression = "zstd" }
"""


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, Row]:
    """Explain a job that has values from a file, from the job's defaults, from a variable, and from nobody."""
    (tmp_path / "job.toml").write_text(JOB)
    config = load(tmp_path / "job.toml", {"MILLPOND_COMMIT__INTERVAL": "20s"})
    found = explain(config)
    assert len(found) == len({row.key for row in found})
    return {row.key: attrs.evolve(row, source=row.source.replace(f"{tmp_path}/", "")) for row in found}


@pytest.mark.parametrize(
    ("key", "value", "source", "default"),
    [
        ("job.name", "flights", "job.toml:2", ""),
        ("job.tasks", "[a, b]", "job.toml:3", "none"),
        ("job.buffer_memory", "256MiB", "default", "256MiB"),
        ("job.put_timeout", "1m", "default", "1m"),
        ("checkpoint.retain", "3", "job.toml:9", "1"),
        ("checkpoint.path", "/srv/records", "job.toml:8", ""),
        ("checkpoint.read_versions", "[2, 1]", "default", "[2, 1]"),
        ("backends.disk.required", "true", "default", "true"),
        ("stores.delays.engine", "rocksdb", "job.toml:15 (defaults.stores.engine)", ""),
        ("stores.delays.key", "str", "job.toml:22", "bytes"),
        ("stores.delays.backup", "[disk]", "default", ""),
        ("stores.delays.options.compression", "zstd", "job.toml:23", ""),
        ("stores.delays.options.block_size", "8KiB", "job.toml:19 (defaults.stores.options.rocksdb.block_size)", ""),
        ("commit.interval", "20s", "environment (MILLPOND_COMMIT__INTERVAL)", "10s"),
        ("restore.on_damage", "stop", "default", "stop"),
    ],
)
def test_every_value_says_where_it_came_from(
    rows: dict[str, Row], key: str, value: str, source: str, default: str
) -> None:
    """A row has the effective value, the file and line or the variable or the default, and what it would be else."""
    assert Row(key, value, source, default) == rows[key]


def documented(heading: str) -> set[str]:
    """Give the keys in the first column of the table under a heading of the page."""
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([^`]+)`", line.split("|")[1])
    }


@pytest.mark.parametrize(
    ("heading", "cls"),
    [
        ("`[job]`", JobSection),
        ("`[checkpoint]`", CheckpointSection),
        ("`[backends.<name>]`", BackendSection),
        ("`[stores.<name>]` and `[defaults.stores]`", StoreSection),
        ("`[commit]`", CommitConfig),
        ("`[restore]`", RestoreConfig),
    ],
)
def test_the_page_has_every_key_and_no_other(heading: str, cls: Any) -> None:
    """The table of each section names exactly the keys that the section has."""
    assert set(keys_of(cls)) == documented(heading)


def test_the_pages_first_example_is_a_good_configuration(tmp_path: Path) -> None:
    """The example that a reader copies is accepted, without a remark."""
    example = PAGE.read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "job.toml").write_text(example)

    assert () == load(tmp_path / "job.toml", {}).notes


def test_the_page_has_every_key_of_samza_that_is_translated() -> None:
    """The table of Samza's keys names each that has a counterpart, and each that is noted as meaning nothing."""
    stores = {f"stores.X.{key}" for key in (*ROCKSDB_OPTIONS, *STORE_IDLE)}

    assert {*SIMPLE, *OTHERS_READ, *TASK_IDLE, *stores} <= documented("Samza's keys") | documented(
        "Samza's keys that mean nothing here"
    )
