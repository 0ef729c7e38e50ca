"""Zones and instants for tests of schedules' calendars."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from typing import Final

from typing_extensions import override

from holdfast.adapters.system.zones import TzdataZones
from holdfast.kernel.calendars.occurrences import Occurrence
from holdfast.ports.clock import instant, micros
from holdfast.ports.records.values import Micros
from holdfast.ports.zones import ZoneTable

TZDATA: Final = TzdataZones()


class AllZones(Mapping[str, ZoneTable]):
    """The tables of all zones, each read at its first use."""

    @override
    def __getitem__(self, name: str) -> ZoneTable:
        return TZDATA.table(name)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(zone_names())

    @override
    def __len__(self) -> int:
        return len(zone_names())


ZONES: Final = AllZones()


@cache
def zone_names() -> tuple[str, ...]:
    """Return the names of all zones."""
    from importlib.resources import files

    return tuple(sorted(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()))


def at(text: str) -> Micros:
    """Return an instant: `2026-03-28T12:00Z`."""
    return micros(datetime.fromisoformat(text))


def shown(value: Micros) -> str:
    """Return an instant as text: `2026-03-28T12:00Z`."""
    return instant(value).astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def local(one: Occurrence) -> str:
    """Return the local time of an occurrence: `02:30+0100`."""
    return instant(one.at).astimezone(timezone(timedelta(seconds=one.offset))).strftime("%H:%M%z")
