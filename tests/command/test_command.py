"""The command: what it prints, its JSON, its exit codes, and what it costs to start."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from millpond import errors, plugins
from millpond.cli import COMMANDS, main
from millpond.cli.exits import exit_code
from millpond.cli.tables import Column, age_text, fitting, local_time, plain_lines, utc_time
from millpond.cli.values import parse_key, plain, show_value

INSTALLED = shutil.which("millpond", path=str(Path(sys.executable).parent))


def run(*args: object, env: Mapping[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], env={"MILLPOND_CONFIG": None, **(env or {})})


def said(*args: object) -> object:
    """Give the JSON that a command prints; it must have ended well."""
    result = run(*args, "--json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def shape(value: object) -> object:
    """Give a value's keys and types, and of a list those of its first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def on_terminal(command: list[str], columns: int, env: Mapping[str, str] | None = None) -> str:
    """Run *command* on a terminal of so many columns; give what it drew."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(
            command[0], command, {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns), **(env or {})}
        )
    drawn = b""
    try:
        while data := os.read(terminal, 65536):
            drawn += data
    except OSError:  # how a terminal says that nobody is there any more
        pass
    os.close(terminal)
    os.waitpid(pid, 0)
    return drawn.decode().replace("\r\n", "\n")


# Starting


def test_help_loads_no_driver_and_nothing_heavy():
    """`millpond --help` loads click and next to nothing of ours: no driver, no attrs, no rich."""
    code = """
