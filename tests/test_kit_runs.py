"""How the kit judges: outcomes, levels, leaks, deadlines, reports and their tables."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.checkpoints.directory import DirectoryCheckpoints, DirectoryCheckpointsConfig
from millpond.errors import TransientError
from millpond.spi import JobContext, VersionPolicy
from millpond.testing import CheckpointsSuite, Level, Outcome, Profile, Report, Result, Suite, check_table
from millpond.testing.kit import running
from millpond.testing.kit.bench import Bench
from millpond.testing.kit.child import ChildRecipe
from millpond.testing.kit.contract import BrokenContractError, Cases, NotShownError, expect, expect_equal, expect_error
from millpond.testing.kit.watching import watched_io


def suite_of(run: Callable[[Bench], None], *, needs: tuple[str, ...] = (), deviations: Mapping[str, str] = {}) -> Suite:
    """Make a suite of the one case ``it.holds``."""
    tried: Cases[Bench] = Cases()
    tried("it.holds", "It holds.", needs=needs)(run)

    class Small(Suite[Bench]):
        kind = "toy"
        cases = tried
        profile = Profile(deviations=deviations)

        def features(self, folder: Path) -> Mapping[str, bool]:
            return {"fast": False, "slow": True}

        def bench(self, folder: Path, *, job: str = "") -> Bench:
            return Bench(folder, self.profile)

    return Small()


def holds(bench: Bench) -> None:
    """Hold."""


def breaks(bench: Bench) -> None:
    """Break."""
    expect(1 == 2, "one is not two")


def surprises(bench: Bench) -> None:
    """Raise what nobody expects."""
    raise KeyError("x")


def hides(bench: Bench) -> None:
    """Show nothing."""
    bench.side_door()


@pytest.mark.parametrize(
    ("run", "needs", "deviations", "outcome", "level"),
    [
        (holds, (), {}, Outcome.PASSED, Level.FULL),
        (breaks, (), {}, Outcome.FAILED, None),
        (surprises, (), {}, Outcome.FAILED, None),
        (hides, (), {}, Outcome.NOT_SHOWN, Level.FULL),
        (holds, ("slow",), {}, Outcome.PASSED, Level.FULL),
        (breaks, ("slow",), {}, Outcome.FAILED, None),
        (holds, ("fast",), {}, Outcome.UNEXPECTED, Level.FULL),
        (breaks, ("fast",), {}, Outcome.UNDECLARED, Level.FULL),
        (breaks, (), {"it.holds": "too hard"}, Outcome.DEVIATION, None),
        (holds, (), {"it.holds": "too hard"}, Outcome.UNEXPECTED, Level.FULL),
    ],
)
def test_what_is_declared_decides(run, needs, deviations, outcome, level, tmp_path: Path):
    """A declared feature that fails is a failure, an undeclared one that works is reported, a deviation counts."""
    report = suite_of(run, needs=needs, deviations=deviations).report(tmp_path)

    assert [outcome] == [result.outcome for result in report.results]
    assert level is report.level


def test_a_thread_that_stays_is_a_failure(tmp_path: Path):
    """A case after which a thread or a descriptor is left has failed, and the broken sentence is that of close."""
    stop = threading.Event()
    kept: list[object] = []

    def leak(bench: Bench) -> None:
        threading.Thread(target=stop.wait, name="left", daemon=True).start()
        kept.append((bench.folder / "file").open("w"))

    (result,) = suite_of(leak).report(tmp_path).results
    stop.set()
    kept[0].close()

    assert Outcome.FAILED is result.outcome
    assert "thread left" in result.detail
    assert "descriptor of" in result.detail
    assert running.LEAKS == result.contract


def test_a_case_that_hangs_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A plugin that never answers fails the case at its deadline; the run goes on."""
    stop = threading.Event()
    monkeypatch.setattr(running, "CASE_DEADLINE_S", 0.05)

    (result,) = suite_of(lambda bench: stop.wait(60)).report(tmp_path).results
    stop.set()

    assert Outcome.FAILED is result.outcome
    assert "did not end" in result.detail


