"""Every zone, each of its clock changes from 2010 to 2037, several expressions, each policy: against `zoneinfo`.

`zoneinfo` reads the same files with its own code. What to expect is worked out day by day from its rules for `fold`:
a local time that does not come back unchanged is in a gap, and one with two instants is in a fold.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import attrs
import pytest

from holdfast.kernel.calendars.occurrences import last_until, occurrences
from holdfast.kernel.calendars.patterns import Fold
from holdfast.kernel.calendars.specs import Cron, Gap
from holdfast.kernel.calendars.zone_periods import period_at
from holdfast.ports.clock import instant, micros
from holdfast.ports.zones import ZoneTable
from tests.calendars import TZDATA, at, zone_names
from tests.sizes import sized

SECOND: Final = 1_000_000
PARTS: Final = 8
"""In how many tests the zones are checked, side by side."""
AROUND: Final = timedelta(days=2)
POLICIES: Final[tuple[tuple[Gap, Fold], ...]] = (
    ("shift", "first"),
    ("shift", "both"),
    ("skip", "last"),
    ("skip", "both"),
)


@attrs.frozen
class Expression:
    """An expression, with the local times that it means, worked out apart from the parser."""

    text: str
    minutes: Iterable[int]
    hours: Iterable[int]
    is_day: Callable[[datetime], bool] = lambda _: True

    def local_times(self, begin: datetime, end: datetime) -> Iterator[datetime]:
        """Yield the naive local times that match on the days of a range."""
        day = begin.replace(hour=0, minute=0, second=0, tzinfo=None)
        while day <= end.replace(tzinfo=None):
            if self.is_day(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        yield day.replace(hour=hour, minute=minute)
            day += timedelta(days=1)


EXPRESSIONS: Final = (
    Expression("30 2 * * *", (30,), (2,)),
    Expression("0 0 * * *", (0,), (0,)),
    Expression("0 * * * *", (0,), range(24)),
    Expression("*/15 0-3 * * *", (0, 15, 30, 45), range(4)),
    Expression("45 1,23 * * *", (45,), (1, 23)),
    Expression("20 */2 * * *", (20,), range(0, 24, 2)),
    Expression("1,59 2,3 * * 0,6", (1, 59), (2, 3), lambda day: day.isoweekday() >= 6),
    Expression("30 23 L * *", (30,), (23,), lambda day: (day + timedelta(days=1)).day == 1),
    Expression("15 3 1-7 * SUN", (15,), (3,), lambda day: day.day <= 7 or day.isoweekday() == 7),
)


@cache
def zoneinfo_of(name: str) -> ZoneInfo:
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data)


def distinct_zones() -> list[str]:
    """Return one name for each distinct table: many zones are links, or have been alike since 1900."""
    found: dict[tuple[object, ...], str] = {}
    for name in zone_names():
        table = TZDATA.table(name)
        recent = [one for one in zip(table.transitions, table.offsets[1:], strict=True) if one[0] > 0]
        found.setdefault((tuple(recent), table.offsets[-1], table.rule), name)
    return list(found.values())


def changes(table: ZoneTable) -> list[int]:
    """Return the changes of a zone from 2010 to 2037, in seconds."""
    found: list[int] = []
    second, end = at("2010-01-01T00:00Z") // SECOND, at("2038-01-01T00:00Z") // SECOND
    while (second := period_at(table, second).end) < end:
        found.append(second)
    return found


@attrs.frozen
class Passes:
    """A local time, as `zoneinfo` sees it."""

    before_gap: datetime
    """The instant by the offset before a gap."""
    real: tuple[datetime, ...]
    """The instants that have this local time, in order: none in a gap, two in a fold."""


def passes_of(expression: Expression, zone: ZoneInfo, begin: datetime, end: datetime) -> list[Passes]:
    """Return the local times of an expression around a range of instants."""
    found: list[Passes] = []
    for local in expression.local_times(begin - AROUND, end + AROUND):
        first, last = (local.replace(tzinfo=zone, fold=one).astimezone(UTC) for one in (0, 1))
        # Where a rule begins without a change of the offset, zoneinfo has a fold by the rule that is not there.
        real = {one for one in (first, last) if one.astimezone(zone).replace(tzinfo=None) == local}
        found.append(Passes(first, tuple(sorted(real))))
    return found


def expected(passes: list[Passes], gap: Gap, fold: Fold) -> Iterator[datetime]:
    """Yield the instants that fire."""
    for one in passes:
        if one.real:
            yield from {"first": one.real[:1], "last": one.real[-1:], "both": one.real}[fold]
        elif gap == "shift":
            yield one.before_gap


def check(zone: str, expression: Expression, around: int) -> None:
    """Compare the occurrences around a change, forwards and backwards, by each policy."""
    zones = {zone: TZDATA.table(zone)}
    change = datetime.fromtimestamp(0, UTC) + timedelta(seconds=around)
    begin, end = change - timedelta(hours=30), change + timedelta(hours=30)
    passes = passes_of(expression, zoneinfo_of(zone), begin, end)
    for gap, fold in POLICIES:
        cron = [Cron(expression.text, zone=zone, gap=gap, fold=fold)]
        wanted = sorted({one for one in expected(passes, gap, fold) if begin < one <= end})

        found = occurrences(cron, zones, after=micros(begin), until=micros(end), limit=10_000)

        assert [instant(one.at) for one in found] == wanted, (zone, cron, change)
        until = micros(end)
        for one in reversed(wanted):
            last = last_until(cron, zones, until, since=micros(begin))
            assert last is not None
            assert instant(last.at) == one, (zone, cron, change)
            until = last.at - 1
        assert last_until(cron, zones, until, since=micros(begin)) is None


@pytest.mark.sized
@pytest.mark.parametrize("part", range(PARTS))
def test_every_zone_around_each_of_its_changes(part: int) -> None:
    """In the fast suite, a few zones at one of their changes."""
    names = distinct_zones()[part :: sized(10, 1) * PARTS]
    checked = 0
    for number, name in enumerate(names):
        for change in changes(TZDATA.table(name))[sized(number % 7, 0) :: sized(28, 1)]:
            for expression in EXPRESSIONS:
                check(name, expression, change)
                checked += 1
    assert checked >= sized(9, 5_000)


@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Pacific/Apia", "2011-12-30T10:00Z"),
        ("Pacific/Kwajalein", "1993-08-21T12:00Z"),
        ("America/Grand_Turk", "2018-03-11T07:00Z"),
        ("America/Godthab", "2023-10-29T01:00Z"),
        ("Asia/Pyongyang", "2018-05-04T15:00Z"),
        ("America/Caracas", "2016-05-01T07:00Z"),
        ("Antarctica/Troll", "2026-03-29T01:00Z"),
        ("Antarctica/Casey", "2023-03-08T16:00Z"),
        ("Africa/Juba", "2021-01-31T21:00Z"),
        ("Europe/Dublin", "2044-03-27T01:00Z"),
        ("Europe/Paris", "2102-03-26T01:00Z"),
        ("America/Santiago", "2060-09-05T04:00Z"),
        ("Asia/Gaza", "2090-03-25T00:00Z"),
    ],
)
def test_unusual_changes(zone: str, change: str) -> None:
    """A missing day, half an hour, two hours, a rule that comes later, and changes that only the rule knows."""
    for expression in EXPRESSIONS:
        check(zone, expression, at(change) // SECOND)
