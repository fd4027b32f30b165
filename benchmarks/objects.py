"""
What state in a bucket costs beside http.client, the SDK's own transfers and bare gets, in one interleaved run.

    python benchmarks/objects.py [--gigabytes 1] [--repetitions 5] [--only upload,restore] [--directory DIR]

The server is on this machine and takes its share of the cores: ratios count, not rates.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import jobs
from table import Row, at_least, at_most, show

import millpond
from millpond.blob import FileBody
from millpond.formats.digest import digest_file
from millpond.task import Task
from millpond_s3.client import make_client
from millpond_s3.settings import S3Settings
from millpond_s3.store import S3Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import services.null_s3
import services.versitygw
import services.watching_proxy
from services import slow_link
from services.s3_server import S3Server

MIB = 1 << 20
BUCKET = "bench"
VALUE = 64 << 10
THREADS = 8
RANGE = 8 * MIB
LINK_KB_S = 100_000
RATE_S = 3.0


def settings(server: S3Server, **more: Any) -> S3Settings:
    """Give the settings of the bucket on *server*."""
    given: dict[str, Any] = {**server.settings, **more}
    return S3Settings(bucket=BUCKET, **given)


def plain_client(server: S3Server) -> Any:
    """Give a client with the SDK's defaults."""
    import boto3

    keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", **keys)


def seconds(work: Callable[[], object]) -> float:
    """Give the seconds that *work* takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


# --------------------------------------------------------------------------------------------------- upload


def uploads(root: Path, repetitions: int) -> list[Row]:
    """Measure uploads of a file, with its digest, beside http.client and `upload_file`, to a server that drops them."""
    rows = []
    with services.null_s3.serve(root / "null") as server:
        store, sdk = S3Store(settings(server), THREADS), plain_client(server)
        ways: dict[str, Callable[[Path, int], object]] = {
            "ours": lambda path, size: (digest_file(path), store.put("k", FileBody(path, size))),
            "http.client": lambda path, size: put_bare(server, path, size),
            "upload_file": lambda path, _size: sdk.upload_file(str(path), BUCKET, "k"),
        }
        for size in (32 * MIB, 256 * MIB):
            path = root / "file"
            path.write_bytes(os.urandom(MIB) * (size // MIB))
            speeds: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(repetitions + 1):
                for name, way in ways.items():
                    begun = time.perf_counter()
                    way(path, size)
                    speeds[name].append(size / 1e6 / (time.perf_counter() - begun))
            name = f"upload of a file of {size // MIB} MiB, digest included, beside"
            ours = speeds["ours"][1:]
            rows.append(Row(f"{name} http.client", ours, speeds["http.client"][1:], "MB/s", ">= 0.8x", at_least(0.8)))
            rows.append(Row(f"{name} upload_file", ours, speeds["upload_file"][1:], "MB/s", ">= 2x", at_least(2)))
        store.close()
    return rows


def put_bare(server: S3Server, path: Path, size: int) -> None:
    """Put a file by http.client alone."""
    connection = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)
    with path.open("rb") as file:
        connection.request("PUT", f"/{BUCKET}/k", file, {"Content-Length": str(size)})
        connection.getresponse().read()
    connection.close()


# ---------------------------------------------------------------------------------------------------- whole jobs


@contextmanager
def bucket_server(root: Path) -> Iterator[S3Server]:
    """Serve a new bucket."""
    with services.versitygw.serve(root) as server:
        client = make_client(settings(server), 4, lambda **_: None)
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield server


def config(root: Path, place: Mapping[str, Any], stores: int = 1) -> dict[str, Any]:
    """Give the configuration of a job on the bucket."""
    names = [f"s{number}" for number in range(stores)]
    return {
        "job": {"name": "bench", "state_dir": str(root / "state"), "transfer_threads": THREADS},
        "checkpoint": {"manager": "s3", "bucket": BUCKET, **place},
        "backends": {"archive": {"type": "s3", "bucket": BUCKET, **place}},
        "stores": {
            name: {"engine": "rocksdb", "key": "bytes", "value": "bytes", "backup": ["archive"], "restore": ["archive"]}
            for name in names
        },
        "commit": {"interval": "1h"},
    }


def fill(task: Task, size: int, seed: int = 0) -> None:
    """Put *size* bytes of values that do not shrink."""
    put = task.store("s0").put
    for number in range(size // VALUE):
        put(b"%04d%012d" % (seed, number), os.urandom(VALUE))
    task.processed(jobs.SOURCE, seed)


def restores(root: Path, size: int, repetitions: int) -> list[Row]:
    """Measure opening a task on an empty disk beside a loop of parallel ranged gets of the same objects into files."""
    ours, bare = [], []
    with bucket_server(root / "s3") as server:
        place = config(root, server.settings)
        with millpond.open_job(place) as job, job.open_task("t") as task:
            fill(task, size)
            task.commit_now(600)
        for _ in range(repetitions):
            bare.append(seconds(lambda: get_all(server, root / "gets")))
            shutil.rmtree(root / "gets")
            shutil.rmtree(root / "state")
            ours.append(open_once(place))
    name = f"restore of {size / 1e9:.2f} GB: download, verify, open; beside gets without"
    fast, plain = ([size / 1e6 / one for one in times] for times in (ours, bare))
    return [Row(name, fast, plain, "MB/s", ">= 0.8x", at_least(0.8))]


def open_once(place: Mapping[str, object]) -> float:
    """Give the seconds until a task is open."""
    with millpond.open_job(place) as job:
        begun = time.perf_counter()
        with job.open_task("t"):
            return time.perf_counter() - begun


def get_all(server: S3Server, folder: Path) -> None:
    """Get all data by parallel ranged gets of the SDK's, each written to its place in a file."""
    folder.mkdir()
    client = make_client(settings(server), 2 * THREADS, lambda **_: None)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    found = [(one["Key"], one["Size"]) for page in pages for one in page["Contents"] if "/data/" in one["Key"]]
    pieces = [(key, start) for key, size in found for start in range(0, size, RANGE)]
    files = {key: (folder / str(number)).open("wb") for number, (key, _) in enumerate(found)}

    def get(piece: tuple[str, int]) -> None:
        key, start = piece
        body = client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={start}-{start + RANGE - 1}")["Body"]
        os.pwrite(files[key].fileno(), body.read(), start)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(get, pieces))
    for file in files.values():
        file.flush()
        os.fsync(file.fileno())
        file.close()
    client.close()


