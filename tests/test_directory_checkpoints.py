"""Tests of ``checkpoints.directory`` and ``.memory``: real files, several processes, kills and full disks."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier as ProcessBarrier
from pathlib import Path
from typing import cast

import pytest
from attrs import evolve

from millpond.checkpoint import Checkpoint, CheckpointId, Claim, Layout, SystemStreamPartition
from millpond.checkpoints import directory
from millpond.checkpoints.directory import DirectoryCheckpoints, DirectoryCheckpointsConfig, DirectoryFolder
from millpond.checkpoints.memory import MemoryCheckpoints, MemoryCheckpointsConfig
from millpond.clock import SystemClock
from millpond.errors import ConfigError, FencedError, FormatError, StateCorruptError, TransientError
from millpond.records import NumberedCheckpoints
from millpond.spi import JobContext, Listener, Transfers, VersionPolicy

INPUT = SystemStreamPartition("kafka", "flights.in", 0)
SPAWN = multiprocessing.get_context("spawn")
DEADLINE_S = 60
STEPS = {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}


def job_context(job: str = "flights", job_id: str = "1") -> JobContext:
    return JobContext(job, job_id, None, cast(Listener, None), SystemClock(), cast(Transfers, None))


def manager_at(path: Path, job: str = "flights", job_id: str = "1") -> DirectoryCheckpoints:
    return DirectoryCheckpoints(DirectoryCheckpointsConfig(path), job_context(job, job_id), VersionPolicy())


def files_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def checkpoint(millis: int) -> Checkpoint:
    return Checkpoint(CheckpointId(millis, 0), offsets={INPUT: str(millis)}, layout=Layout(("t",), "murmur2"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "my stäte"


@pytest.fixture
def manager(path: Path) -> DirectoryCheckpoints:
    return manager_at(path)


@pytest.fixture(params=["directory", "memory"])
def again(request: pytest.FixtureRequest, path: Path) -> Callable[[], NumberedCheckpoints]:
    """Give a fresh manager object over the same records each time."""
    if request.param == "directory":
        return lambda: manager_at(path)
    context = job_context(str(path))
    return lambda: MemoryCheckpoints(MemoryCheckpointsConfig(), context, VersionPolicy())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of its own with 64 KiB."""
    disk = tmp_path / "small disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


# Both managers


def test_a_new_object_finds_what_an_old_one_wrote(again: Callable[[], NumberedCheckpoints]) -> None:
    """Records, their order and pins outlive the object that wrote them, and are equal to what was written."""
    claim = again().claim("t")
    again().write(claim, checkpoint(1), after=None)
    again().write(claim, checkpoint(2), after=CheckpointId(1, 0))
    again().pin("t", CheckpointId(1, 0), "p")
    again().delete(claim, [CheckpointId(1, 0)])

    assert evolve(checkpoint(2), claim=claim) == again().read_last("t")
    assert [CheckpointId(2, 0)] == list(again().ids("t"))
    assert evolve(checkpoint(1), claim=claim) == again().read("t", CheckpointId(1, 0))
    assert {"p": CheckpointId(1, 0)} == again().pins("t")
    again().unpin("t", "p")
    assert {} == again().pins("t")


def test_a_claim_through_another_object_fences(again: Callable[[], NumberedCheckpoints]) -> None:
    """Fencing does not depend on one object knowing of both claims."""
    first, second = again(), again()
    old = first.claim("t")
    first.write(old, checkpoint(1), after=None)
    new = second.claim("t")

    with pytest.raises(FencedError):
        first.write(old, checkpoint(2), after=CheckpointId(1, 0))
    with pytest.raises(FencedError):
        first.delete(old, [CheckpointId(1, 0)])
    second.write(new, checkpoint(3), after=CheckpointId(1, 0))
    assert [3, 1] == [id.millis for id in again().ids("t")]


def test_tasks_are_named_as_they_were(again: Callable[[], NumberedCheckpoints]) -> None:
    """Names with spaces, slashes, dots and letters of any script come back, and reading makes no task."""
    names = [".", "..", "Partition 1", "Partition 11", "a/b", "partition 1", "ünion"]
    for name in names:
        again().claim(name)
    assert again().read_last("never was") is None

    assert names == list(again().tasks())


def test_no_task_has_an_empty_name(again: Callable[[], NumberedCheckpoints]) -> None:
    """An empty task name is a ConfigError, not a folder that is another's."""
    with pytest.raises(ConfigError):
        again().claim("")


def test_jobs_do_not_meet(path: Path) -> None:
    """Jobs of other names or ids in one folder see nothing of one another."""
    manager_at(path).claim("t")

    for other in (manager_at(path, "flights", "2"), manager_at(path, "flights2"), manager_at(path, "Flights")):
        assert [] == list(other.tasks())


def test_memory_says_that_it_forgets() -> None:
    """The memory manager is not durable, the directory manager is."""
    assert not MemoryCheckpoints.capabilities.durable
    assert DirectoryCheckpoints.capabilities.durable


# Several processes


