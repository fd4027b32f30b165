"""What one process of a trial does; it runs in a forked child and tells its parent."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from millpond.checkpoint import Checkpoint
from millpond.config import JobConfig
from millpond.errors import CommitError, FencedError
from millpond.job import Job
from millpond.points import arm
from millpond.reading import JobReader
from millpond.task import Task
from millpond.testing.lab.forks import Say
from millpond.testing.lab.leftovers import collect_garbage, leftovers
from millpond.testing.lab.nodes import needless_nodes
from millpond.testing.lab.story import Death, Life, checks, undoes_first
from millpond.testing.lab.topics import has_changelog, open_transactions, plain_reading
from millpond.testing.lab.warming import believe_servers
from millpond.testing.lab.world import SOURCE, STORES, TASK, compare, expected, operations

_WAIT_S = 60.0
_THREAD_S = 2.0


def live(config: JobConfig, seed: int, life: Life, again: JobConfig, say: Say) -> None:
    """Do what *life* says with the job of *config*; *again* is the same job on an empty disk."""
    if life.death is not None:
        _arm(life.death, say)
    if not checks(seed):
        believe_servers(config)
    if life.collects:
        say("collected", collect_garbage(config))
    elif life.last:
        _last_life(config, seed, life, again, say)
    else:
        _drive(config, seed, life, say)


def _arm(death: Death, say: Say) -> None:
    """Die, or sleep, at the point of *death*."""
    if not death.point:
        return
    left = [death.passes]

    def hook(reached: str) -> None:
        if reached == death.point:
            left[0] -= 1
            if left[0] == -1:
                say("died", death.point)
                os.kill(os.getpid(), signal.SIGSTOP if death.asleep else signal.SIGKILL)

    arm(hook)


def offset_of(task: Task) -> int:
    """Give how many records the task has processed."""
    return int(task.offsets.get(SOURCE, "-1")) + 1


def stores_of(task: Task) -> dict[str, dict[bytes, bytes]]:
    """Give all that the stores of *task* hold."""
    return {name: dict(task.store(name).scan()) for name in STORES}


def _open(config: JobConfig, seed: int, say: Say, use: Callable[[Task, int], None]) -> None:
    """Open the task, compare it with the model, and let *use* go on with it."""
    with Job(config) as job, job.open_task(TASK, timeout_s=_WAIT_S) as task:
        offset = offset_of(task)
        say("resumed", offset)
        _compare(task, seed, offset, say)
        use(task, offset)


def _compare(task: Task, seed: int, offset: int, say: Say) -> None:
    difference = compare(stores_of(task), expected(seed, offset))
    if difference:
        say("wrong", [offset, difference.missing, difference.resurrected, difference.changed])


def _drive(config: JobConfig, seed: int, life: Life, say: Say) -> None:
    def use(task: Task, offset: int) -> None:
        try:
            _process(task, seed, life, offset, say)
        except (FencedError, CommitError) as error:
            say("refused", type(error).__name__)

    _open(config, seed, say, use)


def _process(task: Task, seed: int, life: Life, begin: int, say: Say) -> None:
    """Process the records of *life*, with a commit now and then; the last one is waited for."""
    chance = random.Random(life.seed)  # noqa: S311 - a trial is repeated by its seed
    for number in range(begin, begin + life.records):
        for each in operations(seed, number):
            if each.value is None:
                task.store(each.store).delete(each.key)
            else:
                task.store(each.store).put(each.key, each.value)
        task.processed(SOURCE, number)
        if (way := chance.random()) < 0.1:
            _durable(task.commit_now(_WAIT_S), say)
        elif way < 0.2:
            task.commit().add_done_callback(lambda future: _settled(future, say))
    _durable(task.commit_now(_WAIT_S), say)


def _settled(future: Future[Checkpoint], say: Say) -> None:
    if future.exception() is None:
        _durable(future.result(), say)


def _durable(checkpoint: Checkpoint, say: Say) -> None:
    say("durable", int(checkpoint.offsets.get(SOURCE, "-1")) + 1)


def _last_life(config: JobConfig, seed: int, life: Life, again: JobConfig, say: Say) -> None:
    """Go on to the end, collect, look for what is left, and open once more on an empty disk."""

    def go_on(task: Task, offset: int) -> None:
        if has_changelog(config) and undoes_first(seed):
            _durable(task.commit_now(_WAIT_S), say)
            _read_plainly(config, seed, say)
        for _ in range(2):  # two commits at least, so that nothing older is retained
            _process(task, seed, life, offset, say)
            offset = offset_of(task)
            _compare(task, seed, offset, say)

    _open(config, seed, say, go_on)
    _await_threads()
    before = _held()
    say("collected", collect_garbage(config))
    say("orphans", [*leftovers(config), *open_transactions(config)])
    if has_changelog(config):
        _read_plainly(config, seed, say)
    _open(again, seed, say, lambda task, offset: None)
    say("orphans", needless_nodes(config))  # a claim removes what those before it left; this was one more
    _await_threads()
    say("leaked", sorted({*(_held() - before).elements(), *(each for each in before if each.startswith("thread"))}))
    say("done")


def _read_plainly(config: JobConfig, seed: int, say: Say) -> None:
    """See that whoever reads a changelog without its markers finds the newest checkpoint's state, as Samza would."""
    with JobReader(config) as reader:
        offset = int(reader.checkpoint(TASK).offsets.get(SOURCE, "-1")) + 1
    if difference := compare(plain_reading(config), expected(seed, offset)):
        say("wrong", [offset, difference.missing, difference.resurrected, difference.changed])


def _await_threads() -> None:
    """Let threads end that were told to: one that has done its work may not be gone yet."""
    for each in threading.enumerate():
        if each is not threading.main_thread():
            each.join(_THREAD_S)


def _held() -> Counter[str]:
    """Count what this process holds: threads of Python by name, descriptors by what they lead to."""
    held = Counter(f"thread {each.name}" for each in threading.enumerate() if each is not threading.main_thread())
    for entry in Path("/proc/self/fd").glob("*"):
        with suppress(FileNotFoundError):  # that of the listing itself
            held[f"descriptor of {entry.readlink()}"] += 1
    return held
