"""What is left in a bucket is found and removed, beside live writers; and jobs that die in large transfers go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from services import versitygw
from services.watching_proxy import Answer, watching

import millpond
from millpond.blob.admin import DEAD, FAILED, UPLOAD
from millpond.config import load
from millpond.reading.garbage import find_garbage, remove_garbage
from millpond.reading.job import JobReader
from millpond_s3.client import make_client
from millpond_s3.settings import S3Settings

SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)
PROGRAM = Path(__file__).with_name("programs") / "large_job.py"
MIB = 1 << 20
HOUR = timedelta(hours=1)
PARTS = {"multipart_above": "5MiB", "part_size": "5MiB", "alone": "5MiB"}


class Bucket:
    """A bucket whose objects are files that a test can look at, and make older than they are."""

    def __init__(self, server, root: Path) -> None:
        self.server, self.files = server, root / "data" / "state"
        self._root = root / "data"
        self.client = make_client(S3Settings(bucket="state", **server.settings), 4, lambda **_: None)
        self.client.create_bucket(Bucket="state")

    def age(self) -> None:
        """Make all that is there, uploads that were begun too, a day old."""
        long_ago = time.time() - 86_400
        for folder, _, names in os.walk(self._root):
            for place in (folder, *(Path(folder) / name for name in names)):
                os.utime(place, (long_ago, long_ago))

    def leave(self, key: str) -> None:
        """Put an object there by the disk alone."""
        path = self.files / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left over")

    def keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket="state")
        return [one["Key"] for page in pages for one in page.get("Contents", ())]

    def uploads(self) -> list[str]:
        return [one["Key"] for one in self.client.list_multipart_uploads(Bucket="state").get("Uploads", ())]


@pytest.fixture
def place(gateway, tmp_path):
    """A bucket on a server of its own."""
    with versitygw.serve(tmp_path / "versitygw") as server:
        found = Bucket(server, tmp_path / "versitygw")
        yield found
        found.client.close()


def config(root: Path, server, **more) -> dict[str, object]:
    where = {**server.settings, "bucket": "state"}
    return {
        "job": {"name": "flights", "state_dir": str(root / "state")},
        "checkpoint": {"manager": "s3", "retain": 1, **where},
        "backends": {"archive": {"type": "s3", **where, **more}},
        "stores": {"blobs": {"engine": "memory", "key": "bytes", "value": "bytes"}},
        "commit": {"interval": "1h"},
    }


def commit(task, number: int) -> None:
    task.store("blobs")[b"k%d" % number] = b"%d" % number
    task.processed(SOURCE, number)
    task.commit_now(60)


def collected(settings) -> Counter[str]:
    """Remove all garbage that is older than an hour; give how much of each kind."""
    with JobReader(load(settings)) as reader:
        found = list(find_garbage(reader, HOUR, ["archive"]))
        remove_garbage(found, lambda _part: None)
    return Counter(each.garbage.reason for each in found)


def failed(number: int) -> str:
    return f"flights/t/data/archive/1-1-{number}-{number:016x}"


def test_ten_thousand_leftovers_of_each_kind_go_in_eleven_requests(place, tmp_path):
    """Failed attempts, dead tasks and open uploads go, by batches; young, strange and other jobs' objects stay."""
    settings = config(tmp_path, place.server)
    with millpond.open_job(settings) as job, job.open_task("t") as task:
        commit(task, 0)
        commit(task, 1)
    for number in range(9_990):
        place.leave(failed(number))
    for number in range(10):
        place.leave(f"flights/dead/data/archive/1-1-{number}-{number:016x}")
    stays = ["flights/t/data/archive/readme", "flights2/t/data/archive/1-1-1-0000000000000001", "elsewhere"]
    for key in stays:
        place.leave(key)
    begun = place.client.create_multipart_upload(Bucket="state", Key=failed(20_000))
    place.client.upload_part(
        Bucket="state", Key=failed(20_000), UploadId=begun["UploadId"], PartNumber=1, Body=bytes(5 * MIB)
    )
    place.age()
    young = failed(30_000)
    place.leave(young)
    before = set(place.keys())

    with watching(place.server.endpoint) as watch:
        where = {**settings["checkpoint"], "endpoint": watch.endpoint}
        archive = {**settings["backends"]["archive"], "endpoint": watch.endpoint}
        through = {**settings, "checkpoint": where, "backends": {"archive": archive}}
        kinds = collected(through)
        removals = [request for request in watch.take() if request.method in ("POST", "DELETE")]

    assert {FAILED: 9_990, DEAD: 10, UPLOAD: 1} == dict(kinds)
    assert 11 == len(removals)
    gone = {failed(number) for number in range(9_990)} | {key for key in before if key.startswith("flights/dead/")}
    assert before - set(place.keys()) == gone
    assert {*stays, young} <= set(place.keys())
    assert [] == place.uploads()
    shutil.rmtree(tmp_path / "state")
    with millpond.open_job(settings) as job, job.open_task("t") as task:
        assert {b"k0": b"0", b"k1": b"1"} == dict(task.store("blobs").scan())


