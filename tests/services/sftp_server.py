"""
OpenSSH's own SFTP server, with a configuration, a host key and a user key of its own.

    python tests/services/sftp_server.py        unpacks Debian's into the build folder, and installs nothing
"""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services.file_system_server import CACHE, FileSystemServer
from services.processes import free_port, running

UNPACKED = CACHE / "openssh"
_PROGRAMS = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd", str(UNPACKED / "usr/sbin/sshd"))
_PACKAGES = ("openssh-server", "libwrap0")
LONGEST_INSTALL_S = 300
_PRIVILEGE_FOLDER = Path("/run/sshd")


def program() -> str | None:
    """Give the server's program; it has to be called by its whole path."""
    return next((path for path in (*_PROGRAMS, shutil.which("sshd") or "") if path and Path(path).exists()), None)


def missing() -> str | None:
    """Say what to do where it cannot be served; None where it can."""
    if program() is None or shutil.which("ssh-keygen") is None:
        return (
            "sshd is not there: install OpenSSH's server, or on Debian unpack it with "
            "`python tests/services/sftp_server.py`"
        )
    if os.geteuid() == 0:
        with suppress(OSError):
            _PRIVILEGE_FOLDER.mkdir(exist_ok=True)
        if not _PRIVILEGE_FOLDER.is_dir():
            return f"sshd needs the folder {_PRIVILEGE_FOLDER}: make it"
    return None


def install() -> None:
    """Fetch Debian's packages and unpack them, unless there is a server; as root, after a look at what Debian has."""
    if program() is not None:
        return
    if os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False, timeout=LONGEST_INSTALL_S)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        whole = Path(folder) / "whole"
        subprocess.run(["apt-get", "download", *_PACKAGES], cwd=folder, check=True, timeout=LONGEST_INSTALL_S)
        for package in Path(folder).glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(package), str(whole)], check=True, timeout=LONGEST_INSTALL_S)
        whole.rename(UNPACKED)


def _libraries() -> str:
    """Give where the unpacked server finds the library that it came with."""
    found = sorted({str(path.parent) for path in UNPACKED.glob("**/libwrap.so.*")})
    return os.pathsep.join([*found, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])


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
    command = [str(program()), "-D", "-e", "-f", str(configuration)]
    with running(command, port, root / "sshd.log", LD_LIBRARY_PATH=_libraries()):
        options = {"username": getpass.getuser(), "key_filename": str(user_key), "allow_agent": False}
        yield FileSystemServer("sftp", f"sftp://127.0.0.1:{port}{root}/files", {**options, "look_for_keys": False})


def _make_key(path: Path) -> Path:
    if not path.exists():
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
        subprocess.run(command, check=True, timeout=30)
    return path


def main() -> int:
    """Have it; 0 also where that cannot be, since the tests say so themselves."""
    if program() is None and not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        print("this is no Debian: install OpenSSH's server; the tests that need it will say so")
        return 0
    install()
    print(f"sshd: {program()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
