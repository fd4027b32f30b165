"""
Restores: every store of a task exactly as one checkpoint says, or an error.

``plan`` decides, without disk or thread, where each store may come from; ``target`` is what a restore manager fills;
``engine`` reads the record, asks for the plan, and carries it out; ``stores`` restores one store: from the local image
that the checkpoint names, else from the backends in order, and nothing is ever left half; ``watch`` says when to stop.
"""

from millpond.restore.engine import RestoreEngine
from millpond.restore.parts import Restored, RestorePolicy, RestoreTask, Source
from millpond.restore.plan import RestorePlan, StorePlan, plan_restore

__all__ = [
    "RestoreEngine",
    "RestorePlan",
    "RestorePolicy",
    "RestoreTask",
    "Restored",
    "Source",
    "StorePlan",
    "plan_restore",
]
