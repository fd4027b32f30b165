"""A job with a large state, made of numbers alone, that says what it found and what is durable; to be killed."""

from __future__ import annotations

import json
import random
import sys

import millpond

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)
VALUE = 256 << 10


def main() -> None:
    config, last = json.loads(sys.argv[1]), int(sys.argv[2])
    with millpond.open_job(config) as job, job.open_task("t") as task:
        blobs = task.store("blobs")
        begin = int(task.offsets.get(SOURCE, "-1")) + 1
        whole = all(value == blob(int(key)) for key, value in blobs.scan())
        _say("resumed", begin, whole and sum(1 for _ in blobs.scan()) == begin)
        for number in range(begin, last):
            blobs[b"%06d" % number] = blob(number)
            task.processed(SOURCE, number)
        _say("durable", int(task.commit_now(120).offsets[SOURCE]))


def blob(number: int) -> bytes:
    """Give the value of *number*, which does not shrink."""
    return random.Random(number).randbytes(VALUE)


def _say(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
