"""Bad days of a checkpoint manager whose states lie in a bucket: kills, a server that hangs, answers that are lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from heron_servers import COUNT0, COUNT1, HOST, ID, NAME, TIMEOUT_S, TOPOLOGY
from services import moto_server
from services.s3_server import S3Server
from services.watching_proxy import LOST, Answer, Request, Watch, once, watching

from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.messages import NOTOK, OK
from millpond.heron.peers import ConnectionEndedError, Topology

pytest.importorskip("millpond_s3")
pytest.importorskip("moto.server", reason="the bucket is served by moto: pip install 'moto[server]'")

ALONE = Topology(NAME, ID, (COUNT0,))
LARGE = 1_500_000


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with a bucket."""
    import boto3

    with moto_server.serve(tmp_path_factory.mktemp("moto")) as server:
        keys = {"aws_access_key_id": server.access_key, "aws_secret_access_key": server.secret_key}
        client = boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", **keys)
        client.create_bucket(Bucket="heron")
        client.close()
        yield server


@contextmanager
def command(s3: S3Server, watch: Watch, prefix: str, **settings: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the server on the bucket behind *watch*, and give it with its port."""
    given = {**s3.settings, "endpoint": watch.endpoint, "bucket": "heron", "prefix": prefix, **settings}
    words = [sys.executable, "-m", "millpond", "heron-ckptmgr", f"-t{NAME}", f"-i{ID}", "-p0", "--store", "s3"]
    words += [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "listens at 127.0.0.1:" in said, process.communicate(timeout=TIMEOUT_S)
        yield process, int(said.partition("127.0.0.1:")[2].partition(",")[0])
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def puts_a_state(request: Request) -> bool:
    return request.method == "PUT" and request.path.endswith("/1-2/count/0")


def restored(port: int, checkpoint: str) -> bytes | None:
    with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
        found = stmgr.restore(checkpoint)
        return None if found is None else found[COUNT0]


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_kill_between_the_buckets_write_and_the_answer_loses_nothing(moto: S3Server, size: int):
    """Killed when the bucket has a state and before its save is answered: both states come back from the next one."""
    with watching(moto.endpoint) as watch:
        with command(moto, watch, f"killed-{size}") as (process, port):
            with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
                assert stmgr.save({COUNT0: b"a" * size}, "1-1") == {COUNT0}
                watch.rule = once(puts_a_state, Answer(after=process.kill))
                with pytest.raises(ConnectionEndedError):
                    stmgr.save({COUNT0: b"b" * size}, "1-2")
            assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        with command(moto, watch, f"killed-{size}") as (_, port):
            assert restored(port, "1-1") == b"a" * size
            assert restored(port, "1-2") == b"b" * size


@pytest.mark.parametrize("size", [100, LARGE])
def test_a_bucket_that_hangs_in_mid_save_fails_that_save_and_no_other(moto: S3Server, size: int):
    """A save whose upload is not answered in time is NOTOK with the store's words; others, and the next try, are OK."""
    stuck, go_on = threading.Event(), threading.Event()

    def hang(request: Request) -> Answer | None:
        if not puts_a_state(request) or go_on.is_set():
            return None
        stuck.set()
        go_on.wait(TIMEOUT_S)
        return Answer(status=503, code="SlowDown")

    with watching(moto.endpoint) as watch:
        settings = {"attempts": "1", "read_timeout": "1s"}
        with command(moto, watch, f"hangs-{size}", **settings) as (_, port):
            watch.rule = hang
            with StreamManagerDouble(HOST, port, TOPOLOGY, "stmgr-1") as stmgr:
                sent = stmgr.begin_save(COUNT0, "1-2", b"x" * size)
                assert stuck.wait(TIMEOUT_S)
                with CoordinatorDouble(HOST, port, TOPOLOGY) as coordinator:
                    assert coordinator.await_registration()
                refused = stmgr.answer(sent).message.status
                assert (refused.status, bool(refused.message)) == (NOTOK, True)
                assert stmgr.answer(stmgr.begin_save(COUNT1, "1-2", b"y")).message.status.status == OK
                go_on.set()
                assert stmgr.save({COUNT0: b"z" * size}, "1-2") == {COUNT0}
            assert restored(port, "1-2") == b"z" * size


def test_a_lost_answer_of_the_bucket_costs_a_try(moto: S3Server):
    """Where the bucket has a state and its answer is lost, the upload is tried again, and the save is OK."""
    with watching(moto.endpoint) as watch, command(moto, watch, "lost") as (_, port):
        watch.rule = once(puts_a_state, LOST)
        with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"x" * LARGE}, "1-2") == {COUNT0}
        assert len([each for each in watch.requests if puts_a_state(each)]) == 2
        assert restored(port, "1-2") == b"x" * LARGE


def test_a_clean_that_the_bucket_breaks_off_is_finished_by_the_next(moto: S3Server):
    """A clean in which a removal fails is NOTOK and leaves nothing that looks whole; the next one says what went."""
    with watching(moto.endpoint) as watch, command(moto, watch, "cleans", attempts="1") as (_, port):
        with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
            for number in range(3):
                assert stmgr.save({COUNT0: b"x"}, f"1-{number}") == {COUNT0}
        broken = Answer(status=500, code="InternalError")
        watch.rule = lambda request: broken if "delete" in request.query else None
        with CoordinatorDouble(HOST, port, ALONE) as coordinator:
            assert coordinator.clean("1-2").status.status == NOTOK
            watch.rule = lambda _: None
            answer = coordinator.clean("1-2")
            assert (answer.status.status, list(answer.cleaned_checkpoint_ids)) == (OK, ["1-0", "1-1"])
        assert restored(port, "1-2") == b"x"