import json, sys
from millpond.cli import main
main(["--help"], standalone_mode=False)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))))
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True, text=True).stdout

    loaded = set(json.loads(output.splitlines()[-1]))
    assert {"click", "millpond"} <= loaded
    assert set() == loaded & {"attr", "attrs", "cattrs", "msgspec", "rich", "rocksdict", "millpond_rocksdb", "stamina"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_help_names_is_there(name: str):
    """Each name in the list of commands leads to a command of that name, which has help of its own."""
    result = run(name, "--help")

    assert 0 == result.exit_code
    assert f"millpond {name}" in result.output or f"main {name}" in result.output
    loaded = main.get_command(click.Context(main), name)
    assert loaded is not None
    assert name == loaded.name


def test_an_unknown_command_is_a_wrong_usage():
    """A misspelt command ends with 2 and the names that there are."""
    assert 2 == run("chekpoints").exit_code


@pytest.mark.parametrize("command", [["-m", "millpond"], None], ids=["module", "script"])
def test_the_installed_command_runs(command: list[str] | None):
    """Both `millpond` and `python -m millpond` tell the version."""
    if command is None and INSTALLED is None:
        pytest.skip("no script beside this interpreter")
    start = [str(INSTALLED)] if command is None else [sys.executable, *command]

    result = subprocess.run([*start, "--version"], capture_output=True, timeout=60, check=True, text=True)

    assert re.fullmatch(r"millpond \d+\.\d+\.\d+\S*\n", result.stdout)


# Which configuration


def test_the_configuration_is_named_or_found(still_job: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch):
    """--config comes before MILLPOND_CONFIG, and that before ./job.toml; without any the command says so."""
    config, _ = still_job
    monkeypatch.chdir(config.parent)

    assert 0 == run("config", "check").exit_code
    monkeypatch.chdir("/")
    assert 0 == run("config", "check", env={"MILLPOND_CONFIG": str(config)}).exit_code
    assert 0 == run("config", "check", "-c", config, env={"MILLPOND_CONFIG": "/nowhere"}).exit_code
    missing = run("checkpoints", "list")
    assert 2 == missing.exit_code
    assert "there is no file job.toml" in missing.stderr
    assert "MILLPOND_CONFIG" in missing.stderr
    assert f"{config.parent} is a folder" in run("config", "check", "-c", config.parent).stderr


def test_config_check_reports_every_problem(tmp_path: Path):
    """Each problem is a line with its place on standard output, the exit code is 1, and JSON has the same."""
    path = tmp_path / "job.toml"
    path.write_text('[job]\nnam = "flights"\nstate_dir = 7\n')

    plainly, as_json = run("config", "check", path), run("config", "check", path, "--json")

    assert (1, 1) == (plainly.exit_code, as_json.exit_code)
    assert f'{path}:2: job.nam: unknown key, did you mean "name"?' in plainly.stdout.splitlines()
    problems = json.loads(as_json.stdout)["problems"]
    (misspelt,) = [problem for problem in problems if problem["key"] == "job.nam"]
    assert {"key": "str", "text": "str", "source": "str", "line": "int"} == shape(misspelt)
    assert len(problems) == len(plainly.stdout.splitlines())


def test_a_broken_configuration_ends_other_commands_with_2(tmp_path: Path):
    """A command that needs the job says what is wrong with its configuration, without a traceback."""
    path = tmp_path / "job.toml"
    path.write_text("[job\n")

    result = run("checkpoints", "list", "-c", path)

    assert 2 == result.exit_code
    assert str(path) in result.stderr
    assert "Traceback" not in result.output


def test_config_explain_hides_nothing_but_secrets(still_job: tuple[Path, list[str]]):
    """Every value has its key, its source, and its default."""
    rows = said("config", "explain", still_job[0])

    assert {"values": [{"key": "str", "value": "str", "source": "str", "default": "NoneType"}]} == shape(rows)
    found = {row["key"]: row for row in rows["values"]}  # type: ignore[index,call-overload]
    assert ("3", "1") == (found["checkpoint.retain"]["value"], found["checkpoint.retain"]["default"])
    assert found["checkpoint.retain"]["source"].endswith("job.toml:10")


# Checkpoints

CHECKPOINT = {
    "task": "str",
    "id": "str",
    "time": "str",
    "age_s": "float",
    "version": "int",
    "epoch": "int",
    "writer": "str",
    "parent": "str",
    "pins": [],
    "listed": "bool",
    "layout": {"tasks": ["str"], "partitioner": "str"},
    "stores": {
        "days": {"image": "str", "markers": {"archive": "str"}},
        "delays": {"image": "str", "markers": {"archive": "str", "second": "str"}},
        "raw": {"image": "str", "markers": {"archive": "str"}},
    },
    "offsets": [{"system": "str", "stream": "str", "partition": "int", "key_bucket": "NoneType", "offset": "str"}],
}


def test_checkpoints_list(still_job: tuple[Path, list[str]]):
    """Every restorable checkpoint of every task is listed, newest first; the JSON has all of each."""
    config, ids = still_job
    listed = said("checkpoints", "list", "-c", config)

    assert {"job": "str", "tasks": [{"task": "str", "checkpoints": [CHECKPOINT]}]} == shape(listed)
    tasks = {task["task"]: task["checkpoints"] for task in listed["tasks"]}  # type: ignore[index,call-overload]
    assert {"EWR": ids[:0:-1], "Partition 0": []} == {
        name: [checkpoint["id"] for checkpoint in checkpoints] for name, checkpoints in tasks.items()
    }
    assert ["3", "2", "1"] == [checkpoint["offsets"][0]["offset"] for checkpoint in tasks["EWR"]]

    lines = run("checkpoints", "list", "-c", config).stdout.splitlines()
    assert "task EWR: 3 checkpoints" == lines[0]
    assert ["CHECKPOINT", "TIME", "AGE", "V", "EPOCH", "STORES", "INPUTS", "PINS", "PARENT"] == lines[1].split()
    assert ids[:0:-1] == [line.split()[0] for line in lines[2:5]]
    assert "task Partition 0: no checkpoint yet" == lines[-1]


def test_checkpoints_show(still_job: tuple[Path, list[str]]):
    """One checkpoint is shown whole: the newest, or the one that is named."""
    config, ids = still_job

    assert {"job": "str", **CHECKPOINT} == shape(said("checkpoints", "show", "-c", config, "-t", "EWR"))
    text = run("checkpoints", "show", ids[1], "-c", config, "-t", "EWR").stdout
    assert f"checkpoint {ids[1]} of task EWR" in text
    assert re.search(r"^kafka +flights\.2013 +0 +1$", text, re.MULTILINE)
    assert re.search(rf"^delays +second +{ids[1]}-", text, re.MULTILINE)


def test_pins_come_and_go(job: tuple[Path, list[str]]):
    """A pin is set, listed, refused for another checkpoint, and removed; each has its exit code."""
    config, ids = job
    where = ("-c", config, "-t", "EWR")

    pinned = said("checkpoints", "pin", "before", ids[1], *where)
    assert {"job": "flights", "task": "EWR", "pin": "before", "checkpoint": ids[1]} == pinned
    assert "before" in run("checkpoints", "list", *where).stdout
    assert 2 == run("checkpoints", "pin", "before", *where).exit_code
    assert ids[1] == said("checkpoints", "show", "before", *where)["id"]  # type: ignore[index,call-overload]
    assert pinned == said("checkpoints", "unpin", "before", *where)
    assert 3 == run("checkpoints", "unpin", "before", *where).exit_code


def test_verify_of_a_whole_job_ends_well(still_job: tuple[Path, list[str]]):
    """All copies of all tasks that have committed are whole; a task that has not is nothing wrong."""
    verified = said("checkpoints", "verify", "-c", still_job[0])

    copy = {
        "task": "str",
        "checkpoint": "str",
        "store": "str",
        "backend": "str",
        "marker": "str",
        "state": "str",
        "size": "int",
        "duration_s": "float",
        "detail": "NoneType",
    }
    assert {"job": "str", "ok": "bool", "copies": [copy]} == shape(verified)
    assert verified["ok"]  # type: ignore[index,call-overload]
    assert "all 7 copies are whole" in run("checkpoints", "verify", "-c", still_job[0]).stdout


def test_verify_of_damage_ends_with_1(job: tuple[Path, list[str]], images):
    """A copy that is gone is named, with what can still be restored; when nothing is left of a store that is said."""
    config, _ = job
    shutil.rmtree(images(config.parent / "archive", "delays")[-1])

    result = run("checkpoints", "verify", "-c", config, "-t", "EWR")
    assert 1 == result.exit_code
    assert re.search(r"^delays +archive +missing +\d.*there is no complete image at", result.stdout, re.MULTILINE)
    assert "1 of 7 copies cannot be used; every store can still be restored from another" in result.stdout

    shutil.rmtree(config.parent / "state dir")
    shutil.rmtree(config.parent / "archive")
    result = run("checkpoints", "verify", "-c", config, "-t", "EWR")
    assert 1 == result.exit_code
    assert "NOT RESTORABLE: days, delays, raw" in result.stdout


def test_a_damaged_record_ends_with_4(job: tuple[Path, list[str]]):
    """A record with a flipped bit is named by its path, and nothing is passed over."""
    config, _ = job
    record = min((config.parent / "records").rglob("99*"))
    data = bytearray(record.read_bytes())
    data[-2] ^= 1
    record.write_bytes(data)

    result = run("checkpoints", "show", "-c", config, "-t", "EWR")

    assert 4 == result.exit_code
    assert str(record) in result.stderr


# State


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["-s", "delays", "-k", "UA07"], '{"commit": 3}'),
        (["-s", "raw", "-k", "plain"], "text"),
        (["-s", "raw", "-k", "0300ff", "--hex"], "0x787878"),
        (["-s", "days", "-k", "-2"], '{"at": {"hex": "ff"}, "sum": 0}'),
    ],
)
def test_state_get(still_job: tuple[Path, list[str]], args: list[str], text: str):
    """A key is read in the words of its serde, and its value printed on a line."""
    result = run("state", "get", "-c", still_job[0], "-t", "EWR", *args)

    assert (0, text + "\n") == (result.exit_code, result.stdout)


