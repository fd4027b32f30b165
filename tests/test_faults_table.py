"""The table of faults in the docs names every fault, and only tests that exist and fail where the fault is."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from attrs import frozen
from breakage import Breakage
from fault_breakages import BREAKAGES
from programs.break_code import Outcome, broken, outcome

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
LIST = Path(os.environ.get("MILLPOND_FAULTS", ROOT.parent / "shared" / "faults.md"))
VERDICTS = ("caught", "cannot fail")
SHORTEST_REASON = 25

ROW = re.compile(r"^\| (BR-\d{3}) \| (.*) \| (.*) \| (.*) \|$", re.MULTILINE)
TEST = re.compile(r"`((?:tests|backends)/[\w./-]+\.py)::(\w+)`")
COUNT = re.compile(rf"^\| ({'|'.join(VERDICTS)}) \| .* \| (\d+) \|$", re.MULTILINE)


@frozen
class Row:
    """A row of the page."""

    id: str
    fault: str
    verdict: str
    by: str

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Give file and name of each test that the row names."""
        return TEST.findall(self.by)

    @property
    def reason(self) -> str:
        """Give what is said besides the tests."""
        return TEST.sub("", self.by).strip(" ,.:")


@functools.cache
def rows() -> list[Row]:
    return [Row(*(cell.strip() for cell in found)) for found in ROW.findall(PAGE.read_text("utf-8"))]


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """Give the names of a module's tests and classes of tests, without importing it."""
    found: set[str] = set()
    for node in ast.parse(path.read_bytes()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]):
                found.add(name)
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


def test_every_test_of_the_table_exists():
    """Each test that a row names is a test of the tree."""
    missing = [
        f"{row.id}: {file}::{name}"
        for row in rows()
        for file, name in row.tests
        if not (ROOT / file).is_file() or name not in names_in(ROOT / file)
    ]

    assert [] == missing


def test_no_row_is_empty():
    """Each row says its fault, has a verdict, and names a test or says precisely why there is none."""
    empty = [
        row.id
        for row in rows()
        if row.verdict not in VERDICTS
        or len(row.fault) < SHORTEST_REASON
        or (not row.tests if row.verdict == "caught" else len(row.reason) < SHORTEST_REASON)
    ]

    assert rows()
    assert [] == empty


def test_nothing_in_a_row_looks_like_a_test_and_is_none():
    """Whatever is quoted with two colons is read as a test: a slip in its path is not passed over."""
    quoted = [(row.id, text) for row in rows() for text in re.findall(r"`([^`]*::[^`]*)`", row.by)]

    assert [] == [(id, text) for id, text in quoted if not TEST.fullmatch(f"`{text}`")]


def test_each_fault_has_one_row():
    """No id stands twice, and none is left out between the first and the last."""
    ids = [row.id for row in rows()]

    assert [f"BR-{number:03d}" for number in range(1, len(ids) + 1)] == sorted(ids)


def test_the_page_counts_its_rows():
    """The numbers at the top are those of the rows below."""
    counted = Counter(row.verdict for row in rows())

    assert {verdict: counted[verdict] for verdict in VERDICTS} == {
        verdict: int(number) for verdict, number in COUNT.findall(PAGE.read_text("utf-8"))
    }


def test_the_page_has_every_fault_of_the_list():
    """The ids of the page are those of the list of faults."""
    if not LIST.is_file():
        pytest.skip("the list of faults is not at hand: set MILLPOND_FAULTS to its file")
    listed = re.findall(r"^### (BR-\d{3})\b", LIST.read_text("utf-8"), re.MULTILINE)

    assert listed
    assert sorted(listed) == sorted(row.id for row in rows())


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda each: each.fault)
def test_a_breakage_fits(breakage: Breakage):
    """What is to be edited stands in the code once, and the fault's row names the test that has to notice."""
    (row,) = [row for row in rows() if row.id == breakage.fault]

    assert breakage.test in {f"{file}::{name}" for file, name in row.tests}
    assert compile(broken((ROOT / breakage.file).read_text("utf-8"), breakage), breakage.file, "exec")


def test_each_fault_that_a_test_catches_is_brought_in():
    """Each of these rows has one breakage, in the order of the page."""
    assert [row.id for row in rows() if row.verdict == "caught"] == sorted(
        (each.fault for each in BREAKAGES), key=[row.id for row in rows()].index
    )


@pytest.mark.parametrize(
    ("code", "text", "wanted"),
    [
        (1, "E   assert 1 == 2\n1 failed", Outcome.NOTICED),
        (1, "E   NameError: name 'evolve' is not defined\n1 failed", Outcome.SLIP),
        (0, "1 passed", Outcome.UNNOTICED),
        (0, "1 skipped", Outcome.SKIPPED),
        (1, "", Outcome.UNNOTICED),
        (2, "1 error", Outcome.UNNOTICED),
    ],
)
def test_only_a_test_that_fails_has_noticed(code: int, text: str, wanted: Outcome):
    """A test that was skipped, hung, was not found, or met a slip of the edit has noticed nothing."""
    assert wanted is outcome(code, text)


@pytest.mark.timeout(1_800)  # for all of them, on two cores that others use
def test_without_its_code_a_named_test_fails():
    """A few faults are brought into a copy of the tree, and their tests notice; all by ``MILLPOND_INSIST=1``."""
    as_many = ["--jobs", str(os.cpu_count() or 1)]
    chosen = as_many if os.environ.get("MILLPOND_INSIST") else ["BR-002", "BR-030", "BR-058", "BR-074"]
    command = [sys.executable, str(ROOT / "tests" / "programs" / "break_code.py"), *chosen]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1_780, check=False)

    assert 0 == ended.returncode, ended.stdout + ended.stderr
    assert "NOT NOTICED" not in ended.stdout