def _create_all(path: str, name: str, rounds: int, start: ProcessBarrier, wins: multiprocessing.Queue[object]) -> None:
    folder = DirectoryFolder(Path(path), Path(path))
    won = []
    for number in range(rounds):
        start.wait(DEADLINE_S)
        if folder.create(str(number), name.encode() * 500):
            won.append(number)
    wins.put((name, won))


def test_of_two_processes_exactly_one_wins_each_record(path: Path) -> None:
    """In a hundred races of two processes for a name one is told that it won, and the file is whole and its."""
    rounds, start, wins = 100, SPAWN.Barrier(2), SPAWN.Queue()
    racers = [SPAWN.Process(target=_create_all, args=(str(path), n, rounds, start, wins)) for n in ("a", "b")]
    for racer in racers:
        racer.start()
    won = cast(dict[str, list[int]], dict(wins.get(timeout=DEADLINE_S) for _ in racers))
    for racer in racers:
        racer.join(DEADLINE_S)

    assert list(range(rounds)) == sorted(won["a"] + won["b"])
    for name, numbers in won.items():
        assert all((path / str(number)).read_bytes() == name.encode() * 500 for number in numbers)
    assert {str(number) for number in range(rounds)} == set(files_in(path))


def _count(path: str, rounds: int, start: ProcessBarrier, acknowledged: multiprocessing.Queue[int]) -> None:
    manager, written = manager_at(Path(path)), 0
    claim: Claim | None = None
    last: Checkpoint | None = None
    start.wait(DEADLINE_S)
    while written < rounds:
        if claim is None:
            claim = manager.claim("t")
            last = manager.read_last("t")
        count = int(last.offsets[INPUT]) if last else 0
        following = Checkpoint(CheckpointId(count + 1, os.getpid()), offsets={INPUT: str(count + 1)})
        try:
            manager.write(claim, following, after=last.id if last else None)
            last, written = following, written + 1
            manager.delete(claim, list(manager.ids("t"))[2:])
        except FencedError:
            claim = None
        if written % 7 == 0:
            claim = None
    acknowledged.put(written)


def test_processes_that_take_a_task_from_one_another_lose_no_update(path: Path) -> None:
    """Three processes claim, read, add one and write by turns: the last count is the number of acknowledged writes."""
    rounds, start, acknowledged = 40, SPAWN.Barrier(3), SPAWN.Queue()
    counters = [SPAWN.Process(target=_count, args=(str(path), rounds, start, acknowledged)) for _ in range(3)]
    for counter in counters:
        counter.start()
    total = sum(acknowledged.get(timeout=DEADLINE_S) for _ in counters)
    for counter in counters:
        counter.join(DEADLINE_S)

    last = manager_at(path).read_last("t")
    assert last is not None
    assert str(total) == last.offsets[INPUT]


# The file system


