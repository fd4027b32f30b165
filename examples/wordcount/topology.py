"""What both sides of the word count know: its tasks, its text, its files, and its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zlib import crc32

from attrs import frozen

from millpond import SystemStreamPartition
from millpond.coordinator import Address, CoordinatorSettings, Place, Trust
from millpond.spi import Secret

JOB = "wordcount"
COORDINATORS = ("coordinator-0", "coordinator-1")
STAGES = {"lines": 2, "split": 2, "count": 2}
MEMBERS = {
    f"{stage}-{index}": Place(stage, index, parallelism)
    for stage, parallelism in STAGES.items()
    for index in range(parallelism)
}
CHECKOUT = Path(__file__).resolve().parents[2]
WORD = re.compile(r"[a-z']+")


def after(stage: str) -> list[str]:
    """Give the tasks of the stage after *stage*."""
    stages = list(STAGES)
    following = stages[stages.index(stage) + 1 :][:1]
    return [f"{name}-{index}" for name in following for index in range(STAGES[name])]


def before(stage: str) -> list[str]:
    """Give the tasks of the stage before *stage*."""
    stages = list(STAGES)
    preceding = stages[: stages.index(stage)][-1:]
    return [f"{name}-{index}" for name in preceding for index in range(STAGES[name])]


def text_now() -> str:
    """Give the licence, the pages and the read-me of this very checkout, in a fixed order, as they are now."""
    files = [CHECKOUT / "LICENSE", CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    return "\n".join(file.read_text("utf-8") for file in files if file.is_file())


@cache
def lines_of(text: Path, index: int) -> list[str]:
    """Give the lines of the file *text* that the source *index* reads, again and again."""
    return text.read_text("utf-8").splitlines()[index :: STAGES["lines"]]


def words_of(line: str) -> list[str]:
    """Split *line* into words."""
    return WORD.findall(line.lower())


def counter_of(word: str) -> str:
    """Give the task that counts *word*."""
    return f"count-{crc32(word.encode()) % STAGES['count']}"


def source_of(index: int) -> SystemStreamPartition:
    """Give the name of a source's input."""
    return SystemStreamPartition("text", "lines", index)


@frozen
class Ground:
    """
    The directory of a run, and the two ports where its coordinators listen.

    Attributes:
        root: The directory; its path is short, since sockets lie in it.
        ports: The ports.
        secret: What coordinators and members prove to one another.
        interval_s: Between job checkpoints.
    """

    root: Path
    ports: tuple[int, ...]
    secret: str
    interval_s: float

    @property
    def trust(self) -> Trust:
        """How the processes know each other."""
        return Trust(secret=Secret(self.secret))

    @property
    def addresses(self) -> list[Address]:
        """Where coordinators listen once they lead."""
        return [Address(port=port) for port in self.ports]

    @property
    def text(self) -> Path:
        """The text: a copy, since pages may be edited while a run goes on, and every start of a task has to agree."""
        return self.root / "text"

    @property
    def ledger(self) -> Path:
        """The ledger outside the job."""
        return self.root / "ledger"

    @property
    def finish(self) -> Path:
        """When this file is there, sources end with the end of their text."""
        return self.root / "finish"

    @property
    def records(self) -> Path:
        """Where all records are: of tasks, and of the coordinator."""
        return self.root / "records"

    def socket(self, member: str) -> str:
        """Give the socket at which *member* takes records."""
        return str(self.root / f"{member}.sock")

    def done(self, member: str) -> Path:
        """Give the file that a counter makes when a job checkpoint holds all of its words."""
        return self.root / f"{member}.done"

    @property
    def config(self) -> Mapping[str, object]:
        """The job's configuration."""
        return {
            "job": {"name": JOB, "tasks": list(MEMBERS), "state_dir": str(self.root / "state")},
            "checkpoint": {"manager": "directory", "path": str(self.records), "retain": 1},
            "backends": {"disk": {"type": "rocksdb-local", "path": str(self.root / "backup")}},
            "stores": {
                "counts": {
                    "engine": "rocksdb",
                    "key": "str",
                    "value": "json",
                    "backup": ["disk"],
                    "restore": ["disk"],
                },
            },
            "commit": {"timeout": "1m"},
        }

    @property
    def settings(self) -> CoordinatorSettings:
        """The coordinator's settings."""
        return CoordinatorSettings(
            job=JOB,
            members=MEMBERS,
            interval_s=self.interval_s,
            timeout_s=20.0,
            restore_timeout_s=20.0,
            silence_s=10.0,
            resend_s=0.5,
            retry_s=0.2,
        )
