"""
How to give Millpond each fault of ``docs/faults.md`` that a test catches: one small edit each, room by room.

``python tests/programs/break_code.py`` makes each edit in a copy of the tree, and sees that the named test fails there.
"""

from __future__ import annotations

from breakage import Breakage
from breakages_logs import LOGS
from breakages_objects import OBJECTS
from breakages_records import RECORDS
from breakages_restore import RESTORE
from breakages_stores import STORES

BREAKAGES: tuple[Breakage, ...] = (*RECORDS, *RESTORE, *STORES, *OBJECTS, *LOGS)
"""In the order of the page's rows."""
