"""Next, last and counted occurrences: bounds, exclusions, unions, intervals, and how each is explained."""

from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest

from holdfast.kernel.calendars.occurrences import (
    ClockChange,
    Occurrence,
    count_occurrences,
    last_until,
    next_after,
    occurrences,
    required_next,
    zones_of,
)
from holdfast.kernel.calendars.specs import Cron, Every, Spec
from holdfast.ports.clock import instant
from holdfast.ports.errors import DefinitionError
from tests.calendars import ZONES, at, shown

FAR: Final = at("9000-01-01T00:00Z")
PARIS: Final = "Europe/Paris"


def following(*specs: Spec, after: str, count: int) -> list[str]:
    return [shown(one.at) for one in occurrences(specs, ZONES, after=at(after), until=FAR, limit=count)]


def time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_after_is_exclusive_and_until_inclusive() -> None:
    cron = [Cron("0 0 * * *")]
    midnight = at("2026-11-26T00:00Z")

    assert next_after(cron, {}, midnight - 1) == Occurrence(midnight, "UTC")
    assert next_after(cron, {}, midnight) == Occurrence(at("2026-11-27T00:00Z"), "UTC")
    assert last_until(cron, {}, midnight, since=0) == Occurrence(midnight, "UTC")
    assert last_until(cron, {}, midnight - 1, since=0) == Occurrence(at("2026-11-25T00:00Z"), "UTC")
    assert last_until(cron, {}, midnight, since=midnight) is None
    assert last_until(cron, {}, midnight, since=midnight - 1) is not None
    assert last_until(cron, {}, midnight, since=midnight + 1) is None


@pytest.mark.parametrize(
    "spec",
    [
        Cron("0 0 * * *", start=time("2026-11-02T00:00Z"), end=time("2026-11-04T00:00Z")),
        Every(timedelta(days=1), start=time("2026-11-02T00:00Z"), end=time("2026-11-04T00:00Z")),
        Cron("0 0 * * *", start=time("2026-11-01T00:00:00.000001Z"), end=time("2026-11-03T00:00:00.000001Z")),
    ],
)
def test_start_is_inclusive_and_end_exclusive(spec: Spec) -> None:
    both = ["2026-11-02T00:00Z", "2026-11-03T00:00Z"]

    assert following(spec, after="2026-01-01T00:00Z", count=9) == both
    assert next_after([spec], {}, at(both[1])) is None
    last = last_until([spec], {}, FAR, since=0)
    assert last is not None
    assert shown(last.at) == both[1]
    assert last_until([spec], {}, at("2026-11-01T12:00Z"), since=0) is None


def test_specs_that_follow_each_other_fire_once_at_the_border() -> None:
    border = time("2026-11-02T00:00Z")

    found = following(
        Cron("0 0 * * *", end=border), Cron("0 0,12 * * *", start=border), after="2026-10-31T12:00Z", count=3
    )

    assert found == ["2026-11-01T00:00Z", "2026-11-02T00:00Z", "2026-11-02T12:00Z"]


def test_nothing_fires_on_excluded_dates() -> None:
    cron = Cron("0 0,12 * * *", zone="Asia/Tokyo", except_on=[date(2026, 12, 25), date(2026, 12, 26)])

    assert following(cron, after="2026-12-24T00:00Z", count=3) == [
        "2026-12-24T03:00Z",
        "2026-12-26T15:00Z",
        "2026-12-27T03:00Z",
    ]
    last = last_until([cron], ZONES, at("2026-12-26T14:59Z"), since=0)
    assert last is not None
    assert shown(last.at) == "2026-12-24T03:00Z"


@pytest.mark.parametrize("excluded", [date(2026, 3, 28), date(2026, 3, 29)])
def test_a_time_that_is_shifted_over_midnight_is_excluded_with_either_day(excluded: date) -> None:
    """In Nuuk, 23:30 on Saturday does not exist: it is 00:30 on Sunday."""
    cron = Cron("30 23 * * 6", zone="America/Nuuk", except_on=[excluded])

    assert following(cron, after="2026-03-27T00:00Z", count=1) == ["2026-04-05T00:30Z"]
    last = last_until([cron], ZONES, at("2026-04-01T00:00Z"), since=0)
    assert last is not None
    assert shown(last.at) == "2026-03-22T01:30Z"


