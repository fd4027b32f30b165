"""Real servers, and managers on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[3] / "tests"), str(Path(__file__).resolve().parent)]

from services import zookeeper  # noqa: E402 - it lies beside the core's tests

OwnEnsemble = Callable[..., zookeeper.Ensemble]
_numbers = count(1)


def need_zookeeper() -> None:
    """Skip, or where MILLPOND_INSIST is set fail, a test whose server cannot be started."""
    if (reason := zookeeper.missing()) is not None:
        (pytest.fail if os.environ.get("MILLPOND_INSIST") else pytest.skip)(reason)


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that the whole session shares; MILLPOND_TEST_ZOOKEEPER may name another one."""
    if external := os.environ.get(zookeeper.EXTERNAL):
        yield external
        return
    need_zookeeper()
    with zookeeper.serve(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble.hosts


@pytest.fixture
def own_ensemble(tmp_path: Path) -> Iterator[OwnEnsemble]:
    """Make ensembles for this test alone, whose servers it may kill: ``own_ensemble(3)``."""
    need_zookeeper()
    numbers = count(1)
    with ExitStack() as stack:

        def make(servers: int = 1, **settings: Any) -> zookeeper.Ensemble:
            folder = tmp_path / f"ensemble-{next(numbers)}"
            return stack.enter_context(zookeeper.serve(folder, servers, **settings))

        yield make


@pytest.fixture
def root() -> str:
    """A node that no other test has."""
    return f"/tests/{os.getpid()}-{next(_numbers)}"