def test_state_get_as_json_and_of_an_older_checkpoint(still_job: tuple[Path, list[str]]):
    """The JSON says where the value is from, and --at goes back."""
    config, ids = still_job

    found = said("state", "get", "-c", config, "-t", "EWR", "-s", "delays", "-k", "UA07", "--at", ids[1])

    assert {"task": "EWR", "checkpoint": ids[1], "store": "delays", "key": "UA07", "value": {"commit": 1}} == found


def test_state_scan(still_job: tuple[Path, list[str]]):
    """Entries come in order, in a range, in reverse, at most as many as asked for; the rest is announced."""
    where = ("-c", still_job[0], "-t", "EWR")

    rows = run("state", "scan", *where, "-s", "delays", "--start", "UA10", "--stop", "UA13").stdout
    assert ["UA10", "UA11", "UA12"] == [row.split("\t")[0] for row in rows.splitlines()]
    limited = run("state", "scan", *where, "-s", "days", "--reverse", "--limit", 2, "--json")
    assert [1, 0] == [json.loads(row)["key"] for row in limited.stdout.splitlines()]
    assert "there is more after these 2" in limited.stderr
    everything = run("state", "scan", *where, "-s", "delays", "--limit", 0)
    assert (50, "") == (len(everything.stdout.splitlines()), everything.stderr)
    raw = run("state", "scan", *where, "-s", "raw", "--json").stdout.splitlines()
    assert {"key": {"hex": "0300ff"}, "value": {"hex": "787878"}} == json.loads(raw[3])


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["-t", "EWR", "-s", "delays", "-k", "XX"], 3, "no key 'XX'"),
        (["-t", "EWR", "-s", "dalays", "-k", "XX"], 3, "no store 'dalays'; it has delays, raw, days"),
        (["-t", "JFK", "-s", "delays", "-k", "XX"], 3, "no task 'JFK'"),
        (["-t", "Partition 0", "-s", "delays", "-k", "XX"], 3, "no checkpoint yet"),
        (["-t", "EWR", "-s", "delays", "-k", "XX", "--at", "1-2"], 3, "no checkpoint 1-2"),
        (["-t", "EWR", "-s", "delays", "-k", "XX", "--at", "latest"], 3, "neither the id of a checkpoint nor a pin"),
        (["-t", "EWR", "-s", "days", "-k", "two"], 2, "'two' cannot be a key"),
        (["-t", "EWR", "-s", "days", "-k", str(1 << 64)], 2, "beyond 64 bits"),
        (["-t", "EWR", "-s", "raw", "-k", "xyz", "--hex"], 2, "'xyz' cannot be a key"),
        (["-t", "EWR", "-s", "delays", "-k", "00", "--hex"], 2, "--hex is for keys of serde bytes"),
        (["-s", "delays", "-k", "UA07"], 2, "several tasks, choose one with --task: EWR, Partition 0"),
    ],
)
def test_what_cannot_be_got_says_why(still_job: tuple[Path, list[str]], args: list[str], code: int, text: str):
    """Each wrong question has its exit code and a few lines on standard error, and nothing on standard output."""
    result = run("state", "get", "-c", still_job[0], *args)

    assert (code, "") == (result.exit_code, result.stdout)
    assert text in result.stderr
    assert 2 <= len(result.stderr.splitlines()) <= 4
    assert "Traceback" not in result.stderr


