"""The kit finds what is wrong: each mutant fails the case that names its broken contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mutants import Mutant, all_mutants

from millpond.testing import Outcome

PAGE = Path(__file__).parents[1] / "docs" / "kit.md"
BEGIN, END = "<!-- mutants -->", "<!-- /mutants -->"
MUTANTS = all_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_kit_finds_it(mutant: Mutant, tmp_path: Path):
    """Each plugin that is wrong in one way fails the case of the sentence that it breaks."""
    suite = mutant.suite()
    case = suite.cases.by_id[mutant.case]

    result = suite.run_case(case, tmp_path)

    assert Outcome.FAILED is result.outcome, f"{mutant.wrong}: {result}"
    assert result.detail
    assert "nobody expected TypeError" not in result.detail
    assert "nobody expected AttributeError" not in result.detail


def test_there_are_enough():
    """There are mutants of every role, at least twenty-five in all, and each has a name of its own."""
    assert 25 <= len(MUTANTS) == len({mutant.name for mutant in MUTANTS})
    assert {"backend", "checkpoints", "engine", "blob", "log"} == {mutant.suite().kind for mutant in MUTANTS}


def test_the_table_in_the_docs_is_fresh():
    """docs/kit.md lists every mutant, what is wrong with it, and the case that finds it."""
    rows = [f"| {mutant.suite().kind} | {mutant.wrong} | `{mutant.case}` |" for mutant in MUTANTS]
    table = "\n".join(["", "| role | what is wrong | found by |", "|---|---|---|", *rows, "", ""])
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(f"{BEGIN}\n")
    held, _, after = rest.partition(END)
    if held != table and os.environ.get("MILLPOND_WRITE_TABLES"):
        PAGE.write_text(f"{before}{BEGIN}\n{table}{END}{after}", "utf-8")
        held = table

    assert table == held
