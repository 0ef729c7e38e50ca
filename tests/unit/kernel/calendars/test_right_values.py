"""The right instants around changes of the clocks, month ends and leap days, worked out apart from the evaluator.

They are the same by `zoneinfo`, which has its own rules for gaps and folds, and by tzdata 2025b and 2026f.
"""

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from holdfast.kernel.calendars.occurrences import last_until, next_after, occurrences
from holdfast.kernel.calendars.patterns import Fold
from holdfast.kernel.calendars.specs import Cron, Every, Gap
from holdfast.ports.zones import WeekdayOfMonth, YearlyRule, ZoneTable
from tests.calendars import ZONES, at, local, shown

FAR = at("9000-01-01T00:00Z")


@attrs.frozen
class Row:
    """A case: the instants that follow another one, and their local times."""

    number: int
    zone: str
    text: str
    after: str
    instants: str
    local: str
    shows: str
    gap: Gap = attrs.field(default="shift", kw_only=True)
    fold: Fold | None = attrs.field(default=None, kw_only=True)
    both_passes: bool = attrs.field(default=False, kw_only=True)
    """Whether both passes of a repeated time fire by default."""

    @property
    def cron(self) -> Cron:
        return Cron(self.text, zone=self.zone, gap=self.gap, fold=self.fold)