def test_a_live_writer_notices_nothing_of_it(place, tmp_path):
    """While a job is open its bucket is aged by a day and collected after each commit; it goes on, and is whole."""
    settings = config(tmp_path, place.server)
    kinds: Counter[str] = Counter()
    with millpond.open_job(settings) as job, job.open_task("t") as task:
        for number in range(20):
            commit(task, number)
            task.commit_now(60)
            place.leave(failed(number))
            place.age()
            kinds += collected(settings)
    assert kinds[FAILED] >= 20
    shutil.rmtree(tmp_path / "state")
    with millpond.open_job(settings) as job, job.open_task("t") as task:
        assert {b"k%d" % number: b"%d" % number for number in range(20)} == dict(task.store("blobs").scan())
        assert "19" == task.offsets[SOURCE]


def held_at(word: str, count: int, reached: threading.Event, go_on: threading.Event):
    """Give a rule that stops at the *count*-th request about data with *word* in its method or query."""
    seen: list[object] = []

    def rule(request):
        if "/data/" not in request.path or (word != request.method and word not in request.query):
            return None
        seen.append(request)
        if len(seen) < count:
            return None
        reached.set()
        go_on.wait(30)
        return Answer(503)

    return rule


def killed_at(watch, stack: ExitStack, settings, last: int, word: str, count: int) -> None:
    """Run the job until the request, and kill it there."""
    reached, go_on = threading.Event(), threading.Event()
    watch.rule = held_at(word, count, reached, go_on)
    child = started(stack, settings, last)
    try:
        assert reached.wait(60)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait(10)
    finally:
        go_on.set()
        watch.rule = lambda _request: None


def started(stack: ExitStack, settings, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), json.dumps(settings), str(last)]
    child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
    stack.callback(child.kill)
    return child


def said(stack: ExitStack, settings, last: int) -> list[list[object]]:
    """Run the job to its end; give what it said."""
    child = started(stack, settings, last)
    lines = [json.loads(line) for line in child.stdout or ()]
    assert 0 == child.wait(60)
    return lines


def test_a_job_killed_in_a_large_upload_goes_on_and_its_parts_are_collected(place, tmp_path):
    """Killed between two parts of an upload, the job ends exact on an empty disk, and `gc` drops the open upload."""
    with watching(place.server.endpoint) as watch, ExitStack() as stack:
        server = type(place.server)(watch.endpoint, place.server.access_key, place.server.secret_key, "watched")
        settings = config(tmp_path, server, **PARTS, changes=False)
        assert [["resumed", 0, True], ["durable", 9]] == said(stack, settings, 10)
        killed_at(watch, stack, settings, 80, "partNumber", 2)
        assert 1 == len(place.uploads())
        shutil.rmtree(tmp_path / "state")

        assert [["resumed", 10, True], ["durable", 79]] == said(stack, settings, 80)
        place.age()
        assert 1 == collected(settings)[UPLOAD]
        assert [] == place.uploads()
        assert [["resumed", 80, True], ["durable", 79]] == said(stack, settings, 80)


def test_a_job_killed_in_a_large_restore_starts_it_anew(place, tmp_path):
    """Killed between the reads of a restore, twice on the same disk, the job opens exactly what was committed."""
    with watching(place.server.endpoint) as watch, ExitStack() as stack:
        server = type(place.server)(watch.endpoint, place.server.access_key, place.server.secret_key, "watched")
        settings = config(tmp_path, server)
        settings["job"]["transfer_threads"] = 2
        assert [["resumed", 0, True], ["durable", 159]] == said(stack, settings, 160)
        shutil.rmtree(tmp_path / "state")
        for count in (2, 4):
            killed_at(watch, stack, settings, 160, "GET", count)

        assert [["resumed", 160, True], ["durable", 159]] == said(stack, settings, 160)
