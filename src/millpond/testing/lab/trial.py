"""One trial: the lives of a story one after the other, the ledger of what was said to be durable, and the verdict."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import define, field

from millpond.errors import TransientError
from millpond.local import is_temporary
from millpond.testing.lab.forks import Child, fork
from millpond.testing.lab.life import live
from millpond.testing.lab.places import Place
from millpond.testing.lab.story import Death, Life, Story
from millpond.testing.lab.topics import remove_topics

DEADLINE_S = 90.0
"""How long one life may take."""

_AGE_S = 2 * 86_400


@define
class Verdict:
    """
    How a trial went.

    Attributes:
        seed: Its seed.
        deaths: Where its processes died or fell asleep.
        lost: Acknowledged commits that were gone.
        resurrected: Deleted keys that were back.
        half: Stores' keys that were not of the offset that was restored.
        orphans: What was left after the collection.
        leaked: Threads and descriptors.
        zombies: Commits that a replaced owner was told are durable.
        errors: What else went wrong.
        woken: Sleeping owners that were woken early, since their successor did not end; nothing wrong in itself.
        seconds: How long it took.
    """

    seed: int
    deaths: list[str] = field(factory=list)
    lost: int = 0
    resurrected: int = 0
    half: int = 0
    orphans: list[str] = field(factory=list)
    leaked: list[str] = field(factory=list)
    zombies: int = 0
    errors: list[str] = field(factory=list)
    woken: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        wrong = self.lost or self.resurrected or self.half or self.orphans or self.leaked or self.zombies or self.errors
        return not wrong


@define
class Trial:
    """
    One trial on its way.

    Attributes:
        place: Where it keeps what it keeps.
        story: What happens.
        root: Its own folder.
    """

    place: Place
    story: Story
    root: Path
    verdict: Verdict = field(init=False)
    _acknowledged: int = 0
    _disk: int = 0
    _resumed: int = 0
    _replaced: bool = False

    def __attrs_post_init__(self) -> None:
        self.verdict = Verdict(self.story.seed)

    def run(self) -> Verdict:
        """Go through all lives; whatever goes wrong is in the verdict."""
        begun = time.monotonic()
        sleeper: Child | None = None
        try:
            for life in self.story.lives:
                before, sleeper = sleeper, self._live(life, sleeper)
                if before is not None:
                    self._wake(before)
                if self.verdict.errors:
                    break
        except Exception as error:  # noqa: BLE001 - one trial does not end the others
            self.verdict.errors.append(f"{type(error).__name__}: {error}")
        finally:
            if sleeper is not None:
                sleeper.kill()
            self._forget()
        self.verdict.seconds = time.monotonic() - begun
        return self.verdict

    def _forget(self) -> None:
        """Let a child remove what a server would keep and be slow for; what it cannot remove now is nobody's fault."""
        if not self.place.leaves_topics():
            return
        config = self.place.config(self.story, self.root, self._disk)
        child = fork(lambda say: say("removed", remove_topics(config)))
        with suppress(TransientError):
            child.follow(DEADLINE_S)

    def _live(self, life: Life, sleeper: Child | None) -> Child | None:
        """Let one process live while *sleeper* sleeps; give it if it sleeps."""
        self._prepare(life)
        config = self.place.config(self.story, self.root, self._disk)
        again = self.place.config(self.story, self.root, self._disk + 1)
        child = fork(lambda say: live(config, self.story.seed, life, again, say))
        after_us = life.death.after_us if life.death and not life.death.point else None
        if sleeper is not None and after_us is None and not child.ends_within(self.place.pace.patience_s):
            # Only what the machine's kernel guards can hold a successor up, such as a lock on a file that another
            # thread of the sleeper held: it is woken, as an operator would, and both are judged as ever.
            sleeper.wake()
            self.verdict.woken += 1
        child.follow(DEADLINE_S, after_us)
        if child.sleeps:
            self._disk += 1  # it holds the lock of its own
        self._judge(life, child)
        return child if child.sleeps else None

    def _prepare(self, life: Life) -> None:
        disk = self.root / f"disk {self._disk}"
        if life.wiped:
            shutil.rmtree(disk, ignore_errors=True)
        if life.damaged:
            damage_an_image(disk, random.Random(self.story.seed))  # noqa: S311 - a trial is repeated by its seed
        if life.last:
            age_temporaries(self.root)

    def _wake(self, sleeper: Child) -> None:
        """Let a replaced owner go on: it may say nothing more is durable than what its successor found."""
        before = len(sleeper.said)
        sleeper.wake()
        sleeper.follow(DEADLINE_S)
        late = [value for word, value in sleeper.said[before:] if word == "durable"]
        if self._replaced:
            self.verdict.zombies += sum(value > self._resumed for value in late)
        else:  # its successor died before it had claimed the task
            self._acknowledged = max([self._acknowledged, *late])
        self.verdict.half += sum(1 for word, _ in sleeper.said[before:] if word == "wrong")

    def _judge(self, life: Life, child: Child) -> None:
        verdict = self.verdict
        resumed = child.words("resumed")
        if resumed:
            verdict.lost += resumed[0] < self._acknowledged
            self._resumed = resumed[0]
        self._replaced = bool(resumed)
        self._acknowledged = max([self._acknowledged, *child.words("durable")])
        if resumed and life.last:
            verdict.lost += resumed[-1] < self._acknowledged
        for _, missing, resurrected, changed in child.words("wrong"):
            verdict.resurrected += resurrected
            verdict.half += missing + changed
        self._note_death(life.death, child)
        if life.last:
            self._judge_end(child)

    def _note_death(self, death: Death | None, child: Child) -> None:
        verdict = self.verdict
        verdict.errors += child.words("failed") + [f"refused: {word}" for word in child.words("refused")]
        if child.was_killed and death is None:
            verdict.errors.append("it was killed by somebody else")
        elif death is not None and (child.was_killed or child.sleeps):
            verdict.deaths.append(death.name)

    def _judge_end(self, child: Child) -> None:
        verdict = self.verdict
        if not child.words("done") and not verdict.errors:
            verdict.errors.append(f"the last process did not come to its end: status {child.status}, {child.said[-2:]}")
        verdict.orphans += [each for words in child.words("orphans") for each in words]
        verdict.orphans += [str(path) for path in temporaries(self.root)]
        verdict.leaked += [each for words in child.words("leaked") for each in words]


def temporaries(root: Path) -> Iterator[Path]:
    """Give the unfinished files that writers left outside of the tasks' disks."""
    for path in root.rglob("*"):
        beside = not path.relative_to(root).parts[0].startswith("disk ")
        if beside and (is_temporary(path.name) or "~" in path.name) and path.is_file():
            yield path


def age_temporaries(root: Path) -> None:
    """Make unfinished files old, as if whoever writes next came days later: young ones may be somebody's work."""
    then = time.time() - _AGE_S
    for path in [*temporaries(root), *root.rglob(".probe-*"), *root.rglob(".probe-*/*")]:
        os.utime(path, (then, then))


def damage_an_image(disk: Path, chance: random.Random) -> None:
    """Cut the largest file of one local image: sizes are compared even in the boot that sealed it."""
    images = sorted(path for path in disk.glob("*/*/images/*/*") if path.is_dir())
    if images:
        files = sorted(chance.choice(images).iterdir(), key=lambda path: path.stat().st_size)
        cut(files[-1])


def cut(path: Path) -> None:
    """Take the last byte of *path*, and of no other name of the same file."""
    data: Any = path.read_bytes()
    path.unlink()
    path.write_bytes(data[:-1])