def test_state_that_no_backend_has_ends_with_3_and_damage_with_4(job: tuple[Path, list[str]], images):
    """Gone and damaged are told apart by the exit code."""
    config, _ = job
    question = ("state", "get", "-c", config, "-t", "EWR", "-s", "raw", "-k", "plain")
    image = images(config.parent / "archive", "raw")[-1]
    (image / "CURRENT").write_bytes(b"damaged")
    assert 4 == run(*question).exit_code
    shutil.rmtree(image)
    assert 3 == run(*question).exit_code


# Plans


def test_restore_plan(still_job: tuple[Path, list[str]]):
    """Without --task every task is explained: where each store would come from and why, and what comes next."""
    planned = said("restore", "--plan", "-c", still_job[0])

    candidate = {"source": "str", "verdict": "str", "reason": "str", "marker": "str"}
    store = {"store": "str", "source": "str", "reason": "str", "candidates": [candidate]}
    plan = {
        "task": "str",
        "checkpoint": "str",
        "reason": "str",
        "possible": "bool",
        "refusal": "NoneType",
        "stores": [store],
        "ignored": [],
    }
    assert {"job": "str", "plans": [plan]} == shape(planned)
    text = run("restore", "--plan", "-c", still_job[0]).stdout
    assert re.search(r"^delays +archive +then ", text, re.MULTILINE)
    assert "task Partition 0: the task has no checkpoint: every store begins empty" in text


