"""One edit of the code that gives Millpond a fault of ``docs/faults.md``, and the test that has to notice."""

from __future__ import annotations

from attrs import frozen


@frozen
class Breakage:
    """
    One edit that brings a fault in.

    Attributes:
        fault: The fault's id.
        file: What is edited.
        old: This text, which stands there once,
        new: is replaced by this one.
        test: Fails then; one that the fault's row names.
    """

    fault: str
    file: str
    old: str
    new: str
    test: str
