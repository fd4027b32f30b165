"""The demo: kills a stream job at random moments, restarts it, and compares all state with a plain computation."""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from string import Template

import broker
import bucket
import job
import job_kafka
import request_log
from attrs import frozen
from child import Child
from compare import Comparison, compare_offset, compare_store
from filelock import FileLock, Timeout
from flights import ORIGINS, NoDataError, find_data, read_after, read_departures, stream_file, write_streams
from kills import plan_kills
from ledger import BrokenPromiseError, Ledger
from plain import STORES, compute
from reports import NotAReportError
from rich.console import Console
from screen import Screen
from watch import RunError, Watch

import millpond

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]
LOCK = ".lock"
SERVERS = ("s3", "kafka")  # where a server of this run keeps its data; it is there before the configuration
SHOWN_LINES = 12
LEAST_SECONDS_A_KILL = 1.0  # a small run is slowed down to this, so that there is something left to kill


@frozen
class Way:
    """
    Where input, records and state are.

    Attributes:
        template: The configuration, to be filled in.
        values: What is filled in, beside the place and the interval.
        program: The job.
        source: Names the input of a task.
        told: What is said of it; empty where everything is on this disk and stays there.
        requests: Where its server notes each request.
    """

    template: str = "job.toml"
    values: Mapping[str, str] = {}
    program: str = "job.py"
    source: Callable[[str], millpond.SystemStreamPartition] = job.source_of
    told: str = ""
    requests: Path | None = None


@contextmanager
def served(chosen: argparse.Namespace, root: Path) -> Iterator[Way]:
    """Start the server of the chosen way, if it needs one."""
    if chosen.s3:
        with bucket.serve(root / "s3") as made:
            values = {"bucket": made.name, "endpoint": made.endpoint}
            told = f"state and records go to s3://{made.name} of {made.server} at {made.endpoint}"
            yield Way("job-s3.toml", values, told=told, requests=made.log)
    elif chosen.kafka:
        with broker.serve(root / "kafka") as address:
            told = f"input, state and records are topics of the Kafka broker at {address}"
            yield Way("job-kafka.toml", {"servers": address}, "job_kafka.py", job_kafka.source_of, told)
    else:
        yield Way()


@frozen
class Place:
    """
    The directory in which a run leaves everything.

    Attributes:
        root: The directory itself.
    """

    root: Path

    @property
    def config(self) -> Path:
        """The job's configuration, filled in."""
        return self.root / "job.toml"

    @property
    def streams(self) -> Path:
        """The job's input."""
        return self.root / "streams"

    @property
    def log(self) -> Path:
        """What the job wrote to its standard error."""
        return self.root / "job.log"

    @property
    def ledger(self) -> Path:
        """What the job was told is durable."""
        return self.root / "ledger.jsonl"

    @property
    def parts(self) -> tuple[Path, ...]:
        """Everything that an earlier run may have left, the configuration last."""
        directories = (self.root / name for name in ("state", "backup", "records", *SERVERS))
        return (*directories, self.streams, self.log, self.ledger, self.config)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """
        Keep other runs out of this directory.

        Raises:
            RunError: One is there.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.root / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise RunError(f"another run is using {self.root}: wait for it, or choose another with --keep") from None
        try:
            yield
        finally:
            lock.release()

    def clear(self) -> None:
        """
        Remove what an earlier run left.

        Raises:
            RunError: The directory holds something else.
        """
        others = [path for path in self.root.iterdir() if path.name not in (LOCK, *SERVERS)]
        if others and not self.config.is_file():
            raise RunError(f"{self.root} is neither empty nor left by an earlier run: choose another with --keep")
        for part in self.parts:
            _remove(part)

    def write_config(self, interval: str, way: Way = Way()) -> None:
        """Fill in the template of *way*, beside this file."""
        values = {"place": str(self.root), "interval": interval, **way.values}
        escaped = {name: json.dumps(value, ensure_ascii=False)[1:-1] for name, value in values.items()}  # as TOML does
        template = Template((HERE / way.template).read_text("utf-8"))
        self.config.write_text(template.substitute(escaped), "utf-8")

    def lose_state(self) -> None:
        """Remove the whole state directory."""
        _remove(self.root / "state")

    def lose_everything(self) -> None:
        """Remove the backend's copies and the records too: a job that forgets."""
        for part in self.parts[:3]:
            _remove(part)


