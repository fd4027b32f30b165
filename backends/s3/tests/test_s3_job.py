"""Whole jobs on a bucket: what a commit costs, what survives a kill and an empty disk, who keeps out of whose way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from engines import TurnedClock
from services.watching_proxy import Answer, watching

import millpond
from millpond.errors import CommitError, ConfigError, FencedError

PROGRAM = Path(__file__).with_name("programs") / "counting_job.py"
SOURCE = millpond.SystemStreamPartition("test", "numbers", 0)
TASK = "a task/of ü"


def section(server, bucket, **settings):
    return {**server.settings, "bucket": bucket, "attempts": 3, **settings}


def config(tmp_path, place, job="flights", stores=("counts", "sums"), **more):
    """Give a job whose records and state lie in the bucket that *place* names."""
    return {
        "job": {"name": job, "state_dir": str(tmp_path / f"state of {job}")},
        "checkpoint": {"manager": "s3", "retain": 2, "tidy_every": 1, **place},
        "backends": {"archive": {"type": "s3", **place, **more}},
        "stores": {
            name: {"engine": "memory", "key": "str", "value": "json", "backup": ["archive"], "restore": ["archive"]}
            for name in stores
        },
        "commit": {"interval": "1h"},
    }


def commit(task, number, **values):
    """Put *values* into the store of their name, and commit."""
    for store, value in values.items():
        task.store(store)["k"] = value
    task.processed(SOURCE, number)
    return task.commit_now(60)


def made(requests):
    """Count what changed or read objects, by kind of request and of object."""
    kinds = Counter()
    for request in requests:
        parts = request.path.split("/")
        kind = next((part for part in ("records", "data", "pins") if part in parts), "other")
        kinds[request.method, kind] += 1
    return kinds


def test_a_small_commit_is_one_data_put_and_one_record(gateway, new_bucket, bucket, tmp_path):
    """A hundred keys in three stores go up as one PUT of data and one of the record, and nothing is read."""
    new_bucket(gateway)
    stores = ("a", "b", "c")
    with watching(gateway.endpoint) as watch:
        place = section(gateway, bucket, endpoint=watch.endpoint)
        with millpond.open_job(config(tmp_path, place, stores=stores)) as job, job.open_task(TASK) as task:
            commit(task, 0, a=0, b=0, c=0)
            task.commit_now(60)
            watch.take()
            for number in range(100):
                task.store(stores[number % 3])[f"key {number}"] = number
            task.processed(SOURCE, 1)
            task.commit_now(60)

            kinds = made(watch.take())
    assert 1 == kinds["PUT", "data"]
    assert 1 == kinds["PUT", "records"]
    assert 2 == sum(count for (method, _), count in kinds.items() if method == "PUT")
    assert 0 == kinds["GET", "data"] + kinds["GET", "records"]
    assert 1 >= kinds["GET", "other"]  # a listing, of what may be tidied up


def test_lists_reads_and_deletes_are_spread_over_commits(gateway, new_bucket, bucket, tmp_path):
    """48 commits of 100 keys are 48 PUTs of data and 48 of records, and at most one other request for two of them."""
    new_bucket(gateway)
    with watching(gateway.endpoint) as watch:
        place = section(gateway, bucket, endpoint=watch.endpoint)
        given = config(tmp_path, place)
        given["checkpoint"] = {"manager": "s3", "retain": 2, **place}
        with millpond.open_job(given) as job, job.open_task(TASK) as task:
            commit(task, 0, counts=0)
            task.commit_now(60)
            watch.take()
            kinds = Counter()
            for number in range(1, 49):
                for key in range(100):
                    task.store("counts")[f"key {key}"] = number
                task.processed(SOURCE, number)
                task.commit_now(60)
                seen = made(watch.take())
                assert (1, 1) == (seen["PUT", "data"], seen["PUT", "records"]), number
                kinds += seen
            task.commit_now(60)
            kinds += made(watch.take())
            listed = len(task._engine._task.manager.ids(TASK))
        assert (48, 48) == (kinds["PUT", "data"], kinds["PUT", "records"])
        others = sum(kinds.values()) - 96
        assert 0 < others <= 24, kinds
        assert 2 <= listed < 2 + 16


def test_a_commit_without_changes_sends_nothing_to_data(gateway, new_bucket, bucket, tmp_path):
    """With a hundred clean stores a commit of new offsets sends the record alone, and one of nothing sends nothing."""
    new_bucket(gateway)
    stores = [f"s{number}" for number in range(100)]
    with watching(gateway.endpoint) as watch:
        place = section(gateway, bucket, endpoint=watch.endpoint)
        with millpond.open_job(config(tmp_path, place, stores=stores)) as job, job.open_task(TASK) as task:
            commit(task, 0, s0=1)
            task.commit_now(60)
            watch.take()
            task.processed(SOURCE, 1)
            task.commit_now(60)
            task.commit_now(60)  # waits for what the one before it tidies up
            kinds = made(watch.take())
            task.commit_now(60)
            assert [] == watch.take()
    assert 0 == sum(count for (_, kind), count in kinds.items() if kind == "data")
    assert 1 == kinds["PUT", "records"]


def test_jobs_whose_names_begin_alike_keep_out_of_each_others_way(gateway, new_bucket, bucket, tmp_path, monkeypatch):
    """Of two jobs in one bucket, `flight` and `flights`, each restores its own after both have tidied up."""
    client = new_bucket(gateway)
    clock = TurnedClock()
    monkeypatch.setattr("millpond.job.SystemClock", lambda: clock)
    place = section(gateway, bucket)
    for round in range(3):
        for name in ("flight", "flights"):
            with millpond.open_job(config(tmp_path, place, name, cleanup_every=1)) as job, job.open_task(TASK) as task:
                assert (f"{name} {round - 1}" if round else None) == task.store("counts").get("k")
                for number in range(4 * round, 4 * round + 4):
                    commit(task, number, counts=f"{name} {round}")
                    clock.ahead_s += 100_000  # the period of grace
            shutil.rmtree(tmp_path / f"state of {name}")
    found = client.list_objects_v2(Bucket=bucket)["Contents"]
    data = Counter(item["Key"].split("/")[0] for item in found if "/data/" in item["Key"])
    assert 2 == len(data), data
    assert max(data.values()) < 12, data  # each commit made one


HOSTILE = ["a b/c", "..", "ü 日本", "%41", "a", "A", "x" * 60, "con+fig!(1)", "e\u0301", "\u00e9"]


def test_names_of_any_kind_stay_apart(gateway, new_bucket, bucket, tmp_path):
    """Stores and tasks of names with spaces, slashes, dots, percent signs and twins in unicode get their own back."""
    new_bucket(gateway)
    settings = config(tmp_path, section(gateway, bucket), stores=HOSTILE)
    tasks = HOSTILE[:4]
    with millpond.open_job(settings) as job:
        for name in tasks:
            with job.open_task(name) as task:
                commit(task, 0, **{store: f"{name} {store}" for store in HOSTILE})
    shutil.rmtree(settings["job"]["state_dir"])
    with millpond.open_job(settings) as job:
        for name in tasks:
            with job.open_task(name) as task:
                assert {s: f"{name} {s}" for s in HOSTILE} == {s: task.store(s).get("k") for s in HOSTILE}


def test_a_replaced_owner_is_refused(gateway, new_bucket, bucket, tmp_path):
    """When another process has claimed the task, the old owner's next commit is a FencedError and changes nothing."""
    new_bucket(gateway)
    old, new = (config(tmp_path / name, section(gateway, bucket)) for name in ("old", "new"))
    with millpond.open_job(old) as first, millpond.open_job(new) as second:
        zombie = first.open_task(TASK)
        commit(zombie, 0, counts=1)
        with second.open_task(TASK) as task:
            assert 1 == task.store("counts").get("k")
            commit(task, 1, counts=2)
            with pytest.raises(FencedError):
                commit(zombie, 1, counts=666)
            commit(task, 2, counts=3)
    shutil.rmtree(tmp_path / "new")
    with millpond.open_job(new) as third, third.open_task(TASK) as task:
        assert 3 == task.store("counts").get("k")