ROWS = (
    Row(
        1,
        "Europe/Paris",
        "30 2 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:30Z 2026-03-30T00:30Z",
        "03:30+0200 02:30+0200",
        "gap 02-03: shifted by the gap",
    ),
    Row(
        2,
        "Europe/Paris",
        "30 2 * * *",
        "2026-03-28T12:00Z",
        "2026-03-30T00:30Z 2026-03-31T00:30Z",
        "02:30+0200 02:30+0200",
        "gap skipped",
        gap="skip",
    ),
    Row(
        3,
        "Europe/Paris",
        "0 2 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:00Z 2026-03-30T00:00Z",
        "03:00+0200 02:00+0200",
        "first minute of the gap",
    ),
    Row(
        4,
        "Europe/Paris",
        "0 3 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:00Z 2026-03-30T01:00Z",
        "03:00+0200 03:00+0200",
        "first minute after the gap",
    ),
    Row(
        5,
        "Europe/Paris",
        "0 2,3 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:00Z 2026-03-30T00:00Z 2026-03-30T01:00Z",
        "03:00+0200 02:00+0200 03:00+0200",
        "shifted one and real one coincide: one firing",
    ),
    Row(
        6,
        "Europe/Paris",
        "*/15 2 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:00Z 2026-03-29T01:15Z 2026-03-29T01:30Z 2026-03-29T01:45Z 2026-03-30T00:00Z",
        "03:00+0200 03:15+0200 03:30+0200 03:45+0200 02:00+0200",
        "a whole hour of firings in the gap",
    ),
    Row(
        7,
        "Europe/Paris",
        "0 * * * *",
        "2026-03-28T23:30Z",
        "2026-03-29T00:00Z 2026-03-29T01:00Z 2026-03-29T02:00Z 2026-03-29T03:00Z",
        "01:00+0100 03:00+0200 04:00+0200 05:00+0200",
        "hourly goes by real time",
        both_passes=True,
    ),
    Row(
        8,
        "Europe/Paris",
        "30 2 * * *",
        "2026-10-24T12:00Z",
        "2026-10-25T00:30Z 2026-10-26T01:30Z",
        "02:30+0200 02:30+0100",
        "fold: the first pass",
    ),
    Row(
        9,
        "Europe/Paris",
        "30 2 * * *",
        "2026-10-24T12:00Z",
        "2026-10-25T01:30Z 2026-10-26T01:30Z",
        "02:30+0100 02:30+0100",
        "fold: the last pass",
        fold="last",
    ),
    Row(
        10,
        "Europe/Paris",
        "30 2 * * *",
        "2026-10-24T12:00Z",
        "2026-10-25T00:30Z 2026-10-25T01:30Z 2026-10-26T01:30Z",
        "02:30+0200 02:30+0100 02:30+0100",
        "fold: both",
        fold="both",
    ),
    Row(
        11,
        "Europe/Paris",
        "0 * * * *",
        "2026-10-24T23:30Z",
        "2026-10-25T00:00Z 2026-10-25T01:00Z 2026-10-25T02:00Z 2026-10-25T03:00Z",
        "02:00+0200 02:00+0100 03:00+0100 04:00+0100",
        "hourly: both passes, by default",
        both_passes=True,
    ),
    Row(
        12,
        "Europe/Paris",
        "*/15 2 * * *",
        "2026-10-24T12:00Z",
        "2026-10-25T00:00Z 2026-10-25T00:15Z 2026-10-25T00:30Z 2026-10-25T00:45Z 2026-10-26T01:00Z",
        "02:00+0200 02:15+0200 02:30+0200 02:45+0200 02:00+0100",
        "not every hour: first pass only",
    ),
    Row(
        13,
        "Europe/Paris",
        "0 */2 * * *",
        "2026-10-24T21:30Z",
        "2026-10-24T22:00Z 2026-10-25T00:00Z 2026-10-25T03:00Z 2026-10-25T05:00Z",
        "00:00+0200 02:00+0200 04:00+0100 06:00+0100",
        "every second hour: 02:00 once",
    ),
    Row(
        14,
        "America/New_York",
        "30 2 * * *",
        "2026-03-07T12:00Z",
        "2026-03-08T07:30Z 2026-03-09T06:30Z",
        "03:30-0400 02:30-0400",
        "gap in New York",
    ),
    Row(
        15,
        "America/New_York",
        "30 1 * * *",
        "2026-10-31T12:00Z",
        "2026-11-01T05:30Z 2026-11-02T06:30Z",
        "01:30-0400 01:30-0500",
        "fold in New York",
    ),
    Row(
        16,
        "America/New_York",
        "0 0 * * *",
        "2026-03-07T12:00Z",
        "2026-03-08T05:00Z 2026-03-09T04:00Z 2026-03-10T04:00Z",
        "00:00-0500 00:00-0400 00:00-0400",
        "daily: a day of 23 hours",
    ),
    Row(
        17,
        "America/New_York",
        "0 0 * * *",
        "2026-10-31T12:00Z",
        "2026-11-01T04:00Z 2026-11-02T05:00Z 2026-11-03T05:00Z",
        "00:00-0400 00:00-0500 00:00-0500",
        "daily: a day of 25 hours",
    ),
    Row(
        18,
        "Europe/London",
        "30 1 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T01:30Z 2026-03-30T00:30Z",
        "02:30+0100 01:30+0100",
        "gap at 01:00",
    ),
    Row(
        19,
        "Europe/Dublin",
        "30 1 * * *",
        "2026-10-24T12:00Z",
        "2026-10-25T00:30Z 2026-10-26T01:30Z",
        "01:30+0100 01:30+0000",
        "negative DST in tzdata",
    ),
    Row(
        20,
        "Australia/Lord_Howe",
        "15 2 * * *",
        "2026-10-03T00:00Z",
        "2026-10-03T15:45Z 2026-10-04T15:15Z",
        "02:45+1100 02:15+1100",
        "gap of 30 minutes",
    ),
    Row(
        21,
        "Australia/Lord_Howe",
        "45 1 * * *",
        "2026-04-04T00:00Z",
        "2026-04-04T14:45Z 2026-04-05T15:15Z",
        "01:45+1100 01:45+1030",
        "fold of 30 minutes",
    ),
    Row(
        22,
        "Australia/Lord_Howe",
        "*/15 * * * *",
        "2026-04-04T14:40Z",
        "2026-04-04T14:45Z 2026-04-04T15:00Z 2026-04-04T15:15Z 2026-04-04T15:30Z 2026-04-04T15:45Z 2026-04-04T16:00Z",
        "01:45+1100 01:30+1030 01:45+1030 02:00+1030 02:15+1030 02:30+1030",
        "every quarter through a fold of 30 minutes",
        both_passes=True,
    ),
    Row(
        23,
        "America/Santiago",
        "0 0 * * 0",
        "2022-08-28T12:00Z",
        "2022-09-04T04:00Z 2022-09-11T04:00Z 2022-09-18T03:00Z",
        "00:00-0400 01:00-0300 00:00-0300",
        "midnight that does not exist",
    ),
    Row(
        24,
        "Africa/Cairo",
        "0 0 * * *",
        "2026-04-23T00:00Z",
        "2026-04-23T22:00Z 2026-04-24T21:00Z 2026-04-25T21:00Z",
        "01:00+0300 00:00+0300 00:00+0300",
        "midnight gap, Friday",
    ),
    Row(
        25,
        "America/Nuuk",
        "30 23 * * 6",
        "2026-03-27T00:00Z",
        "2026-03-29T01:30Z 2026-04-05T00:30Z",
        "00:30-0100 23:30-0100",
        "gap before midnight: shifted into Sunday",
    ),
    Row(
        26,
        "Pacific/Chatham",
        "0 3 * * *",
        "2026-04-03T18:00Z",
        "2026-04-04T13:15Z 2026-04-05T14:15Z 2026-04-06T14:15Z",
        "03:00+1345 03:00+1245 03:00+1245",
        "fold at +12:45",
    ),
    Row(
        27,
        "Antarctica/Troll",
        "30 2 * * *",
        "2026-03-28T12:00Z",
        "2026-03-29T02:30Z 2026-03-30T00:30Z",
        "04:30+0200 02:30+0200",
        "gap of two hours",
    ),
    Row(
        28,
        "Africa/Casablanca",
        "30 2 * * *",
        "2026-02-14T12:00Z",
        "2026-02-15T01:30Z 2026-02-16T02:30Z",
        "02:30+0100 02:30+0000",
        "Ramadan: fold in February",
    ),
    Row(
        29,
        "Africa/Casablanca",
        "30 2 * * *",
        "2026-03-21T12:00Z",
        "2026-03-22T02:30Z 2026-03-23T01:30Z",
        "03:30+0100 02:30+0100",
        "Ramadan: gap in March",
    ),
    Row(
        30,
        "Pacific/Apia",
        "0 9 * * *",
        "2011-12-29T12:00Z",
        "2011-12-29T19:00Z 2011-12-30T19:00Z 2011-12-31T19:00Z",
        "09:00-1000 09:00+1400 09:00+1400",
        "a day that does not exist",
    ),
    Row(
        31,
        "America/Sao_Paulo",
        "0 0 * * *",
        "2018-11-03T12:00Z",
        "2018-11-04T03:00Z 2018-11-05T02:00Z",
        "01:00-0200 00:00-0200",
        "midnight gap, zone since without DST",
    ),
    Row(
        32,
        "Asia/Kolkata",
        "0 0 * * *",
        "2026-06-01T12:00Z",
        "2026-06-01T18:30Z 2026-06-02T18:30Z",
        "00:00+0530 00:00+0530",
        "+05:30",
    ),
    Row(
        33,
        "Asia/Kathmandu",
        "0 0 * * *",
        "2026-06-01T12:00Z",
        "2026-06-01T18:15Z 2026-06-02T18:15Z",
        "00:00+0545 00:00+0545",
        "+05:45",
    ),
    Row(
        34,
        "UTC",
        "0 12 29 2 *",
        "2026-01-01T00:00Z",
        "2028-02-29T12:00Z 2032-02-29T12:00Z",
        "12:00+0000 12:00+0000",
        "leap day",
    ),
    Row(
        35,
        "UTC",
        "0 12 29 2 *",
        "2096-03-01T00:00Z",
        "2104-02-29T12:00Z",
        "12:00+0000",
        "2100 is no leap year",
    ),
    Row(
        36,
        "UTC",
        "0 0 31 * *",
        "2026-01-31T12:00Z",
        "2026-03-31T00:00Z 2026-05-31T00:00Z 2026-07-31T00:00Z",
        "00:00+0000 00:00+0000 00:00+0000",
        "the 31st: months without are skipped",
    ),
    Row(
        37,
        "UTC",
        "0 0 L * *",
        "2026-01-31T12:00Z",
        "2026-02-28T00:00Z 2026-03-31T00:00Z 2026-04-30T00:00Z",
        "00:00+0000 00:00+0000 00:00+0000",
        "last day of the month",
    ),
    Row(
        38,
        "UTC",
        "0 0 LW * *",
        "2026-01-31T12:00Z",
        "2026-02-27T00:00Z 2026-03-31T00:00Z 2026-04-30T00:00Z",
        "00:00+0000 00:00+0000 00:00+0000",
        "last weekday of the month",
    ),
    Row(
        39,
        "UTC",
        "0 9 * * MON#5",
        "2026-01-01T00:00Z",
        "2026-03-30T09:00Z 2026-06-29T09:00Z 2026-08-31T09:00Z",
        "09:00+0000 09:00+0000 09:00+0000",
        "fifth Monday",
    ),
    Row(
        40,
        "UTC",
        "0 0 13 * FRI",
        "2026-02-01T00:00Z",
        "2026-02-06T00:00Z 2026-02-13T00:00Z 2026-02-20T00:00Z 2026-02-27T00:00Z",
        "00:00+0000 00:00+0000 00:00+0000 00:00+0000",
        "day and weekday both restricted: either",
    ),
    Row(41, "Europe/Paris", "0 0 1 1 *", "2026-06-01T00:00Z", "2026-12-31T23:00Z", "00:00+0100", "new year"),
)
BY_NUMBER = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.number}: {row.shows}")


