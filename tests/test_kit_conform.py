"""`millpond conform`: plugins by name, by class and by suite, its output and its exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millpond.cli import main
from millpond.testing.kit.named import suite_of

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "custom_backend" / "sqlite_backend.py"
GUIDE = ROOT / "docs" / "backend-guide.md"

SUITE = """
from millpond.memory import MemoryBackend, MemoryBackendConfig
from millpond.testing import BackendSuite, Profile
from millpond.testing.kit.contract import Cases, Level

few = ("init.first", "upload.markers", "upload.survives-kill", "damage.missing", "restore.progress")


class Few(BackendSuite):
    cases = Cases({id: BackendSuite.cases.by_id[id] for id in few})

    def make(self, folder):
        return MemoryBackend("main", MemoryBackendConfig())


class Silent(MemoryBackend):
    def restore_manager(self, task, stores):
        manager = super().restore_manager(task, stores)
        restore = manager.restore

        def silent(target):
            target.progress = lambda **done: None
            restore(target)

        manager.restore = silent
        return manager


class Fails(Few):
    def make(self, folder):
        return Silent("main", MemoryBackendConfig())
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the command in a folder that holds the module ``suites_of_conform``."""
    (tmp_path / "suites_of_conform.py").write_text(SUITE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield lambda *arguments: CliRunner().invoke(main, ["conform", *arguments])
    sys.modules.pop("suites_of_conform", None)
    sys.modules.pop("sqlite_backend", None)


def test_a_suite_that_holds_ends_with_0(run):
    """What is not declared or not shown is told, and is no failure."""
    said: Result = run("suites_of_conform:Few")

    assert 0 == said.exit_code, said.output
    assert "not declared: upload.survives-kill\n  durable: what upload() returned survives" in said.output
    assert "not shown: damage.missing (there is no side door)\n  What a marker names is gone" in said.output
    assert "Few (backend): level full; 3 passed" in said.output


def test_a_broken_contract_ends_with_1(run):
    """What is broken is told with its sentence; at the level that it is none of, the code is 0."""
    said = run("suites_of_conform:Fails")

    assert 1 == said.exit_code
    assert "FAILED: restore.progress: restore reports no progress\n  broken: progress:" in said.output
    assert "level core" in said.output
    assert 0 == run("suites_of_conform:Fails", "--level", "core").exit_code


LIMITED = """
from suites_of_conform import *
from millpond.testing.kit.contract import Case


class Honest(Silent):
    honest_limits = {"deviations": {"restore.progress": "it reports none"}}


class Careless(Silent):
    honest_limits = {"deviations": {"restore.progress": "it reports none", "init.first": ""}}


class Misspelt(Silent):
    honest_limits = {"deviation": {}}


class Heartless(Silent):
    honest_limits = {"deviations": {"restore.progress": "it reports none", "upload.markers": "it gives none"}}

    def backup_manager(self, task, stores):
        manager = super().backup_manager(task, stores)
        manager.upload = lambda snapshot, markers: {}
        return manager
"""


def test_limits_that_a_plugin_ships_are_no_failure(run, tmp_path: Path):
    """A plugin that says what it does not do ends with 0, unless full is asked for, or it is of the core."""
    (tmp_path / "limited.py").write_text(LIMITED)
    only = ("--level", "full")

    said = run("limited:Honest")
    assert 0 == said.exit_code, said.output
    assert "known deviation: restore.progress (it reports none)" in said.output
    assert "level core" in said.output
    assert 1 == run("limited:Honest", *only).exit_code
    assert 1 == run("suites_of_conform:Silent").exit_code
    assert 1 == run("limited:Heartless").exit_code
    for name, text in (("Careless", "without a reason"), ("Misspelt", "honest_limits is not")):
        said = run(f"limited:{name}")
        assert 2 == said.exit_code
        assert text in said.output
    sys.modules.pop("limited", None)


def test_ours_with_a_limit_ends_with_0(run):
    """The memory engine's images are not cheap; it says so, and that is no failure."""
    said = run("memory", "--kind", "engine")

    assert 0 == said.exit_code, said.output
    assert "known deviation: image.cheap" in said.output


def test_json_has_every_case(run):
    """The JSON is the report, and standard output holds nothing else."""
    told = json.loads(run("suites_of_conform:Fails", "--json").stdout)

    assert "core" == told["level"]
    assert ["passed", "passed", "not declared", "failed", "not shown"] == [
        case["outcome"] for case in sorted(told["cases"], key=lambda case: case["id"] == "damage.missing")
    ]


def test_markdown_is_the_table(run):
    """The Markdown is what a README holds."""
    assert run("suites_of_conform:Few", "--markdown").stdout.startswith(
        "Level reached: **full**; declared: point_in_time"
    )


def test_wrong_usage_ends_with_2(run, tmp_path: Path):
    """An unknown plugin, settings that do not fit and a file that cannot be read are told, with code 2."""
    (tmp_path / "wrong.toml").write_text('pth = "x"\n')
    for arguments, text in [
        (("nothing-of-that-name",), "unknown"),
        (("no_such_module:X",), "cannot be imported"),
        (("directory", "--kind", "checkpoints", "-c", "wrong.toml"), "pth"),
        (("memory", "-c", "missing.toml"), "missing.toml cannot be read"),
        (("memory", "--kind", "tree"), "tree"),
    ]:
        said = run(*arguments)
        assert 2 == said.exit_code, (arguments, said.output)
        assert text in said.output