def test_a_thousand_excluded_dates_are_passed_over() -> None:
    days = [date(2026, 11, 1) + timedelta(days=one) for one in range(1_000)]

    assert following(Cron("* * * * *", except_on=days), after="2026-11-01T00:00Z", count=1) == [
        "2029-07-28T00:00Z"
    ]


def test_an_excluded_leap_day_does_not_end_the_search() -> None:
    days = [date(year, 2, 29) for year in range(1972, 2080, 4)]

    assert following(Cron("0 0 29 2 *", except_on=days), after="1970-01-01T00:00Z", count=1) == [
        "2080-02-29T00:00Z"
    ]


def test_several_specs_are_united_and_one_instant_is_one_occurrence() -> None:
    specs = (
        Cron(["0 6 * * *", "0 8 * * *"], zone=PARIS),
        Cron("0 7 * * *", zone="UTC"),
        Every(timedelta(hours=7), anchor=time("2026-11-26T00:00Z")),
    )

    assert following(*specs, after="2026-11-25T22:00Z", count=5) == [
        "2026-11-26T00:00Z",
        "2026-11-26T05:00Z",
        "2026-11-26T07:00Z",
        "2026-11-26T14:00Z",
        "2026-11-26T21:00Z",
    ]


def test_of_several_specs_at_one_instant_the_first_one_explains_it() -> None:
    specs: list[Spec] = [Cron("0 8 * * *", zone=PARIS), Cron("0 7 * * *"), Every(3_600)]
    seven = at("2026-11-26T07:00Z")

    for found in (next_after(specs, ZONES, seven - 1), last_until(specs, ZONES, seven, since=0)):
        assert found is not None
        assert (found.at, found.zone, found.offset) == (seven, PARIS, 3_600)


def test_an_interval_counts_from_its_anchor_in_both_directions() -> None:
    every = Every(timedelta(hours=5), anchor=time("2026-11-26T01:30Z"))

    assert following(every, after="2026-11-25T14:00Z", count=4) == [
        "2026-11-25T15:30Z",
        "2026-11-25T20:30Z",
        "2026-11-26T01:30Z",
        "2026-11-26T06:30Z",
    ]
    last = last_until([every], {}, at("2026-11-26T01:29Z"), since=0)
    assert last is not None
    assert shown(last.at) == "2026-11-25T20:30Z"


def test_an_interval_may_be_a_fraction_of_seconds_long() -> None:
    every = Every(timedelta(seconds=1, microseconds=1))

    found = occurrences([every], {}, after=0, until=FAR, limit=2)

    assert [one.at for one in found] == [1_000_001, 2_000_002]


def test_how_occurrences_are_explained() -> None:
    spring = occurrences(
        [Cron("30 2 * * *", zone=PARIS)], ZONES, after=at("2026-03-28T00:00Z"), until=FAR, limit=2
    )
    autumn = occurrences(
        [Cron("30 2 * * *", zone=PARIS, fold="both")],
        ZONES,
        after=at("2026-10-24T12:00Z"),
        until=FAR,
        limit=3,
    )

    assert [(one.change, one.shift, one.offset) for one in spring] == [
        (ClockChange.REGULAR, 0, 3_600),
        (ClockChange.SHIFTED, 3_600, 7_200),
    ]
    assert [(one.change, one.offset) for one in autumn] == [
        (ClockChange.FIRST_OF_TWO, 7_200),
        (ClockChange.SECOND_OF_TWO, 3_600),
        (ClockChange.REGULAR, 3_600),
    ]


def test_a_shifted_time_that_meets_a_regular_one_is_regular() -> None:
    """Of one expression, of two, and of two specs."""
    for specs in (
        [Cron("0 2,3 29 3 *", zone=PARIS)],
        [Cron(["0 2 29 3 *", "0 3 29 3 *"], zone=PARIS)],
        [Cron("0 2 29 3 *", zone=PARIS), Cron("0 3 29 3 *", zone=PARIS)],
    ):
        one = at("2026-03-29T01:00Z")
        for found in (next_after(specs, ZONES, one - 1), last_until(specs, ZONES, one, since=0)):
            assert found is not None
            assert (found.at, found.change) == (one, ClockChange.REGULAR)