@BY_NUMBER
def test_the_next_ones(row: Row) -> None:
    expected = row.instants.split()

    found = occurrences([row.cron], ZONES, after=at(row.after), until=FAR, limit=len(expected))

    assert [shown(one.at) for one in found] == expected
    assert [local(one) for one in found] == row.local.split()


@BY_NUMBER
def test_the_last_until_then(row: Row) -> None:
    """From each instant, and a moment before it, back to the one before."""
    instants = [at(one) for one in row.instants.split()]
    for previous, one in zip([None, *instants], instants, strict=False):
        until_then = last_until([row.cron], ZONES, one, since=at(row.after))
        before = last_until([row.cron], ZONES, one - 1, since=at(row.after))
        assert until_then is not None
        assert until_then.at == one
        assert (None if before is None else before.at) == previous


@BY_NUMBER
def test_the_default_for_a_repeated_time(row: Row) -> None:
    if row.fold is None:
        (pattern,) = row.cron.patterns
        assert pattern.fold == ("both" if row.both_passes else "first")


def test_an_interval_is_elapsed_time() -> None:
    """Row 42. After the change it is an hour later by the clock, for good."""
    every = Every(timedelta(hours=24), anchor=datetime(2026, 3, 28, 1, 30, tzinfo=UTC))

    found = occurrences([every], {}, after=at("2026-03-28T12:00Z"), until=FAR, limit=2)

    assert [shown(one.at) for one in found] == ["2026-03-29T01:30Z", "2026-03-30T01:30Z"]


