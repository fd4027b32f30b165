"""From settings and a URL to a store that says what it can do."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from services.file_system_server import FileSystemServer

from millpond.blob import BlobStore, BytesBody
from millpond.checkpoint import CheckpointId
from millpond.errors import ConfigError
from millpond.spi import JobContext, VersionPolicy
from millpond_fsspec import FsspecBackend, FsspecBackendConfig, FsspecCheckpoints, FsspecCheckpointsConfig
from millpond_fsspec.opening import open_store


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "bucket/x"}, "no URL"),
        ({"url": "sftp://user:hunter22@[host/x"}, "cannot be read"),
        ({"url": "simplecache::gs://b/x"}, "chain"),
        ({"url": "gs://b", "prefix": "a/../b"}, "prefix"),
        ({"url": "gs://b", "prefix": "/a"}, "prefix"),
        ({"url": "gs://b", "timeout": timedelta(0)}, "timeout"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings: dict, says: str):
    """A URL, prefix or timeout that cannot be right is refused with the mend, and no password is shown."""
    for config_class in (FsspecBackendConfig, FsspecCheckpointsConfig):
        with pytest.raises(ConfigError, match=says) as caught:
            config_class(**settings)
        assert "hunter22" not in str(caught.value)


def test_settings_show_no_secret():
    """A password in the URL, and options that are not merely names of places and users, are in no representation."""
    options = {"password": "hunter23", "nested": {"deep": ["hunter24"]}, "username": "me"}
    shown = repr(FsspecBackendConfig(url="sftp://user:hunter22@host/x", options=options))

    assert "hunter" not in shown
    assert "sftp://host/x" in shown
    assert "me" in shown


def test_options_reach_the_driver_as_they_were_written():
    """What settings keep as a secret is plain text for fsspec, however deep."""
    options = {"password": "hunter23", "nested": {"deep": ["hunter24"]}, "port": 22}
    config = FsspecBackendConfig(url="memory://x", options=options)

    given = open_store(config.url, config.options).place.options

    assert options == given
    assert "hunter23" == f"{given['password']}"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense://x", "fsspec knows no file system nonsense"),
        ("file://relative/x", "relative"),
        ("gs://", "no bucket"),
        ("smb://host/share", "not installed"),
    ],
)
def test_a_url_that_opens_nothing_is_refused(url: str, says: str):
    """A URL whose protocol, driver or root is missing is refused before anything is asked of a server."""
    if url == "gs://":
        pytest.importorskip("gcsfs")
    with pytest.raises(ConfigError, match=says):
        open_store(url)


def job() -> JobContext:
    return JobContext("flights", "1", None, lambda event: None, None, None)  # type: ignore[arg-type]


def test_memory_is_not_durable(tmp_path: Path):
    """What lies in memory is declared to die with the process, as backend and as manager; files are not."""
    for url, durable in ((f"file://{tmp_path}", True), ("memory://x", False)):
        assert durable == FsspecBackend("b", FsspecBackendConfig(url=url)).capabilities.durable
        manager = FsspecCheckpoints(FsspecCheckpointsConfig(url=url), job(), VersionPolicy())
        assert durable == manager.capabilities.durable


@pytest.mark.parametrize("url", ["sftp://127.0.0.1:1/x", "ftp://127.0.0.1:1/x"])
def test_a_manager_on_a_place_without_exclusive_creation_says_so(url: str):
    """A checkpoint manager where names cannot be created exclusively is refused with what to use instead."""
    if url.startswith("sftp"):
        pytest.importorskip("paramiko")
    manager = FsspecCheckpoints(FsspecCheckpointsConfig(url=url), job(), VersionPolicy())

    for attempt in (lambda: manager.claim("t"), lambda: manager.read("t", CheckpointId(1, 0)), manager.tasks):
        with pytest.raises(ConfigError, match=r"keep the records elsewhere \(checkpoint.manager"):
            attempt()
    manager.close()


@pytest.mark.parametrize("place", ["file"], indirect=True)
def test_a_symbolic_link_leads_nowhere(place: FileSystemServer, store: BlobStore, tmp_path: Path):
    """A link in the folder is followed neither by a read, nor by a write, nor by a listing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("a/b", BytesBody(b"x"))
    (tmp_path / "objects" / "link").symlink_to(outside)
    (tmp_path / "objects" / "file").symlink_to(outside / "secret")

    for attempt in (
        lambda: store.get("link/secret"),
        lambda: store.get("file"),
        lambda: store.put("link/new", BytesBody(b"x")),
        lambda: store.delete(["link/secret"]),
    ):
        with pytest.raises(ConfigError, match="symbolic link"):
            attempt()
    assert ["a/b"] == [entry.key for entry in store.list("")]
    assert ["secret"] == [path.name for path in outside.iterdir()]
