"""The classes that the entry points name; nothing here imports a driver."""

from millpond_changelog.backend import ChangelogBackend
from millpond_changelog.checkpoints.manager import KafkaCheckpoints

__all__ = ["ChangelogBackend", "KafkaCheckpoints"]
