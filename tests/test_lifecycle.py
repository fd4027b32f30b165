"""A task's life from opening to closing: in any order, from any thread, in a child, in a loop, and without an end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from engines import SOURCE, TASK, Section, expected, idle, offset_of, state_of, write

from millpond.errors import CommitFailedError, ConfigError, MillpondError, StoreClosedError, TransientError
from millpond.events import TaskClosed
from millpond.testing.faults import Fault

LEAVING = Path(__file__).parent / "programs" / "leaving_job.py"


# -------------------------------------------------------------------------------------------------------------- closing


def test_closing_twice_is_fine(rig):
    """The second close of a task, and of a job, does nothing."""
    job = rig.open_job()
    task = job.open_task(TASK)
    for closed in (task, task, job, job):
        closed.close()

    assert 1 == len(rig.told(TaskClosed))


def test_leaving_cleanly_commits(rig):
    """What was processed up to the end of the block is published."""
    with rig.open_job() as job, job.open_task(TASK) as task:
        write(task, 0)

    assert expected(0) == rig.restored()


def test_leaving_by_an_exception_commits_nothing(rig):
    """A record that was half done when it failed is processed again."""
    with pytest.raises(RuntimeError), rig.open_job() as job, job.open_task(TASK) as task:
        write(task, 0)
        task.commit_now(30)
        write(task, 1, "a")
        raise RuntimeError("half done")

    assert expected(0) == rig.restored()


def test_leaving_raises_what_the_last_commit_failed_of(rig):
    """A clean end whose commit fails is no clean end, and everything is closed all the same."""
    rig.fault().add("upload", Fault(OSError("down")))

    with pytest.raises(CommitFailedError), rig.open_job() as job, job.open_task(TASK) as task:
        write(task, 0)

    assert (-1, {"a": {}, "b": {}}) == rig.restored()


@pytest.mark.parametrize("engine", ["memory", "rocksdb"])
def test_use_after_close_says_so(rig, engine):
    """Task, store, scan and job: each call raises StoreClosedError, at once."""
    rig.engine = engine
    job = rig.open_job()
    task = job.open_task(TASK)
    store = task.store("a")
    write(task, 0)
    write(task, 1)
    scan = store.scan()
    next(scan)
    task.close()

    calls = [
        task.commit,
        task.commit_now,
        task.room,
        lambda: task.store("a"),
        lambda: task.processed(SOURCE, 1),
        lambda: store.get("last"),
        lambda: store.put("last", 1),
        lambda: store.delete("last"),
        lambda: store.get_many(["last"]),
        lambda: list(store.scan()),
        lambda: list(scan),
    ]
    for call in calls:
        with pytest.raises(StoreClosedError):
            call()
    job.close()
    for call in (job.prepare, lambda: job.open_task(TASK)):
        with pytest.raises(StoreClosedError):
            call()
    assert not task.health.ready


def test_closing_from_another_thread_during_a_commit(rig):
    """The commit is given up or published whole, and its Future says which."""
    for round in range(5):
        task = rig.open()
        begun = offset_of(task)
        write(task, begun + 1)
        future = task.commit()
        closing = threading.Thread(target=task.close)
        closing.start()
        happened = future.exception(30) is None
        closing.join(30)
        rig.close()
        offset, stores = rig.restored()
        assert offset == begun + happened, round
        assert expected(offset) == (offset, stores)


def test_closing_the_job_interrupts_a_restore(rig):
    """The thread that opens the task gets StoreClosedError; close does not wait for what hangs beyond its time."""
    rig.sections = {"main": Section("rocksdb-local")}
    task = rig.open()
    write(task, 0)
    task.commit_now(30)
    idle(task)
    rig.close()
    rig.state = "another disk"
    gate = rig.fault().hang("restore")
    job = rig.open_job()
    raised: list[BaseException] = []

    def opening() -> None:
        try:
            job.open_task(TASK)
        except MillpondError as error:
            raised.append(error)

    thread = threading.Thread(target=opening)
    thread.start()
    rig.fault().await_call("restore", 1)
    begun = time.monotonic()
    try:
        job.close(10)
    except TransientError:
        pass
    assert time.monotonic() - begun < 20
    thread.join(30)
    assert [StoreClosedError] == [type(error) for error in raised]
    gate.set()
    rig.fault().release()


def test_a_task_that_opens_while_its_job_closes_is_not_left_open(rig):
    """Whoever comes out of open_task after close gets an error, and the folder is free."""
    job = rig.open_job()
    gate = rig.records.hang("claim")
    raised: list[BaseException] = []

    def opening() -> None:
        try:
            job.open_task(TASK)
        except MillpondError as error:
            raised.append(error)

    thread = threading.Thread(target=opening)
    thread.start()
    rig.records.await_call("claim")
    closing = threading.Thread(target=job.close)
    closing.start()
    while not job._closed:
        threading.Event().wait(0.01)
    gate.set()
    thread.join(30)
    closing.join(30)

    assert [StoreClosedError] == [type(error) for error in raised]
    assert (-1, {"a": {}, "b": {}}) == rig.restored()


def test_all_tasks_of_a_job_share_one_deadline(rig):
    """Ten tasks whose backends hang are closed side by side: close takes its time once, not ten times."""
    job = rig.open_job()
    gates = [rig.fault().hang("close") for _ in range(10)]
    for number in range(10):
        job.open_task(f"task {number}")
    begun = time.monotonic()

    with pytest.raises(TransientError, match="task 7"):
        job.close(0.5)

    assert time.monotonic() - begun < 6
    for gate in gates:
        gate.set()


def test_a_task_that_is_slow_to_close_holds_up_no_other(rig):
    """While the backend of one task does not come back from its close, the other tasks' are called."""
    job = rig.open_job()
    gates = [rig.fault().hang("close") for _ in range(4)]
    for number in range(4):
        job.open_task(f"task {number}")
    closing = threading.Thread(target=job.close)
    closing.start()

    rig.fault().await_call("close", 4, timeout_s=10)

    for gate in gates:
        gate.set()
    closing.join(30)
    assert not closing.is_alive()


