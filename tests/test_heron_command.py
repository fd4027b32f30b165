"""``millpond heron-ckptmgr``: Heron's command line and files, and the process's life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from heron_servers import COUNT0, COUNT1, HOST, ID, NAME, TIMEOUT_S, TOPOLOGY

from millpond.cli import main
from millpond.errors import ConfigError
from millpond.heron.double import CoordinatorDouble, StreamManagerDouble
from millpond.heron.heron_files import HeronConfig, StoreChoice, read, server_values, store_choice
from millpond.heron.opening import open_states
from millpond.heron.peers import ConnectionEndedError, Topology
from millpond.heron.server import ignore
from millpond.heron.settings import ServerSettings

STATEFUL = """
# as it is shipped
heron.statefulstorage.classname:  org.apache.heron.statefulstorage.localfs.LocalFileSystemStorage
heron.statefulstorage.config:
  heron.statefulstorage.classpath: ""
  heron.statefulstorage.localfs.root.path: {root}
  heron.statefulstorage.localfs.max.checkpoints: 4
heron.ckptmgr.network.write.batch.size.bytes: 32768
heron.ckptmgr.network.write.batch.time.ms: 16
heron.ckptmgr.network.read.batch.size.bytes: 32768
heron.ckptmgr.network.read.batch.time.ms: 16
heron.ckptmgr.network.options.socket.send.buffer.size.bytes: 655360
heron.ckptmgr.network.options.socket.receive.buffer.size.bytes: 655360
heron.ckptmgr.network.options.maximum.packetsize.bytes: 10485760
"""


def write(tmp_path: Path, text: str, name: str = "stateful.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_herons_shipped_file_is_understood(tmp_path: Path):
    """Each key of a shipped stateful.yaml that means something here is mapped, and the others are left alone."""
    config = read(write(tmp_path, STATEFUL.format(root=tmp_path / "states")))

    assert store_choice(config) == StoreChoice("folder", {}, tmp_path / "states", from_heron=True, keep=4)
    assert server_values(config) == {
        "max_packet": 10_485_760,
        "send_buffer": 655_360,
        "receive_buffer": 655_360,
        "read_size": 32_768,
    }
    assert ServerSettings(**server_values(config)).max_packet == 10_485_760


def test_overrides_go_before_settings_and_those_before_internals(tmp_path: Path):
    """A flat override replaces a key of the file, also one inside the storage's map; internals fill what is missing."""
    config = read(
        write(tmp_path, STATEFUL.format(root="/a")),
        write(tmp_path, "heron.statefulstorage.localfs.root.path: /b\nextra: 1\n", "override.yaml"),
        write(tmp_path, "extra: 2\nmore: 3\nheron.statefulstorage.classname: x\n", "internals.yaml"),
    )

    assert store_choice(config).folder == Path("/b")
    assert (config.values["extra"], config.values["more"]) == (1, 3)


def test_a_home_folder_expands_and_the_default_is_ten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A leading ~ is the home folder, and without a number ten checkpoints are kept."""
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "heron.statefulstorage.classname: a.LocalFileSystemStorage\n"
    text += "heron.statefulstorage.config: {heron.statefulstorage.localfs.root.path: ~/.herondata/checkpoints}\n"
    choice = store_choice(read(write(tmp_path, text)))

    assert (choice.folder, choice.keep) == (tmp_path / ".herondata" / "checkpoints", 10)


def test_a_limit_of_zero_is_none(tmp_path: Path):
    """A packet limit of 0 means what it means in C++: the largest packet that there is."""
    text = "heron.ckptmgr.network.options.maximum.packetsize.bytes: 0\n"

    assert server_values(read(write(tmp_path, text)))["max_packet"] == (1 << 31) - 1


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a: b: c", "is no YAML"),
        ("- a\n- b\n", "is no map"),
        ("heron.statefulstorage.config: 3", "is no map"),
        ("{}", "missing"),
        ("heron.statefulstorage.classname: x.DlogStorage", "DlogStorage"),
        ("heron.statefulstorage.classname: x.LocalFileSystemStorage", "root.path is missing"),
        ("heron.statefulstorage.classname: x.HDFSStorage", "webhdfs://"),
        ("heron.ckptmgr.network.options.maximum.packetsize.bytes: many", "whole number"),
        ("a: !!python/object/apply:os.system ['true']", "is no YAML"),
    ],
)
def test_a_wrong_file_is_told_in_words(tmp_path: Path, text: str, hint: str):
    """Each mistake in a file is a ConfigError that says what is wrong; nothing in a file is ever executed."""
    with pytest.raises(ConfigError, match=hint):
        config = read(write(tmp_path, text))
        server_values(config)
        store_choice(config)


def test_hdfs_and_other_stores_are_chosen_by_keys():
    """An HDFS root with its server becomes fsspec's URL; our own key names any backend, with its settings."""
    hdfs = HeronConfig(
        {"heron.statefulstorage.classname": "x.HDFSStorage"},
        {"heron.statefulstorage.hdfs.root.path": "webhdfs://namenode:9870/heron", "millpond.keep": "3"},
    )
    s3 = HeronConfig({}, {"millpond.store": "s3", "millpond.store.bucket": "b", "millpond.also-read": "/old, /older"})

    assert store_choice(hdfs) == StoreChoice("fsspec", {"url": "webhdfs://namenode:9870/heron"}, None, True, 3)
    assert store_choice(s3) == StoreChoice("s3", {"bucket": "b"}, also=("/old", "/older"))


