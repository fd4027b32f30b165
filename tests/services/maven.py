"""Jars from Maven: a server's own, fetched once into the checkout's build folder, whole or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

LONGEST_INSTALL_S = 420


def missing(server: str, jars: Path, command: str) -> str | None:
    """Say what to do where a Java server cannot run; None where it can."""
    if shutil.which("java") is None:
        return f"{server} needs Java 17: install it, then run `{command}`"
    if not jars.is_dir():
        return f"{server} is not there: fetch it with `{command}` (Maven)"
    return None


def install(jars: Path, artifacts: Iterable[str], complete: Callable[[Path], object] = Path.exists) -> None:
    """
    Fetch the artifacts (``group:name:version``) and all that they need, unless the folder is there.

    Args:
        jars: The folder.
        artifacts: What it is to hold, with their own dependencies.
        complete: Called with the folder while nobody sees it yet, to make what else belongs there.
    """
    if jars.is_dir():
        return
    jars.parent.mkdir(parents=True, exist_ok=True)
    folder = jars.with_name(f".{jars.name}-{os.getpid()}")
    try:
        folder.mkdir()
        (folder / "pom.xml").write_text(_project(artifacts))
        copy = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
        scope = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        subprocess.run([*copy, *scope], check=True, timeout=LONGEST_INSTALL_S)
        complete(folder)
        folder.rename(jars)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _project(artifacts: Iterable[str]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>\n'
        "<groupId>millpond</groupId><artifactId>server-for-tests</artifactId><version>1</version><dependencies>\n"
        f"{''.join(map(_dependency, artifacts))}</dependencies></project>\n"
    )


def _dependency(artifact: str) -> str:
    group, name, version = artifact.split(":")
    inner = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{inner}</dependency>\n"
