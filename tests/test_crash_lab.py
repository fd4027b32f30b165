"""The crash lab: at CI size on each kind of place, its parts alone, and that it finds what is broken."""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_runs import lab, run, slow

from millpond.errors import ConfigError, FormatError
from millpond.points import ENGINE_POINTS
from millpond.testing.lab import seeds, short_writes
from millpond.testing.lab.disk import Disk, Kept, tree
from millpond.testing.lab.places import Place
from millpond.testing.lab.seeds import seeds_of
from millpond.testing.lab.story import story_of
from millpond.testing.lab.syscalls import calls, command
from millpond.testing.lab.world import STORES, Difference, compare, expected

ROOT = Path(__file__).parents[1]
BACKENDS = ("rocksdb-local", "fsspec", "changelog")
WITH_UNREAD_BYTES: dict[str, set[str]] = {
    "rocksdb-local": set(),
    "fsspec": {"objects/…/main"},  # packs: manifests of other checkpoints, footers, files that were written anew
    # The slot before the last; and the frame that says again what the last one decided, about the newest append.
    "changelog": {"log/owners", "log/topics"},
}
needs_strace = pytest.mark.skipif(command(Path("log")) is None, reason="no strace here (apt-get install strace)")


# At CI size


@slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_killed_at_every_point_nothing_is_lost_or_left(backend: str) -> None:
    """Over the fixed seeds a job dies at each point and at any moment; each goes on exactly, and leaves nothing."""
    end = len(Place.named(backend, None).points()) + 6

    found = lab("--backend", backend, "--seeds", f"0-{end}", "--json")

    assert end == found["runs"]
    assert [] == found["failed"]
    assert [] == found["missed"]
    assert found["deaths"]["any moment"] > 0


@slow
@pytest.mark.parametrize(("backend", "count"), [("rocksdb-local", 90), ("fsspec", 60), ("changelog", 60)])
def test_a_flipped_bit_never_gives_another_state(backend: str, count: int) -> None:
    """One bit turned in a record, an object or a file that is read back is an error, or another copy is taken."""
    found = lab("--backend", backend, "--flips", str(count), module=".flips")

    assert [] == found["told"]
    assert count == found["error"] + found["fell back"]
    assert WITH_UNREAD_BYTES[backend] >= set(found["not read in"])


@slow
@needs_strace
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_power_cut_leaves_gives_the_last_commit_back(backend: str) -> None:
    """Wherever the power is cut, and whatever is kept of what was not synced, the last acknowledged commit is there."""
    found = lab("--backend", backend, "--cuts", "24", module=".powercut")

    assert [] == found["told"]
    assert found["exact"] + found["from another copy"] == 24


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here (apt-get install gcc)")
def test_writes_that_stop_half_way_are_gone_on_with(tmp_path: Path) -> None:
    """Under the library a write does half of what was asked, and what we write durably is whole all the same."""
    library = short_writes.build(tmp_path)
    script = (
        "import os, sys; from pathlib import Path; from millpond.local import create_durably\n"
        "folder = Path(sys.argv[1]); descriptor = os.open(folder / 'bare', os.O_CREAT | os.O_WRONLY)\n"
        "print(os.write(descriptor, bytes(1000)))\n"
        "create_durably(folder / 'ours', bytes(range(256)) * 1000)"
    )
    environment = {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)

    assert "500" == ended.stdout.strip()
    assert bytes(range(256)) * 1000 == (tmp_path / "ours").read_bytes()


@slow
@needs_strace
def test_a_call_that_fails_loses_nothing() -> None:
    """A sync, link or rename that fails, a full disk, or a kill at a call: the last acknowledged commit is there."""
    found = lab("--faults", "24", module=".edges")

    assert [] == found["told"]
    assert sum(found["hit"].values()) >= 14
    assert found["hit"]["short writes"] == (2 if shutil.which("cc") else 0)


# That it finds what is broken

