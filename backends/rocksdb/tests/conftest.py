"""Stands for the core in the tests of this distribution: a database in a folder, and a job that has one task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.formats.digest import digest_bytes, digest_file
from millpond.formats.manifest import ImageManifest, ManifestFile, encode
from millpond.local import MANIFEST, list_files, read_manifest, verify_files
from millpond.spi import (
    Change,
    FileEntry,
    JobContext,
    RestoreTarget,
    Snapshot,
    StoreSpec,
    TaskContext,
    Transfers,
)
from millpond_rocksdb.engine import RocksDBEngine

SPEC = StoreSpec("delays", "rocksdb")
WRITER = "a" * 32


@pytest.fixture
def open_engine(tmp_path: Path) -> Iterator[Callable[..., RocksDBEngine]]:
    """Open engines, by default in one folder, and close all of them in the end."""
    opened: list[RocksDBEngine] = []

    def open_one(directory: Path | None = None, spec: StoreSpec = SPEC, *, read_only: bool = False) -> RocksDBEngine:
        engine = RocksDBEngine.open(directory or tmp_path / "live", spec, read_only=read_only)
        opened.append(engine)
        return engine

    yield open_one
    for engine in opened:
        engine.close()


@define
class TurnedClock:
    """A clock that a test turns."""

    now_s: float = field(factory=time.time)

    def millis(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class Inline(Transfers):
    """Transfers on the calling thread."""

    def map(
        self, work: Callable[[Any], Any], items: Iterable[Any], check: Callable[[], None] | None = None
    ) -> list[Any]:
        results = []
        for item in items:
            if check is not None:
                check()
            results.append(work(item))
        return results

    def reserve(self, size: int) -> AbstractContextManager[None]:
        return nullcontext()


@define
class Images(Snapshot):
    """A snapshot whose images a test has made."""

    id: CheckpointId
    images: dict[str, Path]
    bases: dict[str, tuple[CheckpointId, str]] = field(factory=dict)
    checks: int = 0
    stop_at: int | None = None

    @property
    def stores(self) -> Sequence[str]:  # type: ignore[override]
        return list(self.images)

    def base(self, store: str) -> tuple[CheckpointId, str] | None:
        return self.bases.get(store)

    def directory(self, store: str) -> Sequence[FileEntry]:
        image = self.images[store]
        listed = [FileEntry(f.name, image / f.name, f.size, f.digest) for f in read_manifest(image).files]
        data = (image / MANIFEST).read_bytes()
        return [*listed, FileEntry(MANIFEST, image / MANIFEST, len(data), digest_bytes(data))]

    def check(self) -> None:
        self.checks += 1
        if self.checks == self.stop_at:
            raise RuntimeError("given up")

    def changes(self, store: str) -> Iterator[Change]:
        raise AssertionError("not declared")

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        raise AssertionError("not declared")

    def items(self, store: str) -> Iterator[tuple[bytes, bytes]]:
        raise AssertionError("not declared")


@define
class Target(RestoreTarget):
    """A restore target that checks what it is given as the core does."""

    store: str
    marker: str
    directory: Path
    local: str | None = None
    adopted: bool = False
    verified: bool = False
    size: int = 0
    total: int | None = None

    def use_local(self) -> None:
        raise AssertionError("there is none")

    def adopt(self, *, verified: bool = False) -> None:
        verify_files(self.directory, read_manifest(self.directory), digests=not verified)
        self.adopted, self.verified = True, verified

    def write(self, records: Iterable[Change]) -> None:
        raise AssertionError("an image is adopted")

    def progress(self, *, records: int = 0, size: int = 0, total_size: int | None = None) -> None:
        self.size += size
        self.total = total_size or self.total

    def check(self) -> None:
        return None


@define
class Bench:
    """One task of a job, and what makes its images."""

    root: Path
    clock: TurnedClock = field(factory=TurnedClock)
    job: str = "flights"

    def context(self, writer: str | None = WRITER, task: str = "Partition 0", backend: str = "disk") -> TaskContext:
        claim = None if writer is None else Claim(task, 1, writer)
        return TaskContext(
            self.job_context(), task, claim, backend, self.root / "state" / backend, self.root / "scratch"
        )

    def job_context(self) -> JobContext:
        return JobContext(self.job, "1", None, lambda event: None, self.clock, Inline())

    def image(self, name: str, files: dict[str, bytes], store: str = "delays", at: CheckpointId | None = None) -> Path:
        """Make an image of any engine: some files and their manifest."""
        image = self.root / "images" / store / name
        for file, content in files.items():
            (image / file).parent.mkdir(parents=True, exist_ok=True)
            (image / file).write_bytes(content)
        image.mkdir(parents=True, exist_ok=True)
        return seal(image, store, at or CheckpointId(1, 0))

    def target(self, store: str, marker: str) -> Target:
        directory = self.root / "restored" / store / marker[:40].replace("/", "_")
        directory.mkdir(parents=True)
        return Target(store, marker, directory)

    def checkpoint(self, id: CheckpointId, markers: dict[str, str], writer: str = WRITER) -> Checkpoint:
        return Checkpoint(id, {}, {"disk": markers}, Claim("Partition 0", 1, writer))


def seal(image: Path, store: str, id: CheckpointId, writer: str = WRITER) -> Path:
    """Give the folder *image* its manifest."""
    files = [ManifestFile(f.name, f.size, digest_file(f.path)) for f in list_files(image)]
    (image / MANIFEST).write_bytes(encode(ImageManifest(store, "any", id, writer, tuple(files))))
    return image


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def snapshot_of() -> type[Images]:
    return Images


@pytest.fixture
def seal_image() -> Callable[..., Path]:
    return seal


def contents(folder: Path) -> dict[str, bytes]:
    """Give all files below *folder* by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def read_folder() -> Callable[[Path], dict[str, bytes]]:
    return contents
