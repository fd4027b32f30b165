"""When the job is killed: a plan drawn from a seed, and the moment that a planned kill waits for."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from attrs import define, evolve, frozen
from reports import Committing, Durable, Report, Restored

PLANNED_SHARE = 0.9  # of the rows: the rest lets the last life come to its end
LATEST_S = 5.0  # a moment that does not come, such as a commit when all are done, is not waited for any longer


class Moment(StrEnum):
    """What the job is doing when it is killed."""

    PROCESSING = "processing"
    COMMITTING = "committing"
    ACKNOWLEDGED = "right after an acknowledgement"
    RESTORING = "restoring"
    STARTING = "starting"


_WHILE_RUNNING = (Moment.PROCESSING, Moment.COMMITTING, Moment.ACKNOWLEDGED)
_WHILE_OPENING = (Moment.RESTORING, Moment.STARTING)


@frozen
class Kill:
    """
    One planned kill.

    Attributes:
        moment: What it waits for.
        rows: It waits until this many rows were read, each counted once.
        skip: How many restored stores it lets pass, where it waits for a restore.
        delay_s: How long after its moment it comes.
        until: At so many rows the job's source has no more for it: a kill that comes late finds it waiting there.
        wipe: Whether the whole state directory is removed afterwards.
    """

    moment: Moment
    rows: int
    skip: int
    delay_s: float
    until: int
    wipe: bool = False


def plan_kills(seed: int, kills: int, rows: int) -> list[Kill]:
    """
    Spread *kills* over a run of *rows*, in order.

    Every fourth hits the restart after the kill before it; the others hit a running job, a random number of rows after
    one another. Two, of a running job, lose the whole state directory; what follows the first of these is a kill again,
    in the middle of the restore from the backend. No life reads as far as the rows of the next kill of a running job,
    so that each of them has something left to do, however slow the machine or this process is.
    """
    random = Random(seed)
    opening = set(range(2, kills, 4))
    running = [number for number in range(kills) if number not in opening]
    wiped = {min(opening) - 1, running[-1]} if opening else set(running[-2:])
    moments = _shuffled(random, _WHILE_RUNNING, len(running))
    share = rows * PLANNED_SHARE / max(1, len(running))
    plan: list[Kill] = []
    for number in range(kills):
        if number in opening:
            moment = _WHILE_OPENING[len(plan) // 4 % 2]
            plan.append(_draw(random, moment, plan[-1].rows))
        else:
            place = running.index(number)
            at = round(share * (place + random.uniform(0.15, 1.0)))
            plan.append(evolve(_draw(random, moments[place], at), wipe=number in wiped))
    return _bounded(plan, rows)


def _bounded(plan: list[Kill], rows: int) -> list[Kill]:
    """Let the job read half the way to the next kill that waits for more rows, or to the end of its *rows*."""
    later = [min((each.rows for each in plan if each.rows > kill.rows), default=rows) for kill in plan]
    return [evolve(kill, until=(kill.rows + next) // 2) for kill, next in zip(plan, later, strict=True)]


@define
class Trigger:
    """
    Says when a planned kill is due. Pure: it knows only what it is told; times are seconds of one clock.

    Attributes:
        kill: What is planned.
        started: When the process was started.
    """

    kill: Kill
    started: float
    due: float | None = None
    _armed: float | None = None
    _restored: int = 0

    def __attrs_post_init__(self) -> None:
        if self.kill.moment is Moment.STARTING:  # waits for nothing but time
            self.due = self.started + self.kill.delay_s

    def see(self, report: Report, furthest: int, now: float) -> None:
        """Take a report of the job, of which *furthest* rows were read by now."""
        if self.due is not None or furthest < self.kill.rows:
            return
        if self._armed is None:
            self._armed = now
        if self._is_moment(report):
            self.due = now + self.kill.delay_s

    def deadline(self) -> float | None:
        """Give the time at which to kill, as far as that is known now."""
        if self.due is not None:
            return self.due
        return None if self._armed is None else self._armed + LATEST_S

    def _is_moment(self, report: Report) -> bool:
        match self.kill.moment:
            case Moment.COMMITTING:
                return isinstance(report, Committing)
            case Moment.ACKNOWLEDGED:
                return isinstance(report, Durable)
            case Moment.RESTORING:
                self._restored += isinstance(report, Restored)
                return self._restored > self.kill.skip
        return True


def _draw(random: Random, moment: Moment, rows: int) -> Kill:
    longest_s = {
        Moment.PROCESSING: 0.3,
        Moment.COMMITTING: 0.15,
        Moment.ACKNOWLEDGED: 0.0,
        Moment.RESTORING: 0.03,
        Moment.STARTING: 1.2,
    }[moment]
    return Kill(moment, rows, skip=random.randrange(12), delay_s=random.uniform(0.0, longest_s), until=rows)


def _shuffled(random: Random, moments: tuple[Moment, ...], count: int) -> list[Moment]:
    """Give *count* moments, each about as often as the others, in random order."""
    drawn = [moments[number % len(moments)] for number in range(count)]
    random.shuffle(drawn)
    return drawn
