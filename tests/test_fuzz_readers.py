"""The fuzzer: every reader of bytes is in its table, bears what is nearly right, and what is not borne is found."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millpond.checkpoint import CheckpointId, SystemStreamPartition
from millpond.config import load
from millpond.errors import ConfigError, FormatError, MillpondError
from millpond.testing.fuzz.insides import change_file_of, with_digest, without_digest
from millpond.testing.fuzz.mutation import changed, mutated
from millpond.testing.fuzz.reader import Reader, leads_outside
from millpond.testing.fuzz.readers import READERS
from millpond.testing.fuzz.running import input_of

ROOT = Path(__file__).parents[1]
SIZE = int(os.environ.get("MILLPOND_FUZZ", "150"))
"""Inputs of each reader; the nightly size is 20,000."""

slow = pytest.mark.timeout(60 + SIZE * 2)


def fuzzed(*arguments: str, code: int = 0, before: str = "") -> dict:
    """Run the command in a process of its own, which has no thread yet; give its JSON."""
    script = f"{before}\nimport runpy; runpy.run_module('millpond.testing.fuzz', run_name='__main__')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])}
    ended = subprocess.run(
        [sys.executable, "-c", script, *arguments, "--json"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert ended.returncode == code and ended.stdout, ended.stderr[-3000:]
    return json.loads(ended.stdout)


@slow
def test_every_reader_bears_what_is_nearly_right() -> None:
    """No input makes a reader crash, hang, take memory, touch other files, lead outside, or raise what is not ours."""
    found = fuzzed("--seeds", f"0-{SIZE}")

    assert [] == found["findings"]
    assert {reader.name for reader in READERS} == set(found["inputs"])
    assert {SIZE} == set(found["inputs"].values())


def test_every_format_has_a_row() -> None:
    """A module of formats/ that is in no row of the table is one that nobody fuzzes."""
    files = (ROOT / "src/millpond/formats").glob("*.py")
    modules = {f"millpond.formats.{file.stem}" for file in files if file.stem != "__init__"}
    tried = {module for reader in READERS for module in reader.modules}

    assert set() == modules - tried
    for module in tried:
        importlib.import_module(module)


def test_names_are_unique() -> None:
    """A finding names its reader, so no two have one name."""
    names = [reader.name for reader in READERS]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_what_is_valid_is_read(reader: Reader, tmp_path: Path) -> None:
    """The first valid input of each reader is one, and an inside that is sealed again, unchanged, too."""
    reader.read(reader.valid[0], tmp_path)
    if reader.insides:
        reader.read(reader.seal(reader.insides[0]), tmp_path)


@pytest.mark.parametrize("reader", [each for each in READERS if each.insides], ids=lambda reader: reader.name)
def test_the_inside_is_reached(reader: Reader, tmp_path: Path) -> None:
    """Of inputs whose inside was changed many pass the digest: they are read, or refused for what is behind it."""
    chance, passed = random.Random(1), 0
    for _ in range(60):
        data = reader.seal(reader.mutate(reader.insides[0], reader.insides, chance))
        try:
            reader.read(data, tmp_path)
            passed += 1
        except MillpondError as error:
            text = str(error)  # a frame that cannot be read says "checksum or shape", and why in brackets
            passed += "digest" not in text and ("checksum" not in text or "(" in text)
    assert passed > 15


def test_an_input_is_its_seed() -> None:
    """The same seed gives the same input, another seed another one."""
    for reader in READERS:
        assert input_of(reader, 5) == input_of(reader, 5)
    assert len({input_of(READERS[0], seed) for seed in range(40)}) > 30


def test_changes_change() -> None:
    """Changed bytes and changed values differ from what they were made of, nearly always, and end within bounds."""
    chance = random.Random(3)
    value = {"a": [1, {"b": "text"}], "c": None}
    assert sum(mutated(b"0123456789" * 5, (), chance) != b"0123456789" * 5 for _ in range(100)) > 80
    assert sum(changed(value, chance) != value for _ in range(100)) > 80
    assert value == {"a": [1, {"b": "text"}], "c": None}
    assert max(len(mutated(b"x" * 300_000, (), chance)) for _ in range(20)) <= 1 << 18


def test_seals_are_right() -> None:
    """A digest that is taken off and put on again gives the same bytes; a payload in a file is read."""
    whole = next(reader for reader in READERS if reader.name == "checkpoint v2").valid[1]
    assert with_digest(without_digest(whole)) == whole
    assert change_file_of(b"\x90").startswith(b"\x89MPCF")


@pytest.mark.parametrize("path", ["/a", "../a", "a/../b", "a\0", "a\\b"])
def test_paths_that_lead_outside_are_seen(path: str) -> None:
    """Absolute paths, steps upwards and what some systems take for them are seen; names inside are not."""
    assert leads_outside(path)
    assert not leads_outside("a/..b/c.d")


VALID = bytes(range(200))
SEED = 8  # memory is measured at every eighth
BROKEN = {
    "crashes": "import os; os.kill(os.getpid(), 11)",
    "hangs": "import threading; threading.Event().wait()",
    "raises": "{}['x']",
    "allocates": "bytearray(1 << 31)",
    "holds much": "held = [bytes(1 << 20) for _ in range(20)]",
    "reads elsewhere": "open('/etc/hostname').close()",
    "leads outside": "return '../x'",
    "says nothing": "raise FormatError('')",
    "is slow": "import time; end = time.process_time() + 0.9\n    while time.process_time() < end: pass",
}
WORDS = {
    "crashes": "the process ended with 11",
    "hangs": "hangs",
    "raises": "raised KeyError",
    "allocates": "raised MemoryError",
    "holds much": "held ",
    "reads elsewhere": "touched what is not its own",
    "leads outside": "names a path outside",
    "says nothing": "says nothing",
    "is slow": "of processor time",
}


@slow
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_borne_is_found(name: str) -> None:
    """A reader that crashes, hangs, allocates, reads elsewhere or raises something else at one input is found."""
    before = f"""