def test_a_store_that_cannot_be_is_told_in_words(tmp_path: Path):
    """A backend that keeps no objects, one with wrong settings, and a folder without a path are ConfigErrors."""
    for choice, hint in (
        (StoreChoice("rocksdb-local", {}), "keeps no objects"),
        (StoreChoice("fsspec", {"ulr": "x"}), "url"),
        (StoreChoice("folder", {}), "millpond.store.path"),
        (StoreChoice("nonsense", {}), "unknown"),
    ):
        with pytest.raises(ConfigError, match=hint), open_states(choice, ignore, scratch=tmp_path):
            pass


@contextmanager
def command(*arguments: str, java: bool = False, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command, and give it with its port once it listens."""
    words = [sys.executable, "-m", "millpond", "heron-ckptmgr"]
    if java:
        words += ["-Xmx1g", "-XX:+UseG1GC", "-cp", "x.jar", "org.apache.heron.ckptmgr.CheckpointManager"]
    process = subprocess.Popen(
        [*words, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "listens at 127.0.0.1:" in said, process.communicate(timeout=TIMEOUT_S)
        yield process, int(said.partition("127.0.0.1:")[2].partition(",")[0])
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def test_the_executors_command_line_serves_herons_folder(tmp_path: Path):
    """With the flags as Heron's executor glues them, in place of Java, states are saved; SIGTERM ends it with 0."""
    path = write(tmp_path, STATEFUL.format(root=tmp_path / "states"))
    override = write(tmp_path, "", "override.yaml")
    flags = [f"-t{NAME}", f"-i{ID}", "-cckptmgr-1", "-p0", f"-f{path}", f"-o{override}", f"-g{override}"]
    metrics = tmp_path / "metrics.txt"
    with command(*flags, "--metrics", str(metrics), java=True) as (process, port):
        with StreamManagerDouble(HOST, port, TOPOLOGY, "stmgr-1") as stmgr:
            assert stmgr.save({COUNT0: b"a", COUNT1: b"b" * 2_000_000}, "1-1") == {COUNT0, COUNT1}
            assert stmgr.restore("1-1") == {COUNT0: b"a", COUNT1: b"b" * 2_000_000}
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0

    assert (tmp_path / "states" / NAME / "1-1" / "count" / "0").is_file()
    assert list((tmp_path / "states" / ".millpond" / "scratch").iterdir()) == []
    assert "millpond_heron_saves_total 2" in metrics.read_text()


def test_a_killed_server_is_followed_by_one_that_has_everything(tmp_path: Path):
    """After SIGKILL the next process, on the same folder, gives back all that was answered, and tidies up."""
    arguments = ["-t", NAME, "-i", ID, "--store", "folder", "--set", f"path={tmp_path / 'states'}"]
    alone = Topology(NAME, ID, (COUNT0,))
    with command(*arguments) as (process, port), StreamManagerDouble(HOST, port, alone, "stmgr-1") as stmgr:
        assert stmgr.save({COUNT0: b"k" * 700_000}, "1-1") == {COUNT0}
        process.kill()
        with pytest.raises(ConnectionEndedError):
            stmgr.save({COUNT0: b"x"}, "1-2")
    with command(*arguments) as (_, port), StreamManagerDouble(HOST, port, alone, "stmgr-1") as stmgr:
        assert stmgr.restore("1-1") == {COUNT0: b"k" * 700_000}
        with CoordinatorDouble(HOST, port, alone) as coordinator:
            assert list(coordinator.clean("2-0").cleaned_checkpoint_ids) == ["1-1"]
        assert len(list((tmp_path / "states" / ".millpond" / "scratch").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ([], "say what is served"),
        (["-t", "a"], "belong together"),
        (["-t", "a", "-i", "b", "--any-topology"], "say what is served"),
        (["-t", "a", "-i", "b"], "classname is missing"),
        (["-t", "a", "-i", "b", "-f", "/nonexistent"], "cannot read /nonexistent"),
        (["-t", "a", "-i", "b", "--store", "memory", "--host", "0.0.0.0"], "--tls-certificate"),
        (["-t", "a", "-i", "b", "--store", "memory", "--serve", "x"], "NAME=VALUE"),
        (["-t", "a", "-i", "b", "--store", "memory", "--tls-key", "x"], "belong together"),
        (["-t", "a", "-i", "b", "--store", "memory", "--tls-client-name", "x"], "--tls-client"),
        (["-t", "a", "-i", "b", "--store", "memory", "--allow", "here"], "allow-list"),
        (["-t", "a", "-i", "b", "--store", "memory", "--max-packet", "1"], "largest packet"),
        (["-t", "a", "-i", "b", "--store", "memory", "--memory", "0"], "memory is 0"),
        (["-t", "a", "-i", "b", "--store", "memory", "-p", "99999"], "port 99999"),
    ],
)
def test_a_wrong_command_line_is_told_in_words(arguments: list[str], hint: str):
    """Each wrong usage ends with 2 and says what to write."""
    result = CliRunner().invoke(main, ["heron-ckptmgr", *arguments])

    assert result.exit_code == 2
    assert hint in result.output


def test_a_port_that_is_taken_is_told_in_words():
    """A port on which somebody listens ends the command with 2 and names it."""
    import socket

    with socket.create_server((HOST, 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["heron-ckptmgr", "-ta", "-ib", "--store", "memory", "-p", port])

    assert result.exit_code == 2
    assert f"cannot listen at 127.0.0.1:{port}" in result.output


def test_nothing_of_heron_is_loaded_without_it():
    """The command's other parts, and the core, load no protobuf and no YAML."""
    code = "import sys, millpond, millpond.cli; millpond.cli.main(['--help'], standalone_mode=False); "
    code += "print([name for name in sys.modules if name.startswith(('google', 'yaml', 'millpond.heron'))])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert said.stdout.endswith("[]\n")
    assert "heron-ckptmgr" in said.stdout
