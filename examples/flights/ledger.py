"""The watcher's ledger: what the job was told is durable, kept where no crash of the job can reach it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import define, field
from reports import Durable, Finished, Left, Reads, Report, Resumed

from millpond import CheckpointId


class BrokenPromiseError(Exception):
    """The job went back behind what it was told is durable, or jumped ahead of what it had read."""


@define
class Account:
    """
    One task's page of the ledger; offsets are row numbers, -1 stands before the first row.

    Attributes:
        rows: How many rows the task has to process.
        checkpoint: The last one that the job was told is durable.
        durable: Its offset.
        furthest: The last row that any life of the task has read.
        position: The last row that this life has read; None while it has not resumed.
        repeated: How many rows this life has to read that an earlier one had read.
    """

    task: str
    rows: int
    checkpoint: CheckpointId | None = None
    durable: int = -1
    furthest: int = -1
    position: int | None = None
    repeated: int = 0
    finished: bool = False

    def died(self) -> None:
        """Note that the process is gone: what comes next must resume."""
        self.position = None
        self.repeated = 0

    @property
    def uncommitted(self) -> int:
        """Count the rows that this life has read after the last durable one."""
        return 0 if self.position is None else max(0, self.position - self.durable)

    def resumed(self, report: Resumed) -> None:
        """Check where a new life begins."""
        self._insist(self.position is None, "resumes a second time in one life")
        at = -1 if report.offset is None else report.offset
        checkpoint = None if report.checkpoint is None else CheckpointId.parse(report.checkpoint)
        if self.checkpoint is not None:
            told = f"was told that {self.checkpoint} is durable up to row {self.durable}"
            self._insist(checkpoint is not None, f"{told}, and starts from nothing")
            self._insist(at >= self.durable, f"{told}, and resumes at row {at}: {self.durable - at} rows are forgotten")
            assert checkpoint is not None
            self._insist(checkpoint >= self.checkpoint, f"{told}, and resumes at the older checkpoint {checkpoint}")
            same = checkpoint != self.checkpoint or at == self.durable
            self._insist(same, f"{told}, and resumes there with row {at}")
        self._insist(at <= self.furthest, f"has read up to row {self.furthest}, and resumes at row {at}")
        self.position = at
        self.repeated = self.furthest - at

    def reads(self, report: Reads) -> None:
        """Check that no row is left out or read twice within a life."""
        self._insist(self.position is not None, f"reads row {report.first} before it resumed")
        assert self.position is not None
        expected = self.position + 1
        self._insist(report.first == expected, f"has to read row {expected} next, and reads row {report.first}")
        self._insist(report.first <= report.last < self.rows, f"reads up to row {report.last} of {self.rows}")
        self.position = report.last
        self.furthest = max(self.furthest, report.last)

    def told(self, report: Durable) -> None:
        """Note a durable commit. The same one may be reported again."""
        self._insist(self.position is not None, f"commits row {report.offset} before it resumed")
        assert self.position is not None
        checkpoint = CheckpointId.parse(report.checkpoint)
        self._insist(report.offset <= self.position, f"commits row {report.offset}, having read {self.position}")
        self._insist(report.offset >= self.durable, f"commits row {report.offset} after row {self.durable}")
        if self.checkpoint is not None:
            newer = checkpoint > self.checkpoint or (checkpoint == self.checkpoint and report.offset == self.durable)
            self._insist(newer, f"commits {checkpoint} at row {report.offset} after {self.checkpoint}")
        self.checkpoint = checkpoint
        self.durable = report.offset

    def end(self) -> None:
        """Check that the end was reached and committed."""
        self._insist(self.position == self.rows - 1, f"ends at row {self.position} of {self.rows}")
        self._insist(self.durable == self.rows - 1, f"ends, and row {self.durable} of {self.rows} is its last durable")
        self.finished = True

    def _insist(self, holds: bool, what: str) -> None:
        if not holds:
            raise BrokenPromiseError(f"{self.task} {what}")


@define
class Ledger:
    """The accounts of all tasks. Every method that takes a report raises BrokenPromiseError for a broken promise."""

    accounts: dict[str, Account] = field(factory=dict)

    @classmethod
    def of(cls, rows: Mapping[str, int]) -> Ledger:
        """Open an account for each task that has *rows* to process."""
        return cls({task: Account(task, count) for task, count in rows.items()})

    def take(self, report: Report) -> None:
        """Enter *report*, if it is one that the ledger keeps."""
        account = self.accounts.get(report.task)
        if account is None:
            raise BrokenPromiseError(f"{report.task} is no task of this job")
        match report:
            case Resumed():
                account.resumed(report)
            case Left():
                account.died()
            case Reads():
                account.reads(report)
            case Durable():
                account.told(report)
            case Finished():
                account.end()

    def died(self) -> None:
        """Note that the job was killed."""
        for account in self.accounts.values():
            account.died()

    @property
    def furthest(self) -> int:
        """Count the rows that were read by any life, each once."""
        return sum(account.furthest + 1 for account in self.accounts.values())

    @property
    def uncommitted(self) -> int:
        """Count the rows that this life has read and that it was not told are durable."""
        return sum(account.uncommitted for account in self.accounts.values())

    @property
    def repeated(self) -> int:
        """Count the rows that this life has to read again."""
        return sum(account.repeated for account in self.accounts.values())

    @property
    def resumed(self) -> bool:
        """Tell whether every task of this life has resumed."""
        return all(account.position is not None for account in self.accounts.values())

    @property
    def finished(self) -> bool:
        """Tell whether every task came to its end."""
        return all(account.finished for account in self.accounts.values())
