"""
Read-only access to a job's records and state, for the command and for tools.

Reading never claims: no lock is taken and no file is changed in the job's folders, in its records or in its backends,
so a live job notices nothing. ``job`` opens the parts, ``stores`` restores a store into a temporary folder, ``plans``
explains where a restore would take each store from, ``verify`` tries every copy of a checkpoint, and ``diff`` compares
two. ``doctor`` tries what a job relies on, and removes its probes. Two write, and say so: ``garbage`` removes what
nobody needs, and ``savepoints`` copies a pinned checkpoint to where another configuration keeps its own.
"""

from millpond.reading.job import JobReader, Listed
from millpond.reading.plans import Candidate, ExplainedPlan, ExplainedStore, explain
from millpond.reading.stores import open_store
from millpond.reading.verify import Finding, verify

__all__ = [
    "Candidate",
    "ExplainedPlan",
    "ExplainedStore",
    "Finding",
    "JobReader",
    "Listed",
    "explain",
    "open_store",
    "verify",
]
