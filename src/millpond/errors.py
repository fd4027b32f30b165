"""
The exception tree: one class for each thing that a caller would do differently.

::

    MillpondError
    ├── ConfigError            (ValueError)    correct the configuration
    │   └── PluginError                        unknown, not installed, broken, wrong SPI version
    ├── TransientError                         the same call may succeed later
    ├── StateNotFoundError     (LookupError)   restore from another backend
    ├── StateCorruptError                      restore from another backend
    ├── FormatError            (ValueError)    a version or a file that we cannot read
    ├── FencedError                            stop: this task has a new owner
    ├── StoreClosedError                       reopen the task
    └── CommitError                            not known to be committed: do not acknowledge its offsets
        ├── CommitFailedError                  nothing was committed; the state is intact; try again
        ├── CommitTimeoutError (TimeoutError)  still in flight
        └── CommitUnknownError                 it may have happened; the next commit finds out

Whoever handles an error logs it; whoever raises it does not.
"""

from __future__ import annotations


class MillpondError(Exception):
    """Every error that Millpond raises on purpose."""


class ConfigError(MillpondError, ValueError):
    """The configuration, or the way in which the API is used, has to be corrected."""


class PluginError(ConfigError):
    """A plugin is unknown, not installed, broken, or made for another version of the SPI."""


class TransientError(MillpondError):
    """The same call may succeed later."""


class StateNotFoundError(MillpondError, LookupError):
    """What a marker or an id names is not there: restore from another backend."""


class StateCorruptError(MillpondError):
    """What a marker or an id names is not what was committed: restore from another backend."""


class FormatError(MillpondError, ValueError):
    """Bytes of a version or a shape that this release cannot read."""


class FencedError(MillpondError):
    """This task has a new owner: stop, and write nothing more for it."""


class StoreClosedError(MillpondError):
    """The store or its task is closed, or has failed: reopen the task."""


class CommitError(MillpondError):
    """A commit that is not known to have happened: do not acknowledge its offsets."""


class CommitFailedError(CommitError):
    """Nothing was committed and the state is intact: the next commit includes these changes."""


class CommitTimeoutError(CommitError, TimeoutError):
    """The commit is still in flight when the caller's time is over."""


class CommitUnknownError(CommitError):
    """The commit may have happened: the next commit finds out before it does anything else."""
