"""The time zones of the package `tzdata`, never those of the operating system.

So all processes that have installed the same version of the package work out the same instants. Files are in the format
TZif (RFC 9636), of which the 64-bit part and the rule at the end are read.
"""

import re
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from holdfast.ports.errors import UnknownZoneError
from holdfast.ports.zones import UTC_TABLE, DayOfYear, WeekdayOfMonth, YearlyDate, YearlyRule, ZoneTable

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_HEADER: Final = struct.Struct(">4sc15x6l")
"""Magic number, version, and the numbers of: UT flags, standard flags, leap seconds, transitions, types, characters."""
_DESIGNATION: Final = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)"
_OFFSET: Final = r"(?P<{}>[+-]?\d{{1,3}}(?::\d{{2}}){{0,2}})"
_DATE: Final = (
    r"(?P<{0}>(?:M\d{{1,2}}\.\d\.\d|J?\d{{1,3}}))(?:/(?P<{0}_time>[+-]?\d{{1,3}}(?::\d{{2}}){{0,2}}))?"
)
_FOOTER: Final = re.compile(
    rf"{_DESIGNATION}{_OFFSET.format('standard')}"
    rf"(?:{_DESIGNATION}(?:{_OFFSET.format('daylight')})?,{_DATE.format('begin')},{_DATE.format('end')})?",
    re.ASCII,
)
_TIME_OF_CHANGE: Final = 7_200
"""Changes are at two o'clock, unless the rule has another time."""


class TzdataZones:
    """The tables of the package `tzdata`. Each is read once.

    Without the package, all zones but UTC raise a ModuleNotFoundError that says what to install.
    """

    def __init__(self) -> None:
        self._tables: dict[str, ZoneTable] = {}

    @property
    def version(self) -> str:
        """The release of the database, such as `2026f`."""
        return self._version

    @cached_property
    def _version(self) -> str:
        first = self._folder.joinpath("zoneinfo", "tzdata.zi").read_text(encoding="utf-8").partition("\n")[0]
        return first.removeprefix("# version ")

    def table(self, name: str) -> ZoneTable:
        """Return the table of a zone. UnknownZoneError."""
        if name == UTC_TABLE.name:
            return UTC_TABLE
        found = self._tables.get(name)
        if found is None:
            version = self.version
            if name not in self._names:
                raise UnknownZoneError(name, version, _advice(name, self._names))
            data = self._folder.joinpath("zoneinfo", *name.split("/")).read_bytes()
            found = self._tables[name] = read_table(name, version, data)
        return found

    @cached_property
    def _folder(self) -> "Traversable":
        from importlib.resources import files  # as slow to import as all that is imported above

        try:
            return files("tzdata")
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                'time zones other than UTC need tzdata: pip install "holdfast[schedules]"', name=error.name
            ) from None

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self._folder.joinpath("zones").read_text(encoding="utf-8").split())


def _advice(name: str, names: frozenset[str]) -> str:
    """Return what to write instead of a name: the same in other letters, a zone of this city, or similar names."""
    from difflib import get_close_matches

    folded = {one.casefold(): one for one in sorted(names)}
    cities = {one.rpartition("/")[2]: one for one in folded}
    wanted = name.casefold().replace(" ", "_")
    if found := folded.get(wanted) or folded.get(cities.get(wanted, "")):
        return f"; did you mean {found!r}?"
    if close := get_close_matches(wanted, folded, n=3, cutoff=0.8):
        return f"; did you mean {' or '.join(repr(folded[one]) for one in close)}?"
    return "; names are those of the IANA database, such as 'Europe/Paris'"


def read_table(name: str, version: str, data: bytes) -> ZoneTable:
    """Return the table in a TZif file. ValueError if the file has another format."""
    magic, format_version, *counts = _HEADER.unpack_from(data)
    if magic != b"TZif" or format_version < b"2":
        raise ValueError(f"the file of {name} is not in the format TZif of version 2 or later")
    # The first part has 32-bit times, and is skipped.
    start = _HEADER.size + _size(counts, time_size=4)
    _, _, *counts = _HEADER.unpack_from(data, start)
    at = start + _HEADER.size
    _, _, leap_seconds, transitions, types, _ = counts
    if leap_seconds:
        raise ValueError(f"the file of {name} counts leap seconds")
    times: Sequence[int] = struct.unpack_from(f">{transitions}q", data, at)
    at += 8 * transitions
    indices = data[at : at + transitions]
    at += transitions
    offsets: list[int] = [struct.unpack_from(">l", data, at + 6 * one)[0] for one in range(types)]
    footer = data[start + _HEADER.size + _size(counts, time_size=8) :].strip().decode("ascii")
    return _table(name, version, times, [offsets[0], *(offsets[one] for one in indices)], footer)


def _size(counts: Sequence[int], *, time_size: int) -> int:
    ut, standard, leap_seconds, transitions, types, characters = counts
    return (
        transitions * (time_size + 1)
        + types * 6
        + characters
        + leap_seconds * (time_size + 4)
        + standard
        + ut
    )


def _table(name: str, version: str, times: Sequence[int], offsets: Sequence[int], footer: str) -> ZoneTable:
    """Return a table without the transitions that do not change the offset."""
    rule = parse_rule(footer)
    kept: list[int] = []
    kept_offsets = [offsets[0]]
    for time, offset in zip(times, offsets[1:], strict=True):
        # The last one is kept in any case if a rule follows: the rule holds from then on.
        if offset != kept_offsets[-1] or (rule is not None and time == times[-1]):
            kept.append(time)
            kept_offsets.append(offset)
    return ZoneTable(name, version, tuple(kept), tuple(kept_offsets), rule)


def parse_rule(footer: str) -> YearlyRule | None:
    """Return the rule of a POSIX string, such as `CET-1CEST,M3.5.0,M10.5.0/3`; None if it has one offset all year.

    ValueError if it can't be read.
    """
    if not footer:
        return None
    found = _FOOTER.fullmatch(footer)
    if found is None:
        raise ValueError(f"the rule {footer!r} of a time zone can't be read")
    if found["begin"] is None:
        return None
    standard = -_seconds(found["standard"])  # POSIX counts to the west
    daylight = standard + 3_600 if found["daylight"] is None else -_seconds(found["daylight"])
    begin, end = _date(found["begin"], found["begin_time"]), _date(found["end"], found["end_time"])
    is_all_year = (
        isinstance(begin, DayOfYear)
        and (begin.day, begin.time) == (0, 0)
        and end == DayOfYear(364, counts_leap_day=False, time=86_400 + daylight - standard)
    )
    return None if is_all_year else YearlyRule(standard, daylight, begin, end)


def _date(text: str, time: str | None) -> YearlyDate:
    seconds = _TIME_OF_CHANGE if time is None else _seconds(time)
    if text.startswith("M"):
        month, week, weekday = map(int, text[1:].split("."))
        return WeekdayOfMonth(month, week, weekday, seconds)
    if text.startswith("J"):
        return DayOfYear(int(text[1:]) - 1, counts_leap_day=False, time=seconds)
    return DayOfYear(int(text), counts_leap_day=True, time=seconds)


def _seconds(text: str) -> int:
    hours, *smaller = text.lstrip("+-").split(":")
    total = int(hours) * 3_600 + sum(int(one) * unit for one, unit in zip(smaller, (60, 1), strict=False))
    return -total if text.startswith("-") else total