LOSES = """
from millpond.commit.point import CommitPoint
CommitPoint.write = lambda self, attempt, checkpoint: None
"""
RESURRECTS = """
from millpond.stores.memory import MemoryEngine
whole = MemoryEngine.apply
MemoryEngine.apply = lambda self, changes: whole(self, [each for each in changes if each[1] is not None])
"""
LEAVES = """
from millpond_rocksdb.local import LocalBackup
from millpond_rocksdb.admin import LocalAdmin
LocalBackup.cleanup = lambda self, retained: None
LocalAdmin.garbage = lambda self, retained, grace: iter(())
"""
DIES = """
import os, signal
from millpond.testing.lab import seeds
seeds.Trial = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
"""
LEAKS = """
from millpond.local.owner import OwnerLock
import os
whole = OwnerLock.release
OwnerLock.release = lambda self: (os.dup(1), whole(self))[1]
"""
HALF = """
from millpond.commit.imaging import Imaging
whole = Imaging.stage
def stage(self, attempt):
    attempt.marks.pop("a", None)
    whole(self, attempt)
Imaging.stage = stage
"""


@slow
@pytest.mark.parametrize(
    ("patch", "word"),
    [(LOSES, "lost"), (RESURRECTS, "resurrected"), (LEAVES, "orphans"), (LEAKS, "leaked"), (HALF, "half")],
    ids=["loses", "resurrects", "leaves", "leaks", "half"],
)
def test_the_lab_finds_what_is_broken(patch: str, word: str) -> None:
    """A job that forgets commits, deletes or a store, leaves images, or leaks descriptors, fails with its seed."""
    found = lab("--seeds", "0-3", "--engine", "memory", "--json", patch=patch, code=1)

    assert found[word] > 0
    assert all(each["replay"].endswith(f"--engine memory --seeds {each['seed']}") for each in found["failed"])


@slow
@needs_strace
def test_the_power_cuts_find_what_was_not_synced() -> None:
    """A job that syncs nothing loses acknowledged commits."""
    found = lab("--cuts", "8", "--without-fsync", module=".powercut", code=1)

    assert found["wrong"] + found["refused"] > 0


@slow
def test_a_worker_that_dies_is_noticed() -> None:
    """Trials of which nothing is heard do not pass for trials that went well."""
    script = f"{DIES}\nimport runpy; runpy.run_module('millpond.testing.lab', run_name='__main__')"
    ended = subprocess.run(
        [sys.executable, "-c", script, "--seeds", "0-2", "--engine", "memory"],
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )

    assert ended.returncode == 1
    assert "a worker of the lab ended by 9 after 0 of its 1 trials" in ended.stderr


HANGS = """
import threading
from millpond.testing.lab import flips
flips._HANG_S = 1.0
def wait_for_a_day(*_):
    threading.Event().wait(86_400)
flips.look = wait_for_a_day
"""


@slow
@needs_strace
def test_an_opening_that_hangs_is_a_verdict_of_its_own() -> None:
    """One that never ends is told as wrong, after it has shown its threads, and the run goes on to its end."""
    ended = run("--cuts", "2", module=".powercut", patch=HANGS, code=1)
    found = json.loads(ended.stdout)

    assert 2 == ended.stderr.count("in wait_for_a_day")
    assert 2 == found["wrong"]
    assert all("did not end within 1 s" in each for each in found["told"])


IMPATIENT = """
from attrs import evolve
from millpond.testing.lab import places
places.LOCAL = evolve(places.LOCAL, patience_s=0.0)
"""


@slow
def test_a_sleeper_that_holds_up_its_successor_is_woken_and_counted() -> None:
    """It is judged as ever: here every sleeper is woken when its successor is born, and nothing is lost by it."""
    points = Place.named("rocksdb-local", None).points()
    asleep = next(
        seed
        for seed in range(1000)
        if any(life.death and life.death.asleep for life in story_of(seed, points, ("memory",)).lives[:-1])
    )
    found = lab("--seeds", str(asleep), "--engine", "memory", "--json", patch=IMPATIENT)

    assert (1, []) == (found["woken"], found["failed"])


# Its parts


def test_a_story_is_its_seeds() -> None:
    """The same seed is the same story; the first ones name each point, and the last life looks."""
    points = Place.named("rocksdb-local", None).points()
    stories = [story_of(seed, points, ("memory",)) for seed in range(len(points))]

    assert stories == [story_of(seed, points, ("memory",)) for seed in range(len(points))]
    for point, story in zip(points, stories, strict=True):
        assert point in {life.death.point for life in story.lives if life.death is not None}
        assert [False] * (len(story.lives) - 1) + [True] == [life.last for life in story.lives]
    assert set(ENGINE_POINTS) <= set(points)


