"""Listeners for people: a log line for each event, and restores as they go."""

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond import events
from millpond.checkpoint import Checkpoint, CheckpointId, Claim
from millpond.errors import CommitFailedError, FencedError, StateCorruptError, StateNotFoundError
from millpond.events import Event
from millpond.progress import LogListener, ProgressBar
from millpond.progress.bar import progress_text
from millpond.progress.lines import fields, line
from millpond.progress.pace import Pace
from millpond.progress.words import count_text, duration_text, listed, size_text

ID, OLDER = CheckpointId(1700000000000, 5), CheckpointId(1690000000000, 4)
WHO = {"job": "flights", "task": "EWR"}
MIB = 1 << 20

SAMPLES: list[tuple[Event, int, str]] = [
    (
        events.TaskClaimed(**WHO, claim=Claim("EWR", 7, "ab" * 16)),
        logging.INFO,
        "claimed with epoch 7; every earlier owner is shut out",
    ),
    (events.StateNotDurable(job="flights", name="memory"), logging.WARNING, "lost when the process ends"),
    (
        events.RestorePlanned(**WHO, checkpoint=ID, sources={"delays": "local, archive", "routes": "new"}),
        logging.INFO,
        "restoring checkpoint 1700000000000-5: delays from local, archive, routes new",
    ),
    (
        events.RestorePlanned(**WHO, checkpoint=None, sources={"delays": "new"}),
        logging.INFO,
        "no checkpoint yet: 1 store will begin empty",
    ),
    (events.StoreIsNew(**WHO, store="delays"), logging.WARNING, "store delays is new and begins empty"),
    (events.MarkerIgnored(**WHO, store="old", backend="archive"), logging.WARNING, "holds store old in archive"),
    (
        events.RestoreProgress(**WHO, store="delays", backend="archive", records=1, size=3 * MIB, total_size=9 * MIB),
        logging.INFO,
        "restoring store delays from archive: 3.0 MiB of 9.0 MiB, 1 record",
    ),
    (
        events.StoreRestored(**WHO, store="delays", source="archive", duration_s=72.0, size=1500 * MIB),
        logging.INFO,
        "store delays restored from archive, 1.5 GiB in 1 min 12 s",
    ),
    (
        events.StoreRestored(**WHO, store="delays", source="local", duration_s=0.004),
        logging.INFO,
        "store delays restored from the local image in 4 ms",
    ),
    (
        events.RestoreFailedOver(
            **WHO, store="delays", source="archive", following="log", error=StateNotFoundError("gone")
        ),
        logging.WARNING,
        "archive cannot give it back (gone); asking log next",
    ),
    (
        events.RestoreFailedOver(**WHO, store="delays", source="log", following="", error=StateNotFoundError("gone")),
        logging.ERROR,
        "nobody left to ask",
    ),
    (
        events.OlderCheckpointChosen(**WHO, damaged=ID, chosen=OLDER, error=StateCorruptError("bad digest")),
        logging.ERROR,
        "going back to 1690000000000-4, offsets and all stores together",
    ),
    (
        events.Quarantined(**WHO, path=Path("/data/quarantine/1"), reason="bad digest"),
        logging.WARNING,
        "moved to /data/quarantine/1 (bad digest)",
    ),
    (
        events.TaskRestored(**WHO, checkpoint=ID, duration_s=3.25),
        logging.INFO,
        "ready after 3.2 s, at checkpoint 1700000000000-5",
    ),
    (events.TaskRestored(**WHO, checkpoint=None, duration_s=0.0), logging.INFO, "there is no checkpoint yet"),
    (events.CommitStarted(**WHO, id=ID, stores=("delays",)), logging.DEBUG, "started, 1 changed store"),
    (events.CommitSkipped(**WHO, in_flight=ID, age_s=12.0), logging.INFO, "still in flight after 12.0 s"),
    (
        events.ImageMade(
            **WHO, id=ID, store="delays", files=7, size=9 * MIB, new_files=2, new_size=MIB, duration_s=0.5
        ),
        logging.DEBUG,
        "image of store delays in 500 ms, 7 files of 9.0 MiB; new 2 files of 1.0 MiB",
    ),
    (
        events.Uploaded(**WHO, id=ID, backend="archive", stores=("delays", "routes"), duration_s=2.0),
        logging.DEBUG,
        "archive has 2 stores after 2.0 s",
    ),
    (
        events.BackupDecided(
            **WHO, id=ID, backend="archive", store="delays", way="changes", reason="they are few", size=MIB, links=3
        ),
        logging.DEBUG,
        "archive uploads store delays as changes, 1.0 MiB: they are few",
    ),
    (
        events.ObjectsUploaded(**WHO, id=ID, backend="archive", objects=2, size=MIB),
        logging.DEBUG,
        "archive uploaded 2 objects of 1.0 MiB",
    ),
    (
        events.ObjectsRemoved(**WHO, backend="archive", objects=7, requests=1, reason="nobody needs them"),
        logging.DEBUG,
        "archive removed 7 objects with 1 request: nobody needs them",
    ),
    (
        events.OptionalBackendFailed(**WHO, id=ID, backend="archive", error=OSError("disk full")),
        logging.WARNING,
        "goes on without the optional backend archive (OSError: disk full)",
    ),
    (
        events.CommitPublished(
            **WHO, checkpoint=Checkpoint(ID), stores=("delays",), duration_s=0.2, phases_s={"image": 0.1, "write": 0.05}
        ),
        logging.INFO,
        "committed 1700000000000-5 in 200 ms (image 100 ms, write 50 ms), 1 changed store",
    ),
    (
        events.CommitFailed(**WHO, id=ID, error=CommitFailedError("disk full"), unknown=False),
        logging.ERROR,
        "failed (disk full): nothing was committed and the state is intact",
    ),
    (
        events.CommitFailed(**WHO, id=ID, error=CommitFailedError("no answer"), unknown=True),
        logging.ERROR,
        "it may have been published; the next commit finds out",
    ),
    (events.CommitSettled(**WHO, id=ID, published=True), logging.INFO, "was published: nothing is lost"),
    (events.CommitSettled(**WHO, id=ID, published=False), logging.WARNING, "was not published"),
    (
        events.CleanedUp(**WHO, backend="archive", duration_s=0.01, dropped=(OLDER,)),
        logging.DEBUG,
        "tidied archive in 10 ms, superseded: 1690000000000-4",
    ),
    (events.CleanupFailed(**WHO, backend="", error=OSError("no")), logging.WARNING, "the next commit tries again"),
    (events.TaskFenced(**WHO, error=FencedError("epoch 8")), logging.ERROR, "another process owns this task now"),
    (events.TaskFailed(**WHO, error=ValueError("?")), logging.ERROR, "failed (ValueError: ?)"),
    (events.TaskClosed(**WHO, last=ID), logging.INFO, "closed at checkpoint 1700000000000-5"),
    (events.TaskClosed(**WHO, last=None), logging.INFO, "closed before its first commit"),
]