def main() -> int:
    """Run the demo; 0: restored exactly, 1: not, 2: it could not begin."""
    chosen = _arguments()
    console = Console(highlight=False)
    place = Place(chosen.keep.resolve())
    try:
        with place.alone():
            place.clear()
            with served(chosen, place.root) as way:
                return _demo(chosen, place, console, way)
    except NoDataError as error:
        console.print(str(error), markup=False)
        return 2
    except (BrokenPromiseError, RunError, NotAReportError) as error:
        console.print(f"not restored exactly: {error}", markup=False, soft_wrap=True)
        return 1


def _demo(chosen: argparse.Namespace, place: Place, console: Console, way: Way) -> int:
    place.write_config(chosen.interval, way)
    rows = write_streams(islice(read_departures(find_data()), chosen.rows), place.streams)
    if chosen.kafka:
        broker.write_topic(way.values["servers"], place.streams)
    total = sum(rows.values())
    counts = ", ".join(f"{origin} {count:,}" for origin, count in rows.items())
    console.print(f"{total:,} departures: {counts}; seed {chosen.seed}", markup=False)
    if way.told:
        console.print(way.told, markup=False)

    begin = time.monotonic()
    screen = Screen(console, rows)
    kills = _kill_and_restart(chosen, place, way, rows, screen)
    if way.told:
        place.lose_state()  # what is compared is what an empty disk gets back
        console.print("the state directory is wiped before the comparison", markup=False)
    requests = _requests(way)  # of the job alone
    result, offsets = _compare(place, way, screen)
    console.print(f"{time.monotonic() - begin:.0f} s, set-up aside; {offsets.equal} offsets equal", markup=False)
    result.differing += offsets.differing
    if way.told:
        _show_commands(console, place)
    for line in requests:
        console.print(line, markup=False, soft_wrap=True)
    return conclude(console, place, kills, result, offsets.first + result.first, stays=not way.told)


def _requests(way: Way) -> list[str]:
    """Give what the server noted so far, for people; nothing where it notes nothing."""
    if way.requests is None:
        return []
    return ["$ the server's log of requests", *(f"  {line}" for line in request_log.say_log(way.requests))]


def _kill_and_restart(
    chosen: argparse.Namespace, place: Place, way: Way, rows: Mapping[str, int], screen: Screen
) -> int:
    plan = plan_kills(chosen.seed, chosen.kills, sum(rows.values()))
    pace = 0.0 if chosen.full_speed else sum(rows.values()) / (LEAST_SECONDS_A_KILL * (len(plan) + 1))
    given = ",".join(f"{origin}={count}" for origin, count in rows.items()) if chosen.kafka else str(place.streams)

    def start(until: int | None) -> Child:
        return Child.start(way.program, place.config, given, pace, until, place.log)

    def lose(state: bool) -> None:
        if chosen.forget:
            place.lose_everything()
        elif state:
            place.lose_state()

    with place.ledger.open("w", encoding="utf-8") as journal, screen:
        watch = Watch(Ledger.of(rows), start, lose, screen, journal)
        try:
            watch.run(plan)
        except RunError as error:
            raise RunError(f"{error}\n{_tail(place.log)}") from error
    return len(watch.deaths)


