"""The house itself: what holds for the whole tree, whichever room one is in."""

import ast
import functools
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CORE = ROOT / "pyproject.toml"
PROJECTS = [CORE, *sorted(ROOT.glob("backends/*/pyproject.toml"))]
NEVER = "sys_platform == 'none'"  # how pyproject.toml leaves out what a dependency asks for and we do not need

# Put together here, so that this file does not name them either.
REGISTRIES = [
    b"py" + b"pi.org",
    b"python" + b"hosted.org",
    b"crates" + b".io",
    b"npm" + b"js.",
    b"proxy.go" + b"lang",
    b"maven" + b".org",
]
MACHINE_PATH = re.compile(rb"(?<![\w.~-])/(?:work|root)/[\w.]|\.py" + rb"env/versions")
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "__import__"}


@functools.cache
def project(path: Path) -> dict:
    return tomllib.loads(path.read_text("utf-8"))


def name_of(path: Path) -> str:
    return project(path)["project"]["name"]


def tree() -> list[Path]:
    """Give the files that git has, or would take; nothing that a tool made."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no clone: nobody knows what belongs to it")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    said = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    files = [ROOT / os.fsdecode(name) for name in said.stdout.split(b"\0") if name]
    assert files
    return [file for file in files if file.is_file()]


def sources() -> list[Path]:
    return sorted([*ROOT.glob("src/**/*.py"), *ROOT.glob("backends/*/src/**/*.py")])


def modules_of_tests() -> list[Path]:
    return sorted([*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("backends/*/tests/**/test_*.py")])


def in_tree(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def declared(path: Path) -> Iterator[Requirement]:
    """Give what a project asks for at run time, in its groups, and to be built."""
    data = project(path)
    groups = [text for group in data.get("dependency-groups", {}).values() for text in group]
    extras = [text for extra in data["project"].get("optional-dependencies", {}).values() for text in extra]
    for text in [*data["project"]["dependencies"], *groups, *extras, *data["build-system"]["requires"]]:
        yield Requirement(text)


def foreign(path: Path) -> list[Requirement]:
    ours = {name_of(each) for each in PROJECTS}
    return [requirement for requirement in declared(path) if requirement.name not in ours]


def locked() -> dict[str, list[Requirement]]:
    """Give the lock's rows by name: more than one where interpreters or platforms differ."""
    rows: dict[str, list[Requirement]] = {}
    for row in (ROOT / "requirements.lock").read_text("utf-8").replace("\\\n", " ").splitlines():
        if row.strip() and not row.lstrip().startswith("#"):
            pin, *hashes = row.split("--hash=")
            assert hashes, f"no hash: {row}"
            requirement = Requirement(pin.strip())
            rows.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return rows


def python(code: str) -> object:
    """Run *code* in a fresh interpreter of this environment, and give the JSON that it prints."""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert said.returncode == 0, said.stderr.decode()
    return json.loads(said.stdout)


LOADED_BY = """
import json, sys
before = set(sys.modules)
{statements}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(json.dumps(sorted(new - set(sys.stdlib_module_names))))
"""


# What may lie in the tree


def test_no_file_names_a_registry():
    """No file of the tree says which registry a package comes from: that is the installer's to know."""
    naming = {in_tree(file) for file in tree() if any(host in file.read_bytes() for host in REGISTRIES)}

    assert set() == naming


def test_no_file_names_a_path_of_a_build_machine():
    """No file of the tree holds a path that exists on one machine only."""
    naming = {in_tree(file): match[0] for file in tree() if (match := MACHINE_PATH.search(file.read_bytes()))}

    assert {} == naming


def test_every_module_says_its_subject():
    """Each module's docstring begins with a line that states the module's subject."""
    silent = [
        in_tree(file) for file in sources() if not (ast.get_docstring(ast.parse(file.read_bytes())) or "").strip()
    ]

    assert sources()
    assert [] == silent


def test_every_test_says_what_holds():
    """Each test has a docstring, so that the docstrings alone tell what the library promises."""
    silent = [
        f"{in_tree(file)}:{node.lineno} {node.name}"
        for file in modules_of_tests()
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]

    assert [] == silent


def test_nothing_is_unpickled_or_evaluated():
    """No source imports a module, or calls a function, that makes code out of data."""
    found = [(in_tree(file), *what) for file in sources() for what in unsafe(ast.parse(file.read_bytes()))]

    assert [] == found


def unsafe(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, a.name) for a in names if a.name.partition(".")[0] in UNSAFE_MODULES)
            case ast.ImportFrom(module=str(name)) if name.partition(".")[0] in UNSAFE_MODULES:
                yield node.lineno, name
            case ast.Call(func=ast.Name(id=name)) if name in UNSAFE_CALLS:
                yield node.lineno, name


def test_links_between_pages_lead_somewhere():
    """Each relative link of each Markdown file names a file or folder that exists."""
    link = re.compile(r"\[[^\]]*\]\((?!\w+:|#)([^)\s#]+)")

    dead = [
        f"{in_tree(page)} -> {target}"
        for page in tree()
        if page.suffix == ".md"
        for target in link.findall(re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL))
        if not (page.parent / target).exists()
    ]

    assert [] == dead


# Distributions


def test_all_distributions_have_one_version():
    """The core and its backends have one version, and a backend works with the core of its own version only."""
    (version,) = {project(path)["project"]["version"] for path in PROJECTS}

    assert {f"millpond=={version}"} == {
        str(requirement) for path in PROJECTS for requirement in declared(path) if requirement.name == "millpond"
    }