def test_what_is_noted_fails_a_case_that_passed(tmp_path: Path):
    """What a plugin must not do is a failure though it swallowed the error that it got for it."""
    (result,) = suite_of(lambda bench: bench.violations.append("it reads what it must not")).report(tmp_path).results

    assert (Outcome.FAILED, "it reads what it must not") == (result.outcome, result.detail)


def test_a_case_is_tried_once(tmp_path: Path):
    """A report takes what pytest has tried already, and tries the rest."""
    tried: list[int] = []
    suite = suite_of(lambda bench: tried.append(1))

    suite.run_case(next(iter(suite.cases)), tmp_path)
    suite.report(tmp_path)

    assert [1] == tried


def test_errors_say_what_differs():
    """A difference is told by the first key that differs, a wrong error by its class."""
    with pytest.raises(BrokenContractError, match="b'k' is 2, not 1"):
        expect_equal({b"k": 1}, {b"k": 2}, "x")
    with pytest.raises(BrokenContractError, match="b'k' is missing"):
        expect_equal({b"k": 1}, {}, "x")
    with pytest.raises(BrokenContractError, match="must not be"):
        expect_equal({}, {b"k": 2}, "x")
    with pytest.raises(BrokenContractError, match=r"raises KeyError.*not ValueError"):
        expect_error(ValueError, lambda: {}["x"], "look-up")
    with pytest.raises(BrokenContractError, match="gives 5; it has to raise ValueError"):
        expect_error(ValueError, lambda: 5, "look-up")
    with pytest.raises(NotShownError):
        Bench(Path(), Profile()).other_process()


def test_input_and_output_of_a_call_is_seen(tmp_path: Path):
    """Files that a call opens or lists on its own thread are seen, those of other threads are not."""
    with watched_io() as seen:
        list(tmp_path.iterdir())
        (tmp_path / "x").write_text("x")
        other = threading.Thread(target=(tmp_path / "y").write_text, args=("y",))
        other.start()
        other.join()

    assert any("listdir" in each or "scandir" in each for each in seen)
    assert any(each.endswith("/x") for each in seen)
    assert not any(each.endswith("/y") for each in seen)


REPORT = Report(
    "toy",
    "backend",
    {"durable": True, "history": False},
    [
        Result("a.one", "One | holds.", Level.CORE, Outcome.PASSED, "", 1.5),
        Result("a.two", "Two.", Level.FULL, Outcome.FAILED, "it is\nthree", 0.1),
        Result("b.one", "Three.", Level.CORE, Outcome.DEVIATION, "too hard", 0.1),
        Result("b.two", "Four.", Level.CORE, Outcome.NOT_SHOWN, "there is no side door", 0.1),
    ],
)


def test_a_report_is_markdown():
    """The table counts by part and level, and says below it all that did not pass; it holds no time."""
    assert REPORT.to_markdown() == (
        "Level reached: **none**; declared: durable\n"
        "\n"
        "| backend | core | full |\n"
        "|---|---|---|\n"
        "| `a` | 1 of 1 | 0 of 1 |\n"
        "| `b` | 0 of 2 |  |\n"
        "\n"
        "* `a.two`, failed: Two\n"
        "* `b.one`, known deviation (too hard): Three\n"
        "* `b.two`, not shown (there is no side door): Four\n"
    )


def test_a_report_is_json():
    """The JSON has every case with its contract, level, outcome, detail and time."""
    told = REPORT.to_json()

    assert ["name", "kind", "level", "tried", "features", "cases"] == list(told)
    assert {
        "id": "a.two",
        "contract": "Two.",
        "level": "full",
        "outcome": "failed",
        "detail": "it is\nthree",
        "duration_s": 0.1,
    } == told["cases"][1]


def test_a_stale_table_is_an_error_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A page without the fresh table fails with the mend, and is written where that is asked for."""
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- conformance: toy -->\nold<!-- /conformance -->\nafter\n")
    monkeypatch.delenv("MILLPOND_WRITE_TABLES", raising=False)

    with pytest.raises(AssertionError, match="MILLPOND_WRITE_TABLES=1"):
        check_table(page, REPORT)
    monkeypatch.setenv("MILLPOND_WRITE_TABLES", "1")
    check_table(page, REPORT)
    monkeypatch.delenv("MILLPOND_WRITE_TABLES")
    check_table(page, REPORT)

    assert page.read_text().startswith("before\n<!-- conformance: toy -->\n\nLevel reached")
    assert page.read_text().endswith("\n<!-- /conformance -->\nafter\n")
    page.write_text("nothing\n")
    with pytest.raises(AssertionError, match="no place for the table of toy"):
        check_table(page, REPORT)


CHILD_SUITE = """
from pathlib import Path


