"""KeyboardInterrupt where a signal can hit: for tests that try every place."""

from __future__ import annotations

import sys


class Interrupting:
    """
    Raises KeyboardInterrupt at the n-th place of this thread's way through millpond at which CPython looks for signals:
    the begin of a Python function, and the return of a C function.
    """

    def __init__(self, count: int) -> None:
        self.left = count

    def __call__(self, frame, kind, argument) -> None:
        if kind in ("call", "c_return") and "/millpond/" in frame.f_code.co_filename:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    def around(self, call) -> bool:
        """Do *call*; say whether it was interrupted."""
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False