def requests(root: Path, commits: int) -> list[Row]:
    """Count the requests of small commits, and of commits without a change of a hundred stores."""
    with bucket_server(root / "s3") as server, services.watching_proxy.watching(server.endpoint) as watch:
        place = {**server.settings, "endpoint": watch.endpoint}
        with millpond.open_job(config(root / "small", place)) as job, job.open_task("t") as task:
            small = [kinds_of_commit(task, watch, number, keys=100) for number in range(commits + 1)][1:]
        with millpond.open_job(config(root / "clean", place, stores=100)) as job, job.open_task("u") as task:
            kinds_of_commit(task, watch, 0, keys=1)
            clean = [kinds_of_commit(task, watch, number, keys=0) for number in range(1, 4)]
    name = "requests of a commit of 100 keys"
    return [
        Row(f"{name}: PUTs of data", [one["PUT data"] for one in small], [], "", "1", lambda count: count == 1),
        Row(f"{name}: PUTs of records", [one["PUT records"] for one in small], [], "", "1", lambda count: count == 1),
        Row(f"{name}: lists, reads and deletes, mean", [others(small)], [], "", "<= 1", at_most(1)),
        Row("data requests of a commit, 100 clean stores", [data(one) for one in clean], [], "", "0", at_most(0)),
    ]


def kinds_of_commit(task: Task, watch: services.watching_proxy.Watch, number: int, keys: int) -> Counter[str]:
    """Make a commit, with all that it tidies up, and count its requests by verb and kind of object."""
    for key in range(keys):
        task.store("s0").put(b"%08d" % (key * 7919 + number), jobs.value(100))
    task.processed(jobs.SOURCE, number)
    watch.take()
    task.commit_now(60)
    task.commit_now(60)  # it has nothing to do but to wait for what the first one tidies up
    kinds: Counter[str] = Counter()
    for request in watch.take():
        where = next((part for part in request.path.split("/") if part in ("data", "records")), "")
        kinds[f"{request.method} {where}"] += 1
    return kinds


def others(kinds: list[Counter[str]]) -> float:
    """Give how many requests a commit has beside its two PUTs."""
    return sum(sum(one.values()) - one["PUT data"] - one["PUT records"] for one in kinds) / len(kinds)


def data(kinds: Counter[str]) -> int:
    """Count the requests about data."""
    return sum(count for kind, count in kinds.items() if kind.endswith(" data"))


