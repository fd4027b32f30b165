"""Runs one case: on a fresh bench, within a deadline, with an eye on what it leaves behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from millpond.testing.kit.bench import Bench, Profile
from millpond.testing.kit.contract import BrokenContractError, Case, NotShownError, expect
from millpond.testing.kit.leaks import Held
from millpond.testing.kit.report import Outcome, Result

B = TypeVar("B", bound=Bench)

CASE_DEADLINE_S = 110.0
"""How long a case may take, in seconds; one that takes longer has failed, and its thread is left behind."""

LEAKS = "close: let go of everything; no thread and no descriptor outlives it."


def run_case(case: Case[B], make_bench: Callable[[], B], features: Mapping[str, bool], profile: Profile) -> Result:
    """Run *case*; whatever goes wrong is a result."""
    begun = time.monotonic()
    error = _error_of(case, make_bench)
    outcome, detail = _judged(case, error, features, profile)
    contract = LEAKS if isinstance(error, _LeakError) else case.contract
    return Result(case.id, contract, case.level, outcome, detail, time.monotonic() - begun)


def _judged(
    case: Case[B], error: BaseException | None, features: Mapping[str, bool], profile: Profile
) -> tuple[Outcome, str]:
    if isinstance(error, NotShownError):
        return Outcome.NOT_SHOWN, str(error)
    detail = _text(error)
    if case.id in profile.deviations:
        reason = profile.deviations[case.id]
        return (Outcome.UNEXPECTED, f"not so: {reason}") if error is None else (Outcome.DEVIATION, reason)
    if missing := [name for name in case.needs if not features.get(name)]:
        return (Outcome.UNEXPECTED if error is None else Outcome.UNDECLARED), detail or f"needs {', '.join(missing)}"
    return (Outcome.PASSED if error is None else Outcome.FAILED), detail


def _text(error: BaseException | None) -> str:
    if error is None or isinstance(error, BrokenContractError):
        return str(error or "")
    cause = "" if error.__cause__ is None else f" (from {type(error.__cause__).__name__}: {error.__cause__})"
    return f"nobody expected {type(error).__name__}: {error}{cause}"


class _LeakError(BrokenContractError):
    """Something outlived its close."""


def _error_of(case: Case[B], make_bench: Callable[[], B]) -> BaseException | None:
    """Run *case* on a thread, and give what it raised."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            _run(case, make_bench)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the case's result
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, name=f"kit-{case.id}", daemon=True)
    thread.start()
    thread.join(CASE_DEADLINE_S)
    return raised[0] if raised else BrokenContractError(f"did not end within {CASE_DEADLINE_S:g} s")


def _run(case: Case[B], make_bench: Callable[[], B]) -> None:
    before = Held.now()
    bench = make_bench()
    try:
        case.run(bench)
    except BaseException:
        try:
            bench.close()
        except Exception as second:  # noqa: BLE001 - the first error is the one to tell
            raise second.__context__ or second from None
        raise
    bench.close()
    expect(not bench.violations, "; ".join(bench.violations))
    if leaks := before.leaks():
        raise _LeakError(f"after close there still is: {leaks}")
