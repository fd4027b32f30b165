"""Of many processes that create one key exactly one wins; and one that dies while it uploads makes no object."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from services.watching_proxy import watching

from millpond.blob.store import BytesBody

PROGRAMS = Path(__file__).with_name("programs")
MIB = 1 << 20
PARTS = {"multipart_above": 5 * MIB, "part_size": 5 * MIB}


def start(stack: ExitStack, program: str, settings: dict, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, str(PROGRAMS / program), json.dumps(settings), *arguments]
    process = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    )
    stack.callback(process.kill)
    return process


@pytest.mark.parametrize(("size", "racers", "rounds"), [(1, 8, 25), (6 * MIB, 3, 4)], ids=["one request", "parts"])
def test_exactly_one_of_many_processes_wins(gateway, new_bucket, open_store, bucket, size, racers, rounds):
    """In every round one process alone is told that it made the key, and the key holds what that one wrote."""
    new_bucket(gateway)
    store = open_store(gateway, prefix="race")
    settings = {**gateway.settings, "bucket": bucket, "prefix": "race", **PARTS}
    with ExitStack() as stack:
        children = [start(stack, "racer.py", settings, str(number), str(size)) for number in range(racers)]
        for child in children:
            assert "ready\n" == child.stdout.readline()
        for number in range(rounds):
            for child in children:
                child.stdin.write(f"round-{number}\n")
                child.stdin.flush()
            won = [child.stdout.readline().strip() for child in children]
            assert ["0"] * (racers - 1) + ["1"] == sorted(won)
            assert str(won.index("1")).encode() * size == store.get(f"round-{number}")
        for child in children:
            child.stdin.close()
            assert 0 == child.wait(30)
    assert [] == store.unfinished("")


def test_a_process_that_dies_in_an_upload_leaves_no_object(gateway, new_bucket, open_store, bucket, tmp_path):
    """Killed between two parts, an upload leaves no object but an entry in `unfinished`, and can then be aborted."""
    new_bucket(gateway)
    (tmp_path / "large").write_bytes(os.urandom(22 * MIB))
    reached, killed = threading.Event(), threading.Event()
    with watching(gateway.endpoint) as watch, ExitStack() as stack:
        store = open_store(gateway)

        def hold(request):
            if request.query.get("partNumber") == "3":
                reached.set()
                killed.wait(30)

        watch.rule = hold
        settings = {**gateway.settings, "bucket": bucket, "endpoint": watch.endpoint, "connections": 1, **PARTS}
        child = start(stack, "uploader.py", settings, str(tmp_path / "large"))
        assert reached.wait(30)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)
        killed.set()

        assert [] == list(store.list(""))
        (left,) = store.unfinished("")
        assert "large" == left.key
        store.abort(left)
        assert [] == store.unfinished("")


def test_a_reader_never_sees_half_an_object(gateway, new_bucket, open_store):
    """While an object is being made, in one request or in parts, a reader finds none or all of it."""
    new_bucket(gateway)
    store, reader = open_store(gateway, **PARTS), open_store(gateway)
    sizes, done = set(), threading.Event()

    def read():
        while not done.is_set():
            sizes.update(entry.size for entry in reader.list("k"))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for number, size in enumerate((4 * MIB, 16 * MIB)):
            store.put(f"k{number}", BytesBody(bytes(size)))
    finally:
        done.set()
        thread.join()
    assert sizes <= {4 * MIB, 16 * MIB}
