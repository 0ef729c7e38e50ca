"""Cron expressions: from text to sets, and from sets to the local times that match.

The text is read once, when a `Cron` is made. All else uses the sets, which are also what is stored: a later release
that reads a text differently does not move the times of a stored schedule.
"""

import re
from bisect import bisect_left, bisect_right
from datetime import date
from functools import lru_cache
from typing import Final, Literal, TypeAlias

import attrs

from holdfast.kernel.calendars.zone_periods import DAY, EPOCH, is_leap
from holdfast.ports.errors import DefinitionError
from holdfast.ports.validation import shown

Match: TypeAlias = Literal["either", "both"]
Fold: TypeAlias = Literal["first", "last", "both"]

TEXT_MAX: Final = 1_000
"""How many characters an expression may have."""
YEARS_SEARCHED: Final = 50
"""A pattern that does not match for so many years never fires. No day of a calendar is further from the next."""
LAST: Final = -1
"""The ordinal of the last weekday of a month, as in `FRIL`."""

_LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_NUMBER: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


@attrs.frozen(cache_hash=True)
class Days:
    """The days of a pattern: a set of days of the month, a set of weekdays, and how they combine."""

    month_days: tuple[int, ...]
    """1 to 31."""
    last_day: bool
    """Whether the last day of each month is in the set of days of the month: `L`."""
    last_workday: bool
    """Whether the last day from Monday to Friday of each month is in it: `LW`."""
    weekdays: tuple[int, ...]
    """0 to 6, from Sunday."""
    nth_weekdays: tuple[tuple[int, int], ...]
    """Weekdays of which only one in a month is in the set, with its ordinal, 1 to 5 or LAST: `FRI#2`, `FRIL`."""
    match: Match
    """Whether a day must be in one of the sets or in both. A field that allows every day is a set of all: `both`."""


