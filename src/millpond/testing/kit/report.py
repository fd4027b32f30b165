"""What a run of the kit found, as a value, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import field, frozen

from millpond.testing.kit.contract import Level


class Outcome(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECLARED = "not declared"
    """It does not hold, and the plugin does not say that it does."""
    UNEXPECTED = "holds, though not declared"
    DEVIATION = "known deviation"
    """It does not hold, and the author has said so, with a reason."""
    NOT_SHOWN = "not shown"


@frozen
class Result:
    """
    How one case ended.

    Attributes:
        case: Its id.
        contract: The sentence that it checks.
        level: Whether *core* needs it.
        outcome: How it ended.
        detail: Why, where it did not just pass.
        duration_s: Seconds.
    """

    case: str
    contract: str
    level: Level
    outcome: Outcome
    detail: str = ""
    duration_s: float = 0.0

    @property
    def group(self) -> str:
        """The part of the contract that it belongs to."""
        return self.case.partition(".")[0]


def _as_tuple(results: Iterable[Result]) -> tuple[Result, ...]:
    return tuple(results)


@frozen
class Report:
    """
    What a run of the kit found about one plugin.

    Attributes:
        name: The plugin's name.
        kind: Its role: ``backend``, ``checkpoints``, ``engine``, ``blob`` or ``log``.
        features: What it declares.
        results: One for each case, in order.
        tried: The level whose cases were tried.
    """

    name: str
    kind: str
    features: Mapping[str, bool]
    results: Sequence[Result] = field(converter=_as_tuple)
    tried: Level = Level.FULL

    @property
    def level(self) -> Level | None:
        """The level that the plugin keeps; None: not even core."""
        if self._broken(Level.CORE):
            return None
        return Level.CORE if self.tried is Level.CORE or self._broken(Level.FULL) else Level.FULL

    def _broken(self, level: Level) -> bool:
        return any(each.level is level and each.outcome in _BROKEN for each in self.results)

    def of(self, *outcomes: Outcome) -> list[Result]:
        """Give the results with one of *outcomes*, in order."""
        return [each for each in self.results if each.outcome in outcomes]

    def to_json(self) -> dict[str, object]:
        """Give what ``millpond conform --json`` prints; fields are added, never removed."""
        return {
            "name": self.name,
            "kind": self.kind,
            "level": None if self.level is None else str(self.level),
            "tried": str(self.tried),
            "features": dict(self.features),
            "cases": [
                {
                    "id": each.case,
                    "contract": each.contract,
                    "level": str(each.level),
                    "outcome": str(each.outcome),
                    "detail": each.detail or None,
                    "duration_s": round(each.duration_s, 6),
                }
                for each in self.results
            ],
        }

    def to_markdown(self) -> str:
        """Give a table with a line for each part of the contract, and below it all that did not just pass."""
        lines = [f"Level reached: **{self.level or 'none'}**{self._declared()}", ""]
        lines += [f"| {self.kind} | core | full |", "|---|---|---|"]
        lines += [
            f"| `{group}` | {self._passed(group, Level.CORE)} | {self._passed(group, Level.FULL)} |"
            for group in dict.fromkeys(each.group for each in self.results)
        ]
        notes = self.of(*(outcome for outcome in Outcome if outcome is not Outcome.PASSED))
        return "\n".join([*lines, *([""] if notes else []), *map(_note, notes)]) + "\n"

    def _declared(self) -> str:
        names = [name for name, has in self.features.items() if has]
        return f"; declared: {', '.join(names)}" if names else ""

    def _passed(self, group: str, level: Level) -> str:
        of_group = [each for each in self.results if each.group == group and each.level is level]
        passed = sum(each.outcome in (Outcome.PASSED, Outcome.UNEXPECTED) for each in of_group)
        return f"{passed} of {len(of_group)}" if of_group else ""


_BROKEN = frozenset({Outcome.FAILED, Outcome.DEVIATION})


def _note(result: Result) -> str:
    why = f" ({_line(result.detail)})" if result.outcome in _WITH_REASON and result.detail else ""
    return f"* `{result.case}`, {result.outcome}{why}: {_line(result.contract)}"


_WITH_REASON = frozenset({Outcome.DEVIATION, Outcome.NOT_SHOWN})
"""Whose detail is the author's or the kit's own words, and the same in every run."""


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").rstrip(".")


def failures(report: Report) -> list[str]:
    """Give a line for each case that failed: its id, what happened, and the broken sentence."""
    return [f"{each.case}: {each.detail}\n  broken: {each.contract}" for each in report.of(Outcome.FAILED)]
