"""Makes and checks the topics of a job."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.errors import ConfigError, StateNotFoundError
from millpond.spi import JobContext, StateBackendAdmin, StoreSpec
from millpond_changelog.lease import SharedLog
from millpond_changelog.settings import ChangelogSettings
from millpond_changelog.topics import Topics, problems


class ChangelogAdmin(StateBackendAdmin):
    """Makes and checks the topics that all tasks share; a topic of one task is made and checked when it is opened."""

    def __init__(
        self, job: JobContext, shared: SharedLog, settings: ChangelogSettings, stores: Sequence[StoreSpec]
    ) -> None:
        """Do so for *stores*."""
        self._shared, self._settings, self._stores = shared, settings, stores
        self._topics = Topics(settings, job.job, job.job_id, job.layout)

    def create_resources(self) -> None:
        """Make topics that are missing; idempotent."""
        topics, wanted = self._names(), self._topics.wanted()
        if not topics or self._topics.partitions is None:
            return
        with self._shared.leased() as log:
            for name in topics:
                log.create(name, self._topics.partitions, wanted)

    def validate_resources(self) -> None:
        """
        Look at each topic.

        Raises:
            ConfigError: One is missing, or is not as it has to be; it says what to alter.
        """
        with self._shared.leased() as log:
            found = []
            for name in self._names():
                try:
                    topic = log.describe(name)
                except StateNotFoundError as error:
                    found.append(f"{error}: state all tasks by job.tasks or set partitions, then it is made")
                    continue
                found += problems(topic, self._topics.partitions, self._settings)
        if found:
            raise ConfigError("; ".join(found))

    def _names(self) -> list[str]:
        return [self._topics.shared(store.name) for store in self._stores if self._topics.is_shared(store.name)]