def test_a_plan_that_would_be_refused_ends_with_1(job: tuple[Path, list[str]]):
    """A restore that the configuration forbids is no success of the plan."""
    config, _ = job
    config.write_text(config.read_text().replace('"Partition 0"]', '"Partition 1"]'))

    result = run("restore", "--plan", "-c", config, "-t", "EWR")

    assert 1 == result.exit_code
    assert "refused: task 'EWR': its checkpoint was made with 2 tasks" in result.stdout


def test_a_restore_without_plan_is_refused(still_job: tuple[Path, list[str]]):
    """The command restores nothing by itself, and says who does."""
    result = run("restore", "-c", still_job[0])

    assert 2 == result.exit_code
    assert "--plan" in result.stderr


# Plugins


def test_backends_lists_what_a_configuration_can_name():
    """Installed, missing and broken plugins have a row each, which says what to do."""

    class Broken:
        pass

    with plugins.registered(plugins.BACKENDS, "bent", Broken):
        text, listed = run("backends").stdout, said("backends")

    rows = {(row["kind"], row["name"]): row for row in listed["plugins"]}  # type: ignore[index,call-overload]
    assert rows["backend", "rocksdb-local"]["ok"]
    assert ["directory", "durable", "point-in-time"] == rows["backend", "rocksdb-local"]["capabilities"]
    assert not rows["backend", "bent"]["ok"]
    assert re.search(r"^bent .*broken: ", text, re.MULTILINE)
    assert re.search(r"^memory +engine +millpond ", text, re.MULTILINE)


# How it ends


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError(), 2),
        (errors.PluginError(), 2),
        (errors.StateNotFoundError(), 3),
        (errors.StateCorruptError(), 4),
        (errors.TransientError(), 5),
        (errors.FencedError(), 5),
        (errors.FormatError(), 6),
        (ZeroDivisionError(), 70),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_exit_code(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch):
    """A script can tell by the exit code what to do; nobody sees a traceback unless it was asked for."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(plugins, "describe", fail)

    quiet, loud = run("backends"), run("backends", "--debug")

    assert code == quiet.exit_code == exit_code(error)
    assert quiet.stderr.startswith("millpond: ")
    assert loud.exception is error


def test_an_interrupt_ends_with_130(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C is one line and the shell's own code."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins, "describe", interrupt)

    result = run("backends")

    assert 130 == result.exit_code
    assert ["millpond: interrupted; nothing was changed"] == result.stderr.splitlines()


def test_a_reader_that_leaves_early_is_no_failure_to_report(still_job: tuple[Path, list[str]]):
    """`millpond state scan | head` ends quietly."""
    command = [sys.executable, "-m", "millpond", "state", "scan", "-s", "delays", "-t", "EWR", "-c", str(still_job[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()

        assert b"" == process.stderr.read()
        assert 141 == process.wait(60)


def test_records_in_another_process_are_announced(tmp_path: Path):
    """A job whose checkpoint manager keeps its records in memory shows none, and the command says why."""
    config = tmp_path / "job.toml"
    config.write_text(
        f'[job]\nname = "m"\nstate_dir = "{tmp_path}/state"\n[checkpoint]\nmanager = "memory"\n'
        '[stores.s]\nengine = "memory"\nephemeral = true\n'
    )

    result = run("checkpoints", "list", "-c", config)

    assert 3 == result.exit_code
    assert "keeps its records in the job's own process" in result.stderr


# What a terminal shows


@pytest.mark.parametrize("columns", [80, 200])
def test_a_terminal_is_never_overflown(still_job: tuple[Path, list[str]], columns: int):
    """No line is wider than the terminal; what had no room is named, and a wide one has room for all."""
    command = [sys.executable, "-m", "millpond", "checkpoints", "list", "-t", "EWR", "-c", str(still_job[0])]

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", on_terminal(command, columns))

    assert max(map(len, text.splitlines())) <= columns
    assert ("too narrow for" in text) == (columns == 80)
    assert ("parent" in text.splitlines()[1]) == (columns == 200)


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals_that_want_it(still_job: tuple[Path, list[str]], env: dict[str, str], coloured: bool):
    """States are coloured on a terminal, unless NO_COLOR or the terminal says otherwise."""
    command = [sys.executable, "-m", "millpond", "checkpoints", "verify", "-t", "EWR", "-c", str(still_job[0])]

    assert coloured == ("\x1b[32mok" in on_terminal(command, 100, env))


def test_elsewhere_there_is_no_escape_sequence(still_job: tuple[Path, list[str]]):
    """A pipe gets plain text, with every column."""
    command = [sys.executable, "-m", "millpond", "checkpoints", "verify", "-t", "EWR", "-c", str(still_job[0])]

    result = subprocess.run(
        command, capture_output=True, timeout=60, check=True, env={**os.environ, "FORCE_COLOR": "1"}
    )

    assert b"\x1b" not in result.stdout + result.stderr


# Values and tables


@pytest.mark.parametrize(
    ("text", "serde", "key"),
    [
        ("UA 7", "str", "UA 7"),
        ("-5", "int", -5),
        ("ü", "bytes", "ü".encode()),
        ('["EWR", 7]', "json", ["EWR", 7]),
        ("7", "msgspec", 7),
        ("7", "my.module:serde", 7),
        ("EWR", "my.module:serde", "EWR"),
    ],
)
def test_a_key_is_written_as_its_serde_has_it(text: str, serde: str, key: object):
    """Text, numbers and JSON become what the store's keys are."""
    assert key == parse_key(text, serde, as_hex=False)