def test_the_model_counts_what_differs() -> None:
    """Missing, resurrected and changed keys are told apart; deleted keys occur, and each store holds something."""
    wanted = expected(7, 60)
    assert all(wanted[name] for name in STORES)
    assert not compare(wanted, wanted)
    found = {name: dict(content) for name, content in wanted.items()}
    found["a"][b"never"] = b"1"
    found["rare"][next(iter(found["rare"]))] = b"other"
    del found["b c"][next(iter(found["b c"]))]

    assert Difference(missing=1, resurrected=1, changed=1) == compare(found, wanted)
    every = {(each, key) for until in range(60) for each, content in expected(7, until).items() for key in content}
    assert every > {(name, key) for name, content in wanted.items() for key in content}


@pytest.mark.parametrize("text", ["", "x", "3-", "-3", "1-x"])
def test_seeds_are_a_number_or_a_range(text: str) -> None:
    """``7`` is one seed, ``3-5`` are two, anything else is refused."""
    assert [7] == list(seeds_of("7"))
    assert [3, 4] == list(seeds_of("3-5"))
    with pytest.raises(ConfigError):
        seeds_of(text)


def test_trials_work_in_memory_where_there_is_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that is missing, or has too little room, is not taken."""
    monkeypatch.setattr(seeds, "_IN_MEMORY", tmp_path)
    monkeypatch.setattr(seeds, "_ROOM", 0)
    assert tmp_path == seeds.in_memory()
    monkeypatch.setattr(seeds, "_ROOM", 1 << 60)
    assert seeds.in_memory() is None
    monkeypatch.setattr(seeds, "_ROOM", 0)
    monkeypatch.setattr(seeds, "_IN_MEMORY", tmp_path / "missing")
    assert seeds.in_memory() is None


def traced(*lines: str) -> list:
    return list(calls(f"7 {line}\n" for line in lines))


def hexed(text: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def cut(disk: Disk, folder: Path, kept: Kept) -> dict:
    target = folder / kept.name
    disk.write_after_a_cut(target, kept, random.Random(1))
    return dict(tree(target))


def test_the_disk_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    """A write needs its file's sync, a name its folder's; a rename is lost or whole; torn states are in between."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"old")
    disk = Disk.of(root)
    path = hexed(f"{root}/new")
    script = [
        f"openat(AT_FDCWD, {path}, O_WRONLY|O_CREAT, 0666) = 3",
        f"write(3, {hexed('safe')}, 4) = 4",
        "fsync(3) = 0",
        f"write(3, {hexed('lost')}, 4) = 4",
        f"openat(AT_FDCWD, {hexed(str(root))}, O_RDONLY|O_DIRECTORY) = 4",
        "fsync(4) = 0",
        f"rename({path}, {hexed(f'{root}/old')}) = 0",
        f"mkdir({hexed(f'{root}/sub')}, 0777) = 0",
    ]
    assert [True, True, True, True, False, True, True, True] == [disk.do(call) for call in traced(*script)]

    assert {"old": b"old", "new": b"safe"} == cut(disk, tmp_path, Kept.NOTHING)
    assert {"old": b"safelost", "sub": None} == cut(disk, tmp_path, Kept.ALL)
    assert {"old": b"safe", "sub": None} == cut(disk, tmp_path, Kept.NAMES)
    assert {"old": b"safe\0\0\0\0", "sub": None} == cut(disk, tmp_path, Kept.ZEROS)
    assert {"old": b"old", "new": b"safelost"} == cut(disk, tmp_path, Kept.CONTENT)
    some = cut(disk, tmp_path, Kept.SOME)
    assert b"safelost".startswith(some.get("new", some["old"]))


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    """What another thread writes while a sync is on its way is not made durable by it."""
    disk = Disk("/disk")
    script = [
        f"7 openat(AT_FDCWD, {hexed('/disk/f')}, O_WRONLY|O_CREAT, 0666) = 3",
        f"7 write(3, {hexed('a')}, 1) = 1",
        "8 fsync(9) = -1 EBADF (Bad file descriptor)",
        "7 fsync(3 <unfinished ...>",
        f"8 write(3, {hexed('b')}, 1) = 1",
        "7 <... fsync resumed>) = 0",
    ]
    found = list(calls(script))
    assert ["openat", "write", "write", "fsync"] == [call.name for call in found]
    for call in found:
        disk.do(call)

    (file,) = disk.top.now.values()
    assert (b"ab", b"a") == (file.now, file.safe)


