"""The periods of a time zone: the stretches of time in which its UTC offset stays the same."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.ports.zones import WeekdayOfMonth, YearlyDate, YearlyRule, ZoneTable

DAY: Final = 86_400
EPOCH: Final = date(1970, 1, 1).toordinal()
"""The ordinal of the first day that is counted, as `datetime.date` counts days."""
FOREVER: Final = 2**62
"""The second at which periods without an end end. Those without a beginning begin at minus this."""


class Period(NamedTuple):
    """A stretch of time with one offset. Instants are seconds since the epoch; offsets are seconds east of UTC."""

    begin: int
    end: int
    """The first second after it."""
    before: int
    """The offset before `begin`."""
    offset: int
    after: int
    """The offset from `end` on."""


def period_at(table: ZoneTable, second: int) -> Period:
    """Return the period that an instant is in. The instant is in the years 4 to 9997."""
    transitions, offsets = table.transitions, table.offsets
    index = bisect_right(transitions, second)
    if index == len(transitions) and table.rule is not None:
        return _period_by_rule(table, table.rule, second)
    begin, before = (transitions[index - 1], offsets[index - 1]) if index else (-FOREVER, offsets[0])
    end, after = (
        (transitions[index], offsets[index + 1]) if index < len(transitions) else (FOREVER, offsets[-1])
    )
    return Period(begin, end, before, offsets[index], after)


def _period_by_rule(table: ZoneTable, rule: YearlyRule, second: int) -> Period:
    """Return the period of an instant that is not before the last transition."""
    begin = listed = table.transitions[-1] if table.transitions else -FOREVER
    offset = table.offsets[-1]
    before = table.offsets[-2] if table.transitions else offset
    for at, new in _changes_around(rule, date.fromordinal(second // DAY + EPOCH).year):
        if at <= listed or new == offset:
            continue
        if at > second:
            return Period(begin, at, before, offset, new)
        begin, before, offset = at, offset, new
    return Period(begin, FOREVER, before, offset, offset)


@lru_cache(maxsize=1_024)
def _changes_around(rule: YearlyRule, year: int) -> tuple[tuple[int, int], ...]:
    """Return the changes of two years before a year, of the year, and of the next, each with its new offset.

    After the first of them the offset is known, whatever it was before.
    """
    return tuple(sorted(change for one in range(year - 2, year + 2) for change in _changes_of(rule, one)))


def _changes_of(rule: YearlyRule, year: int) -> Iterator[tuple[int, int]]:
    yield _local_second(rule.begin, year) - rule.standard, rule.daylight
    yield _local_second(rule.end, year) - rule.daylight, rule.standard


def _local_second(when: YearlyDate, year: int) -> int:
    if isinstance(when, WeekdayOfMonth):
        first = date(year, when.month, 1)
        ordinal = first.toordinal() + (when.weekday - first.isoweekday()) % 7 + 7 * (when.week - 1)
        if when.week == 5 and date.fromordinal(ordinal).month != when.month:
            ordinal -= 7
    else:
        ordinal = date(year, 1, 1).toordinal() + when.day
        if not when.counts_leap_day and when.day >= 59 and is_leap(year):
            ordinal += 1
    return (ordinal - EPOCH) * DAY + when.time


def is_leap(year: int) -> bool:
    """Whether a year has a February 29."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
