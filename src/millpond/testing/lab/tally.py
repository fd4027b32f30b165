"""Trials added up: the table, the JSON, and how to repeat what failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import define, field

from millpond.testing.lab.story import MOMENT
from millpond.testing.lab.trial import Verdict


@define
class Tally:
    """
    All trials of one backend.

    Attributes:
        backend: Its name.
        points: The points that its jobs can reach.
        replay: The command that repeats one trial, up to its seed.
        runs: How many trials there were.
        deaths: How many processes died, by point.
        failed: The trials that went wrong.
        seconds: How long all of them took, one beside the other.
        sums: What went wrong, by word, and how many sleepers were woken early.
    """

    backend: str
    points: Sequence[str]
    replay: str
    runs: int = 0
    deaths: Counter[str] = field(factory=Counter)
    failed: list[Verdict] = field(factory=list)
    seconds: float = 0.0
    sums: Counter[str] = field(factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Count one trial."""
        self.runs += 1
        self.deaths.update(verdict.deaths)
        self.sums.update(lost=verdict.lost, resurrected=verdict.resurrected, half=verdict.half)
        self.sums.update(orphans=len(verdict.orphans), leaked=len(verdict.leaked), zombies=verdict.zombies)
        self.sums.update(errors=len(verdict.errors), woken=verdict.woken)
        if not verdict.good:
            self.failed.append(verdict)

    @property
    def missed(self) -> list[str]:
        """The points at which no process died."""
        return [point for point in self.points if not self.deaths[point]]

    def as_json(self) -> dict[str, Any]:
        """Give all of it for a program."""
        return {
            "backend": self.backend,
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
            **{word: self.sums[word] for word in _WORDS},
            "woken": self.sums["woken"],
            "deaths": {name: self.deaths[name] for name in (*self.points, MOMENT)},
            "missed": self.missed,
            "failed": [
                {"seed": each.seed, "told": told(each), "replay": f"{self.replay} --seeds {each.seed}"}
                for each in self.failed
            ],
        }

    def lines(self) -> list[str]:
        """Give all of it for people, in Markdown."""
        widths = max(len(name) for name in (*self.points, MOMENT))
        deaths = [f"| {name:{widths}} | {self.deaths[name]:6} |" for name in (*self.points, MOMENT)]
        sums = " | ".join(f"{self.sums[word]}" for word in _WORDS)
        return [
            f"{self.backend}: {self.runs} runs, {sum(self.deaths.values())} deaths, {self.seconds:.0f} s{self._woken}",
            "",
            f"| runs | {' | '.join(_WORDS)} |",
            "|---" * (len(_WORDS) + 1) + "|",
            f"| {self.runs} | {sums} |",
            "",
            f"| {'died at':{widths}} | deaths |",
            f"|{'-' * (widths + 2)}|--------|",
            *deaths,
            *(f"\nseed {each.seed}: {told(each)}\n  {self.replay} --seeds {each.seed}" for each in self.failed),
        ]

    @property
    def _woken(self) -> str:
        woken = self.sums["woken"]
        return f"; {woken} sleeping owners held up their successors and were woken" if woken else ""


_WORDS = ("lost", "resurrected", "half", "orphans", "leaked", "zombies", "errors")


def told(verdict: Verdict) -> str:
    """Say in one line what went wrong."""
    counts = [f"{word} {getattr(verdict, word)}" for word in ("lost", "resurrected", "half", "zombies")]
    counts = [text for text in counts if not text.endswith(" 0")]
    return (
        "; ".join(
            [
                *counts,
                *(f"orphan {name}" for name in verdict.orphans[:5]),
                *(f"leak of {name}" for name in verdict.leaked),
                *verdict.errors,
            ]
        )
        or "well"
    )
