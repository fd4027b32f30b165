"""
Counts the words of this checkout's own text across eight processes, kills one of them again and again, and checks.

    python examples/wordcount/run.py --kills 200 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from attrs import define, field
from topology import COORDINATORS, JOB, MEMBERS, Ground, lines_of, source_of, text_now, words_of

import millpond
from millpond.checkpoint import CheckpointId
from millpond.coordinator import record as record_format
from millpond.coordinator.ids import JobCheckpointId
from millpond.coordinator.numbered import in_directory
from millpond.coordinator.record import JobCheckpoint
from millpond.coordinator.state import TaskState

HERE = Path(__file__).resolve().parent


class Parts(Protocol):
    """The processes of a run, whoever starts them."""

    ground: Ground
    ended_alone: list[str]

    def start(self, name: str) -> None:
        """Start the task or coordinator *name*."""

    def kill(self, name: str) -> None:
        """Kill it on the spot; it is started again."""

    def mend(self) -> None:
        """Start again what ended without being killed."""

    def stop(self) -> None:
        """End everything."""


class RunError(Exception):
    """The run cannot be judged, or a promise was broken."""


@define
class Processes:
    """All processes of the run, by name; each is started again when it has ended."""

    ground: Ground
    running: dict[str, subprocess.Popen[bytes]] = field(factory=dict)
    ended_alone: list[str] = field(factory=list)

    def start(self, name: str) -> None:
        """Start *name*; what it says goes into a file."""
        program, argument = ("coordinate.py", name[-1]) if name in COORDINATORS else ("task.py", name)
        with (self.ground.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, str(HERE / program), argument, str(self.ground.root / "ground.json")],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self, name: str) -> None:
        """Kill *name* on the spot, and start it again."""
        self.running[name].send_signal(signal.SIGKILL)
        self.running[name].wait(30)
        self.start(name)

    def mend(self) -> None:
        """Start again what ended without being killed; a run in which that is frequent is no good."""
        for name, process in list(self.running.items()):
            if process.poll() is not None:
                self.ended_alone.append(name)
                if len(self.ended_alone) > 20:
                    raise RunError(f"processes end by themselves: {self.ended_alone}; see {self.ground.root}")
                self.start(name)

    def stop(self) -> None:
        """Kill everything."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait(30)


@define
class Ledger:
    """What the tasks noted, outside the job: which job checkpoints they were told of, and where they began."""

    path: Path
    read_to: int = 0
    acknowledged: JobCheckpointId | None = None
    acknowledgements: int = 0
    restarts: int = 0
    begun_at: set[str] = field(factory=set)

    def update(self) -> None:
        """Read what was added; RunError where somebody began before what somebody was told is complete."""
        for line in self._lines():
            kind, member, text = line.split(" ")
            id = None if text == "None" else JobCheckpointId.parse(text)
            if kind == "ack":
                assert id is not None
                self.acknowledgements += 1
                self.acknowledged = id if self.acknowledged is None else max(self.acknowledged, id)
            else:
                self.restarts += 1
                self.begun_at.add(text)
                if self.acknowledged is not None and (id is None or id < self.acknowledged):
                    raise RunError(f"{member} began at {id}, before {self.acknowledged}, which was acknowledged")

    def _lines(self) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.read_to)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_to += len(whole)
        yield from whole.decode().splitlines()


