"""One task of the word count, in a process of its own: reads lines, splits them, or counts words."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path

from channels import Barrier, BrokenChannelError, End, Inlet, Message, Outlet, Records
from topology import MEMBERS, STAGES, Ground, after, before, counter_of, lines_of, source_of, words_of

import millpond
from millpond.coordinator import (
    Aligned,
    BarrierAligner,
    JobCheckpointId,
    Member,
    MemberEnd,
    Overflowed,
    Participant,
    TaskKeeper,
    TcpLink,
    TransactionId,
)

HELD = 8 << 20
BATCH = 8


class Worker(Participant):
    """A task: its state is a Millpond task, its input the stage before or the text, its output the stage after."""

    def __init__(self, ground: Ground, name: str, job: millpond.Job) -> None:
        self.ground = ground
        self.name = name
        self.stage, _, index = name.partition("-")
        self.index = int(index)
        self.keeper = TaskKeeper(job, name)
        self.member: Member | None = None
        self.inlet = Inlet(ground.socket(name)) if before(self.stage) else None
        self.outlet: Outlet | None = None
        self.aligner: BarrierAligner | None = None
        self.checkpoint: JobCheckpointId | None = None
        self.ended: set[str] = set()  # the senders whose input has ended
        self.finished_at: JobCheckpointId | None = None
        self.saved_finished: set[JobCheckpointId] = set()
        self.has_ended = False
        self.broken = False

    # the coordinator's orders

    def pre_restore(self) -> None:
        """Let go of the channels."""
        if self.outlet is not None:
            self.outlet.close()
        self.outlet = None

    def restored(self, checkpoint: JobCheckpointId | None, transaction: TransactionId) -> None:
        """Begin with empty channels."""
        self.checkpoint = checkpoint
        self.ended.clear()
        self.saved_finished.clear()
        self.has_ended = self.broken = False
        if senders := before(self.stage):
            self.aligner = BarrierAligner(senders, HELD)

    def start(self, transaction: TransactionId) -> None:
        """Connect to the next stage, all of which is restored; note in the ledger where this task begins."""
        note(self.ground, f"start {self.name} {self.checkpoint}")
        try:
            paths = [(name, self.ground.socket(name)) for name in after(self.stage)]
            self.outlet = Outlet(self.name, transaction, paths)
        except BrokenChannelError as error:
            self.breaks(error)

    def begin(self, attempt: JobCheckpointId) -> None:
        """A source saves between two batches."""
        if self.inlet is None and self.outlet is not None and not self.broken and self.the_member.save(attempt):
            self.send_all(Barrier(attempt))

    def abandoned(self, attempt: JobCheckpointId, reason: str) -> None:
        """Hold nothing for it any more."""
        if self.aligner is not None:
            self.aligner.abandon(attempt)
            self.process()

    def completed(self, attempt: JobCheckpointId) -> None:
        """Note it in the ledger; a counter whose words were all in it is done."""
        note(self.ground, f"ack {self.name} {attempt}")
        if attempt in self.saved_finished:
            self.ground.done(self.name).touch()

    # records

    @property
    def the_member(self) -> Member:
        """The member, which is made after this."""
        assert self.member is not None
        return self.member

    def step(self) -> bool:
        """Do some work; False: there was none."""
        if self.broken or self.outlet is None:
            return False
        return self.read_lines() if self.inlet is None else self.take_records()

    def read_lines(self) -> bool:
        """Send some lines on; at the end of the text begin again, or end if the run is to end."""
        task, source, lines = self.keeper.task, source_of(self.index), lines_of(self.ground.text, self.index)
        assert task is not None
        at = int(task.offsets.get(source, "-1")) + 1
        if at and at % len(lines) == 0 and self.ground.finish.exists():
            if not self.has_ended:
                self.has_ended = True
                self.send_all(End())
            return False
        items = lines[at % len(lines) :][:BATCH]
        target = after(self.stage)[at // BATCH % STAGES["split"]]
        self.send(target, Records(items))
        task.processed(source, at + len(items) - 1)
        return self.ground.finish.exists()

    def take_records(self) -> bool:
        """Take what has come, of this restore only."""
        assert self.inlet is not None
        assert self.aligner is not None
        found = self.inlet.get(0)
        if found is None:
            return False
        sender, transaction, message = found
        if transaction == self.the_member.transaction:
            channel = self.aligner.channel(sender)
            if isinstance(message, Barrier):
                channel.barrier(message.attempt)
            else:
                channel.put((sender, message), 1000)
            self.process()
        return True

    def process(self) -> None:
        """Work through what the aligner gives."""
        assert self.aligner is not None
        for item in self.aligner.drain():
            if self.broken:
                return
            if isinstance(item, Aligned | Overflowed):
                if self.the_member.take(item):
                    self.send_all(Barrier(item.attempt))
                    if self.stage == "count" and len(self.ended) == len(before(self.stage)):
                        self.saved_finished.add(item.attempt)
            else:
                self.handle(*item)

    def handle(self, sender: str, message: Message) -> None:
        """Split, or count."""
        if isinstance(message, End):
            self.ended.add(sender)
            if len(self.ended) == len(before(self.stage)):
                self.send_all(End())
        elif isinstance(message, Records) and self.stage == "split":
            self.split(message.items)
        elif isinstance(message, Records):
            self.count(message.items)

    def split(self, lines: list[str]) -> None:
        """Send each word to its counter."""
        words: dict[str, list[str]] = {}
        for line in lines:
            for word in words_of(line):
                words.setdefault(counter_of(word), []).append(word)
        for counter, some in words.items():
            self.send(counter, Records(some))

    def count(self, words: list[str]) -> None:
        """Count them."""
        task = self.keeper.task
        assert task is not None
        counts = task.store("counts")
        for word, more in Counter(words).items():
            counts[word] = counts.get(word, 0) + more

    def send(self, receiver: str, message: Message) -> None:
        """Send, or ask for a restore: what was sent is lost."""
        if self.outlet is not None and not self.broken:
            try:
                self.outlet.send(receiver, message)
            except BrokenChannelError as error:
                self.breaks(error)

    def send_all(self, message: Message) -> None:
        """Send to all of the next stage."""
        for receiver in after(self.stage):
            self.send(receiver, message)

    def breaks(self, error: BrokenChannelError) -> None:
        """Do nothing more before the restore."""
        self.broken = True
        self.the_member.reset(str(error))


def note(ground: Ground, line: str) -> None:
    """Append *line* to the ledger, in one write."""
    ledger = os.open(ground.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, f"{line}\n".encode())
    finally:
        os.close(ledger)


def main() -> None:
    """Run one task until this process is killed."""
    name = sys.argv[1]
    logging.basicConfig(format=f"%(asctime)s {name} %(levelname)s %(message)s", level=logging.WARNING)
    ground = read_ground(Path(sys.argv[2]))
    link = TcpLink(ground.addresses, ground.trust, retry_s=0.05)
    work(ground, name, link.member_end(name))


def work(ground: Ground, name: str, end: MemberEnd) -> None:
    """Be the task *name* until the coordinator ends it; its orders come through *end*."""
    with millpond.open_job(ground.config) as job:
        worker = Worker(ground, name, job)
        with Member(name, MEMBERS[name], worker.keeper, end, worker, job="wordcount") as member:
            worker.member = member
            idle = True
            while member.poll(0.01 if idle else 0.0):
                idle = not (member.may_process and worker.step())


def read_ground(path: Path) -> Ground:
    """Read what the runner wrote down."""
    said = json.loads(path.read_text())
    return Ground(Path(said["root"]), tuple(said["ports"]), said["secret"], said["interval_s"])


if __name__ == "__main__":
    main()