class HandClock:
    """A clock that tests turn."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def millis(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


class Records(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[tuple[logging.Logger, list[logging.LogRecord]]]:
    logger, handler = logging.getLogger("millpond.test-of-progress"), Records()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield logger, handler.records
    logger.removeHandler(handler)


def kinds(cls: type[Event] = Event) -> set[type[Event]]:
    """Give every event class of the library."""
    below = {kind for sub in cls.__subclasses__() for kind in kinds(sub)}
    own = {kind for kind in cls.__subclasses__() if kind.__module__ == events.__name__}
    return own | below


def progress(store: str = "delays", size: int = 0, total: int | None = None, records: int = 0) -> Event:
    return events.RestoreProgress(**WHO, store=store, backend="archive", records=records, size=size, total_size=total)


# Lines


def test_every_event_has_a_line_of_its_own_and_a_sample_here():
    """No class of events falls back to the line for events that nobody knows, and each one has a row in this table."""
    unknown = line.dispatch(Event)

    assert kinds()
    assert set() == {kind for kind in kinds() if line.dispatch(kind) is unknown}
    assert kinds() == {type(sample) for sample, _, _ in SAMPLES}


@pytest.mark.parametrize(("event", "level", "text"), SAMPLES, ids=lambda v: type(v).__name__)
def test_the_line_of_an_event(event: Event, level: int, text: str):
    """Each event has the level that fits it, and says on one line what happened and, if it failed, what to do."""
    said = line(event)

    assert level == said.level
    assert text in said.text
    assert "\n" not in said.text


@pytest.mark.parametrize("event", [event for event, _, _ in SAMPLES], ids=lambda v: type(v).__name__)
def test_the_extra_fields_are_plain_and_named_stably(event: Event, logged):
    """A record carries its event's fields as JSON can hold them, under names that no log record has itself."""
    logger, records = logged

    LogListener(logger)(event)

    (record,) = records
    found = {name: getattr(record, name) for name in fields(event)}
    assert type(event).__name__ == found["event"]
    assert event.job == found["job"]
    assert json.loads(json.dumps(found)) == found
    assert record.name == logger.name