def free_ports(count: int) -> tuple[int, ...]:
    """Find ports that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = tuple(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def wait_for(what: str, ready: Iterable[bool], processes: Parts, timeout_s: float) -> None:
    """Wait until *ready* gives True; RunError when that takes too long."""
    deadline = time.monotonic() + timeout_s
    for is_ready in ready:
        if is_ready:
            return
        if time.monotonic() > deadline:
            raise RunError(f"{what} did not come within {timeout_s:g} s; see {processes.ground.root}")
        processes.mend()
        time.sleep(0.02)


def new_acknowledgement(ledger: Ledger) -> Iterator[bool]:
    """Say again and again whether a task was told of a job checkpoint that is newer than the present ones."""
    before = ledger.acknowledged
    while True:
        ledger.update()
        yield ledger.acknowledged is not None and ledger.acknowledged != before


def all_done(ground: Ground, ledger: Ledger) -> Iterator[bool]:
    """Say again and again whether all words are counted, in a job checkpoint."""
    while True:
        ledger.update()
        yield all(ground.done(name).exists() for name in MEMBERS if name.startswith("count"))


def kill_again_and_again(processes: Parts, ledger: Ledger, kills: int, chance: random.Random) -> Counter[str]:
    """Kill so often; now and then in the middle of what the last kill has caused."""
    killed: Counter[str] = Counter()
    for number in range(1, kills + 1):
        if chance.random() < 0.7:
            wait_for("a job checkpoint", new_acknowledgement(ledger), processes, 300)
        time.sleep(chance.uniform(0.0, 0.6))
        processes.mend()
        victim = chance.choice([*MEMBERS, *COORDINATORS])
        killed[victim] += 1
        processes.kill(victim)
        ledger.update()
        if number % 10 == 0 or number == kills:
            print(
                f"kill {number:3}: newest acknowledged {ledger.acknowledged}, {ledger.restarts} starts of tasks so far"
            )
    return killed


def newest(ground: Ground) -> JobCheckpoint:
    """Read the newest job checkpoint."""
    with in_directory(ground.records, JOB) as metadata:
        stored = metadata.read()
    found = None if stored is None else record_format.decode(stored.data).newest
    if found is None:
        raise RunError("there is no job checkpoint")
    return found


def compare(ground: Ground, checkpoint: JobCheckpoint) -> tuple[int, int]:
    """Compare every count with a plain one of the same lines; give words and their sum."""
    expected: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    with millpond.open_job(ground.config) as job:
        for name, part in checkpoint.members.items():
            assert isinstance(part.state, TaskState)
            task = job.open_task(name, at=CheckpointId.parse(part.state.checkpoint))
            if part.place.component == "lines":
                lines = lines_of(ground.text, part.place.index)
                rounds, rest = divmod(int(task.offsets[source_of(part.place.index)]) + 1, len(lines))
                if rest:
                    raise RunError(f"{name} ended in the middle of its text")
                for line in lines:
                    expected.update({word: more * rounds for word, more in Counter(words_of(line)).items()})
            for word, count in task.store("counts").scan():
                counted[word] += count
            task.close()
    if counted != expected:
        wrong = [word for word in expected | counted if expected[word] != counted[word]]
        raise RunError(
            f"{len(wrong)} words are miscounted, e.g. {wrong[0]!r}: {counted[wrong[0]]}, not {expected[wrong[0]]}"
        )
    return len(counted), counted.total()


def run(ground: Ground, processes: Parts, kills: int, seed: int) -> None:
    """Run, kill, end, compare."""
    begun = time.monotonic()
    ledger = Ledger(ground.ledger)
    try:
        for name in (*COORDINATORS, *MEMBERS):
            processes.start(name)
        killed = kill_again_and_again(processes, ledger, kills, random.Random(seed))
        ground.finish.touch()
        wait_for("the end of the text", all_done(ground, ledger), processes, 600)
    finally:
        processes.stop()
    ledger.update()
    checkpoint = newest(ground)
    if ledger.acknowledged is not None and checkpoint.id < ledger.acknowledged:
        raise RunError(f"the record ends with {checkpoint.id}, before {ledger.acknowledged}, which was acknowledged")
    words, total = compare(ground, checkpoint)
    print(f"killed: {', '.join(f'{name} {count}' for name, count in sorted(killed.items()))}")
    if processes.ended_alone:
        print(f"ended by themselves and started again: {', '.join(processes.ended_alone)}")
    print(
        f"{kills} kills, {ledger.restarts} starts of tasks from {len(ledger.begun_at)} job checkpoints, "
        f"{ledger.acknowledgements} acknowledgements: none went back before an acknowledged one"
    )
    print(f"counted exactly: {words:,} words, {total:,} in all, in {time.monotonic() - begun:.0f} s")


def parts_of(ground: Ground, is_on_ray: bool) -> Parts:
    """Choose who starts the processes."""
    if not is_on_ray:
        return Processes(ground)
    # Ray reads these when it is imported. A token in the environment is one that it does not leave in the home folder.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    from on_ray import Actors

    return Actors(ground)


def main() -> int:
    """Read the options, run, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--interval", type=float, default=0.3, help="seconds between job checkpoints")
    parser.add_argument("--keep", action="store_true", help="leave the run's directory, also when all went well")
    parser.add_argument("--ray", action="store_true", help="tasks and coordinators are Ray actors (pip install ray)")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="wc-"))  # short: a socket's path may have 107 bytes
    ground = Ground(root, free_ports(2), secrets.token_hex(32), options.interval)
    ground.text.write_text(text_now(), "utf-8")
    (root / "ground.json").write_text(
        json.dumps({"root": str(root), "ports": ground.ports, "secret": ground.secret, "interval_s": options.interval})
    )
    (root / "ground.json").chmod(0o600)
    try:
        run(ground, parts_of(ground, options.ray), options.kills, options.seed)
    except RunError as error:
        print(f"FAILED: {error} (all is left in {root})", file=sys.stderr)
        return 1
    if options.keep:
        print(f"all is left in {root}")
    else:
        shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
