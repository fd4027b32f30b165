"""Opening a task: the order of its steps, what it then holds, and what the configuration says to each engine."""

from millpond.opening.order import open_task
from millpond.opening.parts import JobParts, TaskParts
from millpond.opening.wiring import properties, restore_policy

__all__ = ["JobParts", "TaskParts", "open_task", "properties", "restore_policy"]