def test_a_checkpoint_is_one_field_whatever_the_event_calls_it():
    """Commits, restores and publications are found under the same name `checkpoint`."""
    named = [
        events.CommitStarted(**WHO, id=ID, stores=()),
        events.TaskRestored(**WHO, checkpoint=ID, duration_s=1.0),
        events.CommitPublished(**WHO, checkpoint=Checkpoint(ID), stores=(), duration_s=0.0, phases_s={}),
    ]

    assert {str(ID)} == {fields(event)["checkpoint"] for event in named}


def test_an_event_of_an_unknown_class_is_shown_whole(logged):
    """A plugin's own event becomes a line too."""
    logger, records = logged

    class Compacted(Event):
        pass

    LogListener(logger)(Compacted(job="flights"))

    assert ["flights: Compacted"] == [record.getMessage() for record in records]


def test_what_nobody_expected_brings_its_traceback(logged):
    """A failure that was raised on purpose is one line; any other comes with where it happened."""
    logger, records = logged
    listener = LogListener(logger)

    listener(events.CommitFailed(**WHO, id=ID, error=CommitFailedError("no"), unknown=False))
    listener(events.TaskFailed(**WHO, error=ZeroDivisionError()))

    assert [False, True] == [bool(record.exc_info) for record in records]


def test_progress_is_told_now_and_then(logged):
    """Of progress that comes many times a second one line in ten seconds is INFO, for each store by itself."""
    (logger, records), clock = logged, HandClock()
    listener = LogListener(logger, clock)

    for _ in range(100):
        listener(progress("delays"))
        listener(progress("routes"))
        clock.now_s += 0.25

    told = [record.store for record in records if record.levelno == logging.INFO]  # type: ignore[attr-defined]
    assert ["delays", "routes"] * 2 == told
    assert 200 == len(records)