@attrs.frozen
class Pattern:
    """The local times that one cron expression matches, and which pass of a repeated time fires.

    Sets are in ascending order.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    days: Days
    fold: Fold
    times: tuple[int, ...] = attrs.field(
        init=False,
        eq=False,
        repr=False,
        default=attrs.Factory(
            lambda self: tuple(hour * 3_600 + minute * 60 for hour in self.hours for minute in self.minutes),
            takes_self=True,
        ),
    )
    """The times of a day that match, in seconds after midnight."""


def next_local(pattern: Pattern, least: int, limit: int) -> int | None:
    """Return the first matching local time from `least` on and before `limit`, None without one.

    Local times are counted in seconds, as if the zone were UTC.
    """
    if least >= limit:
        return None
    day, second = divmod(least, DAY)
    index = bisect_left(pattern.times, second)
    is_over = index == len(pattern.times)
    found = _next_day(pattern, day + is_over, (limit - 1) // DAY)
    if found is None:
        return None
    local = found * DAY + pattern.times[index if found == day else 0]
    return local if local < limit else None


def last_local(pattern: Pattern, least: int, limit: int) -> int | None:
    """Return the last matching local time before `limit` and not before `least`, None without one."""
    if least >= limit:
        return None
    day, second = divmod(limit - 1, DAY)
    index = bisect_right(pattern.times, second) - 1
    found = _last_day(pattern, day - (index < 0), least // DAY)
    if found is None:
        return None
    local = found * DAY + pattern.times[index if found == day else -1]
    return local if local >= least else None


def _next_day(pattern: Pattern, day: int, last: int) -> int | None:
    """Return the first matching day from `day` to `last`; days are counted from the epoch."""
    if day > last:
        return None
    start = date.fromordinal(day + EPOCH)
    year, month = start.year, start.month
    first, left = day - start.day, -1 << start.day  # the day before the month, and the days that count
    while first < last:
        length = _month_length(year, month)
        if month in pattern.months:
            mask = _days_of_month(pattern.days, length, _weekday(first + 1)) & left
            if mask:
                found = first + (mask & -mask).bit_length() - 1
                return found if found <= last else None
        first, left = first + length, -1
        year, month = (year + 1, 1) if month == 12 else (year, month + 1)
    return None


def _last_day(pattern: Pattern, day: int, first_allowed: int) -> int | None:
    """Return the last matching day up to `day` and not before `first_allowed`."""
    if day < first_allowed:
        return None
    end = date.fromordinal(day + EPOCH)
    year, month = end.year, end.month
    first, left = day - end.day, (2 << end.day) - 1
    while True:
        if month in pattern.months:
            mask = _days_of_month(pattern.days, _month_length(year, month), _weekday(first + 1)) & left
            if mask:
                found = first + mask.bit_length() - 1
                return found if found >= first_allowed else None
        if first < first_allowed:
            return None
        year, month = (year - 1, 12) if month == 1 else (year, month - 1)
        first, left = first - _month_length(year, month), -1


@lru_cache(maxsize=8_192)
def _days_of_month(days: Days, length: int, first: int) -> int:
    """Return the matching days of a month as bits 1 to 31. `first` is the weekday of its first day, from Sunday."""
    weekdays = {day: (first + day - 1) % 7 for day in range(1, length + 1)}
    by_day = set(days.month_days)
    if days.last_day:
        by_day.add(length)
    if days.last_workday:
        by_day.add(max(day for day, weekday in weekdays.items() if 1 <= weekday <= 5))
    by_weekday = {
        day
        for day, weekday in weekdays.items()
        if weekday in days.weekdays
        or (weekday, (day + 6) // 7) in days.nth_weekdays
        or (day + 7 > length and (weekday, LAST) in days.nth_weekdays)
    }
    matching = by_day | by_weekday if days.match == "either" else by_day & by_weekday
    return sum(1 << day for day in matching if day <= length)


def _month_length(year: int, month: int) -> int:
    return 29 if month == 2 and is_leap(year) else _LENGTHS[month]


def _weekday(day: int) -> int:
    """Return the weekday of a day, from Sunday. The epoch was a Thursday."""
    return (day + 4) % 7


# From text to sets. ---------------------------------------------------------------------------------------------


@attrs.frozen
class _Field:
    """What a field of an expression may hold."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()
    """Names of its values, from `base` on."""
    base: int = 0

    @property
    def bounds(self) -> str:
        names = f", or {self.names[0]} to {self.names[-1]}" if self.names else ""
        return f"{self.least} to {self.most}{names}"