def _compare(place: Place, way: Way, screen: Screen) -> tuple[Comparison, Comparison]:
    """Compare every store and every offset of every task; the job is not running."""
    keys, offsets = Comparison(), Comparison()
    with millpond.open_job(place.config) as opened:
        for origin in ORIGINS:
            screen.say(f"comparing {origin}")
            tables, last = compute(origin, read_after(stream_file(place.streams, origin), None))
            with opened.open_task(origin) as task:
                offsets.include(compare_offset(origin, last, task.offsets.get(way.source(origin))))
                for store in STORES:
                    keys.include(compare_store(f"{origin} {store}", tables[store], task.store(store).scan()))
    return keys, offsets


def conclude(
    console: Console, place: Place, kills: int, result: Comparison, first: list[str], *, stays: bool = True
) -> int:
    """Say how it ended, and, if it *stays*, how to look at what is left; give the exit code."""
    for difference in first:
        console.print(f"  {difference}", markup=False, soft_wrap=True)
    if result.differing:
        console.print(f"not restored exactly: {kills} kills, {result.differing:,} differences", markup=False)
        return 1
    if stays:
        console.print("what is left can be looked at:", markup=False)
        for command in _commands(place):
            console.print(f"  {command}", markup=False, soft_wrap=True)
    console.print(f"restored exactly: {kills} kills, {result.equal:,} keys equal", markup=False)
    return 0


def _show_commands(console: Console, place: Place) -> None:
    """Run the commands while the server is there, and show what they say."""
    listing, *others = _commands(place)
    listed = json.loads(_run(f"{listing} --task {ORIGINS[0]} --json").stdout)
    newest, *earlier = [one["id"] for one in listed["tasks"][0]["checkpoints"]]
    before = earlier[0] if earlier else newest
    millpond_command, config = shlex.split(listing)[0], _shown(place.config)
    others.append(f"{millpond_command} checkpoints diff {before} {newest} --task {ORIGINS[0]} --config {config}")
    others.append(f"{millpond_command} gc --dry-run --config {config}")
    for command in [listing, *others]:
        console.print(f"$ {command}", markup=False, soft_wrap=True)
        said = _run(command)
        for line in [*said.stdout.splitlines()[:SHOWN_LINES], *said.stderr.splitlines()]:
            console.print(f"  {line}", markup=False, soft_wrap=True)


def _run(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)


def _commands(place: Place) -> list[str]:
    millpond_command = _shown(Path(sys.executable).with_name("millpond"))
    config = _shown(place.config)
    return [
        f"{millpond_command} checkpoints list --config {config}",
        f"{millpond_command} checkpoints verify --config {config}",
        f"{millpond_command} state get --config {config} --task EWR --store by_route --key EWR-IAH",
        f"{millpond_command} restore --plan --config {config}",
    ]


def _shown(path: Path) -> str:
    """Give *path* as it can be typed here."""
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _tail(log: Path, lines: int = 20) -> str:
    text = log.read_text("utf-8", "replace").splitlines() if log.is_file() else []
    return "\n".join(text[-lines:])


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="draws the kills; printed")
    parser.add_argument("--kills", type=int, default=12, help="how often the job is killed (default: %(default)s)")
    parser.add_argument("--rows", type=int, help="take only the first so many departures")
    parser.add_argument("--interval", default="1s", help="between commits (default: %(default)s)")
    parser.add_argument("--keep", type=Path, default=CHECKOUT / "build" / "flights", help="where everything is left")
    parser.add_argument(
        "--forget", action="store_true", help="lose records and backups at every kill: the demo has to fail"
    )
    parser.add_argument("--s3", action="store_true", help="keep records and state in a bucket, on a server of its own")
    parser.add_argument(
        "--kafka",
        action="store_true",
        help="read the input from Kafka and keep everything there, on a broker of its own",
    )
    parser.add_argument("--full-speed", action="store_true", help="do not slow the job down: it waits for its kills")
    chosen = parser.parse_args()
    if chosen.s3 + chosen.kafka + chosen.forget > 1:
        parser.error("--forget removes directories, and --s3 and --kafka keep nothing in any: choose one of the three")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
