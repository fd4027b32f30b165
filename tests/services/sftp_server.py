"""OpenSSH's own SFTP server, with a configuration, a host key and a user key of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.file_system_server import FileSystemServer
from services.processes import free_port, running

_PROGRAMS = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd")
_PRIVILEGE_FOLDER = Path("/run/sshd")


def program() -> str | None:
    """Give the server's program; it has to be called by its whole path."""
    return next((path for path in (*_PROGRAMS, shutil.which("sshd") or "") if path and Path(path).exists()), None)


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    if program() is None or shutil.which("ssh-keygen") is None:
        return "sshd is not there: install OpenSSH's server (on Debian: `apt-get install openssh-server`)"
    if os.geteuid() == 0:
        with suppress(OSError):
            _PRIVILEGE_FOLDER.mkdir(exist_ok=True)
        if not _PRIVILEGE_FOLDER.is_dir():
            return f"sshd needs the folder {_PRIVILEGE_FOLDER}: make it"
    return None


@contextmanager
def serve(root: Path) -> Iterator[FileSystemServer]:
    """Serve this machine's files, as the user who runs this, until the block ends."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    host_key, user_key, port = _make_key(root / "host"), _make_key(root / "user"), free_port()
    configuration = root / "sshd_config"
    configuration.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {host_key}\nAuthorizedKeysFile {user_key}.pub\n"
        f"PidFile {root}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        "MaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\n"
    )
    (root / "files").mkdir(exist_ok=True)
    with running([str(program()), "-D", "-e", "-f", str(configuration)], port, root / "sshd.log"):
        options = {"username": getpass.getuser(), "key_filename": str(user_key), "allow_agent": False}
        yield FileSystemServer("sftp", f"sftp://127.0.0.1:{port}{root}/files", {**options, "look_for_keys": False})


def _make_key(path: Path) -> Path:
    if not path.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
        subprocess.run(command, check=True, timeout=30)
    return path
