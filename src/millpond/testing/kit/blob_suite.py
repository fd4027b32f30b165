"""The suite of object stores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from millpond.blob.store import BlobStore
from millpond.testing.kit import blob_cases
from millpond.testing.kit.blob_bench import BlobBench
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import Cases, gathered
from millpond.testing.kit.suite import Suite


class BlobSuite(Suite[BlobBench]):
    """
    Subclass it in pytest, and every case is a test of yours::

        class TestMine(BlobSuite):
            def make(self, folder):
                return MyStore(bucket="kit", prefix=folder.name)

    Attributes:
        shared: Other processes see what this one puts.
    """

    kind: ClassVar[str] = "blob"
    cases: ClassVar[Cases[Any]] = gathered(blob_cases.cases)
    shared: bool = True

    @abstractmethod
    def make(self, folder: Path) -> BlobStore:
        """
        Make a store; all that are made with one folder show the same objects.

        Every case keeps to a prefix of its own and removes what it put, so one place may serve all folders. It is also
        called in a child process, on a new instance of this class.
        """

    def features(self, folder: Path) -> Mapping[str, bool]:
        """Give what the store declares."""
        store = self.make(folder)
        try:
            can = store.capabilities
            return {
                "conditional_put": can.conditional_put,
                "fresh_listing": can.fresh_listing,
                "max_object_bytes": can.max_object_bytes is not None,
                "shared": self.shared,
            }
        finally:
            store.close()

    def bench(self, folder: Path, *, job: str = "") -> BlobBench:
        """Make the world of one case in *folder*."""
        kept = folder / "kept"
        kept.mkdir(parents=True, exist_ok=True)
        bench = BlobBench(folder, self.profile, lambda: self.make(kept), job)
        bench.child = ChildRecipe(self.recipe(), folder)
        return bench
