"""
Commits: one task's changes and offsets become one checkpoint.

The story of a commit, in the order in which it happens:

1. On the processing thread (:meth:`CommitEngine.commit`): earlier failures are raised; the commit is admitted, skipped
   or refused; the offsets are noted, the open run of every store is closed, every backup manager takes its note.
2. On the apply lane: the closed runs have reached the engines, since they were queued before; each dirty store makes
   its image. Runs that are closed later wait behind it.
3. On the commit lane: an earlier unknown outcome is settled; images get digests and a manifest; hooks; uploads; then
   ``CheckpointManager.write``, the one commit point. Then superseded records, backups and images go.

``engine`` has the story; ``decisions`` what is decided, without clock, disk or thread; ``imaging``, ``backing``,
``point`` and ``keeping`` do its steps: the stores' images, the backends' uploads, the record, and tidying behind it.
"""

from millpond.commit.engine import CommitEngine
from millpond.commit.parts import Backup, CommitPolicy, CommitTask

__all__ = ["Backup", "CommitEngine", "CommitPolicy", "CommitTask"]
