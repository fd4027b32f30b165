"""
A small job that ends without closing anything, in a way that its argument names.

Run as ``leaving_job.py ROOT WAY``: commits the record 0, writes the record 1, and leaves.
"""

from __future__ import annotations

import os
import sys
import threading

import millpond

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)

SCANS: list[object] = []


def config(root: str) -> dict[str, object]:
    """Give the job's configuration, with everything below *root*."""
    return {
        "job": {"name": "leaving", "state_dir": f"{root}/state"},
        "checkpoint": {"manager": "directory", "path": f"{root}/records"},
        "backends": {"disk": {"type": "rocksdb-local", "path": f"{root}/backup"}},
        "stores": {"a": {"engine": "rocksdb", "key": "str", "value": "json"}},
    }


def write(task: millpond.Task, number: int) -> None:
    """Do what the record *number* says."""
    task.store("a")["last"] = number
    task.processed(SOURCE, number)


def leave(task: millpond.Task, way: str) -> None:
    """End this process, or do what may keep it from ending."""
    if way == "commit-in-flight":
        task.commit()
    elif way == "scan-open":
        SCANS.append(task.store("a").scan())
        next(SCANS[0])
    elif way == "hook-hangs":
        task.before_publish(lambda: threading.Event().wait(600))
        task.commit()
    elif way == "wait":
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        sys.stdin.readline()
    elif way == "error":
        raise RuntimeError("the host is broken")
    elif way == "fork":
        fork(task)


def fork(task: millpond.Task) -> None:
    """Use the task in a child, which must raise at once and end cleanly; say what the child said."""
    for number in range(20_000):
        STORE.put(f"k{number:05d}", number)
    STORE.get("flushed by nobody")  # most of it is applied, and in no file yet
    child = os.fork()
    if child == 0:
        try:
            in_child(task)
        finally:
            sys.stdout.flush()
        sys.exit(0)
    said = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    write(task, 2)
    task.commit_now(30)
    sys.stdout.write(f"child {said}, parent {task.store('a')['last']}\n")


def in_child(task: millpond.Task) -> None:
    """Try everything; a child has none of the threads and must not touch a file."""
    store = task.store if task.health.ready else None
    calls = {
        "commit": task.commit,
        "commit_now": lambda: task.commit_now(1),
        "commit_if_due": lambda: task.commit_if_due() or task.commit(),
        "processed": lambda: task.processed(SOURCE, 9),
        "store": lambda: task.store("a"),
        "room": task.room,
        "get": lambda: STORE.get("last"),
        "put": lambda: STORE.put("last", 9),
        "delete": lambda: STORE.delete("last"),
        "scan": lambda: list(STORE.scan()),
        "get_many": lambda: STORE.get_many(["last"]),
    }
    for name, call in calls.items():
        try:
            call()
        except millpond.StoreClosedError:
            continue
        sys.stdout.write(f"{name} did not raise {store}\n")
    task.close()


if __name__ == "__main__":
    job = millpond.open_job(config(sys.argv[1]))
    task = job.open_task("Partition 0")
    STORE = task.store("a")
    sys.stdout.write(f"resumed {task.offsets.get(SOURCE)} {STORE.get('last')}\n")
    sys.stdout.flush()  # a forked child must not have it to say again
    if sys.argv[2] == "count":
        if sorted(dict(STORE.scan(start="k", stop="l")).values()) != list(range(20_000)):
            sys.exit("the keys are not all there")
        sys.exit(0)
    write(task, 0)
    task.commit_now(30)
    write(task, 1)
    leave(task, sys.argv[2])