def test_a_managers_close_that_fails_does_not_keep_threads(rig):
    """The job's threads end whatever the checkpoint manager does in close."""
    job = rig.open_job()
    rig.records.add("close", Fault(OSError("odd")))

    with pytest.raises(TransientError, match="checkpoint manager: odd"):
        job.close()

    assert not any(thread.is_alive() for thread in job._parts.commit_workers._threads)


# ------------------------------------------------------------------------------------------------------- one owner only


def test_a_task_is_open_once_in_a_process(rig):
    """The second opening is told who has it, in the same job and in another one; the first one notices nothing."""
    job = rig.open_job()
    task = job.open_task(TASK)
    write(task, 0)
    for other in (job, rig.open_job()):
        with pytest.raises(TransientError, match=f"already open in this process.*{os.getpid()}"):
            other.open_task(TASK)

    task.commit_now(30)
    assert expected(0) == rig.restored()


@pytest.fixture
def leaving(tmp_path):
    """Run the program that ends without closing; give its exit code, output and errors."""

    def run(way: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, str(LEAVING), str(tmp_path), way], capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_task_is_open_once_on_a_machine(tmp_path):
    """A second process is told the owner's process id, and disturbs nobody."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import leaving_job, millpond\n"
        "job = millpond.open_job(leaving_job.config(sys.argv[2])); task = job.open_task('Partition 0')\n"
        "print('open', flush=True); sys.stdin.readline(); leaving_job.write(task, 0); task.commit_now(30); print('ok')"
    )
    arguments = [sys.executable, "-c", program, str(LEAVING.parent), str(tmp_path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None and "open\n" == owner.stdout.readline()
        second = subprocess.run(arguments, input="\n", capture_output=True, text=True, timeout=60, check=False)
        said, _ = owner.communicate("go on\n", timeout=60)

    assert 1 == second.returncode and "TransientError" in second.stderr and f"process {owner.pid}" in second.stderr
    assert "ok\n" == said


# ----------------------------------------------------------------------------------------------- without an end, forked


@pytest.mark.parametrize("way", ["plain", "commit-in-flight", "scan-open", "hook-hangs"])
def test_an_interpreter_ends_though_nothing_was_closed(leaving, way):
    """Exit code 0, promptly, no complaint; what was durable is there at the next start."""
    assert (0, "resumed None None\n", "") == leaving(way)

    code, said, _ = leaving("plain")

    assert 0 == code and said in ("resumed 0 0\n", *(["resumed 1 1\n"] if way == "commit-in-flight" else []))


def test_an_error_of_the_host_is_the_hosts(leaving):
    """Its traceback and its exit code are what the operator sees."""
    code, _, errors = leaving("error")

    assert 1 == code and "RuntimeError: the host is broken" in errors.splitlines()[-1]
    assert "resumed 0 0\n" == leaving("plain")[1]


def test_a_forked_child_cannot_use_a_task(leaving):
    """Every call raises in the child at once, the child ends by itself, and the parent goes on undisturbed."""
    for round in range(3):
        code, said, errors = leaving("fork")

        assert (0, ["child 0, parent 2"]) == (code, said.splitlines()[1:]), errors
        assert "resumed 2 2\n" == leaving("count")[1], round


def test_a_terminated_job_resumes(tmp_path, leaving):
    """SIGTERM's default ends the process at once; that is a crash like any other."""
    arguments = [sys.executable, str(LEAVING), str(tmp_path), "wait"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None and ["resumed None None\n", "waiting\n"] == [job.stdout.readline() for _ in "ab"]
        job.terminate()
        job.communicate(timeout=60)

    assert -signal.SIGTERM == job.returncode
    assert "resumed 0 0\n" == leaving("plain")[1]


# -------------------------------------------------------------------------------------------------------------- asyncio


def test_a_commit_can_be_awaited(rig):
    """An event loop waits for commit and for room, and goes on while the upload hangs."""

    async def host() -> object:
        with rig.open_job() as job:
            task = job.open_task(TASK)
            write(task, 0)
            await asyncio.wait_for(asyncio.wrap_future(task.room()), 30)
            gate = rig.fault().hang("upload")
            timer = threading.Timer(15.0, gate.set)  # so that a loop that is held ends all the same
            timer.start()
            future = task.commit()
            await asyncio.to_thread(rig.fault().await_call, "upload")
            assert not gate.is_set() and not future.done()
            timer.cancel()
            gate.set()
            return await asyncio.wait_for(asyncio.wrap_future(future), 30)

    assert {SOURCE: "0"} == dict(asyncio.run(host()).offsets)
    assert expected(0) == rig.restored()


def test_a_loop_that_loses_patience_cancels_nothing(rig):
    """`asyncio.wait_for` gives up; the commit goes on and is published."""
    gate = rig.fault().hang("upload")
    task = rig.open()
    write(task, 0)

    async def host() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(task.commit()), 0.05)

    asyncio.run(host())
    gate.set()
    idle(task)

    assert task.last is not None and task.health.ready
    assert expected(0) == rig.restored()


