"""What one task brings to its commits, and what the operator decides about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from millpond.checkpoint import Claim
from millpond.events import Event
from millpond.lanes import Lane, Workers
from millpond.local import TaskDirectory
from millpond.spi import Capabilities, CheckpointManager, JobContext, TaskBackupManager


@frozen
class Backup:
    """
    A backend as the commit engine sees it.

    Attributes:
        name: The section's name in the configuration.
        key: The key of its markers.
        capabilities: What it declares.
        required: A failure of it fails the commit.
        manager: Backs up this task's stores.
    """

    name: str
    key: str
    capabilities: Capabilities
    required: bool
    manager: TaskBackupManager


@frozen(kw_only=True)
class CommitPolicy:
    """
    What the operator decides about commits.

    Attributes:
        timeout_s: From this age on, a commit is given up.
        tolerated_failures: Failures in a row that are not raised to the host.
        tolerated_timeouts: Commits in a row that may take too long before that is raised to the host.
        retain: Checkpoints that stay restorable.
        algorithm: Of digests.
        cleanup_wait_s: How long opening waits for the start-up clean-up.
    """

    timeout_s: float = 300.0
    tolerated_failures: int = 0
    tolerated_timeouts: int = 0
    retain: int = 1
    algorithm: str = "blake3"
    cleanup_wait_s: float = 30.0


@frozen(kw_only=True)
class CommitTask:
    """
    What one task brings to its commits.

    Attributes:
        job: The job.
        claim: The right under which it writes.
        manager: Keeps the records.
        backups: The backends.
        directory: The task's directories.
        properties: For each store, what its manifest and its checkpoints say besides.
        apply_lane: Applies runs and makes images.
        commit_lane: Does all the rest of a commit.
        uploads: Serves the backends of one commit side by side.
    """

    job: JobContext
    claim: Claim
    manager: CheckpointManager
    backups: Sequence[Backup]
    directory: TaskDirectory
    properties: Mapping[str, Mapping[str, str]]
    apply_lane: Lane
    commit_lane: Lane
    uploads: Workers

    def where(self) -> dict[str, str]:
        """Give what every event says of its place."""
        return {"job": self.job.job, "task": self.claim.task}

    def tell(self, event: Event) -> None:
        """Tell the job's listener."""
        self.job.listener(event)

    def now(self) -> float:
        """Give the job's monotonic second."""
        return self.job.clock.monotonic()