def test_a_close_that_ends_late_closes_nothing_else() -> None:
    """Another thread is given the number of a descriptor before its close has ended: what it writes there is seen."""
    disk = Disk("/disk")
    script = [
        f"7 openat(AT_FDCWD, {hexed('/disk/f')}, O_WRONLY|O_CREAT, 0666) = 3",
        "8 openat(AT_FDCWD, NULL, 0) = -1 EFAULT (Bad address)",
        "7 close(3 <unfinished ...>",
        f"8 openat(AT_FDCWD, {hexed('/disk/g')}, O_WRONLY|O_CREAT, 0666) = 3",
        "7 <... close resumed>) = 0",
        f"8 write(3, {hexed('b')}, 1) = 1",
        "8 close(3) = 0",
        f"8 write(3, {hexed('c')}, 1) = 1",
    ]
    for call in calls(script):
        disk.do(call)

    assert {"f": b"", "g": b"b"} == {name: bytes(node.now) for name, node in disk.top.now.items()}


def test_a_trace_that_cannot_be_read_is_refused() -> None:
    """A line that strace does not write, and data that it has cut, are errors."""
    with pytest.raises(FormatError, match="not a line"):
        traced("what?")
    with pytest.raises(FormatError, match="-s"):
        traced('write(3, "\\x00"..., 5) = 5')[0].data(1)


# A new step has a point

PUBLISHING = {"rename", "replace", "link", "create_durably", "write_durably"}
STORING = {"put", "delete", "create"}
ROOMS = ("commit", "restore", "opening", "local", "records", "blob")
WITHOUT_A_POINT = {
    "local/durable.py _link_or_open": "a step of create_durably, with a point before and after",
    "local/durable.py write_durably": "quarantine and doctor alone use it: what it writes is for people",
    "local/images.py _link_or_copy": "into a live folder, which nobody trusts after a restart",
    "records/ledger.py _create_claim": "of claim, with a point before and after",
    "records/ledger.py _publish": "between commit.before-write and commit.written",
    "records/pins.py put": "an operator's pin, whole by create_durably",
    "records/pins.py remove": "an operator's pin: one removal",
    "blob/backup.py _put": "between blob.objects-sent and blob.pack-sent",
    "blob/admin.py _remove_all": "gc.before-removal is before it",
    "blob/folder.py create": "one request, with the points of whoever asks",
    "blob/folder.py delete": "one request, with the points of whoever asks",
    "blob/restore.py _bring": "into the restore's own folder, sealed afterwards",
    "blob/probe.py": "probes have names of their own",
    "blob/savepoint.py": "a copy for another place; its record is put last",
    "millpond_zookeeper/shelf.py": "one request, with the points of whoever asks",
    "millpond_rocksdb/admin.py _probe": "probes have names of their own",
    "millpond_rocksdb/local.py _bring": "into the staging folder, before rocksdb-local.files-brought",
    "millpond_rocksdb/local.py _fill": "into the restore's own folder, sealed afterwards",
    "millpond_rocksdb/transfer.py _link": "into the staging or the restore's folder",
    "millpond_fsspec/files.py _put": "a caller of create_durably and _replace, which have points",
}


def steps() -> Iterator[tuple[str, bool]]:
    """Give the functions that publish or remove something, and whether each reaches a point."""
    rooms = [file for room in ROOMS for file in sorted(ROOT.glob(f"src/millpond/{room}/*.py"))]
    for file in [*rooms, *sorted(ROOT.glob("backends/*/src/*/*.py"))]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                made = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
                if any(map(publishes, made)):
                    yield (
                        f"{file.parent.name}/{file.name} {node.name}",
                        any(name_of(each) == "reached" for each in made),
                    )


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def publishes(call: ast.Call) -> bool:
    name, owner = name_of(call), ast.unparse(call.func).rpartition(".")[0]
    if name in STORING:
        return owner.endswith(("store", "folder"))
    return name in PUBLISHING and not (name == "replace" and len(call.args) != 1)


def test_a_new_step_has_a_point_or_a_reason() -> None:
    """Each function that publishes or removes something reaches a point, or says why its neighbours' are enough."""
    found = dict(steps())
    excused = {name for name in found for known in WITHOUT_A_POINT if name == known or name.startswith(known)}

    assert len(found) > 15
    assert set() == {name for name, has_a_point in found.items() if not has_a_point} - excused
    assert all(any(name.startswith(known) for name in found) for known in WITHOUT_A_POINT), "a reason is out of date"
