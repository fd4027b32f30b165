"""From settings to an open log: the embedded one in a folder, or Kafka; a driver is loaded only here."""

from __future__ import annotations

from millpond.errors import ConfigError
from millpond.log import Log
from millpond_changelog.settings import LogSettings


def open_log(settings: LogSettings) -> Log:
    """
    Open the log that *settings* name.

    Raises:
        ConfigError: The settings cannot be right, or Kafka's driver is not installed.
    """
    timeout_s = settings.timeout.total_seconds()
    if settings.directory is not None:
        from millpond_changelog.embedded.log import EmbeddedLog

        return EmbeddedLog(settings.directory, timeout_s=timeout_s)
    try:
        from millpond_changelog.kafka.log import KafkaLog
    except ImportError as error:
        raise ConfigError(
            f"the driver for Kafka cannot be loaded: pip install millpond-changelog[kafka] ({error})"
        ) from error
    return KafkaLog(
        settings.bootstrap_servers,
        settings.kafka,
        timeout_s=timeout_s,
        transactions=settings.transactions,
        transaction_timeout_s=settings.transaction_timeout.total_seconds(),
    )