def test_a_name_is_enough(tmp_path: Path):
    """An installed plugin gets a folder for each path among its settings; its cases reach it in a child process too."""
    suite = suite_of("rocksdb-local", table={"grace": "5m"})

    for id in ("upload.survives-kill", "damage.flipped-bit"):
        assert "passed" == suite.run_case(suite.cases.by_id[id], tmp_path).outcome
    assert "checkpoints" == suite_of("directory").kind
    assert "engine" == suite_of("rocksdb").kind
    assert "backend" == suite_of("memory").kind


def test_settings_may_name_the_folder(tmp_path: Path):
    """``{folder}`` in a setting is where one case keeps its data, and the side door looks there."""
    suite = suite_of("directory", "checkpoints", {"path": "{folder}/deep"})

    assert "passed" == suite.run_case(suite.cases.by_id["damage.raises"], tmp_path).outcome
    assert list(tmp_path.glob("damage.raises/kept/deep/kit-*"))


def test_a_text_that_leads_nowhere_is_no_side_door(tmp_path: Path):
    """``{folder}`` in the prefix of a bucket makes it a case's own, and opens no door to what the bucket holds."""
    assert suite_of("fsspec", table={"url": "file://{folder}/x"}).side_door(tmp_path) is not None
    assert suite_of("fsspec", table={"url": "memory://x", "prefix": "a{folder}"}).side_door(tmp_path) is None


def test_a_certificate_is_no_place_for_data(tmp_path: Path):
    """A path that may be left out, and is called as no place is, is left out."""
    pytest.importorskip("millpond_s3")
    suite = suite_of("s3", table={"bucket": "some-bucket"})

    assert suite.make(tmp_path).config.ca_bundle is None
    assert suite.side_door(tmp_path) is None


def test_a_folder_that_does_not_go_with_what_is_given_is_left_out(tmp_path: Path):
    """A log in Kafka has no folder: with brokers given, none is made up for it."""
    pytest.importorskip("millpond_changelog")
    of_a_broker = suite_of("changelog", table={"bootstrap_servers": ["localhost:1"]})

    assert of_a_broker.make(tmp_path).config.directory is None
    assert of_a_broker.side_door(tmp_path) is None
    assert suite_of("changelog").make(tmp_path).config.directory == tmp_path / "directory"


LASTING = """
from millpond.memory import *
from attrs import frozen


@frozen(kw_only=True)
class Settings(MemoryBackendConfig):
    hours: int = 8


class Lasting(MemoryBackend):
    config_class = Settings
    kit_settings = staticmethod(lambda given: {"hours": 0})

    def __init__(self, name, config):
        super().__init__(name, config)
        if config.hours:
            raise ValueError(f"a kit has no {config.hours} hours")
"""


def test_a_plugin_asks_for_settings_that_a_kit_has_time_for(run, tmp_path: Path):
    """What it asks for is told; a file that says otherwise is followed."""
    (tmp_path / "lasting.py").write_text(LASTING)
    (tmp_path / "eight.toml").write_text("hours = 8\n")

    said = run("lasting:Lasting", "--level", "core")

    assert 0 == said.exit_code, said.output
    assert said.output.startswith("with hours = 0, as the plugin asks; --config FILE says otherwise\n")
    assert "no 8 hours" in run("lasting:Lasting", "-c", "eight.toml").output
    sys.modules.pop("lasting", None)


def test_an_engine_that_opens_nothing_is_refused(run):
    """The engine that stands for a host's own database is told from one that is broken."""
    said = run("host")

    assert 2 == said.exit_code
    assert "opens no database" in said.output


def blocks(language: str) -> list[str]:
    """Give the guide's blocks of code."""
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_guide_is_the_example():
    """Every line of the example but its imports stands in the guide, and the guide's code in the example."""
    *pieces, proof = blocks("python")
    example = EXAMPLE.read_text()

    assert "class TestSqliteBackend(BackendSuite)" in proof
    assert [] == [piece for piece in pieces if piece not in example]
    told = {line for piece in pieces for line in piece.splitlines()}
    body = example[example.index("@frozen") :]
    assert [] == [line for line in body.splitlines() if line.strip() and line not in told]


def test_the_guide_runs(tmp_path: Path):
    """The guide's example and its proof, pasted into two files, are green in a pytest of their own."""
    (tmp_path / "sqlite_backend.py").write_text(EXAMPLE.read_text())
    proof = "from sqlite_backend import SqliteBackend, SqliteConfig\n" + blocks("python")[-1]
    (tmp_path / "test_sqlite_backend.py").write_text(proof)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "roundtrip or zombie or survives"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)

    assert 0 == said.returncode, said.stdout
    assert re.search(r"\d+ passed", said.stdout)


def test_the_guides_command_runs(run, tmp_path: Path):
    """What the guide says to type ends with 0 in the folder of the example: it keeps the core."""
    (tmp_path / "sqlite_backend.py").write_text(EXAMPLE.read_text())
    (command,) = [line for line in GUIDE.read_text().splitlines() if line.startswith("$ millpond conform")]

    said = run(*command.split()[3:])

    assert 0 == said.exit_code, said.output
    assert "(backend): level core; " in said.output