def test_credentials_that_expire_cost_a_commit_and_nothing_else(gateway, new_bucket, bucket, tmp_path):
    """A commit under expired credentials fails; the next one, with new ones, has its changes too."""
    new_bucket(gateway)
    with watching(gateway.endpoint) as watch:
        place = section(gateway, bucket, endpoint=watch.endpoint)
        with millpond.open_job(config(tmp_path, place)) as job, job.open_task(TASK) as task:
            commit(task, 0, counts=1)
            watch.rule = lambda _request: Answer(400, "ExpiredToken")
            with pytest.raises(CommitError):
                commit(task, 1, counts=2)
            watch.rule = lambda _request: None
            commit(task, 2, sums=3)
        shutil.rmtree(tmp_path / "state of flights")
        with millpond.open_job(config(tmp_path, place)) as job, job.open_task(TASK) as task:
            assert (2, 3) == (task.store("counts").get("k"), task.store("sums").get("k"))
            assert "2" == task.offsets[SOURCE]


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_a_store_that_fails_is_never_an_empty_state(gateway, new_bucket, bucket, tmp_path, status):
    """Whatever the server refuses with while a task is opened on an empty disk, opening fails; state is never empty."""
    new_bucket(gateway)
    place = section(gateway, bucket)
    with millpond.open_job(config(tmp_path, place)) as job, job.open_task(TASK) as task:
        commit(task, 0, counts=1)
    shutil.rmtree(tmp_path / "state of flights")
    with watching(gateway.endpoint) as watch:
        away = section(gateway, bucket, endpoint=watch.endpoint, attempts=1)
        codes = {403: "AccessDenied", 404: "NoSuchKey", 500: "InternalError", 503: "SlowDown"}
        watch.rule = lambda request: Answer(status, codes[status]) if "/data/" in request.path else None
        with millpond.open_job(config(tmp_path, away)) as job, pytest.raises(millpond.MillpondError):
            job.open_task(TASK, timeout_s=5)
        watch.rule = lambda _request: None
        with millpond.open_job(config(tmp_path, away)) as job, job.open_task(TASK) as task:
            assert 1 == task.store("counts").get("k")


