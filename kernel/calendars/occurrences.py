"""When specs fire: the next instant, the last one, and those in between.

All functions take several specs, whose instants are united: one instant is one occurrence. `zones` has the tables of
`zones_of(specs)`; a missing one is a KeyError.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import attrs

from holdfast.kernel.calendars.patterns import YEARS_SEARCHED, Pattern, last_local, next_local
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.kernel.calendars.zone_periods import DAY, EPOCH, Period, period_at
from holdfast.ports.clock import micros
from holdfast.ports.errors import DefinitionError
from holdfast.ports.records.values import Micros
from holdfast.ports.zones import UTC_TABLE, ZoneTable

SECOND: Final = 1_000_000
_SEARCHED: Final = (YEARS_SEARCHED * 366) * DAY
_EARLIEST: Final = micros(datetime(1900, 1, 1, tzinfo=UTC))
_LATEST: Final = micros(datetime(9990, 1, 1, tzinfo=UTC))


class ClockChange(StrEnum):
    """What a change of the clocks means for an occurrence."""

    REGULAR = "regular"
    """Its local time comes once on that day."""
    SHIFTED = "shifted"
    """Its local time does not exist on that day: it is later by the length of the gap."""
    FIRST_OF_TWO = "first_of_two"
    """Its local time comes twice, and this is the first time."""
    SECOND_OF_TWO = "second_of_two"
    """Its local time comes twice, and this is the second time."""


@attrs.frozen
class Occurrence:
    """An instant at which specs fire, and how it is explained."""

    at: Micros
    zone: str
    """The zone of the spec that fires; `UTC` for an interval. Of several specs, the first one."""
    offset: int = 0
    """The zone's offset from UTC at that instant, in seconds."""
    change: ClockChange = ClockChange.REGULAR
    shift: int = 0
    """By how many seconds it is later than the local time that the spec names."""


def zones_of(specs: Sequence[Spec]) -> frozenset[str]:
    """Return the names of the zones whose tables the specs need. UTC needs none."""
    return frozenset(spec.zone for spec in specs if isinstance(spec, Cron)) - {UTC_TABLE.name}


def next_after(specs: Sequence[Spec], zones: Mapping[str, ZoneTable], after: Micros) -> Occurrence | None:
    """Return the first occurrence later than an instant.

    None if the specs have ended, or do not fire for 50 years, as with times that a clock change skips each year.
    """
    found = _first(_next_of(source, after) for source in _sources(specs, zones))
    assert found is None or found.at > after, f"{found} is not after {after}"
    return found


