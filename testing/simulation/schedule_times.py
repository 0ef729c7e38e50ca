"""The nominal times of a schedule, computed in another way than by the kernel: minute by minute.

It reads the texts of cron expressions, not their stored sets, and the clock changes of a zone one by one. It knows
what the workload draws: numbers, lists, ranges and steps in all fields but that of the month.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from typing import Any, Final

import attrs

from holdfast.ports.json import parse
from holdfast.ports.records.values import Micros
from holdfast.ports.zones import ZoneTable
from holdfast.testing.simulation.fibers import START
from holdfast.testing.simulation.schedule_zones import ZoneRelease

SECOND: Final = 1_000_000
_MINUTE: Final = 60
_DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_BEGIN: Final = START // SECOND - 4 * _DAY
_END: Final = START // SECOND + 40 * _DAY
"""The minutes that are walked through, in seconds since the epoch."""


def offset_at(table: ZoneTable, second: int) -> int:
    """Return the UTC offset at an instant, in seconds."""
    return table.offsets[bisect_right(table.transitions, second)]


class WalkedTimes:
    """The nominal times of one timing by one release of zone data. They are computed as far as they are needed."""

    def __init__(self, timing: str, release: ZoneRelease) -> None:
        self.release = release
        documents: Any = parse(timing)
        self.zones: frozenset[str] = frozenset(one["zone"] for one in documents if one["kind"] == "cron")
        self._tests = [_test_of(one, release) for one in documents]
        self._found: list[Micros] = []
        self._walked_until = _BEGIN

    def between(self, after: Micros, until: Micros) -> list[Micros]:
        """Return the nominal times after an instant and up to another one, in order."""
        self._walk_until(until // SECOND + 1)
        found = self._found
        return found[bisect_right(found, after) : bisect_right(found, until)]

    def first_after(self, after: Micros) -> Micros | None:
        """Return the first nominal time after an instant; None without one within weeks."""
        self._walk_until(after // SECOND + 1)
        while True:
            index = bisect_right(self._found, after)
            if index < len(self._found):
                return self._found[index]
            if self._walked_until >= _END:
                return None
            self._walk_until(self._walked_until + _DAY)

    def _walk_until(self, second: int) -> None:
        for minute in range(self._walked_until, min(second, _END), _MINUTE):
            if any(test(minute) for test in self._tests):
                self._found.append(minute * SECOND)
            self._walked_until = minute + _MINUTE


@attrs.frozen
class _Cron:
    """One expression in a zone, with the sets that its text names."""

    minutes: Collection[int]
    hours: Collection[int]
    month_days: Collection[int]
    weekdays: Collection[int]
    table: ZoneTable
    is_shifted: bool
    fold: str
    jumps: Sequence[tuple[int, int, int]]
    """The clock changes forward: when, the offset before, and by how much."""

    def fires(self, minute: int) -> bool:
        """Whether an instant is a nominal time."""
        local = minute + offset_at(self.table, minute)
        if self._matches(local):
            passes = self._passes(local)
            if self.fold == "both" or minute == (passes[0] if self.fold == "first" else passes[-1]):
                return True
        if not self.is_shifted:
            return False
        return any(
            at <= minute < at + by and self._matches(minute + before) and not self._passes(minute + before)
            for at, before, by in self.jumps
        )

    def _matches(self, local: int) -> bool:
        if local // _MINUTE % 60 not in self.minutes or local // 3_600 % 24 not in self.hours:
            return False
        day = local // _DAY
        return (day + 4) % 7 in self.weekdays and date.fromordinal(day + _EPOCH).day in self.month_days

    def _passes(self, local: int) -> list[int]:
        """Return the instants at which the zone's clock shows a local time."""
        offsets = set(self.table.offsets)
        return sorted(local - one for one in offsets if offset_at(self.table, local - one) == one)


def _test_of(document: Mapping[str, Any], release: ZoneRelease) -> Callable[[int], bool]:
    """Return the function that tests whether a minute is a nominal time."""
    start = 0 if document["start"] is None else document["start"]
    end = _END * SECOND if document["end"] is None else document["end"]
    if document["kind"] == "every":
        length, anchor = document["length"], document["anchor"]
        return lambda minute: (minute * SECOND - anchor) % length == 0 and start <= minute * SECOND < end
    crons = [_cron_of(text, document, release) for text in document["text"]]
    return lambda minute: start <= minute * SECOND < end and any(one.fires(minute) for one in crons)


def _cron_of(text: str, document: Mapping[str, Any], release: ZoneRelease) -> _Cron:
    minute, hour, month_day, month, weekday = text.split()
    assert month == "*"
    assert not document["except_on"]
    hours = _numbers(hour, 0, 23)
    table = release.table(document["zone"])
    offsets = table.offsets
    return _Cron(
        minutes=_numbers(minute, 0, 59),
        hours=hours,
        month_days=_numbers(month_day, 1, 31),
        weekdays=_numbers(weekday, 0, 6),
        table=table,
        is_shifted=document["gap"] == "shift",
        fold=document["fold"] or ("both" if len(hours) == 24 else "first"),
        jumps=[
            (at, before, after - before)
            for at, before, after in zip(table.transitions, offsets, offsets[1:], strict=False)
            if after > before
        ],
    )


def _numbers(text: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = (f"{least}-{most}" if span == "*" else span).partition("-")
        found.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return frozenset(found)