class Any:
    def features(self, folder):
        return {}


def sleep(suite, folder):
    from millpond.testing.kit.child import answer, await_word
    answer("asleep")
    await_word()


def count(suite, folder, number):
    return number * 2
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChildRecipe:
    """Give the recipe of a suite in a file, whose module has functions for children too."""
    (tmp_path / "suite_of_children.py").write_text(CHILD_SUITE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return ChildRecipe({"file": str(tmp_path / "suite_of_children.py"), "class": "Any"}, tmp_path)


def test_children_answer_in_their_order(recipe: ChildRecipe):
    """Each child gets its own arguments, and gives what its function gives."""
    assert [2, 4, 6] == recipe.ask_all("suite_of_children:count", *({"number": number} for number in (1, 2, 3)))


def test_no_child_outlives_its_case(recipe: ChildRecipe):
    """However a block with children ends, they have ended; also those that would sleep for ever."""
    with pytest.raises(KeyError), recipe.running("suite_of_children:sleep", {}, {}) as children:
        assert ["asleep", "asleep"] == [child.hear() for child in children]
        raise KeyError("the case fails")

    for child in children:
        assert child.status is not None
        with pytest.raises(ProcessLookupError):
            os.kill(child.pid, 0)


def test_children_that_began_end_when_one_cannot(recipe: ChildRecipe, monkeypatch: pytest.MonkeyPatch):
    """A child that cannot be started ends those that were."""
    began: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def second_fails(*arguments, **named):
        if began:
            raise BlockingIOError("no more processes")
        began.append(start(*arguments, **named))
        return began[0]

    monkeypatch.setattr(subprocess, "Popen", second_fails)
    with pytest.raises(BlockingIOError), recipe.running("suite_of_children:sleep", {}, {}):
        pass

    assert began[0].returncode is not None


def test_a_child_ends_with_its_parent(recipe: ChildRecipe):
    """A child that waits for a word ends when nobody is left who could send one."""
    script = (
        "import sys; from pathlib import Path; from millpond.testing.kit.child import ChildRecipe\n"
        f"recipe = ChildRecipe({recipe.suite!r}, Path({str(recipe.folder)!r}))\n"
        "with recipe.running('suite_of_children:sleep', {}) as (child,):\n"
        "    child.hear(); print(child.pid, flush=True)\n"
        "    import os; os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(recipe.folder), *filter(None, sys.path)])}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    pid = int(ended.stdout)

    assert -9 == ended.returncode
    assert await_end(pid), f"the child {pid} lives on"


def await_end(pid: int) -> bool:
    """Wait until the process *pid*, which is not ours, has ended."""
    pause = threading.Event()
    for _ in range(1000):
        status = Path(f"/proc/{pid}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        pause.wait(0.01)
    return False


class LosesAnswers(DirectoryCheckpoints):
    """Writes, and says of every third time that nobody knows whether it has."""

    asked = 0

    def write(self, claim: Claim, checkpoint: Checkpoint, *, after: CheckpointId | None) -> None:
        super().write(claim, checkpoint, after=after)
        self.asked += 1
        if self.asked % 3 == 0:
            raise TransientError("nobody knows")


class LosingSuite(CheckpointsSuite):
    """That manager in the kit."""

    def make(self, folder: Path, job: JobContext, versions: VersionPolicy) -> LosesAnswers:
        return LosesAnswers(DirectoryCheckpointsConfig(folder), job, versions)


def test_a_race_bears_a_write_of_which_nobody_knows(tmp_path: Path):
    """Two processes that fight, and lose answers, are judged by the history: a lost answer alone is no failure."""
    (case,) = [case for case in LosingSuite.cases if case.id == "races.processes"]

    assert Outcome.PASSED is LosingSuite().run_case(case, tmp_path).outcome
