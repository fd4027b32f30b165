"""Tests of millpond.plugins: every way in which a name can be found, and every way in which it cannot."""

from __future__ import annotations

import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from attrs import frozen

from millpond import plugins
from millpond.errors import PluginError
from millpond.memory import MemoryBackend
from millpond.plugins import BACKENDS, CHECKPOINTS, ENGINES
from millpond.spi import (
    Capabilities,
    Facet,
    StateBackendFactory,
    StoreSpec,
    TaskBackupManager,
    TaskContext,
    TaskRestoreManager,
)

Install = Callable[..., None]

GOOD = """
    from attrs import frozen
    from millpond.memory import MemoryBackend

    @frozen
    class Settings:
        pass

    class Good(MemoryBackend):
        spi_version = (1, 0)
        config_class = Settings
"""


@frozen
class NoSettings:
    """A plugin without settings."""


class Plain(StateBackendFactory):
    """A backend that is never used."""

    spi_version: ClassVar[tuple[int, int]] = (1, 0)
    config_class: ClassVar[type] = NoSettings
    capabilities = Capabilities(facets=Facet.ITEMS)

    def backup_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskBackupManager:
        raise NotImplementedError

    def restore_manager(self, task: TaskContext, stores: Sequence[StoreSpec]) -> TaskRestoreManager:
        raise NotImplementedError


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions into a folder of their own, each with a module and its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = []

    def install_one(distribution: str, version: str, module: str, source: str, group: str, entry: str) -> None:
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        info = tmp_path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        modules.append(module)
        plugins.refresh()

    yield install_one
    for module in modules:
        sys.modules.pop(module, None)
    plugins.refresh()


def error_of(group: str, name: str) -> PluginError:
    """Give the error that resolving *name* ends in."""
    with pytest.raises(PluginError) as caught:
        plugins.resolve(group, name)
    return caught.value


def test_an_installed_plugin_is_found_by_its_name(install: Install) -> None:
    """A name in the entry points of an installed distribution gives its class."""
    install("acme-store", "1.4", "acme_good", GOOD, BACKENDS, "acme = acme_good:Good")

    assert "Good" == plugins.backend_class("acme").__name__


def test_a_reference_needs_no_registration() -> None:
    """``module:attr`` gives that class."""
    assert MemoryBackend is plugins.resolve(BACKENDS, "millpond.memory:MemoryBackend")


def test_an_unknown_name_lists_what_is_known(install: Install) -> None:
    """An unknown name is answered with the nearest known one, and every known one with its distribution."""
    install("acme-store", "1.4", "acme_good", GOOD, BACKENDS, "acme = acme_good:Good")

    text = str(error_of(BACKENDS, "acmee"))

    assert 'state backend "acmee" is unknown, did you mean "acme"?' in text
    assert "acme (acme-store 1.4)" in text
    assert "memory (millpond" in text


def without(monkeypatch: pytest.MonkeyPatch, group: str, name: str) -> None:
    """Let a plugin be missing, also where it is installed."""
    entries = {key: found for key, found in plugins._entries().items() if key != (group, name)}
    monkeypatch.setattr(plugins, "_entries", lambda: entries)