def test_times_that_each_clock_change_skips_never_fire() -> None:
    """In Paris, 02:30 on the last Sunday of March never exists."""
    cron = Cron("30 2 * 3 SUNL", zone=PARIS, gap="skip", start=time("2026-01-01T00:00Z"))

    assert next_after([cron], ZONES, at("2026-01-01T00:00Z")) is None
    with pytest.raises(
        DefinitionError, match="these times never fire after 2026-01-01T00:00:00Z: they have ended"
    ):
        required_next([cron], ZONES, at("2026-01-01T00:00Z"))
    assert required_next([cron, Every(60)], ZONES, at("2026-01-01T00:00Z")).at == at("2026-01-01T00:01Z")


def test_occurrences_are_bounded() -> None:
    every = [Cron("* * * * *")]
    day = {"after": at("2026-11-26T00:00Z"), "until": at("2026-11-27T00:00Z")}

    assert len(occurrences(every, {}, **day, limit=5)) == 5
    assert len(occurrences(every, {}, **day, limit=5_000)) == 1_440
    assert count_occurrences(every, {}, **day, most=5) == 5
    assert count_occurrences(every, {}, **day, most=5_000) == 1_440
    assert count_occurrences([Cron("0 0 1 1 *")], {}, **day, most=5) == 0


def test_intervals_are_counted_at_once() -> None:
    """Two weeks of every five seconds, and a thousand years."""
    every = [Every(5)]

    weeks = count_occurrences(
        every, {}, after=at("2026-11-01T00:00Z"), until=at("2026-11-15T00:00Z"), most=10**9
    )
    years = count_occurrences(every, {}, after=0, until=at("2970-01-01T00:00Z"), most=10**12)

    assert weeks == 241_920
    assert years == (at("2970-01-01T00:00Z") // 1_000_000) // 5
    assert count_occurrences(every, {}, after=0, until=1, most=9) == 0
    assert count_occurrences(every, {}, after=0, until=FAR, most=9) == 9


@pytest.mark.parametrize("zone", ["UTC", PARIS, "America/Santiago", "Africa/Casablanca"])
def test_there_is_no_horizon(zone: str) -> None:
    """The rule after the last transition holds for ever; nothing is before 1900 or after 9989."""
    cron = [Cron("0 12 * 7 *", zone=zone)]

    found = next_after(cron, ZONES, at("8888-01-01T00:00Z"))

    assert found is not None
    assert instant(found.at).year == 8888
    assert next_after(cron, ZONES, at("9989-12-31T00:00Z")) is None
    assert next_after([Every(60)], {}, at("9989-12-31T23:59Z")) is None
    first = next_after(cron, ZONES, -(10**18))
    assert first is not None
    assert instant(first.at).year == 1900
    assert last_until(cron, ZONES, at("1900-01-02T00:00Z"), since=-(10**18)) is None


def test_the_zones_of_specs() -> None:
    specs: list[Spec] = [
        Cron("0 0 * * *"),
        Cron("0 0 * * *", zone=PARIS),
        Cron("0 1 * * *", zone=PARIS),
        Every(60),
    ]

    assert zones_of(specs) == {PARIS}
    assert zones_of([]) == frozenset()
    assert next_after([], {}, 0) is None
    assert last_until([], {}, 0, since=-1) is None


def test_a_time_of_day_is_not_that_of_the_anchor() -> None:
    """An interval of 24 hours and a daily cron part at a clock change."""
    start = datetime(2026, 3, 28, 1, 30, tzinfo=UTC)
    cron, every = Cron("30 2 * * *", zone=PARIS), Every(timedelta(days=1), anchor=start)

    assert following(cron, after="2026-03-29T12:00Z", count=1) == ["2026-03-30T00:30Z"]
    assert following(every, after="2026-03-29T12:00Z", count=1) == ["2026-03-30T01:30Z"]
