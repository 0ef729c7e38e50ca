"""Properties of the calendar, for any expression, zone and instant."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.kernel.calendars.documents import spec_from_document, spec_to_document
from holdfast.kernel.calendars.occurrences import count_occurrences, last_until, next_after, occurrences
from holdfast.kernel.calendars.patterns import LAST, Fold, Match
from holdfast.kernel.calendars.specs import Cron, Every, Gap, Spec
from holdfast.kernel.calendars.zone_periods import period_at
from holdfast.ports.clock import instant, micros
from holdfast.ports.errors import DefinitionError
from holdfast.ports.json import canonical, parse
from holdfast.ports.records.values import Micros
from tests.calendars import TZDATA, ZONES, at

ZONE_NAMES: Final = (
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "Antarctica/Troll",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Dublin",
    "Europe/Paris",
    "Pacific/Apia",
    "Pacific/Chatham",
)
GAPS: Final[tuple[Gap, ...]] = ("shift", "skip")
FOLDS: Final[tuple[Fold | None, ...]] = (None, "first", "last", "both")
MATCHES: Final[tuple[Match, ...]] = ("either", "both")
MINUTE: Final = 60_000_000
DAY: Final = 1_440 * MINUTE


@st.composite
def fields(draw: st.DrawFn, least: int, most: int) -> str:
    """Return the text of a field: `*`, a step, or a list of numbers and ranges."""
    kind = draw(st.sampled_from(("*", "*", "step", "list", "list")))
    if kind == "step":
        return f"*/{draw(st.integers(1, min(most - least, 12)))}"
    if kind == "*":
        return kind
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(least, most))
        last = draw(st.integers(first, most))
        parts.append(str(first) if draw(st.booleans()) else f"{first}-{last}")
    return ",".join(parts)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return an expression, often of times between 0 and 4, when clocks are changed."""
    hours = draw(st.one_of(fields(0, 4), fields(0, 23)))
    month_days = draw(st.one_of(st.just("*"), fields(1, 31), st.sampled_from(("L", "LW", "15,L"))))
    weekdays = draw(st.one_of(st.just("*"), fields(0, 7), st.sampled_from(("FRI#2", "SUNL", "MON#5,SAT"))))
    months = draw(st.one_of(st.just("*"), fields(1, 12)))
    return f"{draw(fields(0, 59))} {hours} {month_days} {months} {weekdays}"