_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_MONTH_DAY: Final = _Field("day of month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, _MONTHS, 1)
_WEEKDAY: Final = _Field("day of week", 0, 7, _WEEKDAYS)


def parse_pattern(text: object, days: Match | None, fold: Fold | None) -> Pattern:
    """Return the pattern of a cron expression.

    Args:
        text: The expression: five fields, or a name such as `@daily`.
        days: How two restricted day fields combine. None for `either`, if no program reads it as `both`.
        fold: Which pass of a repeated time fires. None for both passes if every hour of the day is in the set, else the
            first.

    Raises:
        DefinitionError: The expression can't be read, or never matches. The message says what to write instead.
    """
    if not isinstance(text, str):
        raise DefinitionError(
            f"Cron: {shown(text)} is not an expression; write a string such as '30 2 * * *'"
        )
    if len(text) > TEXT_MAX:
        raise DefinitionError(
            f"Cron: an expression has {len(text):,} characters, and at most {TEXT_MAX:,} are allowed; use several"
            " expressions in a list"
        )
    return _Expression(text).pattern(days, fold)


class _Expression:
    """One cron expression, for the errors about it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def pattern(self, match: Match | None, fold: Fold | None) -> Pattern:
        """Return the sets."""
        minute, hour, month_day, month, weekday = self._fields()
        hours = self._numbers(_HOUR, hour)
        days = self._days(month_day, weekday, match)
        every_hour = len(hours) == 24
        pattern = Pattern(
            minutes=self._numbers(_MINUTE, minute),
            hours=hours,
            months=self._numbers(_MONTH, month),
            days=days,
            fold=fold or ("both" if every_hour else "first"),
        )
        first, last = (date(year, 1, 1).toordinal() - EPOCH for year in (2000, 2000 + YEARS_SEARCHED))
        if _next_day(pattern, first, last) is None:
            raise self._wrong("never fires: no such day comes within 50 years", "correct its day or month")
        return pattern

    def _fields(self) -> list[str]:
        text = self._text.strip()
        if text.startswith("@"):
            text = self._macro(text.lower())
        if re.match(r"(CRON_)?TZ=", text):
            raise self._wrong("begins with a time zone", "pass it as zone=")
        fields = text.upper().split()
        if len(fields) == 5:
            return fields
        if len(fields) in {6, 7}:
            raise self._wrong(
                f"has {len(fields)} fields, and there are five: minute, hour, day of month, month, day of week",
                f"leave out the seconds and the year, as in {self._without_seconds(fields)!r}; for seconds, use"
                " Every(timedelta(seconds=30))",
            )
        raise self._wrong(
            f"has {len(fields)} {'field' if len(fields) == 1 else 'fields'}, and there are five: minute, hour, day of"
            " month, month, day of week",
            "write all of them, as in '30 2 * * *'",
        )

    def _macro(self, name: str) -> str:
        if name in _MACROS:
            return _MACROS[name]
        if name.startswith("@every"):
            raise self._wrong("is not cron", "use Every(timedelta(hours=6))")
        if name == "@reboot":
            raise self._wrong(
                "has no time: nothing is fired when a process starts",
                "start a run in your program, or name a time",
            )
        raise self._wrong("is not known", f"write one of {', '.join(_MACROS)}")

    @staticmethod
    def _without_seconds(fields: list[str]) -> str:
        # Quartz has the seconds first, croniter has them last.
        seconds_first = len(fields) == 7 or fields[0] in {"0", "*"} or fields[0].startswith("*/")
        return " ".join(fields[1:6] if seconds_first else fields[:5]).lower()

    def _days(self, month_day: str, weekday: str, match: Match | None) -> Days:
        last_day = last_workday = False
        plain: list[str] = []
        for part in self._parts(_MONTH_DAY, month_day):
            last_day = last_day or part == "L"
            last_workday = last_workday or part == "LW"
            if part not in {"L", "LW"}:
                plain.append(part)
        month_days = self._numbers(_MONTH_DAY, ",".join(plain)) if plain else ()
        nth: set[tuple[int, int]] = set()
        plain = []
        for part in self._parts(_WEEKDAY, weekday):
            if (one := self._nth(part)) is None:
                plain.append(part)
            else:
                nth.add(one)
        weekdays = self._numbers(_WEEKDAY, ",".join(plain)) if plain else ()
        both_given = not any({"*", "?"} & set(one.split(",")) for one in (month_day, weekday))
        is_full = len(month_days) == 31, len(weekdays) == 7
        if both_given and match is None and not all(is_full):
            self._check_days(month_day, weekday, is_full)
        return Days(
            month_days=month_days,
            last_day=last_day,
            last_workday=last_workday,
            weekdays=weekdays,
            nth_weekdays=tuple(sorted(nth)),
            match=match or "either" if both_given and not all(is_full) else "both",
        )

    def _check_days(self, month_day: str, weekday: str, is_full: tuple[bool, bool]) -> None:
        """Refuse two day fields whose combination programs, or people, read differently."""
        both = "has a day of month and a day of week"
        if stepped := next((one for one in (month_day, weekday) if one.startswith("*/")), None):
            raise self._wrong(
                f"{both}, and {stepped!r} is read as either or as both by different programs",
                "add days='either', for days that are in one of them, or days='both'",
            )
        for text, allows_all in zip((month_day, weekday), is_full, strict=True):
            if allows_all:
                raise self._wrong(
                    f"{both}, and {text!r} allows every day",
                    "write * instead of it, or add days='either' to fire every day",
                )

    def _nth(self, part: str) -> tuple[int, int] | None:
        """Return the weekday and ordinal of `FRI#2` or `FRIL`, None for anything else."""
        name, hash_, ordinal = part.partition("#")
        if hash_:
            if ordinal not in {"1", "2", "3", "4", "5"}:
                raise self._wrong(
                    f"{_WEEKDAY.name} {part!r} has no ordinal from 1 to 5",
                    "write FRI#2 for the second Friday",
                )
            return self._number(_WEEKDAY, name, part) % 7, int(ordinal)
        if part == "L":
            raise self._wrong(
                f"{_WEEKDAY.name} 'L' names no weekday", "write SAT, or FRIL for the last Friday"
            )
        if part.endswith("L"):
            return self._number(_WEEKDAY, part[:-1], part) % 7, LAST
        return None

    def _numbers(self, field: _Field, text: str) -> tuple[int, ...]:
        """Return the set of a field without `L` and `#`."""
        numbers = {one for part in self._parts(field, text) for one in self._range(field, part)}
        if field is _WEEKDAY:
            numbers = {one % 7 for one in numbers}
        return tuple(sorted(numbers))

    def _parts(self, field: _Field, text: str) -> list[str]:
        parts = text.split(",")
        if "" in parts:
            raise self._wrong(f"{field.name} {text!r} has an empty part", "remove the extra comma")
        return parts

    def _range(self, field: _Field, part: str) -> range:
        span, slash, step_text = part.partition("/")
        first_text, dash, last_text = span.partition("-")
        if span in {"*", "?"}:
            # Sunday is 0 and 7: with a step, only the days from 0 to 6 count.
            first, last = field.least, field.most - (field is _WEEKDAY)
        else:
            first = self._number(field, first_text, part)
            last = self._number(field, last_text, part) if dash else first
            if field is _WEEKDAY and dash and last == 0 < first:
                last = 7
            if slash and not dash:
                raise self._wrong(
                    f"{field.name} {part!r} has a step without a range",
                    f"write {first_text}-{field.most - (field is _WEEKDAY)}/{step_text}",
                )
        if first > last:
            first_part = f"{first_text}-{field.most - (field is _WEEKDAY)}"
            raise self._wrong(
                f"{field.name} {part!r} runs backwards",
                f"write {first_part},{field.least}-{last_text}"
                if not slash
                else "list its values, separated by commas",
            )
        if not slash:
            return range(first, last + 1)
        return range(first, last + 1, self._step(field, part, step_text))

    def _step(self, field: _Field, part: str, text: str) -> int:
        most = field.most - field.least + (field is not _WEEKDAY)  # how many values it has: Sunday has two
        step = int(text) if _NUMBER.fullmatch(text) else 0
        if 1 <= step <= most:
            return step
        advice = f"write a step from 1 to {most}"
        if step > most and field in {_MINUTE, _HOUR}:
            advice += f", or Every(timedelta({field.name}s={step})) for a length of time"
        raise self._wrong(f"{field.name} {part!r} has no possible step", advice)

    def _number(self, field: _Field, text: str, part: str) -> int:
        if text in field.names:
            return field.base + field.names.index(text)
        if _NUMBER.fullmatch(text):
            if field.least <= int(text) <= field.most:
                return int(text)
            raise self._wrong(f"{field.name} {part!r} is out of range", f"write {field.bounds}")
        if text == "H" or text.startswith("H("):
            raise self._wrong(
                f"{field.name} {part!r} leaves the choice to a program", f"write a number, {field.bounds}"
            )
        if field is _MONTH_DAY and text.endswith("W"):
            raise self._wrong(
                f"{field.name} {part!r} is not supported", "of workdays, only LW can be written"
            )
        if field is _MONTH_DAY and text == "L":
            raise self._wrong(
                f"{field.name} {part!r} is not supported", "write L alone for the last day, or a list of days"
            )
        advice = f"write {field.bounds}"
        if text[:3] in field.names:
            advice = f"write {text[:3]}"
        raise self._wrong(f"{field.name} {part!r} can't be read", advice)

    def _wrong(self, problem: str, advice: str) -> DefinitionError:
        return DefinitionError(f"Cron: {shown(self._text)} {problem}; {advice}")