# ---------------------------------------------------------------------------------------------------- state directories


@pytest.mark.parametrize("name", ["with space", "päivä/日本", "a+b%2Fc", "x" * 150])
def test_any_path_will_do(rig, name):
    """A state directory, a task and a store may be called almost anything."""
    rig.sections = {"main": Section("rocksdb-local")}
    rig.state = f"{name[:40]}/{name}"
    task = rig.open()
    write(task, 0)
    task.commit_now(30)

    assert expected(0) == rig.restored()


@pytest.mark.parametrize("task", ["with space", "päivä/日本", "..", ".", "a%2Fb", "a/b", "Partition 1", "Partition 10"])
def test_task_and_store_names_do_not_leave_their_folder(rig, task):
    """Names with slashes and dots are names: each task has its own state, below the state directory."""
    rig.stores = ("..", "a/b", "日本", "a")
    for name in (task, "Partition 1"):
        with rig.open_job().open_task(name) as opened:
            for store in rig.stores:
                opened.store(store)["task"] = name
    rig.close()
    outside = {path.name for path in rig.root.iterdir()} - {"state", "records"}
    again = rig.open_job().open_task(task)

    assert set() == outside
    assert {store: {"task": task} for store in rig.stores} == state_of(again)


@pytest.mark.parametrize("what", ["file", "link out"])
def test_a_state_directory_that_is_none_is_a_mistake(rig, what):
    """A file in the way, or a symbolic link that leads out: the error names the path, and nothing is claimed."""
    state = rig.root / "state"
    if what == "file":
        state.write_text("in the way")
    else:
        (rig.root / "elsewhere").mkdir()
        state.mkdir()
        (state / rig.name).symlink_to(rig.root / "elsewhere")

    with pytest.raises(ConfigError, match=r"state"):
        rig.open()

    assert 0 == rig.records.calls["claim"]


def test_a_state_directory_that_cannot_be_written(rig, monkeypatch):
    """Permission denied is the operator's to mend; the message says where."""
    denied = PermissionError(13, "Permission denied", str(rig.root / "state"))

    def mkdir(self, *arguments, **named):
        raise denied

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", mkdir)
        with pytest.raises(ConfigError, match="permission denied"):
            rig.open()
    rig.open()