def test_a_file_system_without_links_is_exclusive_too(
    manager: DirectoryCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where links are not permitted, a name is still created once, and the loser leaves nothing."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    folder = manager.records_folder("t")

    assert folder.create("1", b"first")
    assert not folder.create("1", b"second")
    assert (b"first", ["1"]) == (folder.read("1"), files_in(folder.path))
    manager.validate_resources()


def test_a_repeated_request_to_a_file_server_is_no_conflict(
    manager: DirectoryCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the server says that the name exists because it has just made it for us, we have won."""
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", repeated)

    assert manager.records_folder("t").create("1", b"ours")


def test_a_file_system_that_overwrites_is_found_out(
    manager: DirectoryCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation fails where both of two creations win, and leaves no probe behind."""

    def overwrite(path: Path, data: bytes) -> bool:
        path.write_bytes(data)
        return True

    manager.create_resources()
    manager.validate_resources()
    monkeypatch.setattr(directory, "create_durably", overwrite)

    with pytest.raises(ConfigError, match="2 won"):
        manager.validate_resources()
    assert [] == [p for p in manager.config.path.rglob("*") if "probe" in p.name]


def test_a_file_system_that_hangs_is_told(manager: DirectoryCheckpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer holds up neither the validation beyond its deadline nor the interpreter's exit."""
    gate = threading.Event()

    def hang(path: Path, data: bytes) -> bool:
        return gate.wait(60)

    monkeypatch.setattr(directory, "create_durably", hang)
    monkeypatch.setattr(directory, "_PROBE_DEADLINE_S", 0.2)

    with pytest.raises(TransientError, match="did not answer within"):
        manager.validate_resources()
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("millpond-probe"))
    gate.set()


def test_unfinished_files_are_no_records_and_go_when_they_are_old(manager: DirectoryCheckpoints) -> None:
    """What a killed creator left is not listed, and the next claim removes it once it is a day old."""
    manager.claim("t")
    folder = manager.records_folder("t")
    for name in (".new-old", ".new-young"):
        (folder.path / name).write_bytes(b"half")
    os.utime(folder.path / ".new-old", (0, 0))

    assert 1 == len(folder.names())
    manager.claim("t")
    assert [".new-young"] == [n for n in files_in(folder.path) if n.startswith(".")]


def test_a_link_that_leads_out_is_refused(manager: DirectoryCheckpoints, path: Path, tmp_path: Path) -> None:
    """A task's folder that is a symbolic link out of the path is neither read nor written."""
    (tmp_path / "outside").mkdir()
    (path / "flights").mkdir(parents=True)
    (path / "flights" / "t").symlink_to(tmp_path / "outside")

    with pytest.raises(ConfigError, match="leads out"):
        manager.claim("t")
    assert [] == files_in(tmp_path / "outside")


def test_a_file_in_the_way_is_an_error_of_ours(manager: DirectoryCheckpoints, path: Path) -> None:
    """A path that is a file is a ConfigError that names it, and no task without a checkpoint."""
    path.write_text("")
    for act in (manager.create_resources, lambda: manager.claim("t"), lambda: manager.read_last("t")):
        with pytest.raises(ConfigError, match="a file is where a folder must be"):
            act()


def test_a_huge_file_is_not_read(manager: DirectoryCheckpoints) -> None:
    """A record's name over a file larger than any record is damage, and takes no memory."""
    manager.claim("t")
    [name] = manager.records_folder("t").names()
    os.truncate(manager.records_folder("t").path / name, 1 << 40)

    with pytest.raises(StateCorruptError, match="larger than any"):
        manager.read_last("t")


@pytest.mark.parametrize("size", [0, 1, 40, -1])
def test_a_cut_record_is_named_with_its_path(manager: DirectoryCheckpoints, size: int) -> None:
    """However much of the newest record is left, reading raises with the file's path; the task never starts empty."""
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    file = min(manager.records_folder("t").path.iterdir())
    os.truncate(file, size if size >= 0 else file.stat().st_size + size)

    with pytest.raises((StateCorruptError, FormatError)) as error:
        manager_at(manager.config.path).read_last("t")
    assert str(file) in str(error.value)


def test_a_full_disk_publishes_nothing_and_is_over_when_there_is_space(small_disk: Path) -> None:
    """A write on a full disk is a TransientError, nothing of it can be seen, and the same write works later."""
    manager = manager_at(small_disk)
    claim = manager.claim("t")
    manager.write(claim, checkpoint(1), after=None)
    filler = small_disk / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)

    with pytest.raises(TransientError, match="the disk is full"):
        manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    assert [1] == [id.millis for id in manager_at(small_disk).ids("t")]
    assert 2 == len(files_in(manager.records_folder("t").path))

    filler.unlink()
    manager.write(claim, checkpoint(2), after=CheckpointId(1, 0))
    assert [2, 1] == [id.millis for id in manager_at(small_disk).ids("t")]


def test_a_write_that_breaks_off_publishes_nothing(manager: DirectoryCheckpoints) -> None:
    """When the system takes only the first bytes of a record, the record does not appear."""
    claim = manager.claim("t")
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            manager.write(claim, checkpoint(1), after=None)
        except TransientError:
            os._exit(0)
        os._exit(1)

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert 1 == len(files_in(manager.records_folder("t").path))
    assert manager.read_last("t") is None


def test_a_kill_at_any_step_of_a_write_leaves_the_checkpoint_or_none(manager: DirectoryCheckpoints) -> None:
    """Whenever the writer dies, a reader finds the whole new checkpoint or the one before, and a successor goes on."""
    published = set()
    for step in range(1, 100):
        claim = manager.claim("t")
        last = manager.read_last("t")
        pid = os.fork()
        if pid == 0:
            _die_at(step)
            manager.write(claim, checkpoint(step), after=last.id if last else None)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        found = manager_at(manager.config.path).read_last("t")
        published.add(found is not None and found.id.millis == step)
        assert found == last or found == evolve(checkpoint(step), claim=claim)
        if ended == 0:
            break

    assert 0 == ended
    assert step > 4
    assert {True, False} == published


def _die_at(step: int) -> None:
    left = [step]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    fsync = os.fsync

    def counted_fsync(descriptor: int) -> None:
        count()
        fsync(descriptor)

    os.fsync = counted_fsync
    sys.addaudithook(lambda event, _: count() if event in STEPS else None)


def test_files_and_folders_are_on_stable_storage(
    manager: DirectoryCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record, and the folder that names it, is fsynced before the write returns."""
    claim = manager.claim("t")
    folder = manager.records_folder("t").path
    synced: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    manager.write(claim, checkpoint(1), after=None)

    assert str(folder) == synced[-1]
    assert [str(folder)] == [str(Path(file).parent) for file in synced[:-1]]


def test_a_probe_that_a_killed_process_left_is_removed_a_day_later(manager: DirectoryCheckpoints, path: Path) -> None:
    """A check of the folder removes probes of a day ago, and leaves alone one that may be at work."""
    manager.create_resources()
    (job,) = path.iterdir()
    for name, age_s in (("old", 86_500), ("young", 3_600)):
        probe = job / f".probe-{name}"
        probe.mkdir()
        (probe / ".new-0123").write_bytes(b"half")
        then = time.time() - age_s
        os.utime(probe, (then, then))

    manager.validate_resources()

    assert [".probe-young"] == sorted(each.name for each in job.iterdir())