import sys, types
from millpond.errors import FormatError
from millpond.testing.fuzz import reader, running
from millpond.testing.fuzz.reader import Reader
running.HANG_S, reader.LONGEST_S = 10.0, 0.1

def bad(data, folder):
    {BROKEN[name]}

def read(data, folder):
    return bad(data, folder) if data == target else None

table = types.ModuleType("broken_readers")
broken = Reader(name="broken", modules=(), read=read, valid=({VALID!r},), paths=lambda value: [value] if value else [])
target = running.input_of(broken, {SEED})
table.READERS = [broken]
sys.modules["broken_readers"] = table
"""
    found = fuzzed("--table", "broken_readers:READERS", "--reader", "broken", "--seeds", "0-20", before=before, code=1)

    (finding,) = found["findings"]
    assert WORDS[name] in finding["what"]
    assert "broken" == finding["reader"]
    assert 20 == found["inputs"]["broken"]
    reader = Reader(name="broken", modules=(), read=lambda data, folder: None, valid=(VALID,))
    assert SEED == finding["seed"]
    assert bytes.fromhex(finding["data"]) == input_of(reader, SEED)[:2000]


def test_a_table_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The name of a table that does not exist is a ConfigError, not a run of nothing."""
    from millpond.testing.fuzz.__main__ import others

    with pytest.raises(ValueError, match="no table of readers"):
        others(["no_such_module:READERS"])


def test_errors_of_a_small_reader_are_refusals(tmp_path: Path) -> None:
    """A documented ValueError of a reader of texts counts as a refusal, others do not."""
    from millpond.testing.fuzz.reader import of_text

    read: Callable[[bytes, Path], object] = of_text(int, ValueError)
    with pytest.raises(FormatError):
        read(b"x", tmp_path)


@slow
def test_the_changelogs_readers_bear_what_is_nearly_right() -> None:
    """Topics, segments, owners' files, markers, stamps and keys of the changelog, likewise."""
    pytest.importorskip("millpond_changelog")
    found = fuzzed("--table", "fuzz_changelog", "--reader", "log ", "--seeds", f"0-{SIZE}")

    assert [] == found["findings"]
    assert 6 == len(found["inputs"])


def test_a_changelog_marker_with_half_a_character_is_refused() -> None:
    """JSON may hold half a surrogate pair, in our own field of a marker too: that is a FormatError."""
    marker = pytest.importorskip("millpond_changelog.marker")
    ssp = SystemStreamPartition("k", "t", 0)
    text = marker.encode(marker.Marker(ssp, 7, marker.Origin("00ff", 3, CheckpointId(1, 2), 4)), "owner")

    assert marker.decode(text, "owner").offset == 7
    with pytest.raises(FormatError):
        marker.decode(text.replace('"00ff"', '"\udcc9"'), "owner")


DEEP = {
    "keys.toml": "a" + ".a" * 30_000 + " = 1\n",
    "table.toml": "[a" + ".'a b'" * 30_000 + "]\nx = 1\n",
    "inner.toml": "x = { y" + " . a" * 30_000 + " = 1 }\n",
    "few.toml": "a" + ".a" * 40 + " = 1\n",
    "flat.properties": "millpond.job" + ".a" * 30_000 + " = 1\n",
}


@pytest.mark.timeout(60)  # with the square of its parts it takes ten minutes
@pytest.mark.parametrize("name", DEEP)
def test_a_key_of_very_many_parts_is_refused_soon(name: str, tmp_path: Path) -> None:
    """A configuration whose key has thousands of parts is refused, neither by the recursion's end nor after minutes."""
    (tmp_path / name).write_text(DEEP[name])
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(tmp_path / name, {})


def test_a_variable_of_very_many_parts_is_refused() -> None:
    """So is a variable of the environment; a mapping's dotted key too."""
    with pytest.raises(ConfigError, match="too many parts"):
        load({}, {"MILLPOND_JOB" + "__A" * 3000: "1"})
    with pytest.raises(ConfigError, match="nested too deeply"):
        load({"millpond.job" + ".a" * 3000: "1"}, {})
