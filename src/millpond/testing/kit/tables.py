"""
The table of a report in a page, kept fresh by a test.

The page holds two lines, and between them what the last run found::

    <!-- conformance: NAME -->
    <!-- /conformance -->
"""

from __future__ import annotations

import os
from pathlib import Path

from millpond.testing.kit.report import Report

VARIABLE = "MILLPOND_WRITE_TABLES"
"""Set in the environment, a stale table is written anew instead of being an error."""

_END = "<!-- /conformance -->"


def check_table(page: Path, report: Report) -> None:
    """
    See that *page* holds the table of *report*.

    Raises:
        AssertionError: It does not, or has no place for it; the message has the mend.
    """
    begin = f"<!-- conformance: {report.name} -->"
    text = page.read_text("utf-8")
    before, found, rest = text.partition(f"{begin}\n")
    held, ended, after = rest.partition(_END)
    if not (found and ended):
        raise AssertionError(f"{page} has no place for the table of {report.name}: write {begin} and {_END}")
    fresh = f"\n{report.to_markdown()}\n"
    if held == fresh:
        return
    if not os.environ.get(VARIABLE):
        raise AssertionError(f"{page} has an old table of {report.name}: run this test once with {VARIABLE}=1")
    page.write_text(f"{before}{begin}\n{fresh}{_END}{after}", "utf-8")