def test_values_are_shown_on_one_line_without_control_characters():
    """Bytes that are no text are hex, and what would move the cursor is escaped."""
    assert "0x1b5b" == show_value(b"\x1b[")
    assert '"\\u001b[2J"' == show_value("\x1b[2J")
    assert "text" == show_value(b"text")
    assert "0x30783030" == show_value(b"0x00")
    assert "0x74" == show_value(b"t", as_hex=True)


def test_whatever_a_serde_gives_becomes_json():
    """Bytes, odd keys, endless floats, times and objects of a class of its own have a stable form."""
    from datetime import UTC, datetime

    value = {"a": (b"\xff", float("inf"), 1.5), "b": {1: None}, "c": datetime(2013, 1, 1, tzinfo=UTC), "d": 1j}

    assert {
        "a": [{"hex": "ff"}, {"text": "inf"}, 1.5],
        "b": {"entries": [[1, None]]},
        "c": {"text": "2013-01-01T00:00:00+00:00"},
        "d": {"text": "1j"},
    } == json.loads(json.dumps(plain(value)))


def test_a_plain_table_is_aligned():
    """Titles are upper case, numbers stand to the right, and a cell stays on its line."""
    columns = (Column("store"), Column("size", right=True), Column("detail"))

    assert ["STORE   SIZE  DETAIL", "delays     7  two lines", "raw     1234"] == plain_lines(
        columns, [["delays", "7", "two\nlines"], ["raw", "1234", ""]]
    )


def test_a_narrow_terminal_loses_what_can_be_spared_most():
    """Columns go by their number, the largest first, and those with 0 stay whatever happens."""
    columns = (Column("a" * 10), Column("b" * 10, 1), Column("c" * 10, 2))

    assert [[0, 1, 2], [0, 1], [0], [0]] == [fitting(columns, [], width) for width in (34, 33, 21, 5)]


def test_times_beyond_the_calendar_are_shown_all_the_same():
    """An id may hold any 64-bit number; the command does not stumble over it."""
    beyond = (1 << 63) - 1

    assert (f"{beyond} ms", None) == (local_time(beyond), utc_time(beyond))
    assert "2023-11-14T22:13:20.000+00:00" == utc_time(1700000000000)
    assert ("in the future", "1 h 1 min") == (age_text(beyond, 0), age_text(0, 3_660_000))