def test_a_misspelt_name_of_ours_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest name may be one of ours that is missing: then the command that installs it is in the text."""
    without(monkeypatch, CHECKPOINTS, "zookeeper")

    text = str(error_of(CHECKPOINTS, "zookeper"))

    assert 'did you mean "zookeeper"?' in text
    assert "pip install" in text
    assert "zookeeper" in text.split("pip install")[1].split(")", maxsplit=1)[0]


@pytest.mark.parametrize(
    ("group", "name", "extra"),
    [(BACKENDS, "s3", "s3"), (BACKENDS, "changelog", "changelog"), (CHECKPOINTS, "zookeeper", "zookeeper")],
)
def test_one_of_ours_that_is_missing_is_not_unknown(
    monkeypatch: pytest.MonkeyPatch, group: str, name: str, extra: str
) -> None:
    """A plugin of ours that is not installed is answered with the exact command, and not called unknown."""
    without(monkeypatch, group, name)

    text = str(error_of(group, name))

    assert f'"{name}" is not installed: pip install' in text
    assert text.endswith((f"millpond-{extra}", f'"millpond[{extra}]"'))
    assert "unknown" not in text


def test_a_failed_import_keeps_its_cause(install: Install) -> None:
    """A plugin whose module fails is called installed, with distribution and version, and its error is the cause."""
    install("acme-store", "1.4", "acme_broken", "import no_such_driver", BACKENDS, "acme = acme_broken:Good")

    error = error_of(BACKENDS, "acme")

    assert "is installed (by acme-store 1.4) but its import failed" in str(error)
    assert "no_such_driver" in str(error)
    assert isinstance(error.__cause__, ModuleNotFoundError)


def test_a_missing_attribute_is_a_failed_import(install: Install) -> None:
    """An entry point to a class that is not there is a failed import of an installed plugin."""
    install("acme-store", "1.4", "acme_good", GOOD, BACKENDS, "acme = acme_good:Godo")

    assert isinstance(error_of(BACKENDS, "acme").__cause__, AttributeError)


def test_another_major_is_refused(install: Install) -> None:
    """A plugin for another major of the SPI is refused, with both versions and both distributions."""
    install("acme-store", "3.0", "acme_new", GOOD.replace("(1, 0)", "(2, 0)"), BACKENDS, "acme = acme_new:Good")

    text = str(error_of(BACKENDS, "acme"))

    assert "acme-store 3.0" in text
    assert "SPI 2.0" in text
    assert "has SPI 1.0" in text
    assert "update millpond" in text


def test_a_newer_minor_is_a_warning(install: Install) -> None:
    """A plugin for a newer minor of the SPI is used, with a warning."""
    install("acme-store", "1.5", "acme_minor", GOOD.replace("(1, 0)", "(1, 7)"), BACKENDS, "acme = acme_minor:Good")

    with pytest.warns(RuntimeWarning, match=r"made for SPI 1\.7, newer than the 1\.0"):
        assert "Good" == plugins.resolve(BACKENDS, "acme").__name__


def test_two_distributions_with_one_name_are_both_named(install: Install) -> None:
    """A name that two distributions claim is an error that names both and their versions."""
    install("acme-store", "1.4", "acme_good", GOOD, BACKENDS, "acme = acme_good:Good")
    install("other-store", "0.2", "other_good", GOOD, BACKENDS, "acme = other_good:Good")

    text = str(error_of(BACKENDS, "acme"))

    assert "acme-store 1.4" in text
    assert "other-store 0.2" in text
    assert "uninstall one" in text


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("Good = 3", "3 is not a subclass of millpond.spi.StateBackendFactory"),
        ("class Good: pass", "acme_odd.Good is not a subclass"),
        (GOOD.replace("spi_version = (1, 0)", "spi_version = None"), "has no spi_version"),
        (GOOD.replace("spi_version = (1, 0)", "spi_version = '1.0'"), "not a pair of numbers"),
        (GOOD.replace("config_class = Settings", "config_class = None"), "has no config_class"),
        (GOOD.replace("config_class = Settings", "config_class = dict"), "is not an attrs class"),
        (
            "from millpond.spi import StateBackendFactory\nfrom test_settings_of_acme import Settings\n",
            "import failed",
        ),
    ],
)
def test_what_is_no_plugin_is_broken(install: Install, source: str, reason: str) -> None:
    """A thing that lacks something that a backend has is broken, and the text names what it lacks."""
    install("acme-store", "1.4", "acme_odd", source, BACKENDS, "acme = acme_odd:Good")

    assert reason in str(error_of(BACKENDS, "acme"))


def test_an_abstract_class_is_broken_and_its_holes_are_named() -> None:
    """A backend without one of its verbs is broken, and the verb is named."""

    class HalfDone(StateBackendFactory):
        spi_version = (1, 0)
        config_class = NoSettings

    with plugins.registered(BACKENDS, "half", HalfDone):
        assert "does not define backup_manager, restore_manager" in str(error_of(BACKENDS, "half"))


def test_a_manager_without_capabilities_is_broken() -> None:
    """A checkpoint manager's capabilities are read from its class."""
    real = plugins.checkpoints_class("memory")
    bare = type("Bare", (real,), {"capabilities": None})

    with plugins.registered(CHECKPOINTS, "bare", bare):
        assert "Bare has no capabilities" in str(error_of(CHECKPOINTS, "bare"))


def test_a_registered_class_goes_before_an_installed_one() -> None:
    """What was registered in this process wins for as long as it is registered."""
    before = plugins.resolve(BACKENDS, "memory")

    with plugins.registered(BACKENDS, "memory", Plain):
        assert Plain is plugins.resolve(BACKENDS, "memory")

    assert before is plugins.resolve(BACKENDS, "memory")


def test_registering_a_name_twice_is_refused() -> None:
    """A second class for a registered name is refused; the same class again is fine."""
    name = "registered-for-a-test"
    try:
        plugins.register(BACKENDS, name, Plain)
        plugins.register(BACKENDS, name, Plain)

        with pytest.raises(PluginError, match="registered twice"):
            plugins.register(BACKENDS, name, MemoryBackend)
    finally:
        plugins._registered.pop((BACKENDS, name), None)


@pytest.mark.parametrize(("group", "name"), [("millpond.backend", "x"), (BACKENDS, "a:b"), (BACKENDS, "")])
def test_only_names_that_can_be_found_are_registered(group: str, name: str) -> None:
    """A group that is none of ours, and a name that reads as a reference, are refused."""
    with pytest.raises(PluginError):
        plugins.register(group, name, Plain)


@pytest.mark.parametrize(
    "reference", [":x", "millpond.memory:", ".memory:X", "no_such_module_at_all:X", "millpond.memory:No"]
)
def test_a_reference_to_nothing_is_a_plugin_error(reference: str) -> None:
    """A reference that leads nowhere is a PluginError that quotes it."""
    assert reference in str(error_of(BACKENDS, reference))


def test_distributions_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look-up reads no distribution's metadata."""
    plugins.resolve(ENGINES, "memory")
    monkeypatch.setattr("importlib.metadata.entry_points", None)

    assert "MemoryEngine" == plugins.resolve(ENGINES, "memory").__name__


def test_the_table_survives_a_broken_plugin(install: Install) -> None:
    """The table has a row for a broken plugin that says why, beside those that work."""
    install("acme-store", "1.4", "acme_broken", "raise RuntimeError('boom')", BACKENDS, "acme = acme_broken:Good")

    rows = {(row.group, row.name): row for row in plugins.describe()}

    assert not rows[BACKENDS, "acme"].ok
    assert "boom" in rows[BACKENDS, "acme"].state
    assert ("acme-store", "1.4") == (rows[BACKENDS, "acme"].distribution, rows[BACKENDS, "acme"].version)
    assert rows[BACKENDS, "memory"].ok
    assert "1.0" == rows[BACKENDS, "memory"].spi


def test_the_table_does_not_warn(install: Install) -> None:
    """A newer minor is no reason for a warning when the table is made."""
    install("acme-store", "1.5", "acme_minor", GOOD.replace("(1, 0)", "(1, 7)"), BACKENDS, "acme = acme_minor:Good")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert any(row.spi == "1.7" for row in plugins.describe())