PACIFIC = YearlyRule(-28_800, -25_200, WeekdayOfMonth(3, 2, 0, 7_200), WeekdayOfMonth(11, 1, 0, 7_200))
CUBA = YearlyRule(-18_000, -14_400, WeekdayOfMonth(3, 2, 0, 0), WeekdayOfMonth(11, 1, 0, 3_600))


def table(name: str, version: str, changes: dict[str, int], first: int, rule: YearlyRule | None) -> ZoneTable:
    return ZoneTable(
        name,
        version,
        tuple(at(one) // 1_000_000 for one in changes),
        (first * 3_600, *(hours * 3_600 for hours in changes.values())),
        rule,
    )


@pytest.mark.parametrize(
    ("text", "after", "older", "old", "newer", "new"),
    [
        (
            "30 2 * * *",
            "2026-11-01T12:00Z",
            table("America/Vancouver", "2025b", {}, -8, PACIFIC),
            "2026-11-02T10:30Z",
            table("America/Vancouver", "2026f", {"2026-03-08T10:00Z": -7}, -8, None),
            "2026-11-02T09:30Z",
        ),
        (
            "0 9 * * *",
            "2026-11-25T10:00Z",
            table("Africa/Casablanca", "2025b", {"2026-02-15T02:00Z": 0, "2026-03-22T02:00Z": 1}, 1, None),
            "2026-11-26T08:00Z",
            table(
                "Africa/Casablanca",
                "2026f",
                {"2026-02-15T02:00Z": 0, "2026-03-22T02:00Z": 1, "2026-09-20T01:00Z": 0},
                1,
                None,
            ),
            "2026-11-26T09:00Z",
        ),
        (
            "0 8 * * *",
            "2026-11-25T14:00Z",
            table("America/Havana", "2025b", {}, -5, CUBA),
            "2026-11-26T13:00Z",
            table("America/Havana", "2026f", {"2026-03-08T05:00Z": -4, "2027-11-07T05:00Z": -5}, -5, CUBA),
            "2026-11-26T12:00Z",
        ),
    ],
    ids=["43: earlier", "44: later", "45: earlier"],
)
def test_a_new_release_of_tzdata_moves_the_next(
    text: str, after: str, older: ZoneTable, old: str, newer: ZoneTable, new: str
) -> None:
    cron = Cron(text, zone=older.name)

    for one, expected in ((older, old), (newer, new)):
        found = next_after([cron], {one.name: one}, at(after))
        assert found is not None
        assert shown(found.at) == expected
