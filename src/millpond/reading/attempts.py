"""Steps that are tried one after the other, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Literal, TypeVar

from attrs import define, field, frozen

from millpond.clock import Clock
from millpond.errors import FencedError, MillpondError, TransientError

State = Literal["ok", "note", "failed", "unreachable", "skipped"]
"""
``note``: it works, but look. ``failed``: it has to be corrected. ``unreachable``: it did not answer. ``skipped``: an
earlier step stands in its way.
"""

T = TypeVar("T")


@frozen
class Tried:
    """
    What was tried, and what came of it.

    Attributes:
        part: What it was tried on: ``millpond``, ``plugin <name>``, ``state_dir``, ``checkpoints``, or
            ``backend <section>``.
        name: What was tried.
        state: See ``State``.
        detail: What was found; of what is not ok, also what to do.
        duration_s: What it took, in seconds.
    """

    part: str
    name: str
    state: State
    detail: str = ""
    duration_s: float = 0.0

    @property
    def good(self) -> bool:
        """Nothing has to be done about it."""
        return self.state in ("ok", "note")


class NoticedError(MillpondError):
    """It works, and somebody should look."""


@define
class Attempts:
    """
    Tries steps on one part, and notes what came of each. One thread.

    Attributes:
        part: What they are tried on.
        clock: Tells what each took.
        tried: What was tried so far.
    """

    part: str
    clock: Clock
    tried: list[Tried] = field(factory=list)

    def attempt(self, name: str, work: Callable[[], object]) -> bool:
        """Do *work*, whose result is the detail if it is a text; give whether it worked."""
        begun = self.clock.monotonic()
        try:
            detail = work()
        except Exception as error:  # noqa: BLE001 - every outcome is a row
            self._note(name, state_of(error), _text(error), begun)
        else:
            self._note(name, "ok", detail if isinstance(detail, str) else "", begun)
        return self.tried[-1].good

    @contextmanager
    def holding(
        self, name: str, opened: AbstractContextManager[T], detail: str = "", end: str = ""
    ) -> Iterator[T | None]:
        """
        Hold what *opened* gives for the block; None if it cannot be had.

        Getting it is the step *name*, and letting go of it the step *end*; an unnamed one is a row only if it fails.
        """
        with ExitStack() as stack:
            held: list[T] = []

            def get() -> str:
                held.append(stack.enter_context(opened))
                return detail

            if name:
                self.attempt(name, get)
            else:
                self._attempt_quietly(end, get)
            yield held[0] if held else None
            closing = stack.pop_all()
        if not end:
            self._attempt_quietly(name, closing.close)
        elif held:
            self.attempt(end, closing.close)

    def _attempt_quietly(self, name: str, work: Callable[[], object]) -> None:
        if self.attempt(name, work):
            self.tried.pop()

    def note(self, name: str, detail: str) -> None:
        """Add a remark."""
        self.tried.append(Tried(self.part, name, "note", detail))

    def skip(self, name: str) -> None:
        """Add a step that cannot be tried."""
        self.tried.append(Tried(self.part, name, "skipped", "see above"))

    def _note(self, name: str, state: State, detail: str, begun: float) -> None:
        self.tried.append(Tried(self.part, name, state, detail, self.clock.monotonic() - begun))


def state_of(error: Exception) -> State:
    """Say what *error* makes of a step; by the SPI, one of a class that is not ours may go away."""
    match error:
        case NoticedError():
            return "note"
        case TransientError() | FencedError():
            return "unreachable"
        case MillpondError() | OSError():
            return "failed"
        case _:
            return "unreachable"


def _text(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    told = text if isinstance(error, MillpondError) else f"{type(error).__name__}: {text}"
    return f"{told}; try again" if state_of(error) == "unreachable" else told