def test_preparing_tells_a_denied_permission_from_a_wrong_bucket(gateway, new_bucket, bucket, tmp_path):
    """`prepare` leaves nothing in a good bucket, and names what is denied, or a bucket that is not there."""
    client = new_bucket(gateway)
    with millpond.open_job(config(tmp_path, section(gateway, bucket))) as job:
        job.prepare()
    assert 0 == client.list_objects_v2(Bucket=bucket)["KeyCount"]

    absent = section(gateway, "absent-bucket")
    with millpond.open_job(config(tmp_path, absent)) as job, pytest.raises(ConfigError, match="absent-bucket"):
        job.prepare()
    with watching(gateway.endpoint) as watch:
        watch.rule = lambda request: Answer(403, "AccessDenied") if request.method == "GET" else None
        settings = config(tmp_path, section(gateway, bucket, endpoint=watch.endpoint))
        denied = pytest.raises(ConfigError, match=r"s3:(GetObject|ListBucket) on s3://")
        with millpond.open_job(settings) as job, denied:
            job.prepare()


def test_a_server_that_ignores_conditions_is_refused(moto, new_bucket, bucket, tmp_path):
    """Where two creations of one key both win, `prepare` says that owners could not be told apart, and what to do."""
    new_bucket(moto)
    with watching(moto.endpoint) as watch:
        watch.rule = lambda _request: Answer(without="if-none-match")
        settings = config(tmp_path, section(moto, bucket, endpoint=watch.endpoint))
        refused = pytest.raises(ConfigError, match=r"conditional writes are not honoured.*checkpoint\.manager")
        with millpond.open_job(settings) as job, refused:
            job.prepare()


def test_a_flipped_bit_is_never_restored(gateway, new_bucket, bucket, tmp_path):
    """A bit that flips on the way of an answer about data or records fails the opening: nothing wrong is opened."""
    new_bucket(gateway)
    with millpond.open_job(config(tmp_path, section(gateway, bucket))) as job, job.open_task(TASK) as task:
        commit(task, 0, counts="right", sums="right")
    for kind in ("data", "records"):
        for place in (0, 41, 333, -1):
            shutil.rmtree(tmp_path / "state of flights")
            with watching(gateway.endpoint) as watch:
                watch.rule = lambda request, kind=kind, place=place: (
                    Answer(flip=place) if request.method == "GET" and f"/{kind}/" in request.path else None
                )
                settings = config(tmp_path, section(gateway, bucket, endpoint=watch.endpoint, attempts=1))
                with millpond.open_job(settings) as job, pytest.raises(millpond.MillpondError):
                    job.open_task(TASK, timeout_s=5)


@pytest.mark.parametrize("kind", ["data", "records"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_killed_in_an_upload_goes_on_from_an_empty_disk(gateway, new_bucket, bucket, tmp_path, kind, moment):
    """Killed right before or after a PUT of data or of a record, its disk lost, the job ends with the exact result."""
    new_bucket(gateway)
    durable = -1
    with watching(gateway.endpoint) as watch, ExitStack() as stack:
        settings = config(tmp_path, section(gateway, bucket, endpoint=watch.endpoint))
        for life in range(2):
            reached, go_on = threading.Event(), threading.Event()
            watch.rule = hold_at(kind, 3 + life, moment, reached, go_on)
            child = start(stack, settings, 80)
            said = []
            reader = threading.Thread(target=lambda: said.extend(map(json.loads, child.stdout)))  # noqa: B023
            reader.start()
            assert reached.wait(60)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(10)
            go_on.set()
            reader.join(10)
            (word, begin, count, total) = said[0]
            assert "resumed" == word
            assert (begin, begin * (begin - 1) // 2) == (count, total)
            assert begin > durable
            durable = max([durable, *(number for word, number in said[1:] if word == "durable")])
            shutil.rmtree(tmp_path / "state of flights")
        watch.rule = lambda _request: None
        child = start(stack, settings, 80)
        said = [json.loads(line) for line in child.stdout]
        assert 0 == child.wait(60)
    assert durable < said[0][1]
    assert ["done", 80, 79 * 80 // 2] == said[-1]


def hold_at(kind, count, moment, reached, go_on):
    """Give a rule that stops at the *count*-th PUT of a *kind*, before it is passed on or before its answer is."""
    seen = []

    def rule(request):
        if request.method != "PUT" or f"/{kind}/" not in request.path:
            return None
        seen.append(request)
        if len(seen) != count:
            return None
        if moment == "before":
            reached.set()
            go_on.wait(30)
            return Answer(503)
        return Answer(after=lambda: (reached.set(), go_on.wait(30)))

    return rule


def start(stack, settings, last):
    command = [sys.executable, str(PROGRAM), json.dumps(settings), str(last)]
    child = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True))
    stack.callback(child.kill)
    return child
