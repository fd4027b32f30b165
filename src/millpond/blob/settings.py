"""The settings that every object-store backend has, beside those that say where the store is."""

from __future__ import annotations

from datetime import timedelta

from attrs import field, frozen

from millpond.errors import ConfigError
from millpond.spi import Size


def _positive(instance: object, attribute: object, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{attribute.name} is {value}: it must be at least 1")  # type: ignore[attr-defined]


@frozen(kw_only=True)
class RecordsSettings:
    """
    What a checkpoint manager over an object store is told. A driver's ``config_class`` may derive from it.

    Attributes:
        tidy_every: Commits over which listing the records and the pins, removing superseded records, and the backends'
            clean-up are spread; up to so many checkpoints beyond ``retain`` stay restorable until then.
    """

    tidy_every: int = field(default=16, validator=_positive)


@frozen(kw_only=True)
class BlobSettings:
    """
    What the shared part of a backend over an object store is told. A driver's ``config_class`` derives from it.

    Attributes:
        grace: How long what no checkpoint needs any more stays readable, for those who are restoring it.
        alone: Files from this size on get an object of their own; smaller ones share a pack.
        changes: Allow commits that upload their changes instead of files.
        max_links: The longest chain of changes after a base.
        cleanup_every: Superseded objects are removed at one commit of so many, together.
    """

    grace: timedelta = field(default=timedelta(hours=1))
    alone: Size = field(default=Size(8 << 20), validator=_positive)
    changes: bool = True
    max_links: int = field(default=64, validator=_positive)
    cleanup_every: int = field(default=16, validator=_positive)

    @grace.validator
    def _check_grace(self, _attribute: object, grace: timedelta) -> None:
        if grace <= timedelta(0):
            raise ConfigError(f"grace is {grace}: it must be longer than nothing")
