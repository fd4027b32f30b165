"""Numbered records and claims: one protocol for every place that can create a name only if it is absent."""

from millpond.records.folder import NamedFolder, RecordFolder, record_name, record_number
from millpond.records.ledger import CLAIM_LIFE, TaskRecords
from millpond.records.manager import NumberedCheckpoints

__all__ = [
    "CLAIM_LIFE",
    "NamedFolder",
    "NumberedCheckpoints",
    "RecordFolder",
    "TaskRecords",
    "record_name",
    "record_number",
]
