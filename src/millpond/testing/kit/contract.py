"""What a case of the kit is: an id, the sentence of the contract that it checks, a level, and the features it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

B = TypeVar("B")


class Level(StrEnum):
    """How much a plugin keeps: *core* is what no state is lost without, *full* is every sentence."""

    CORE = "core"
    FULL = "full"


class BrokenContractError(AssertionError):
    """What a plugin did is not what its contract says."""


class NotShownError(Exception):
    """A case cannot show anything: what it looks through is missing."""


@frozen
class Case(Generic[B]):
    """
    One thing that the contract says, and what tries it.

    Attributes:
        id: ``"<verb>.<what>"``; stable.
        contract: The sentence of the contract.
        level: Whether *core* needs it.
        needs: The features without which it does not have to hold.
        run: Tries it on a bench; raises what went wrong.
    """

    id: str
    contract: str
    level: Level
    needs: tuple[str, ...]
    run: Callable[[B], None]

    @property
    def group(self) -> str:
        """The part of the contract that it belongs to."""
        return self.id.partition(".")[0]


@define
class Cases(Generic[B]):
    """The cases of one role, in order; used as a decorator on the functions that try them."""

    by_id: dict[str, Case[B]] = field(factory=dict)

    def __call__(
        self, id: str, contract: str, *, level: Level = Level.CORE, needs: tuple[str, ...] = ()
    ) -> Callable[[Callable[[B], None]], Callable[[B], None]]:
        """Make the decorated function the case *id*."""

        def add(run: Callable[[B], None]) -> Callable[[B], None]:
            if id in self.by_id:
                raise AssertionError(f"two cases are called {id}")
            self.by_id[id] = Case(id, contract, level, needs, run)
            return run

        return add

    def __iter__(self) -> Iterator[Case[B]]:
        """Give every case, in order."""
        return iter(self.by_id.values())


def gathered(*parts: Cases[B], order: Sequence[str] = ()) -> Cases[B]:
    """Give the cases of all *parts*, in order; those of the groups that *order* names first, in that order."""
    made: Cases[B] = Cases()
    places = {group: place for place, group in enumerate(order)}
    found = [case for part in parts for case in part]
    for case in sorted(found, key=lambda case: places.get(case.group, len(places))):
        if case.id in made.by_id:
            raise AssertionError(f"two cases are called {case.id}")
        made.by_id[case.id] = case
    return made


def expect(holds: object, otherwise: str) -> None:
    """Raise BrokenContractError with the text *otherwise* unless *holds*."""
    if not holds:
        raise BrokenContractError(otherwise)


def expect_equal(wanted: object, found: object, what: str) -> None:
    """Raise BrokenContractError unless *found* equals *wanted*."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        expect(dict(wanted) == dict(found), f"{what}: {_difference(wanted, found)}")
    else:
        expect(wanted == found, f"{what}: {_short(found)}, not {_short(wanted)}")


def expect_error(
    kinds: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object], doing: str
) -> BaseException:
    """Give the error of one of *kinds* that *call* raises; BrokenContractError if it raises none or another."""
    names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
    try:
        given = call()
    except kinds as error:
        return error
    except BrokenContractError:
        raise
    except Exception as error:
        raise BrokenContractError(f"{doing} raises {_error_text(error)}, not {names}") from error
    raise BrokenContractError(f"{doing} gives {_short(given)}; it has to raise {names}")


def _difference(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> str:
    """Say in a line where two mappings differ first."""
    for key in wanted:
        if key not in found:
            return f"{_short(key)} is missing ({len(found)} entries, not {len(wanted)})"
        if wanted[key] != found[key]:
            return f"{_short(key)} is {_short(found[key])}, not {_short(wanted[key])}"
    surplus = next((key for key in found if key not in wanted), None)
    return f"{_short(surplus)} is there and must not be ({len(found)} entries, not {len(wanted)})"


def _short(value: object) -> str:
    if isinstance(value, Mapping) and len(value) > 3:
        return f"a mapping of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:110]}… ({len(text)} characters)"


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
