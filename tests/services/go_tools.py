"""
Servers that are written in Go, built once into the checkout's build folder, from the Go module proxy.

    python tests/services/go_tools.py        builds what is missing; some minutes of work the first time

A test that needs one is skipped where it has not been built, and says so; with ``CI`` set it fails instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = CHECKOUT / "build" / "servers"
LONGEST_BUILD_S = 600


@dataclass(frozen=True)  # this file also runs where nothing is installed
class GoTool:
    """
    One program.

    Attributes:
        name: What we call it.
        module: Where its main package is.
        version: The release that the tests were written against.
        variable: An environment variable that names a ready binary.
    """

    name: str
    module: str
    version: str
    variable: str

    @property
    def built(self) -> Path:
        """Where our own build of it lies; ``go install`` names it after the module's last part."""
        return CACHE / f"{self.name}-{self.version}" / self.module.rpartition("/")[2]

    def find(self) -> Path | None:
        """Give a ready binary: the variable's, our own build, or what the path finds."""
        named = os.environ.get(self.variable)
        if named:
            return Path(named)
        if self.built.is_file():
            return self.built
        found = shutil.which(self.name)
        return None if found is None else Path(found)

    def build(self) -> Path:
        """Build it, unless it has been; nothing half-built is left."""
        if not self.built.is_file():
            folder = self.built.parent.with_name(f".{self.built.parent.name}-{os.getpid()}")
            folder.mkdir(parents=True)
            try:
                command = ["go", "install", f"{self.module}@{self.version}"]
                environment = {**os.environ, "GOBIN": str(folder)}
                subprocess.run(command, env=environment, check=True, timeout=LONGEST_BUILD_S)
                if not self.built.parent.exists():
                    folder.rename(self.built.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        return self.built

    def missing(self) -> str:
        """Say what to do where there is none."""
        go = "" if shutil.which("go") else " (Go is not installed: install it first)"
        return (
            f"{self.name} is not there: build it with `python tests/services/go_tools.py`{go}, or set {self.variable}"
        )


VERSITYGW = GoTool("versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0", "MILLPOND_VERSITYGW")
TOXIPROXY = GoTool("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server", "v2.5.0", "MILLPOND_TOXIPROXY")
ALL = (TOXIPROXY, VERSITYGW)


def main() -> int:
    """Build everything; 0 also where Go is missing, since the tests say so themselves."""
    if shutil.which("go") is None:
        sys.stdout.write("Go is not installed: the tests that need its servers will say so\n")
        return 0
    for tool in ALL:
        sys.stdout.write(f"{tool.name} {tool.version}: {tool.build()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
