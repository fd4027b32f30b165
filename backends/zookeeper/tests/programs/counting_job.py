"""A job that counts numbers, says which are durable, and may be killed; its records lie in ZooKeeper."""

from __future__ import annotations

import json
import sys

import millpond
from millpond.errors import CommitError

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)


def main() -> None:
    """Count until a line comes from the input."""
    config = json.loads(sys.argv[1])
    with millpond.open_job(config) as job, job.open_task("a task/of ü") as task:
        counts = task.store("counts")
        number = int(task.offsets.get(SOURCE, "-1"))
        say("resumed", number, counts.get("number", 0), counts.get("sum", 0))
        while number < int(sys.argv[2]):
            number += 1
            counts["number"] = counts.get("number", 0) + 1
            counts["sum"] = counts.get("sum", 0) + number
            task.processed(SOURCE, number)
            if number % 5 == 0:
                try:
                    task.commit_now(60)
                except CommitError as error:
                    say("failed", number, repr(error))
                else:
                    say("durable", number)
        say("done", number, counts["number"], counts["sum"])


def say(*words: object) -> None:
    """Write a line of JSON."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
