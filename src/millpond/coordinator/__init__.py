"""
One checkpoint over all tasks of a job: the coordinator, its durable record, its transports, and barrier alignment.

The public names are loaded when they are first used, so whoever needs one of them pays for no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.coordinator.alignment import Aligned, BarrierAligner, Overflow, Overflowed
    from millpond.coordinator.beat import Beater
    from millpond.coordinator.beside import KeepsCoordinatorRecord, open_metadata
    from millpond.coordinator.binding import Address, Trust
    from millpond.coordinator.ends import CoordinatorEnd, LocalHub, MemberEnd
    from millpond.coordinator.ids import JobCheckpointId, TransactionId
    from millpond.coordinator.keepers import BytesKeeper, Keeper, NothingKept, TaskKeeper
    from millpond.coordinator.member import Member
    from millpond.coordinator.metadata import CoordinatorMetadata, Leadership, StoredRecord
    from millpond.coordinator.numbered import in_blob_store, in_directory
    from millpond.coordinator.participant import Participant
    from millpond.coordinator.reign import CoordinatorStatus
    from millpond.coordinator.service import Coordinator
    from millpond.coordinator.settings import CoordinatorSettings
    from millpond.coordinator.shelf import BlobShelf, Placement, StateShelf
    from millpond.coordinator.state import Place
    from millpond.coordinator.tcp_member import TcpLink
    from millpond.coordinator.tcp_server import TcpCoordinatorEnd

__all__ = [
    "Address",
    "Aligned",
    "BarrierAligner",
    "Beater",
    "BlobShelf",
    "BytesKeeper",
    "Coordinator",
    "CoordinatorEnd",
    "CoordinatorMetadata",
    "CoordinatorSettings",
    "CoordinatorStatus",
    "JobCheckpointId",
    "Keeper",
    "KeepsCoordinatorRecord",
    "Leadership",
    "LocalHub",
    "Member",
    "MemberEnd",
    "NothingKept",
    "Overflow",
    "Overflowed",
    "Participant",
    "Place",
    "Placement",
    "StateShelf",
    "StoredRecord",
    "TaskKeeper",
    "TcpCoordinatorEnd",
    "TcpLink",
    "TransactionId",
    "Trust",
    "in_blob_store",
    "in_directory",
    "open_metadata",
]

_HOMES = {
    "alignment": ("Aligned", "BarrierAligner", "Overflow", "Overflowed"),
    "beat": ("Beater",),
    "beside": ("KeepsCoordinatorRecord", "open_metadata"),
    "binding": ("Address", "Trust"),
    "ends": ("CoordinatorEnd", "LocalHub", "MemberEnd"),
    "ids": ("JobCheckpointId", "TransactionId"),
    "keepers": ("BytesKeeper", "Keeper", "NothingKept", "TaskKeeper"),
    "member": ("Member",),
    "metadata": ("CoordinatorMetadata", "Leadership", "StoredRecord"),
    "numbered": ("in_blob_store", "in_directory"),
    "participant": ("Participant",),
    "reign": ("CoordinatorStatus",),
    "service": ("Coordinator",),
    "settings": ("CoordinatorSettings",),
    "shelf": ("BlobShelf", "Placement", "StateShelf"),
    "state": ("Place",),
    "tcp_member": ("TcpLink",),
    "tcp_server": ("TcpCoordinatorEnd",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