# -------------------------------------------------------------------------------------------------------- memory


class Peak:
    """Looks at this process's resident memory again and again; gives what it rose by in the block, in MB."""

    def __enter__(self) -> Self:
        self._idle = self._highest = resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.rise = (self._highest - self._idle) / 1e6

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            self._highest = max(self._highest, resident())


def resident() -> int:
    """Give this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def memory(root: Path, size: int) -> list[Row]:
    """Measure what an upload and a restore of *size* bytes add to a process at rest, each in a process of its own."""
    risen: dict[str, float] = {}
    with bucket_server(root / "s3") as server:
        place = json.dumps(config(root, server.settings))
        for what in ("upload", "restore"):
            command = [sys.executable, __file__, "--child", what, "--gigabytes", str(size / 1e9), "--config", place]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            risen[what] = float(done.stdout)
            shutil.rmtree(root / "state")
    name = f"of {size / 1e9:.2f} GB, above the process at rest"
    return [Row(f"memory of the {what} {name}", [mb], [], "MB", "<= 256", at_most(256)) for what, mb in risen.items()]


def child(what: str, place: Mapping[str, object], size: int) -> float:
    """Upload or restore; give the rise in MB."""
    with millpond.open_job(place) as job:
        if what == "restore":
            with Peak() as peak, job.open_task("t"):
                pass
            return peak.rise
        with job.open_task("t") as task:
            fill(task, size)
            for buffer in task._buffers:
                buffer.close_run()
            task._buffers[0]._lane.submit(lambda: None).result()
            with Peak() as peak:
                task.commit_now(600)
            return peak.rise


# ---------------------------------------------------------------------------------------------------------- rate


def rate(root: Path, size: int, repetitions: int) -> list[Row]:
    """Measure puts and gets of one thread while *size* bytes go up over a link, beside the same without an upload."""
    during, alone = [], []
    with bucket_server(root / "s3") as server, slow_link.before(server.endpoint, LINK_KB_S, root) as endpoint:
        place = config(root, {**server.settings, "endpoint": endpoint})
        with millpond.open_job(place) as job, job.open_task("t") as task:
            for number in range(repetitions):
                fill(task, size, seed=number + 1)
                alone.append(work(task, RATE_S))
                future = task.commit()
                during.append(work(task, 60.0, until=future.done))
                future.result(600)
                task.commit_now(600)
    name = f"processing while {size / 1e9:.2f} GB go up at {LINK_KB_S // 1000} MB/s, beside without"
    return [Row(name, during, alone, "k records/s", ">= 0.9x", at_least(0.9))]


def with_endpoint(place: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    """Give the configuration *place* with another way to its bucket."""
    archive = {**place["backends"]["archive"], "endpoint": endpoint}
    return {**place, "checkpoint": {**place["checkpoint"], "endpoint": endpoint}, "backends": {"archive": archive}}


def work(task: Task, longest_s: float, until: Callable[[], bool] = lambda: False) -> float:
    """Read, change and write records until it is time; give thousands a second."""
    store, count = task.store("s0"), 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < longest_s and not until():
        for number in range(1_000):
            key = b"rate%08d" % ((count + number) % 50_000)
            store.put(key, (store.get(key) or b"")[:90] + b"%08d" % number)
        count += 1_000
    return count / 1e3 / (time.perf_counter() - begun)


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    words.add_argument("--gigabytes", type=float, default=1.0, help="the state of restore and memory")
    words.add_argument("--repetitions", type=int, default=5)
    words.add_argument("--only", default="upload,restore,requests,memory,rate", help="some of %(default)s")
    words.add_argument("--directory", type=Path, default=None)
    words.add_argument("--child", default="", help=argparse.SUPPRESS)
    words.add_argument("--config", default="", help=argparse.SUPPRESS)
    given = words.parse_args()
    size = int(given.gigabytes * 1e9)
    if given.child:
        print(child(given.child, json.loads(given.config), size))
        return
    parts: dict[str, Callable[[Path], list[Row]]] = {
        "upload": lambda root: uploads(root, given.repetitions),
        "restore": lambda root: restores(root, size, given.repetitions),
        "requests": lambda root: requests(root, 20),
        "memory": lambda root: memory(root, size),
        "rate": lambda root: rate(root, size // 2, given.repetitions),
    }
    rows = []
    for name in given.only.split(","):
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            rows += parts[name](Path(folder))
    show(rows)


if __name__ == "__main__":
    main()
