"""The same result without Millpond: one pass over one stream, and dicts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from flights import Flight

Value = dict[str, int | str | None]
Tables = dict[str, dict[str, Value]]

STORES = ("by_route", "by_aircraft", "by_day", "every_flight", "in_the_air")


def compute(origin: str, stream: Iterable[tuple[int, Flight]]) -> tuple[Tables, int | None]:
    """Give what every store of the task *origin* must hold in the end, and the last offset."""
    tables: Tables = {store: {} for store in STORES}
    last = None
    for offset, flight in stream:
        last = offset
        _count_route(tables["by_route"], origin, flight)
        _count_aircraft(tables["by_aircraft"], flight)
        _count_day(tables["by_day"], flight)
        tables["every_flight"][flight.name] = {
            "dest": flight.dest,
            "tail": flight.tail,
            "dep_delay": flight.dep_delay,
            "arr_delay": flight.arr_delay,
            "distance": flight.distance,
        }
        _track(tables["in_the_air"], flight)
    return tables, last


def _count_route(routes: dict[str, Value], origin: str, flight: Flight) -> None:
    _add(routes, f"{origin}-{flight.dest}", cancelled=flight.cancelled, delay=flight.arr_delay, miles=flight.distance)


def _count_aircraft(aircraft: dict[str, Value], flight: Flight) -> None:
    if flight.tail and not flight.cancelled:
        _add(aircraft, flight.tail, delay=flight.arr_delay, minutes=flight.air_time, miles=flight.distance)
        aircraft[flight.tail]["last"] = flight.dest


def _count_day(days: dict[str, Value], flight: Flight) -> None:
    if flight.day not in days:
        today = date.fromisoformat(flight.day)
        week = [str(today - timedelta(days=back)) for back in range(1, 8)]
        days[flight.day] = {"week_before": sum(int(days[day]["flights"] or 0) for day in week if day in days)}
    _add(days, flight.day, cancelled=flight.cancelled, delay=flight.dep_delay)


def _track(air: dict[str, Value], flight: Flight) -> None:
    quarter_of_an_hour = flight.departs // 15 * 15
    for landed in [key for key in air if int(key[:9]) < quarter_of_an_hour]:
        del air[landed]
    if not flight.cancelled:
        air[f"{flight.lands:09} {flight.name}"] = {"dest": flight.dest, "tail": flight.tail}


def _add(table: dict[str, Value], key: str, **amounts: int | None) -> None:
    value = table.setdefault(key, {})
    for name, amount in {"flights": 1, **amounts}.items():
        value[name] = int(value.get(name) or 0) + int(amount or 0)