def test_the_library_configures_no_logging():
    """Importing and using the listener adds nothing to the root logger, and to ours a NullHandler at most."""
    code = """
import json, logging
from millpond.progress import LogListener
from millpond.events import TaskClosed
LogListener()(TaskClosed(job="flights", task="EWR", last=None))
ours = logging.getLogger("millpond")
print(json.dumps([[type(h).__name__ for h in l.handlers] + [l.level] for l in (logging.root, ours)]))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)

    assert [[30], ["NullHandler", 0]] == json.loads(said.stdout)
    assert b"" == said.stderr


def test_rich_is_not_loaded_before_a_bar_is_drawn():
    """A host that listens without a terminal does not pay for rich."""
    code = (
        "import sys, millpond.progress as p; p.ProgressBar();"
        "print([m for m in sys.modules if m.partition('.')[0] == 'rich'])"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True, text=True)

    assert "[]\n" == said.stdout


# Words


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (1023 * 1024, "1.0 MiB"),
        (240 * MIB, "240 MiB"),
        (3 << 50, "3.0 PiB"),
    ],
)
def test_a_size_reads_well(size: int, text: str):
    """A size has two or three digits and a unit."""
    assert text == size_text(size)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00008, "80 µs"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (59.97, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3599.6, "1 h"),
        (187200, "2 d 4 h"),
        (-5, "-5.0 s"),
    ],
)
def test_a_duration_reads_well(seconds: float, text: str):
    """A duration has at most two units."""
    assert text == duration_text(seconds)


@given(st.floats(0, 1e12), st.integers(0, 1 << 70))
def test_no_quantity_overflows_its_unit(seconds: float, size: int):
    """No duration says 60 s or 60 min, and no size below a pebibyte has more than four digits."""
    assert not re.search(r"\b(60\.0 s|60 s|60 min|24 h|1000 ms|1000 µs)", duration_text(seconds))
    assert size >= 999 << 50 or len(re.sub(r"\D", "", size_text(size))) <= 4


def test_counts_and_lists_read_well():
    """One thing is singular, a thousand has its comma, and a long list ends by its number."""
    assert ["0 records", "1 record", "1,234 entries"] == [
        count_text(0, "record"),
        count_text(1, "record"),
        count_text(1234, "entry", "entries"),
    ]
    assert "a, b and 2 more" == listed("abcd", 2)


# Pace


def test_a_pace_tells_only_what_it_knows():
    """Before half a second there is no rate, and without a total there is no time left."""
    pace = Pace()
    pace.note(0.0, 0, 0, None)

    assert (None, None) == (pace.bytes_per_s(0.0), pace.left_s(0.0))

    pace.note(2.0, 10, 4 * MIB, None)

    assert (2 * MIB, 5.0, None) == (pace.bytes_per_s(2.0), pace.records_per_s(2.0), pace.left_s(2.0))

    pace.note(2.0, 10, 4 * MIB, 8 * MIB)

    assert 2.0 == pace.left_s(2.0)


def test_a_pace_forgets_what_is_long_past():
    """A restore that slowed down is not shown as fast as it began, and one that stands still has no time left."""
    pace = Pace()
    for second in range(60):
        pace.note(float(second), 0, min(second, 20) * MIB, 100 * MIB)

    assert 0.0 == pace.bytes_per_s(59.0)
    assert pace.left_s(59.0) is None


def test_progress_shows_no_number_for_what_nobody_knows():
    """Neither an unknown total, nor an unknown rate, nor records that are not counted appear as numbers."""
    pace = Pace()
    pace.note(0.0, 0, MIB, None)

    assert "1.0 MiB" == progress_text(pace, 0.0)

    pace.note(4.0, 1000, 3 * MIB, 5 * MIB)

    assert "3.0 MiB of 5.0 MiB, 1,000 records, 512 KiB/s, 4.0 s left" == progress_text(pace, 4.0)


def test_records_without_bytes_have_a_rate_in_records():
    """A backend that counts records only is shown by records."""
    pace = Pace()
    pace.note(0.0, 0, 0, None)
    pace.note(2.0, 5000, 0, None)

    assert "5,000 records, 2,500 records/s" == progress_text(pace, 2.0)


# The bar


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_a_line_every_few_seconds():
    """Elsewhere than on a terminal, a store has one plain line in five seconds, and a quick restore has none."""
    stream, clock = io.StringIO(), HandClock()
    with ProgressBar(stream, clock) as bar:
        for step in range(12):
            bar(progress(size=step * MIB, total=20 * MIB))
            clock.now_s += 1.0
        bar(progress("quick", size=1))

    assert [
        "EWR, delays from archive: 5.0 MiB of 20.0 MiB, 1.0 MiB/s, 15.0 s left",
        "EWR, delays from archive: 10.0 MiB of 20.0 MiB, 1.0 MiB/s, 10.0 s left",
    ] == stream.getvalue().splitlines()


def test_on_a_terminal_a_bar_comes_and_goes(monkeypatch: pytest.MonkeyPatch):
    """The bar comes when a restore takes a while, names task, store and backend, and gives the cursor back."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream, clock = Terminal(), HandClock()
    bar = ProgressBar(stream, clock)

    bar(progress(size=MIB, total=4 * MIB))
    bar(progress("routes", records=7))
    assert "" == stream.getvalue()
    clock.now_s += 1.0
    bar(progress(size=3 * MIB, total=4 * MIB))
    bar(progress("routes", records=8))
    bar(events.StoreRestored(**WHO, store="routes", source="archive", duration_s=1.0))
    bar(events.TaskRestored(**WHO, checkpoint=ID, duration_s=1.0))

    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "EWR, delays from archive" in drawn
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1


def test_events_that_are_no_restore_draw_nothing():
    """A bar says nothing about commits."""
    stream = Terminal()
    with ProgressBar(stream) as bar:
        for event, _, _ in SAMPLES:
            if not isinstance(event, events.RestoreProgress):
                bar(event)

    assert "" == stream.getvalue()
