"""
A topology's states on a real HDFS: what Heron's own storage left there is found, and what is saved lies in its layout.

`tox run -e filesystems-hdfs` runs it; in between it speaks WebHDFS by itself, as a stranger to all of our code.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest
from attrs import frozen
from heron_servers import COUNT0, COUNT1, HOST, ID, NAME, REQID, TIMEOUT_S, TOPOLOGY
from services import hdfs
from services.file_system_server import is_needed

from millpond.heron import peers
from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.messages import NOTOK, message
from millpond.heron.peers import Instance, Topology, Wire

LARGE = b"h" * 3_000_000
ALONE = Topology(NAME, ID, (COUNT0, COUNT1))
STATEFUL = """
heron.statefulstorage.classname: org.apache.heron.statefulstorage.hdfs.HDFSStorage
heron.statefulstorage.config:
  heron.statefulstorage.classpath: "/opt/hadoop/*"
  heron.statefulstorage.hdfs.root.path: {root}
"""
_numbers = count(1)


@frozen
class Hdfs:
    """A folder of a namenode's, asked by WebHDFS."""

    address: str
    folder: str

    @property
    def root(self) -> str:
        """What an operator writes into stateful.yaml."""
        return f"webhdfs://test@{self.address}{self.folder}"

    def ask(self, verb: str, path: str, operation: str, body: bytes | None = None) -> bytes:
        """Ask, and follow the namenode to a datanode."""
        url = f"http://{self.address}/webhdfs/v1{self.folder}/{quote(path)}?op={operation}&user.name=test"
        if body is not None:
            try:
                with urllib.request.urlopen(urllib.request.Request(url, method=verb, data=b""), timeout=TIMEOUT_S):
                    raise AssertionError("a namenode takes no content itself")
            except urllib.error.HTTPError as error:
                if error.code != 307:
                    raise
                url = error.headers["Location"]
        with urllib.request.urlopen(urllib.request.Request(url, method=verb, data=body), timeout=TIMEOUT_S) as answer:
            return bytes(answer.read())

    def herons_storage_writes(self, checkpoint: str, instance: Instance, state: bytes) -> None:
        """Create the file as Heron's HDFS storage does, under its name and with its bytes."""
        content = message("InstanceStateCheckpoint")(checkpoint_id=checkpoint, state=state).SerializeToString()
        path = f"{NAME}/{checkpoint}/{instance.component}/{instance.index}"
        self.ask("PUT", path, "CREATE&overwrite=true", content)

    def herons_storage_reads(self, checkpoint: str, instance: Instance) -> bytes:
        """Parse the file as Heron's HDFS storage does, and give the state."""
        found = self.ask("GET", f"{NAME}/{checkpoint}/{instance.component}/{instance.index}", "OPEN")
        parsed = message("InstanceStateCheckpoint").FromString(found)
        assert parsed.checkpoint_id == checkpoint
        return bytes(parsed.state)

    def files(self, path: str = NAME) -> set[str]:
        """Give all files below *path*."""
        try:
            listed = json.loads(self.ask("GET", path, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return set()
        found = {f"{path}/{one['pathSuffix']}" for one in listed if one["type"] == "FILE"}
        return found.union(*(self.files(f"{path}/{one['pathSuffix']}") for one in listed if one["type"] == "DIRECTORY"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namenode's address; skipped where there is none, or where another environment is for it."""
    named = os.environ.get("MILLPOND_SERVERS")
    if named is not None and "hdfs" not in named.split(","):
        pytest.skip("`tox run -e filesystems-hdfs` has the tests on HDFS")
    reason = hdfs.missing()
    if importlib.util.find_spec("requests") is None or importlib.util.find_spec("millpond_fsspec") is None:
        reason = 'the driver is not installed: `pip install "millpond-fsspec[hdfs]"`'
    if reason is not None:
        (pytest.fail if is_needed("hdfs") else pytest.skip)(reason)
    with hdfs.serve(tmp_path_factory.mktemp("hdfs")) as running:
        yield running.url.removeprefix("webhdfs://").partition("/")[0]


@pytest.fixture
def place(server: str) -> Hdfs:
    """An empty folder on it."""
    return Hdfs(server, f"/heron-{next(_numbers)}")


@contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the server as Heron's executor does, and give it with its port."""
    words = [sys.executable, "-m", "millpond", "heron-ckptmgr", f"-t{NAME}", f"-i{ID}", "-cckptmgr-1", "-p0"]
    process = subprocess.Popen([*words, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "listens at 127.0.0.1:" in said, process.communicate(timeout=TIMEOUT_S)
        yield process, int(said.partition("127.0.0.1:")[2].partition(",")[0])
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def stateful(tmp_path: Path, place: Hdfs) -> str:
    path = tmp_path / "stateful.yaml"
    path.write_text(STATEFUL.format(root=place.root))
    return f"-f{path}"


def restored(port: int, checkpoint: str) -> Mapping[Instance, bytes | None] | None:
    with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
        return stmgr.restore(checkpoint)


def test_a_topology_on_hdfs_finds_its_state_and_goes_on_in_herons_layout(tmp_path: Path, place: Hdfs):
    """Heron's files on HDFS are restored, new ones lie where Heron reads them, through a kill; a clean takes both."""
    place.herons_storage_writes("7-1", COUNT0, b"old")
    place.herons_storage_writes("7-1", COUNT1, LARGE)
    flags = stateful(tmp_path, place)
    with command(flags) as (process, port):
        assert restored(port, "7-1") == {COUNT0: b"old", COUNT1: LARGE}
        with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"new", COUNT1: LARGE[::-1] + b"!"}, "7-2") == {COUNT0, COUNT1}
        process.kill()
    assert place.herons_storage_reads("7-2", COUNT0) == b"new"
    assert place.herons_storage_reads("7-2", COUNT1) == LARGE[::-1] + b"!"
    with command(flags) as (_, port):
        assert restored(port, "7-2") == {COUNT0: b"new", COUNT1: LARGE[::-1] + b"!"}
        assert restored(port, "7-1") == {COUNT0: b"old", COUNT1: LARGE}
        with CoordinatorDouble(HOST, port, TOPOLOGY) as coordinator:
            assert list(coordinator.clean("7-2").cleaned_checkpoint_ids) == ["7-1"]
            assert place.files() == {f"{NAME}/7-2/count/0", f"{NAME}/7-2/count/1"}
            assert list(coordinator.clean(None, everything=True).cleaned_checkpoint_ids) == ["7-2"]
    assert place.files() == set()


def test_a_topology_that_leaves_hdfs_finds_its_old_state_there(tmp_path: Path, place: Hdfs):
    """With a folder as the store and HDFS to read as well, the old state is restored, and nothing there changes."""
    place.herons_storage_writes("7-1", COUNT0, b"old")
    place.herons_storage_writes("7-1", COUNT1, LARGE)
    before = place.files("")
    flags = ["--store", "folder", "--set", f"path={tmp_path / 'states'}", "--also-read", place.root]
    with command(*flags) as (_, port):
        assert restored(port, "7-1") == {COUNT0: b"old", COUNT1: LARGE}
        with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"new", COUNT1: b"new"}, "7-2") == {COUNT0, COUNT1}
        assert restored(port, "7-2") == {COUNT0: b"new", COUNT1: b"new"}
    assert place.files("") == before
    assert (tmp_path / "states" / NAME / "7-2" / "count" / "0").is_file()


def test_a_damaged_file_on_hdfs_is_refused(tmp_path: Path, place: Hdfs):
    """A state that we saved and somebody changed, and one of Heron's that is cut, are NOTOK and not given out."""
    with command(stateful(tmp_path, place)) as (_, port):
        with StreamManagerDouble(HOST, port, ALONE, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"x" * 1000, COUNT1: b"y"}, "7-2") == {COUNT0, COUNT1}
        path = f"{NAME}/7-2/count/0"
        content = bytearray(place.ask("GET", path, "OPEN"))
        content[500] ^= 1
        place.ask("PUT", path, "CREATE&overwrite=true", bytes(content))
        place.herons_storage_writes("7-1", COUNT0, b"cut")
        place.ask("PUT", f"{NAME}/7-1/count/1", "CREATE&overwrite=true", b"\x0a\x037-1\x12\x7f half of it")

        assert restored(port, "7-2") is None
        assert restored(port, "7-1") is None


def test_every_name_that_heron_can_write_on_hdfs_is_found(tmp_path: Path, place: Hdfs):
    """Components with signs that URLs and patterns use are restored from Heron's files, go on, and are cleaned."""
    odd = [Instance(name, 0, number) for number, name in enumerate(("a\\b#c?d*", "[a]{b}", "a%41+&; |\"'<>^`=,$"), 1)]
    topology = Topology(NAME, ID, tuple(odd))
    for each in odd:
        place.herons_storage_writes("7-1", each, each.component.encode())
    with command(stateful(tmp_path, place)) as (_, port):
        with StreamManagerDouble(HOST, port, topology, "stmgr-1") as stmgr:
            assert stmgr.restore("7-1") == {each: each.component.encode() for each in odd}
            assert stmgr.save(dict.fromkeys(odd, b"new"), "7-2") == set(odd)
            assert stmgr.restore("7-2") == dict.fromkeys(odd, b"new")
        with CoordinatorDouble(HOST, port, topology) as coordinator:
            assert list(coordinator.clean("7-2").cleaned_checkpoint_ids) == ["7-1"]
            assert {path.split("/")[1] for path in place.files()} == {"7-2"}


def test_a_colon_is_no_part_of_a_name_on_hdfs(place: Hdfs):
    """HDFS itself refuses a colon, so Heron cannot have written a state under such a name."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        place.herons_storage_writes("7-1", Instance("co:unt", 0), b"old")
    refused.value.close()
    assert refused.value.code == 400


def test_a_state_under_a_name_with_a_tilde_is_told(tmp_path: Path, place: Hdfs):
    """A tilde marks uploads that are not whole: such a state is not given out, and the refusal says where it lies."""
    tilde = Instance("co~unt", 0)
    place.herons_storage_writes("7-1", tilde, b"old")
    with command(stateful(tmp_path, place)) as (_, port), closing(Wire(HOST, port, TIMEOUT_S)) as wire:
        wire.send(peers.get(tilde, "7-1", REQID))
        answer = wire.receive()
    assert answer.message.status.status == NOTOK
    assert "Heron would have it at 'word-count/7-1/co~unt/0'" in answer.message.status.message
