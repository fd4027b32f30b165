"""A process that leads or writes until somebody kills or stops it, and says what it sees, a line of JSON each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zookeeper_managers import SESSION, TASK, checkpoint, manager_at, metadata_at

from millpond.errors import FencedError, TransientError


def say(*words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def lead(hosts: str, root: str) -> None:
    """Lead, then answer each line of the input with what `check` and a write say."""
    with metadata_at(hosts, root, session_timeout=SESSION) as metadata:
        leadership = metadata.lead("child", 60)
        last = metadata.read()
        version = metadata.write(leadership, b"child", None if last is None else last.version)
        say("leads", leadership.epoch, version)
        for _ in sys.stdin:
            said = []
            for act in (leadership.check, lambda: metadata.write(leadership, b"zombie", version)):
                try:
                    act()
                    said.append("done")
                except FencedError:
                    said.append("fenced")
            say(*said)


def write(hosts: str, root: str) -> None:
    """Claim, then write as fast as it goes; say each checkpoint that is durable, and how it ends."""
    manager = manager_at(hosts, root)
    claim = manager.claim(TASK)
    last, number = None, 0
    while True:
        number += 1
        made = checkpoint(number)
        try:
            manager.write(claim, made, after=last)
        except FencedError:
            say("fenced", number)
            return manager.close()
        except TransientError as error:
            say("unknown", number, str(error))
            continue
        last = made.id
        say("durable", number)


if __name__ == "__main__":
    {"lead": lead, "write": write}[sys.argv[1]](*sys.argv[2:])
