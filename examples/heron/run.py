"""
A Heron topology of ten instances keeps its state in a bucket; its checkpoint manager is killed again and again.

    python examples/heron/run.py [--checkpoints 20] [--kills 6] [--size 300000] [--seed 7] [--s3 moto] [--keep DIR]

Doubles of Heron's stream managers and of its coordinator speak Heron's protocol to ``millpond heron-ckptmgr``, which
keeps the states in S3 (moto or versitygw, started here). They make twenty checkpoints, restore the last one and clean,
while the server is killed with SIGKILL in the middle and started again. Every state of every checkpoint that was
recorded is read back through the protocol and compared byte by byte, and in the end the bucket itself is looked at.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from services import moto_server, versitygw
from services.processes import free_port
from services.s3_server import S3Server

from millpond.errors import MillpondError
from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.ids import next_id
from millpond.heron.peers import ConnectionEndedError, Instance, Topology

HOST = "127.0.0.1"
BUCKET = "heron-states"
CONTAINERS = 4
KEPT = 5
TIMEOUT_S = 60.0
SERVERS = {"moto": moto_server, "versitygw": versitygw}


def topology() -> Topology:
    """Give two spouts, five counters and three writers, spread over four containers."""
    sizes = {"words": 2, "count": 5, "write": 3}
    places = [(component, index) for component, count in sizes.items() for index in range(count)]
    instances = [
        Instance(component, index, task, f"stmgr-{task % CONTAINERS + 1}")
        for task, (component, index) in enumerate(places, 1)
    ]
    return Topology("word-count", "word-count-7f3a", tuple(instances))


def state_of(instance: Instance, checkpoint: str, size: int, seed: int) -> bytes | None:
    """Give what an instance holds at a checkpoint: of any size, sometimes empty, sometimes none."""
    chance = random.Random(f"{seed} {instance} {checkpoint}")
    kind = chance.random()
    if kind < 0.05:
        return None
    if kind < 0.1:
        return b""
    return chance.randbytes(chance.randrange(1, size) if kind < 0.8 else size * 4)


@define
class Server:
    """The checkpoint manager: a process that is killed and started again on the same port."""

    s3: S3Server
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    kills: int = 0
    _lock: threading.Lock = field(factory=threading.Lock)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        given = {"bucket": BUCKET, **{name: str(value) for name, value in self.s3.settings.items()}}
        command = [sys.executable, "-m", "millpond", "heron-ckptmgr", "-tword-count", "-iword-count-7f3a"]
        command += [f"-p{self.port}", "--store", "s3"]
        command += [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
        with self.log.open("ab") as said:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            raise SystemExit(f"the server did not start:\n{self.log.read_text('utf-8', 'replace')}")

    def kill(self) -> None:
        """Kill it as a machine that loses its power would, and start it again."""
        with self._lock:
            self._end(signal.SIGKILL)
            self.kills += 1
            self.start()

    def stop(self) -> int:
        """Let it end as it likes; give its exit code."""
        with self._lock:
            return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        return code


@define
class Job:
    """The topology at work, and what its coordinator has recorded."""

    topology: Topology
    server: Server
    size: int
    seed: int
    record: list[str] = field(factory=list)
    attempts: int = 0
    checked: int = 0

    @contextmanager
    def stream_managers(self) -> Iterator[dict[str, StreamManagerDouble]]:
        """Connect all stream managers."""
        names = sorted({each.stmgr for each in self.topology.instances})
        with ExitStack() as stack:
            yield {name: stack.enter_context(self._connect(name)) for name in names}

    def _connect(self, name: str) -> StreamManagerDouble:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return StreamManagerDouble(HOST, self.server.port, self.topology, name, timeout_s=TIMEOUT_S)
            except ConnectionEndedError:
                if time.monotonic() > deadline:
                    raise

    def checkpoint(self, kill_after: int | None) -> bool:
        """Attempt one checkpoint; record it if every instance's state is stored. The server may be killed within."""
        self.attempts += 1
        checkpoint = next_id(self.record, time.time_ns() // 1_000_000)
        stored: set[Instance] = set()
        killing: threading.Thread | None = None
        try:
            with self.stream_managers() as stmgrs:
                if kill_after is not None:
                    killing = threading.Timer(kill_after / 1000, self.server.kill)
                    killing.start()
                for name, stmgr in stmgrs.items():
                    states = {each: state_of(each, checkpoint, self.size, self.seed) for each in self.topology.of(name)}
                    stored |= stmgr.save(states, checkpoint)
        except ConnectionEndedError:
            pass  # the server was killed: this attempt is lost, as Heron's would be
        if killing is not None:
            killing.join()
        if stored != set(self.topology.instances):
            return False
        self.record.insert(0, checkpoint)
        return True

    def clean(self) -> list[str]:
        """Remove what the record does not name any more."""
        self.record, dropped = self.record[:KEPT], self.record[KEPT:]
        if not dropped:
            return []
        with CoordinatorDouble(HOST, self.server.port, self.topology, timeout_s=TIMEOUT_S) as coordinator:
            answer = coordinator.clean(self.record[-1])
        if answer.status.status != 1:
            raise SystemExit(f"a clean was refused: {answer.status.message}")
        return list(answer.cleaned_checkpoint_ids)

    def restore(self, checkpoint: str) -> str:
        """Restore all instances to *checkpoint*, compare every byte, and give a digest of all of them."""
        digest = hashlib.sha256()
        with self.stream_managers() as stmgrs:
            for name, stmgr in stmgrs.items():
                found = stmgr.restore(checkpoint)
                if found is None:
                    raise SystemExit(f"{name} could not restore checkpoint {checkpoint}")
                for instance, state in found.items():
                    if state != state_of(instance, checkpoint, self.size, self.seed):
                        raise SystemExit(f"{instance} came back with another state at {checkpoint}")
                    self.checked += len(state or b"")
                    digest.update(state or b"")
        return digest.hexdigest()


def play(job: Job, count: int, kills: int) -> None:
    """Make *count* checkpoints with *kills* kills in between, restoring and cleaning as Heron's coordinator does."""
    chance = random.Random(job.seed)
    to_kill = set(chance.sample(range(count), min(kills, count)))
    done = 0
    while done < count:
        kill_after = chance.randrange(5, 400) if done in to_kill else None
        to_kill.discard(done)
        if job.checkpoint(kill_after):
            done += 1
            print(f"checkpoint {done:2} of {count} is recorded: {job.record[0]}")
            if gone := job.clean():
                print(f"              cleaned {', '.join(gone)}")
        else:
            print(f"an attempt was lost, the server was killed: back to {job.record[0] if job.record else 'nothing'}")
            if job.record:
                job.restore(job.record[0])


def look_into(s3: S3Server, job: Job) -> None:
    """Compare the bucket's keys with what the record names."""
    import boto3

    keys = {"aws_access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1", **keys)
    listed = [
        one["Key"]
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        for one in page.get("Contents", ())
    ]
    client.close()
    states = {key for key in listed if key.startswith("word-count/")}
    wanted = {f"word-count/{id}/{one.component}/{one.index}" for id in job.record for one in job.topology.instances}
    newer = {key for key in states - wanted if key.split("/")[1] > min(job.record)}
    if wanted - states or states - wanted - newer:
        raise SystemExit(f"the bucket lacks {wanted - states} and has {states - wanted - newer} too many")
    print(
        f"the bucket holds {len(wanted)} states of {len(job.record)} checkpoints, {len(newer)} of lost attempts since"
    )


def main() -> int:
    """Play it, and say whether every byte was right."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--checkpoints", type=int, default=20)
    words.add_argument("--kills", type=int, default=6)
    words.add_argument(
        "--size", type=int, default=300_000, help="of most states, at most; some have four times as much"
    )
    words.add_argument("--seed", type=int, default=7)
    words.add_argument("--s3", choices=SERVERS, default="moto", help="versitygw keeps its objects as files")
    words.add_argument("--keep", type=Path, help="a folder for the logs")
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.keep or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        with SERVERS[given.s3].serve(root / given.s3) as s3:
            make_bucket(s3)
            server = Server(s3, free_port(), root / "server.log")
            job = Job(topology(), server, given.size, given.seed)
            try:
                server.start()
                play(job, given.checkpoints, given.kills)
                digests = {id: job.restore(id) for id in job.record}
                server.kill()
                again = {id: job.restore(id) for id in job.record}
                if digests != again:
                    raise SystemExit("after the last kill other states came back")
                look_into(s3, job)
                with CoordinatorDouble(HOST, server.port, job.topology, timeout_s=TIMEOUT_S) as coordinator:
                    gone = list(coordinator.clean(None, everything=True).cleaned_checkpoint_ids)
                print(f"clean-all removed {len(gone)} checkpoints")
                code = server.stop()
            except MillpondError as error:
                raise SystemExit(f"{error}\n{server.log.read_text('utf-8', 'replace')[-3000:]}") from error
            finally:
                server.stop()
    print(
        f"{given.checkpoints} checkpoints of {len(job.topology.instances)} instances in {job.attempts} attempts, "
        f"{server.kills} kills, {job.checked:,} bytes compared: all right"
    )
    return code


def make_bucket(s3: S3Server) -> None:
    """Make the bucket."""
    import boto3

    keys = {"aws_access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}
    client = boto3.client("s3", endpoint_url=s3.endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=BUCKET)
    client.close()


if __name__ == "__main__":
    sys.exit(main())
