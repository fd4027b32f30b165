"""
A small job that a test kills: its state after any offset is a pure function of that offset.

Run as ``killed_job.py CONFIG UNTIL [POINT PASSES]``. Says ``resumed N`` when it is restored, ``durable N`` for each
commit that it was told is durable, ``done`` at the end; the parent keeps the ledger.
"""

from __future__ import annotations

import sys

import millpond

SOURCE = millpond.SystemStreamPartition("test", "numbers.of.things", 0)
TASK = "Partition 0"


def apply(number: int, put, delete) -> None:
    """Do what the record *number* says to the stores ``counts``, ``seen`` and ``open``."""
    put("counts", f"count {number % 7}", number)
    put("seen", f"{number:08d}", {"number": number, "text": "x" * (number % 50)})
    put("open", f"{number:08d}", number)
    if number >= 20:
        delete("open", f"{number - 20:08d}")


def expected(until: int) -> dict[str, dict[str, object]]:
    """Give all stores as they are after the records below *until*."""
    stores: dict[str, dict[str, object]] = {"counts": {}, "seen": {}, "open": {}}
    for number in range(until):
        apply(number, lambda s, k, v: stores[s].__setitem__(k, v), lambda s, k: stores[s].pop(k, None))
    return stores


def say(text: str) -> None:
    """Tell the parent; at once, since this process may not live long."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(config: str, until: int) -> int:
    """Process the records up to *until*, with a commit now and then; give where it resumed."""
    with millpond.open_job(config) as job, job.open_task(TASK) as task:
        stores = {name: task.store(name) for name in ("counts", "seen", "open")}
        begin = int(task.offsets.get(SOURCE, -1)) + 1
        say(f"resumed {begin}")
        for number in range(begin, until):
            apply(number, lambda s, k, v: stores[s].put(k, v), lambda s, k: stores[s].delete(k))
            task.processed(SOURCE, number)
            if number % 40 == 39:
                task.commit_now(60)
                say(f"durable {number + 1}")
            elif number % 40 == 13:
                task.commit()  # in the background, and nobody is told
    say("done")
    return begin


if __name__ == "__main__":
    if len(sys.argv) > 3:
        from millpond.testing.crash import kill_at

        kill_at(sys.argv[3], int(sys.argv[4]))
    run(sys.argv[1], int(sys.argv[2]))
