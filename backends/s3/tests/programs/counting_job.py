"""A job that counts numbers into stores on an empty or a used disk, says what is durable, and may be killed."""

from __future__ import annotations

import json
import sys

import millpond

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)


def main() -> None:
    config, last = json.loads(sys.argv[1]), int(sys.argv[2])
    with millpond.open_job(config) as job, job.open_task("a task/of ü") as task:
        counts, sums = task.store("counts"), task.store("sums")
        begin = int(task.offsets.get(SOURCE, "-1")) + 1
        _say("resumed", begin, counts.get("number", 0), sums.get("sum", 0))
        for number in range(begin, last):
            counts["number"] = counts.get("number", 0) + 1
            counts[f"filler {number}"] = "x" * 2_000
            sums["sum"] = sums.get("sum", 0) + number
            task.processed(SOURCE, number)
            if number % 10 == 9:
                task.commit_now(60)
                _say("durable", number)
        _say("done", counts.get("number"), sums.get("sum"))


def _say(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