@pytest.mark.parametrize("path", PROJECTS, ids=name_of)
def test_what_is_installed_is_this_tree(path: Path):
    """The installed distribution has the version, the licence and the entry points that its project states."""
    stated, installed = project(path)["project"], importlib.metadata.distribution(name_of(path))

    assert stated["version"] == installed.version
    assert "Apache-2.0" == stated["license"] == installed.metadata["License-Expression"]
    assert ["LICENSE"] == installed.metadata.get_all("License-File")
    assert (ROOT / "LICENSE").read_bytes() == (path.parent / "LICENSE").read_bytes()
    assert stated.get("entry-points", {}) == {
        group: {point.name: point.value for point in installed.entry_points.select(group=group)}
        for group in installed.entry_points.groups - {"console_scripts"}
    }


@pytest.mark.skipif("MILLPOND_TESTS_WHEELS" not in os.environ, reason="only where tox tests the wheels")
@pytest.mark.parametrize("path", PROJECTS, ids=name_of)
def test_what_is_tested_is_the_wheel(path: Path):
    """Where tox says that it tests wheels, no module comes out of the tree, and each package says that it is typed."""
    spec = importlib.util.find_spec(name_of(path).replace("-", "_"))

    assert spec is not None
    assert spec.origin is not None
    assert Path(spec.origin).is_relative_to(sys.prefix)
    assert (Path(spec.origin).parent / "py.typed").exists()
    assert ROOT / "src" not in map(Path, sys.path)


@pytest.mark.parametrize("path", PROJECTS, ids=name_of)
def test_entry_points_lead_to_plugins(path: Path):
    """Each entry point of ours gives a class of its group's role, written for the SPI of this release."""
    from millpond import spi

    roles = {
        "millpond.backends": spi.StateBackendFactory,
        "millpond.checkpoints": spi.CheckpointManager,
        "millpond.engines": spi.StoreEngine,
    }
    for point in importlib.metadata.distribution(name_of(path)).entry_points:
        target = point.load()
        if point.group in roles:
            assert issubclass(target, roles[point.group]), point
            assert target.spi_version == spi.SPI_VERSION, point
            assert isinstance(target.config_class, type), point
        else:
            assert point.group == "console_scripts"
            assert callable(target)


def test_importing_the_core_loads_attrs_alone():
    """`import millpond` brings attrs and no other distribution: a host pays for what it uses."""
    assert {"millpond"} <= set(python(LOADED_BY.format(statements="import millpond"))) <= {"attr", "attrs", "millpond"}


@pytest.mark.parametrize("path", PROJECTS[1:], ids=name_of)
def test_loading_a_plugin_loads_no_driver(path: Path):
    """The classes that entry points name can be asked what they can do, where their driver is not needed yet."""
    entries = project(path)["project"]["entry-points"].values()
    statements = "\n".join(f"import {target.partition(':')[0]}" for points in entries for target in points.values())
    drivers = {requirement.name for requirement in foreign(path)} - {requirement.name for requirement in foreign(CORE)}

    loaded = set(python(LOADED_BY.format(statements=statements)))

    assert {name_of(path).replace("-", "_")} <= loaded
    assert set() == loaded & ({"rocksdict"} | drivers)


def test_the_floors_know_every_distribution():
    """The import contracts name every backend, and forbid it to the core."""
    linter = project(CORE)["tool"]["importlinter"]
    contracts = {contract["id"]: contract for contract in linter["contracts"]}
    packages = {name_of(path).replace("-", "_") for path in PROJECTS}

    assert packages == set(linter["root_packages"])
    assert packages - {"millpond"} == set(contracts["core-knows-no-plugin"]["forbidden_modules"])
    assert packages - {"millpond"} == set(contracts["backends-use-the-spi"]["source_modules"])
    assert contracts["floors"]["exhaustive"]


# Dependencies


@pytest.mark.parametrize("path", PROJECTS, ids=name_of)
def test_the_lock_satisfies_what_is_declared(path: Path):
    """For each declared dependency the lock has releases that the declaration allows, unless that pins one itself."""
    rows = locked()

    for requirement in foreign(path):
        if {part.operator for part in requirement.specifier} == {"=="}:
            continue
        pins = [pin for pin in rows.get(canonicalize_name(requirement.name), []) if NEVER not in str(pin.marker)]
        assert pins, f"{requirement} is not in requirements.lock: run `make lock`"
        for pin in pins:
            (exact,) = pin.specifier
            assert requirement.specifier.contains(Version(exact.version)), f"{requirement}: {pin}: run `make lock`"


def test_the_lock_pins_exactly_and_names_no_place():
    """The lock pins one release a row by `==`, and holds no address."""
    assert {"=="} == {part.operator for pins in locked().values() for pin in pins for part in pin.specifier}
    assert all(pin.url is None for pins in locked().values() for pin in pins)
    assert "://" not in (ROOT / "requirements.lock").read_text("utf-8")


def test_every_dependency_has_its_reason():
    """docs/dependencies.md has a line for each dependency that a project declares, and for nothing else."""
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")

    explained = set(re.findall(r"^\| `([^`]+)` \|.*\w.* \|$", page, re.MULTILINE))

    assert {requirement.name for path in PROJECTS for requirement in declared(path)} == explained


# The public names


def test_the_typed_example_uses_every_public_name():
    """tests/typing_api.py, which mypy checks, uses each public name as a user would."""
    import millpond
    from millpond import checkpoint, errors, events, spi

    nodes = list(ast.walk(ast.parse((ROOT / "tests" / "typing_api.py").read_bytes())))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    public = set(getattr(millpond, "__all__", ()))
    for module in (checkpoint, errors, events, spi):
        public |= {
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
        }

    assert public
    assert set() == public - used
