"""Several processes on one file system: races, deaths and forks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fsspec_places import every_place, shared_places
from services.file_system_server import FileSystemServer

from millpond.blob import BlobStore, BytesBody
from millpond.errors import StateNotFoundError

CHILD = Path(__file__).with_name("fsspec_child.py")
RACERS, ROUNDS = 4, 20


@contextmanager
def child(verb: str, place: FileSystemServer) -> Iterator[subprocess.Popen[str]]:
    """Run a child until the block ends; it is killed then."""
    command = [sys.executable, str(CHILD), verb, place.url, json.dumps(dict(place.options))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        for pipe in (process.stdin, process.stdout):
            pipe.close()


@contextmanager
def children(count: int, verb: str, place: FileSystemServer) -> Iterator[list[subprocess.Popen[str]]]:
    if count == 0:
        yield []
        return
    with child(verb, place) as first, children(count - 1, verb, place) as rest:
        yield [first, *rest]


@shared_places
def test_of_many_processes_one_creates_a_name(place: FileSystemServer, store: BlobStore):
    """Of four processes that create one name at once exactly one wins, in each of twenty rounds."""
    with children(RACERS, "race", place) as racers:
        assert ["ready\n"] * RACERS == [racer.stdout.readline() for racer in racers]
        for number in range(ROUNDS):
            for racer in racers:
                racer.stdin.write(f"records/{number}\n")
            said = [racer.stdout.readline().strip() for racer in racers]

            assert ["lost"] * (RACERS - 1) + ["won"] == sorted(said)
            winner = racers[said.index("won")]
            assert f"{winner.pid}".encode() * 100 == store.get(f"records/{number}")


@pytest.mark.parametrize("place", ["file", "hdfs", "gcs", "azure", "sftp"], indirect=True)
def test_a_killed_upload_publishes_nothing(place: FileSystemServer, store: BlobStore):
    """A process that is killed in mid-upload leaves no object, and its remains can be found and dropped."""
    store.put("data/old", BytesBody(b"old"))

    with child("halt", place) as uploader:
        assert "half\n" == uploader.stdout.readline()
        listed = [entry.key for entry in store.list("")]

    assert ["data/old"] == listed == [entry.key for entry in store.list("")]
    with pytest.raises(StateNotFoundError):
        store.get("data/halted")
    if place.name in ("file", "sftp", "hdfs"):
        (left,) = store.unfinished("data/")
        assert ("data/halted", True) == (left.key, abs(store.now() - left.millis) < 60_000)
        assert [] == list(store.unfinished("other/"))
        store.abort(left)
        store.abort(left)
    assert [] == list(store.unfinished("data/"))
    store.put("data/halted", BytesBody(b"again"))
    assert b"again" == store.get("data/halted")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("place", ["file", "hdfs", "gcs", "azure", "sftp"], indirect=True)
def test_a_store_works_in_a_forked_child(place: FileSystemServer):
    """A child that inherits an open store reads and writes with connections and a loop of its own."""
    with child("fork", place) as parent:
        assert "0 parent and child\n" == parent.stdout.readline()


@every_place
def test_a_closed_store_lets_go_of_its_threads(place: FileSystemServer, store: BlobStore):
    """After `close` no connection is open: only fsspec's own loop, which all its users share, may go on."""
    store.put("a/b", BytesBody(b"x"))
    store.close()
    store.close()

    mine = [thread.name for thread in threading.enumerate() if "paramiko" in type(thread).__module__]
    assert [] == [name for name in mine if name]
