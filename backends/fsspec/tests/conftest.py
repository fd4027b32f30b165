"""Real file systems, and stores on them."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "tests"), str(Path(__file__).resolve().parent)]

from services import azurite, fake_gcs, hdfs, sftp_server  # noqa: E402 - they lie beside the core's tests
from services.file_system_server import FileSystemServer, is_needed  # noqa: E402

from millpond_fsspec.opening import open_store  # noqa: E402
from millpond_fsspec.store import FsspecStore  # noqa: E402

_SERVERS = {"hdfs": hdfs, "gcs": fake_gcs, "azure": azurite, "sftp": sftp_server}
_DRIVERS = {"hdfs": "requests", "gcs": "gcsfs", "azure": "adlfs", "sftp": "paramiko"}
_numbers = count(1)


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], FileSystemServer]]:
    """Start servers when they are first asked for, and stop them in the end."""
    running: dict[str, FileSystemServer] = {}
    with ExitStack() as stack:

        def start(name: str) -> FileSystemServer:
            if name not in running:
                _need(name)
                folder = tmp_path_factory.mktemp(name)
                running[name] = stack.enter_context(_SERVERS[name].serve(folder))
            return running[name]

        yield start


def _need(name: str) -> None:
    """Skip what cannot run here, with the way to have it; fail where this run is about it."""
    reason = _SERVERS[name].missing()
    if importlib.util.find_spec(_DRIVERS[name]) is None:
        reason = f'{_DRIVERS[name]} is not installed: `pip install "millpond-fsspec[{name}]"`'
    if reason is not None:
        (pytest.fail if is_needed(name) else pytest.skip)(reason)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, serve: Callable[[str], FileSystemServer]) -> FileSystemServer:
    """An empty folder in the file system that the test's parameter names."""
    name: str = request.param
    if name == "file":
        return FileSystemServer("file", f"file://{tmp_path}/objects")
    if name == "memory":
        return FileSystemServer("memory", f"memory://objects-{next(_numbers)}")
    server = serve(name)
    return evolve(server, url=f"{server.url}/place-{next(_numbers)}")


@pytest.fixture
def store(place: FileSystemServer) -> Iterator[FsspecStore]:
    """A store on that place."""
    opened = open_store(place.url, place.options, timeout_s=60)
    yield opened
    opened.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the hundreds of tests on places whose driver is not installed: one line tells of them."""
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        # Azure's SDK hands its blocks to aiohttp as bytes, which aiohttp warns of.
        item.add_marker(pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"))
    left_out = [item for item in mine if _place_of(item) in _absent()]
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def pytest_report_collectionfinish() -> list[str]:
    """Name the places that this environment has no driver for, or that another one is for."""
    return [f"no tests on {name} here: `tox run -e filesystems-{name}` has them" for name in sorted(_absent())]


def _place_of(item: pytest.Item) -> str | None:
    """Give the name of the file system that a test is about."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    found = parameters.get("place", getattr(getattr(item, "cls", None), "place", None))
    return found if isinstance(found, str) else None


def _absent() -> set[str]:
    """Give the places without a driver, and those that MILLPOND_SERVERS, if it is set, does not name."""
    named = os.environ.get("MILLPOND_SERVERS")
    return {
        name
        for name, module in _DRIVERS.items()
        if (named is not None and name not in named.split(","))
        or (not is_needed(name) and importlib.util.find_spec(module) is None)
    }