INSTANTS: Final = st.datetimes(datetime(2005, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@st.composite
def crons(draw: st.DrawFn, gap: Gap | None = None, fold: Fold | None = None) -> Cron:
    """Return a Cron, sometimes with bounds and excluded dates."""
    start = draw(st.one_of(st.none(), st.none(), INSTANTS))
    end = draw(st.one_of(st.none(), st.none(), INSTANTS))
    assume(start is None or end is None or start < end)
    excluded = draw(st.lists(st.dates(date(2005, 1, 1), date(2060, 1, 1)), max_size=3))
    try:
        return Cron(
            draw(st.lists(texts(), min_size=1, max_size=2)),
            zone=draw(st.sampled_from(ZONE_NAMES)),
            gap=draw(st.sampled_from(GAPS)) if gap is None else gap,
            fold=draw(st.sampled_from(FOLDS)) if fold is None else fold,
            days=draw(st.sampled_from(MATCHES)),
            except_on=excluded,
            start=start,
            end=end,
        )
    except DefinitionError as error:
        assert "never fires" in str(error)  # noqa: PT017  # a 31st of February is drawn, too
        assume(False)
        raise


@st.composite
def intervals(draw: st.DrawFn) -> Every:
    """Return an interval from seconds to a year."""
    return Every(draw(st.timedeltas(timedelta(seconds=1), timedelta(days=366))), anchor=draw(INSTANTS))


@st.composite
def moments(draw: st.DrawFn, zone: str) -> Micros:
    """Return an instant, often one around a change of the clocks."""
    moment = micros(draw(INSTANTS))
    period = period_at(TZDATA.table(zone), moment // 1_000_000)
    if draw(st.booleans()) and abs(period.begin) < 10**11:
        return period.begin * 1_000_000 + draw(st.integers(-DAY, DAY))
    return moment


SPECS: Final = st.one_of(crons(), crons(), intervals())


def zone_of(specs: Sequence[Spec]) -> str:
    return next((one.zone for one in specs if isinstance(one, Cron)), "UTC")


@pytest.mark.slow
@given(st.data(), st.lists(SPECS, min_size=1, max_size=3))
def test_next_and_last_agree(data: st.DataObject, specs: list[Spec]) -> None:
    """The next is later, there is none in between, and it is the last until itself and until the one after it."""
    after = data.draw(moments(zone_of(specs)))
    one = next_after(specs, ZONES, after)
    if one is None:
        assert last_until(specs, ZONES, after + 365 * DAY, since=after) is None
        return

    assert one.at > after
    assert last_until(specs, ZONES, one.at, since=after) == one
    assert last_until(specs, ZONES, one.at - 1, since=after) is None
    between = data.draw(st.integers(after, one.at - 1))
    assert next_after(specs, ZONES, between) == one
    other = next_after(specs, ZONES, one.at)
    if other is not None:
        assert last_until(specs, ZONES, other.at - 1, since=after) == one


@pytest.mark.slow
@given(st.data(), st.lists(SPECS, min_size=2, max_size=3))
def test_the_occurrences_of_several_specs_are_the_union_of_theirs(
    data: st.DataObject, specs: list[Spec]
) -> None:
    after = data.draw(moments(zone_of(specs)))
    until = after + 3 * DAY

    together = occurrences(specs, ZONES, after=after, until=until, limit=300)
    apart = {
        one.at for spec in specs for one in occurrences([spec], ZONES, after=after, until=until, limit=300)
    }

    assert [one.at for one in together] == sorted(apart)[:300]
    for limit in (0, 1, len(together)):
        assert count_occurrences(specs, ZONES, after=after, until=until, most=limit) == limit or limit > len(
            apart
        )


@given(st.data(), intervals())
def test_an_interval_is_counted_as_it_is_walked(data: st.DataObject, every: Every) -> None:
    after = data.draw(moments("UTC"))
    until = after + data.draw(st.integers(0, 100)) * (every.length // timedelta(microseconds=1))

    walked = occurrences([every], {}, after=after, until=until, limit=1_000)

    assert count_occurrences([every], {}, after=after, until=until, most=1_000) == len(walked)


def matches(cron: Cron, local: datetime) -> bool:
    """Return whether a local time matches, field by field."""
    following = local + timedelta(days=1)
    weekday = local.isoweekday() % 7
    for pattern in cron.patterns:
        days = pattern.days
        last_workday = following.month != local.month if weekday in range(1, 6) else False
        if weekday == 5 and (local + timedelta(days=3)).month != local.month:
            last_workday = True
        by_day = (
            local.day in days.month_days
            or (days.last_day and following.day == 1)
            or (days.last_workday and last_workday)
        )
        by_weekday = (
            weekday in days.weekdays
            or (weekday, (local.day - 1) // 7 + 1) in days.nth_weekdays
            or ((weekday, LAST) in days.nth_weekdays and (local + timedelta(days=7)).month != local.month)
        )
        is_day = by_day or by_weekday if days.match == "either" else by_day and by_weekday
        if (
            local.minute in pattern.minutes
            and local.hour in pattern.hours
            and local.month in pattern.months
            and is_day
            and local.date() not in cron.except_on
        ):
            return True
    return False


@pytest.mark.slow
@given(st.data(), crons(gap="skip", fold="both"))
def test_without_shifts_the_occurrences_are_the_instants_whose_local_time_matches(
    data: st.DataObject, cron: Cron
) -> None:
    """Minute by minute, with the local time of `zoneinfo`."""
    begin = data.draw(moments(cron.zone)) // MINUTE * MINUTE
    end = begin + DAY
    with files("tzdata").joinpath("zoneinfo", *cron.zone.split("/")).open("rb") as file:
        zone = ZoneInfo.from_file(file)

    found = occurrences([cron], ZONES, after=begin, until=end, limit=10_000)

    minutes = [instant(one) for one in range(begin + MINUTE, end + 1, MINUTE)]
    assert [instant(one.at) for one in found] == [
        one
        for one in minutes
        if (cron.start is None or cron.start <= one)
        and (cron.end is None or one < cron.end)
        and matches(cron, one.astimezone(zone).replace(tzinfo=None))
    ]


@pytest.mark.slow
@given(st.data(), crons(gap="shift"))
def test_a_shifted_time_is_later_by_the_gap_and_no_day_is_lost(data: st.DataObject, cron: Cron) -> None:
    """Skipping leaves out exactly what is shifted; the local time that is named does not exist."""
    after = data.draw(moments(cron.zone))
    found = occurrences([cron], ZONES, after=after, until=after + 2 * DAY, limit=10_000)

    for one in found:
        period = period_at(TZDATA.table(cron.zone), one.at // 1_000_000)
        assert one.offset == period.offset
        if one.shift:
            assert one.shift == period.offset - period.before
            assert 0 <= one.at // 1_000_000 - period.begin < one.shift
            assert matches(cron, instant(one.at + (one.offset - one.shift) * 1_000_000).replace(tzinfo=None))
        else:
            assert matches(cron, instant(one.at + one.offset * 1_000_000).replace(tzinfo=None))


@pytest.mark.slow
@given(SPECS)
def test_a_stored_spec_is_the_same(spec: Spec) -> None:
    text = canonical(spec_to_document(spec))

    again = spec_from_document(parse(text))

    assert again == spec
    assert canonical(spec_to_document(again)) == text
    assert next_after([again], ZONES, at("2026-11-26T00:00Z")) == next_after(
        [spec], ZONES, at("2026-11-26T00:00Z")
    )