def required_next(specs: Sequence[Spec], zones: Mapping[str, ZoneTable], after: Micros) -> Occurrence:
    """Return the first occurrence later than an instant. DefinitionError if the specs never fire after it."""
    found = next_after(specs, zones, after)
    if found is None:
        when = datetime.fromtimestamp(after // SECOND, UTC).isoformat().replace("+00:00", "Z")
        raise DefinitionError(
            f"these times never fire after {when}: they have ended, are all excluded, or are skipped by each clock"
            " change; correct end=, except_on= or gap="
        )
    return found


def last_until(
    specs: Sequence[Spec], zones: Mapping[str, ZoneTable], until: Micros, *, since: Micros
) -> Occurrence | None:
    """Return the last occurrence later than `since` and not later than `until`, None without one.

    It takes as long as the next one: what lies in between is not visited.
    """
    found: Occurrence | None = None
    for source in _sources(specs, zones):
        one = _last_of(source, since if found is None else max(since, found.at - 1), until)
        if one is not None and (found is None or one.at > found.at or _order(one) < _order(found)):
            found = one
    assert found is None or since < found.at <= until, f"{found} is not in ({since}, {until}]"
    return found


def occurrences(
    specs: Sequence[Spec], zones: Mapping[str, ZoneTable], *, after: Micros, until: Micros, limit: int
) -> list[Occurrence]:
    """Return the first `limit` occurrences later than `after` and not later than `until`, in order."""
    return [one for _, one in zip(range(limit), _walk(specs, zones, after, until), strict=False)]


def count_occurrences(
    specs: Sequence[Spec], zones: Mapping[str, ZoneTable], *, after: Micros, until: Micros, most: int
) -> int:
    """Return how many occurrences are later than `after` and not later than `until`, at most `most`.

    One interval is counted at once; anything else is walked through, in microseconds for each occurrence.
    """
    match specs:
        case [Every() as every]:
            first, last = _next_of_every(every, after), _last_of_every(every, after, until)
            if first is None or last is None:
                return 0
            return min((last.at - first.at) // _length(every) + 1, most)
        case _:
            return sum(1 for _ in zip(range(most), _walk(specs, zones, after, until), strict=False))


# One source: an interval, or one pattern of a Cron. -------------------------------------------------------------


@attrs.frozen
class _Source:
    """One pattern of a Cron, with its zone and bounds in seconds."""

    cron: Cron
    pattern: Pattern
    table: ZoneTable
    start: int
    """The first second in which it may fire."""
    end: int
    """The first second in which it may not fire any more."""


def _sources(specs: Sequence[Spec], zones: Mapping[str, ZoneTable]) -> Iterator[_Source | Every]:
    for spec in specs:
        if isinstance(spec, Every):
            yield spec
            continue
        table = UTC_TABLE if spec.zone == UTC_TABLE.name else zones[spec.zone]
        start = _EARLIEST if spec.start is None else micros(spec.start)
        end = _LATEST if spec.end is None else micros(spec.end)
        for pattern in spec.patterns:
            yield _Source(spec, pattern, table, -(-start // SECOND), -(-end // SECOND))


def _walk(
    specs: Sequence[Spec], zones: Mapping[str, ZoneTable], after: Micros, until: Micros
) -> Iterator[Occurrence]:
    """Yield the occurrences in order. Of each source, the next one is kept until it is yielded."""
    waiting = [(source, _next_of(source, after)) for source in _sources(specs, zones)]
    while (found := _first(one for _, one in waiting)) is not None and found.at <= until:
        assert found.at > after, f"{found} is not after {after}"
        yield found
        after = found.at
        waiting = [
            (source, _next_of(source, after) if one is not None and one.at == after else one)
            for source, one in waiting
        ]


def _first(found: Iterable[Occurrence | None]) -> Occurrence | None:
    return min((one for one in found if one is not None), key=_order, default=None)


def _order(one: Occurrence) -> tuple[int, bool]:
    """Return the rank of an occurrence. Where a shifted time meets a regular one, the regular one explains it."""
    return one.at, one.change is ClockChange.SHIFTED


def _next_of(source: _Source | Every, after: Micros) -> Occurrence | None:
    if isinstance(source, Every):
        return _next_of_every(source, after)
    low = max(after // SECOND + 1, source.start)
    searched = low
    if source.cron.except_on:
        searched = max(low, (source.cron.except_on[-1].toordinal() - EPOCH) * DAY)
    high = min(source.end, searched + _SEARCHED)
    while low < high:
        period = period_at(source.table, low)
        found = _in_period(source, period, low, min(high, period.end), forward=True)
        if found is not None:
            return found
        low = period.end
    return None


def _last_of(source: _Source | Every, since: Micros, until: Micros) -> Occurrence | None:
    if isinstance(source, Every):
        return _last_of_every(source, since, until)
    low = max(since // SECOND + 1, source.start)
    high = min(until // SECOND + 1, source.end)
    while low < high:
        period = period_at(source.table, high - 1)
        found = _in_period(source, period, max(low, period.begin), high, forward=False)
        if found is not None:
            return found
        high = period.begin
    return None


def _in_period(source: _Source, period: Period, low: int, high: int, *, forward: bool) -> Occurrence | None:
    """Return the first or the last occurrence from `low` on and before `high`, which are in the period."""
    begin, end, before, offset, after = period
    fold = source.pattern.fold
    # Local times of the period: without those that come twice, if the other pass is the one that fires.
    least = begin + (max(before, offset) if fold == "first" else offset)
    limit = end + (min(offset, after) if fold == "last" else offset)
    found: Occurrence | None = None
    local = _match(source, max(least, low + offset), min(limit, high + offset), 0, forward=forward)
    if local is not None:
        change = ClockChange.REGULAR
        if local < begin + before:
            change = ClockChange.SECOND_OF_TWO
        elif local >= end + after:
            change = ClockChange.FIRST_OF_TWO
        found = Occurrence((local - offset) * SECOND, source.cron.zone, offset, change)
    gap = offset - before
    if gap > 0 and low < begin + gap and source.cron.gap == "shift":
        # Local times that the clock skipped when the period began.
        local = _match(source, low + before, min(begin + offset, high + before), gap, forward=forward)
        if local is not None:
            at = (local - before) * SECOND
            if found is None or (at < found.at if forward else at > found.at):
                found = Occurrence(at, source.cron.zone, offset, ClockChange.SHIFTED, gap)
    return found


def _match(source: _Source, least: int, limit: int, shift: int, *, forward: bool) -> int | None:
    """Return the first or the last match from `least` on and before `limit` that is not excluded.

    A time that is shifted to another day is excluded with either day.
    """
    excluded = source.cron.excluded
    find = next_local if forward else last_local
    while (local := find(source.pattern, least, limit)) is not None and excluded:
        day = local // DAY
        if day + EPOCH in excluded:
            least, limit = ((day + 1) * DAY, limit) if forward else (least, day * DAY)
        elif (local + shift) // DAY + EPOCH in excluded:
            least, limit = (local + 1, limit) if forward else (least, local)
        else:
            break
    return local


# Intervals. -----------------------------------------------------------------------------------------------------


def _length(every: Every) -> Micros:
    return every.length // timedelta(microseconds=1)


def _next_of_every(every: Every, after: Micros) -> Occurrence | None:
    low = max(after + 1, _EARLIEST if every.start is None else micros(every.start))
    anchor, length = micros(every.anchor), _length(every)
    at = anchor - (anchor - low) // length * length
    end = _LATEST if every.end is None else micros(every.end)
    return Occurrence(at, UTC_TABLE.name) if at < end else None


def _last_of_every(every: Every, since: Micros, until: Micros) -> Occurrence | None:
    high = min(until, (_LATEST if every.end is None else micros(every.end)) - 1)
    anchor, length = micros(every.anchor), _length(every)
    at = anchor + (high - anchor) // length * length
    low = max(since + 1, _EARLIEST if every.start is None else micros(every.start))
    return Occurrence(at, UTC_TABLE.name) if at >= low else None
