"""A source that no longer has what a task would read next."""

from __future__ import annotations

from millpond.errors import MillpondError


class SourceGoneError(MillpondError):
    """
    The input no longer has the offset at which a task has to read on: records are lost, or it is another input.

    A host raises this and never chooses another offset: whoever knows what the records were worth decides.
    """
