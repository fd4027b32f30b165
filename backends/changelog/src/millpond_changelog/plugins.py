"""The classes that the entry points name; nothing here imports a driver."""

from __future__ import annotations

from millpond_changelog.backend import ChangelogBackend

__all__ = ["ChangelogBackend", "KafkaCheckpoints"]


def __getattr__(name: str) -> type:
    """Load the manager's class when it is asked for."""
    if name == "KafkaCheckpoints":
        from millpond_changelog.checkpoints.manager import KafkaCheckpoints

        return KafkaCheckpoints
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
