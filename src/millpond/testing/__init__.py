"""What plugin authors and our own tests share: the conformance kit, faults, crash points, the model of a job."""

from millpond.testing.kit.backend_suite import BackendSuite
from millpond.testing.kit.bench import Profile
from millpond.testing.kit.blob_suite import BlobSuite
from millpond.testing.kit.contract import Level
from millpond.testing.kit.door import FolderDoor, SideDoor
from millpond.testing.kit.engine_suite import EngineSuite
from millpond.testing.kit.log_suite import LogSuite
from millpond.testing.kit.manager_suite import CheckpointsSuite
from millpond.testing.kit.report import Outcome, Report, Result
from millpond.testing.kit.suite import Suite
from millpond.testing.kit.tables import check_table

__all__ = [
    "BackendSuite",
    "BlobSuite",
    "CheckpointsSuite",
    "EngineSuite",
    "FolderDoor",
    "Level",
    "LogSuite",
    "Outcome",
    "Profile",
    "Report",
    "Result",
    "SideDoor",
    "Suite",
    "check_table",
]
